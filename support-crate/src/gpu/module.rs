//! Compiling, and looking kernels up.

use super::kernel::Loaded;
use super::{Gpu, Kernel};
use crate::cuda::{CudaGpu, CudaLibrary, compile_to_ptx};
use crate::error::{Error, Result};
use crate::launch::{Signature, Source, entry_points, signatures};
use crate::metal::MetalLibrary;
use crate::sim::{self, SimLibrary};

/// Compiled kernels, loaded on one GPU.
#[derive(Debug, Clone)]
pub struct Module {
    gpu: Gpu,
    library: Library,
    signatures: Vec<Signature>,
    names: Vec<String>,
}

#[derive(Debug, Clone)]
enum Library {
    Cuda(CudaLibrary),
    Metal(MetalLibrary),
    Simulated(SimLibrary),
}

impl Gpu {
    /// Compiles CUDA C (on an Apple GPU: Metal) and loads it. Text, or a [`Source`] with constants or from a file.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's log and the lines it means, [`Error::NoCompiler`] without NVRTC,
    /// [`Error::DriverTooOld`] when the driver cannot load what the compiler made, [`Error::Unsupported`] for an
    /// instruction that the simulator does not run.
    pub fn compile(&self, source: impl Into<Source>) -> Result<Module> {
        self.compile_source(&source.into())
    }

    /// Loads PTX that was made elsewhere, by nvcc or rustc (`cuModuleLoadData`).
    ///
    /// PTX tells each parameter's size, and its launches are checked against that. Where it does not say whether 64 bits are
    /// a number or an address (older compilers mark no addresses with `.ptr`), a launch takes a buffer there and no number;
    /// [`Kernel::with_declaration`] tells the two apart.
    ///
    /// # Errors
    /// [`Error::DriverTooOld`] when it is of a newer version than the driver knows, [`Error::Unsupported`] on an Apple
    /// GPU, [`Error::Driver`].
    pub fn load_ptx(&self, ptx: &str) -> Result<Module> {
        match self {
            Gpu::Cuda(gpu) => self.load_cuda(gpu, ptx, Vec::new()),
            Gpu::Simulated(_) => Ok(self.module(Library::Simulated(SimLibrary::load(ptx, None)?), ptx, Vec::new())),
            Gpu::Metal(_) => Err(Error::Unsupported {
                what: "an Apple GPU does not run PTX".to_string(),
                fix: "give `gpu.compile` a Metal kernel".to_string(),
            }),
        }
    }

    fn compile_source(&self, source: &Source) -> Result<Module> {
        match self {
            Gpu::Cuda(gpu) => {
                let ptx = compile_to_ptx(source, &Gpu::target(gpu)?)?;
                self.load_cuda(gpu, &ptx, signatures(&source.text))
            }
            Gpu::Metal(gpu) => {
                let library = gpu.compile(source)?;
                let names = library.names();
                Ok(Module { gpu: self.clone(), library: Library::Metal(library), signatures: Vec::new(), names })
            }
            Gpu::Simulated(_) => {
                let ptx = sim::compile_or_ship(source)?;
                let library = Library::Simulated(SimLibrary::load(&ptx, Some(source.clone()))?);
                Ok(self.module(library, &ptx, signatures(&source.text)))
            }
        }
    }

    fn load_cuda(&self, gpu: &CudaGpu, ptx: &str, declared: Vec<Signature>) -> Result<Module> {
        Ok(self.module(Library::Cuda(gpu.load(ptx)?), ptx, declared))
    }

    /// `declared` are the source's own declarations: names and types read best there. What a macro made is known from the
    /// PTX alone.
    fn module(&self, library: Library, ptx: &str, declared: Vec<Signature>) -> Module {
        let compiled = entry_points(ptx).into_iter().map(|entry| {
            let declared = declared.iter().find(|declared| declared.name == entry.name);
            entry.with_declaration(declared)
        });
        let signatures: Vec<Signature> = compiled.collect();
        let names = signatures.iter().map(|entry| entry.name.clone()).collect();
        Module { gpu: self.clone(), library, signatures, names }
    }
}

impl Module {
    /// The kernels in this module.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`] with the names that there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        if !self.names.iter().any(|known| known == name) {
            return Err(Error::NoSuchKernel { asked: name.to_string(), found: self.names.clone() });
        }
        let mut signature = self.signatures.iter().find(|signature| signature.name == name).cloned();
        let (loaded, max_threads_per_block) = match &self.library {
            Library::Cuda(library) => {
                let kernel = library.kernel(name)?;
                let most = kernel.max_threads_per_block()?;
                if let Some(layouts) = kernel.layouts()? {
                    signature = signature.map(|signature| signature.with_layouts(&layouts));
                }
                (Loaded::Cuda(kernel), most)
            }
            Library::Metal(library) => {
                let kernel = library.kernel(name)?;
                let most = kernel.max_threads_per_block();
                (Loaded::Metal(kernel), most)
            }
            Library::Simulated(library) => {
                let kernel = library.kernel(name, signature.as_ref());
                (Loaded::Simulated(kernel), self.gpu.limits().threads_per_block)
            }
        };
        Ok(Kernel { gpu: self.gpu.clone(), loaded, signature, max_threads_per_block })
    }
}
