//! Convolutions, and what each algorithm for one takes: plain data.

use crate::error::bytes;
use std::fmt;

/// What a convolution's numbers are, and what may be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvElement {
    /// f32, multiplied as f32.
    F32,
    /// f32, rounded to TF32 where the tensor cores multiply.
    Tf32,
    /// bf16, summed in f32.
    Bf16,
    /// fp16, summed in f32.
    F16,
}

impl ConvElement {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            ConvElement::F32 | ConvElement::Tf32 => 4,
            ConvElement::Bf16 | ConvElement::F16 => 2,
        }
    }

    /// `f32`, `tf32`, `bf16`, `f16`.
    pub fn name(self) -> &'static str {
        match self {
            ConvElement::F32 => "f32",
            ConvElement::Tf32 => "tf32",
            ConvElement::Bf16 => "bf16",
            ConvElement::F16 => "f16",
        }
    }

    /// cuDNN's numbers for the element and for what may be done.
    pub fn cudnn(self) -> (u32, u32) {
        match self {
            ConvElement::F32 => (0, 3),
            ConvElement::Tf32 => (0, 0),
            ConvElement::Bf16 => (9, 1),
            ConvElement::F16 => (2, 1),
        }
    }
}

/// A square convolution of stride 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Its side, in pixels.
    pub side: usize,
    /// Channels of the result.
    pub outputs: usize,
    /// The filter's side.
    pub kernel: usize,
    /// Zeros around the image.
    pub padding: usize,
    /// Its numbers.
    pub element: ConvElement,
    /// Whether a pixel's channels lie side by side (NHWC); else an image's channels do (NCHW).
    pub channels_last: bool,
}

impl Convolution {
    /// The second convolution of the course's CNN at batch 128.
    pub const SECOND_OF_CNN: Convolution = Convolution {
        batch: 128,
        channels: 32,
        side: 26,
        outputs: 64,
        kernel: 3,
        padding: 0,
        element: ConvElement::Tf32,
        channels_last: false,
    };

    /// The result's side; `None` where the filter is larger than the image.
    pub fn output_side(&self) -> Option<usize> {
        (self.side + 2 * self.padding + 1).checked_sub(self.kernel).filter(|&side| side > 0)
    }

    /// Multiplications and additions of a pass, by the definition.
    pub fn operations(&self) -> f64 {
        let output = self.output_side().unwrap_or(0);
        2.0 * [self.batch, output, output, self.outputs, self.channels, self.kernel, self.kernel]
            .iter()
            .map(|&n| n as f64)
            .product::<f64>()
    }
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Convolution { batch, channels, side, outputs, kernel, element, .. } = self;
        let layout = if self.channels_last { "NHWC" } else { "NCHW" };
        write!(
            f,
            "{batch} images of {side} × {side}, {channels} → {outputs} channels, {kernel} × {kernel}, {} {layout}",
            element.name()
        )
    }
}

/// Which of a convolution's three products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvPass {
    /// The output.
    Forward,
    /// The input's gradient.
    BackwardData,
    /// The filter's gradient.
    BackwardFilter,
}

impl ConvPass {
    /// All three.
    pub const ALL: [ConvPass; 3] = [ConvPass::Forward, ConvPass::BackwardData, ConvPass::BackwardFilter];

    /// `forward`, `backward data`, `backward filter`.
    pub fn name(self) -> &'static str {
        match self {
            ConvPass::Forward => "forward",
            ConvPass::BackwardData => "backward data",
            ConvPass::BackwardFilter => "backward filter",
        }
    }

    /// cuDNN's name for an algorithm of this pass.
    pub fn algorithm(self, number: u32) -> String {
        let names: &[&str] = match self {
            ConvPass::Forward => &[
                "implicit GEMM",
                "implicit GEMM, indices computed before",
                "GEMM",
                "direct",
                "FFT",
                "FFT, tiled",
                "Winograd",
                "Winograd, not fused",
            ],
            ConvPass::BackwardData => {
                &["algorithm 0", "algorithm 1", "FFT", "FFT, tiled", "Winograd", "Winograd, not fused"]
            }
            ConvPass::BackwardFilter => {
                &["algorithm 0", "algorithm 1", "FFT", "algorithm 3", "Winograd", "Winograd, not fused", "FFT, tiled"]
            }
        };
        names.get(number as usize).map_or_else(|| format!("number {number}"), ToString::to_string)
    }
}

/// One algorithm for one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvAlgorithm {
    /// cuDNN's number for it.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Milliseconds of one run; `None` where it does not take this convolution.
    pub ms: Option<f64>,
    /// Bytes that it needs beside the three arrays.
    pub workspace: u64,
    /// Whether it used tensor cores.
    pub tensor_cores: bool,
    /// Whether it gives the same bits each time.
    pub deterministic: bool,
    /// Why it did not run.
    pub problem: Option<String>,
}

/// All algorithms for one pass of one convolution.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvAlgorithms {
    /// The convolution.
    pub convolution: Convolution,
    /// The pass.
    pub pass: ConvPass,
    /// The version of cuDNN, such as 91400.
    pub library: usize,
    /// Fastest first; those that did not run last.
    pub list: Vec<ConvAlgorithm>,
}

impl fmt::Display for ConvAlgorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} (cuDNN {})", self.pass.name(), self.convolution, self.library)?;
        writeln!(f, "{:40} {:>9} {:>9} {:>10}  tensor cores", "algorithm", "µs", "TFLOP/s", "workspace")?;
        for one in &self.list {
            let Some(ms) = one.ms else {
                writeln!(f, "{:40} {}", one.name, one.problem.as_deref().unwrap_or("did not run"))?;
                continue;
            };
            let rate = self.convolution.operations() / ms / 1e9;
            let cores = if one.tensor_cores { "yes" } else { "no" };
            writeln!(f, "{:40} {:9.1} {:9.2} {:>10}  {cores}", one.name, ms * 1e3, rate, bytes(one.workspace))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_knows_its_output_and_its_work() {
        let second = Convolution::SECOND_OF_CNN;
        assert_eq!((second.output_side(), second.operations()), (Some(24), 2_717_908_992.0));
        assert_eq!(Convolution { side: 2, ..second }.output_side(), None);
        let one = |ms, problem| ConvAlgorithm {
            number: 1,
            name: ConvPass::Forward.algorithm(1),
            ms,
            workspace: 1 << 20,
            tensor_cores: true,
            deterministic: true,
            problem,
        };
        let list = vec![one(Some(0.1), None), one(None, Some("NOT_SUPPORTED".to_string()))];
        let text = ConvAlgorithms { convolution: second, pass: ConvPass::Forward, library: 91400, list }.to_string();
        assert!(text.contains("27.18") && text.contains("1.00 MiB") && text.contains("NOT_SUPPORTED"), "{text}");
        assert_eq!(ConvPass::BackwardFilter.algorithm(9), "number 9");
    }
}
