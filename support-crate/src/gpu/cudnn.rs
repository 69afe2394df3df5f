//! NVIDIA's convolutions, to measure against, and to see what each algorithm asks for.

use super::buffer::Memory;
use super::{Buffer, Gpu};
use crate::cuda::{CudaCudnn, CudaMemory, CudnnPass, Described};
use crate::error::{Error, Result, bytes};
use crate::launch::Element;
use crate::sim::needs_hardware;

/// cuDNN on one GPU; it is loaded when it is there.
pub struct Cudnn {
    gpu: Gpu,
    cudnn: CudaCudnn,
}

impl std::fmt::Debug for Cudnn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cudnn on {}", self.gpu)
    }
}

/// What a search may use beside the arrays.
const WORKSPACE: usize = 1 << 30;

impl Cudnn {
    /// Opens it on the default stream.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library is not found (the message names the package), and on GPUs that are not
    /// NVIDIA's; [`Error::Driver`].
    pub fn new(gpu: &Gpu) -> Result<Cudnn> {
        let Gpu::Cuda(cuda) = gpu else {
            return Err(needs_hardware("there is no cuDNN", "run this on an NVIDIA GPU, or see the recorded run"));
        };
        Ok(Cudnn { gpu: gpu.clone(), cudnn: cuda.cudnn()? })
    }

    /// The library's version, such as 91400.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a library that does not tell.
    pub fn version(&self) -> Result<usize> {
        self.cudnn.version()
    }

    /// Runs every algorithm that the library has for a pass of this convolution, on arrays of its own, with a workspace of
    /// at most 1 GiB: time and workspace of each, fastest first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a convolution without output, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn algorithms(&self, convolution: &Convolution, pass: ConvPass) -> Result<CudnnAlgorithms> {
        let (described, lens) = described(convolution)?;
        let bytes = convolution.element.bytes();
        let random = |len: usize, seed: u64| match bytes {
            4 => Ok(self.gpu.to_device(&crate::cpu::random_f32(len, seed))?.memory),
            // Half of bf16's and fp16's bit patterns below 1: small numbers, never NaN.
            _ => {
                let bits: Vec<u16> =
                    crate::cpu::random_f32(len, seed).iter().map(|x| (x.to_bits() >> 16) as u16 & 0xBBFF).collect();
                Ok::<Memory, Error>(self.gpu.to_device(&bits)?.memory)
            }
        };
        let (mut x, mut w, mut y) = (random(lens[0], 1)?, random(lens[1], 2)?, random(lens[2], 3)?);
        let free = self.gpu.memory()?.free as usize;
        let mut workspace = self.gpu.alloc::<u8>(WORKSPACE.min(free / 2))?;
        let all = [cuda(&mut x), cuda(&mut w), cuda(&mut y)];
        let Gpu::Cuda(gpu) = &self.gpu else { unreachable!("opened on one") };
        gpu.outside_capture("a search for algorithms", "search first")?;
        let tried = self.cudnn.find(gpu, &described, cudnn_pass(pass), all, cuda(&mut workspace.memory))?;
        let list = tried.iter().map(|one| CudnnAlgorithm {
            number: one.algorithm,
            name: pass.algorithm(one.algorithm),
            ms: (one.status == 0).then_some(f64::from(one.ms)),
            workspace: one.workspace as u64,
            tensor_cores: matches!(one.math, 1 | 2),
            deterministic: one.deterministic == 1,
            problem: (one.status != 0).then(|| self.cudnn.name(one.status)),
        });
        Ok(CudnnAlgorithms { convolution: *convolution, pass, library: self.version()?, list: list.collect() })
    }

    /// Queues a pass with one algorithm: forward `to` = output of (input, filter); the input's gradient `to` of (filter,
    /// output's gradient); the filter's gradient `to` of (input, output's gradient).
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::DeviceMismatch`], [`Error::Driver`] for an algorithm that does not take this
    /// convolution or a workspace that is too small.
    pub fn run<T: Element>(
        &self,
        convolution: &Convolution,
        (pass, algorithm): (ConvPass, u32),
        (a, b, to): (&Buffer<T>, &Buffer<T>, &mut Buffer<T>),
        workspace: &mut Buffer<u8>,
    ) -> Result<()> {
        let (described, [x, w, y]) = described(convolution)?;
        let lens = match pass {
            ConvPass::Forward => [x, w, y],
            ConvPass::BackwardData => [w, y, x],
            ConvPass::BackwardFilter => [x, y, w],
        };
        for (at, (given, expected)) in [a.len(), b.len(), to.len()].into_iter().zip(lens).enumerate() {
            if given != expected || size_of::<T>() != convolution.element.bytes() {
                let what = format!("{}'s {} array of {}", pass.name(), ["first", "second", "third"][at], T::TYPE);
                return Err(Error::LengthMismatch { what, expected, given });
            }
        }
        for other in [&a.gpu, &b.gpu, &to.gpu, &workspace.gpu] {
            if !other.same_as(&self.gpu) {
                return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found: other.to_string() });
            }
        }
        match (&self.gpu, &a.memory, &b.memory, &mut to.memory, &mut workspace.memory) {
            (Gpu::Cuda(gpu), Memory::Cuda(a), Memory::Cuda(b), Memory::Cuda(to), Memory::Cuda(room)) => {
                self.cudnn.run(gpu, (&described, cudnn_pass(pass), algorithm), [a, b], to, room)
            }
            _ => unreachable!("checked before: all are on the one NVIDIA GPU"),
        }
    }
}

fn cuda(memory: &mut Memory) -> &mut CudaMemory {
    match memory {
        Memory::Cuda(memory) => memory,
        _ => unreachable!("allocated on an NVIDIA GPU"),
    }
}

fn cudnn_pass(pass: ConvPass) -> CudnnPass {
    match pass {
        ConvPass::Forward => CudnnPass::Forward,
        ConvPass::BackwardData => CudnnPass::Data,
        ConvPass::BackwardFilter => CudnnPass::Filter,
    }
}

/// As cuDNN is told of it, and the elements of input, filter and output.
fn described(convolution: &Convolution) -> Result<(Described, [usize; 3])> {
    let Convolution { batch, channels, side, outputs, kernel, padding, .. } = *convolution;
    let too_large = || Error::Invalid {
        what: format!("{convolution} has no output, or one of more than 2147483647 numbers"),
        fix: "give sides of at least the kernel's, and a smaller batch".to_string(),
    };
    let output = convolution.output_side().ok_or_else(too_large)?;
    let shapes = [[batch, channels, side, side], [outputs, channels, kernel, kernel], [batch, outputs, output, output]];
    let mut lens = [0; 3];
    let mut sizes = [[0_i32; 4]; 3];
    for (at, shape) in shapes.iter().enumerate() {
        let product = shape.iter().try_fold(1_usize, |product, &n| product.checked_mul(n));
        lens[at] = product.filter(|&n| n > 0 && i32::try_from(n).is_ok()).ok_or_else(too_large)?;
        sizes[at] = shape.map(|n| n as i32);
    }
    let (element, math) = convolution.element.cudnn();
    let [input, filter, output] = sizes;
    let layout = u32::from(convolution.channels_last);
    Ok((Described { input, filter, output, padding: padding as i32, layout, element, math }, lens))
}

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

impl std::fmt::Display for Convolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
pub struct CudnnAlgorithm {
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
pub struct CudnnAlgorithms {
    /// The convolution.
    pub convolution: Convolution,
    /// The pass.
    pub pass: ConvPass,
    /// The version of cuDNN, such as 91400.
    pub library: usize,
    /// Fastest first; those that did not run last.
    pub list: Vec<CudnnAlgorithm>,
}

impl std::fmt::Display for CudnnAlgorithms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
    fn a_simulated_gpu_has_no_cudnn() {
        assert!(matches!(Cudnn::new(&Gpu::simulated().unwrap()), Err(Error::Unsupported { .. })));
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn every_algorithm_gives_what_the_definition_gives() {
        let gpu = Gpu::open_index(0).unwrap();
        let cudnn = match Cudnn::new(&gpu) {
            Ok(cudnn) => cudnn,
            Err(error) => return eprintln!("skipped: {}", error.to_string().lines().next().unwrap_or_default()),
        };
        let convolution =
            Convolution { batch: 2, channels: 4, side: 8, outputs: 4, kernel: 3, ..Convolution::SECOND_OF_CNN };
        let convolution = Convolution { element: ConvElement::F32, ..convolution };
        let (x, w) = (crate::cpu::random_f32(2 * 4 * 64, 1), crate::cpu::random_f32(4 * 4 * 9, 2));
        let (on_x, on_w) = (gpu.to_device(&x).unwrap(), gpu.to_device(&w).unwrap());
        let found = cudnn.algorithms(&convolution, ConvPass::Forward).unwrap();
        println!("{found}");
        for one in found.list.iter().filter(|one| one.ms.is_some()) {
            let mut y = gpu.poison::<f32>(2 * 4 * 36).unwrap();
            let mut room = gpu.alloc(one.workspace as usize).unwrap();
            cudnn.run(&convolution, (ConvPass::Forward, one.number), (&on_x, &on_w, &mut y), &mut room).unwrap();
            for (at, given) in y.to_host().unwrap().into_iter().enumerate() {
                let (image, out, row, column) = (at / 144, at / 36 % 4, at / 6 % 6, at % 6);
                let exact: f32 = (0..36)
                    .map(|i| {
                        let (channel, tap) = (i / 9, i % 9);
                        w[(out * 4 + channel) * 9 + tap]
                            * x[((image * 4 + channel) * 8 + row + tap / 3) * 8 + column + tap % 3]
                    })
                    .sum();
                assert!((given - exact).abs() < 1e-4, "{}, {at}: {given}, not {exact}", one.name);
            }
        }
    }

    #[test]
    fn a_convolution_knows_its_output_and_its_work() {
        let second = Convolution::SECOND_OF_CNN;
        assert_eq!((second.output_side(), second.operations()), (Some(24), 2_717_908_992.0));
        assert_eq!(Convolution { side: 2, ..second }.output_side(), None);
        let one = |ms, problem| CudnnAlgorithm {
            number: 1,
            name: ConvPass::Forward.algorithm(1),
            ms,
            workspace: 1 << 20,
            tensor_cores: true,
            deterministic: true,
            problem,
        };
        let list = vec![one(Some(0.1), None), one(None, Some("NOT_SUPPORTED".to_string()))];
        let text = CudnnAlgorithms { convolution: second, pass: ConvPass::Forward, library: 91400, list }.to_string();
        assert!(text.contains("27.18") && text.contains("1.00 MiB") && text.contains("NOT_SUPPORTED"), "{text}");
        assert_eq!(ConvPass::BackwardFilter.algorithm(9), "number 9");
    }
}
