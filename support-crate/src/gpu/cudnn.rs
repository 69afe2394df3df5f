//! NVIDIA's convolutions, to measure against, and to see what each algorithm asks for.

use super::buffer::Memory;
use super::{Buffer, Gpu};
use crate::cuda::{CudaCudnn, CudaMemory, CudnnPass, Described};
use crate::error::{Error, Result};
use crate::launch::Element;
use crate::measurement::{ConvAlgorithm, ConvAlgorithms, ConvPass, Convolution};
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
    pub fn algorithms(&self, convolution: &Convolution, pass: ConvPass) -> Result<ConvAlgorithms> {
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
        let list = tried.iter().map(|one| ConvAlgorithm {
            number: one.algorithm,
            name: pass.algorithm(one.algorithm),
            ms: (one.status == 0).then_some(f64::from(one.ms)),
            workspace: one.workspace as u64,
            tensor_cores: matches!(one.math, 1 | 2),
            deterministic: one.deterministic == 1,
            problem: (one.status != 0).then(|| self.cudnn.name(one.status)),
        });
        Ok(ConvAlgorithms { convolution: *convolution, pass, library: self.version()?, list: list.collect() })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::ConvElement;

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
}
