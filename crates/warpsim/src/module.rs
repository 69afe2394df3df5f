//! A loaded module: kernels ready to run.

use std::sync::Arc;

use crate::decode::{self, Kernel};
use crate::error::{Result, SimulatorError, SourceLine};
use crate::ptx::ast::Variable;
use crate::ptx::parse;

/// PTX, parsed and decoded. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PtxModule {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub kernels: Vec<Kernel>,
    pub variables: Vec<Variable>,
    /// Names of functions, by number.
    pub functions: Vec<String>,
    pub files: Vec<(u32, String)>,
}

/// What a kernel is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KernelInfo {
    /// Its name in the PTX.
    pub name: String,
    /// Names and sizes in bytes of its parameters.
    pub parameters: Vec<(String, u64)>,
    /// PTX instructions.
    pub instructions: usize,
    /// Bytes of static shared memory.
    pub shared_bytes: u64,
    /// Bytes of local memory a thread.
    pub local_bytes: u64,
    /// Whether its blocks run one after the other, because their order can show in the result.
    pub ordered: bool,
    /// Blocks of a cluster along x, y, z, where the kernel says so itself (`__cluster_dims__`).
    pub cluster: Option<[u32; 3]>,
}

/// What the simulator makes of each kernel of a PTX file, good or not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Survey {
    /// Kernels that can run.
    pub kernels: Vec<KernelInfo>,
    /// Kernels that cannot, each with every reason.
    pub refused: Vec<(String, Vec<SimulatorError>)>,
}

impl PtxModule {
    /// Loads PTX as NVRTC prints it.
    ///
    /// # Errors
    /// Text that is not PTX, or the first instruction that the simulator does not know, with its lines.
    pub fn load(ptx: &str) -> Result<Self> {
        let (inner, mut refused) = read(ptx)?;
        match refused.first_mut().and_then(|(_, errors)| errors.drain(..).next()) {
            Some(error) => Err(error),
            None => Ok(Self { inner: Arc::new(inner) }),
        }
    }

    /// The kernels, in the order of the PTX.
    pub fn kernels(&self) -> Vec<KernelInfo> {
        self.inner.kernels.iter().map(info).collect()
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<&Kernel> {
        self.inner.kernels.iter().find(|k| k.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.inner.kernels.iter().map(|k| k.name.as_str()).collect();
            let next = match names.as_slice() {
                [] => "it has none: mark one `extern \"C\" __global__`".to_owned(),
                names => format!("name one of: {}", names.join(", ")),
            };
            SimulatorError::Call(format!("there is no kernel `{name}`\nnext: {next}"))
        })
    }
}

/// Looks at a PTX file without asking that all of it can run.
///
/// # Errors
/// Text that is not PTX.
pub fn survey(ptx: &str) -> Result<Survey> {
    let (inner, refused) = read(ptx)?;
    Ok(Survey { kernels: inner.kernels.iter().map(info).collect(), refused })
}

type Refused = Vec<(String, Vec<SimulatorError>)>;

fn read(ptx: &str) -> Result<(Inner, Refused)> {
    let tree = parse(ptx)?;
    let (mut kernels, mut refused) = (Vec::new(), Vec::new());
    for function in tree.functions.iter().filter(|f| f.entry) {
        match decode::kernel(&tree, function) {
            Ok(kernel) => kernels.push(kernel),
            Err(errors) => refused.push((function.name.clone(), errors)),
        }
    }
    let functions = tree.functions.into_iter().map(|f| f.name).collect();
    Ok((Inner { kernels, variables: tree.variables, functions, files: tree.files }, refused))
}

fn info(kernel: &Kernel) -> KernelInfo {
    let layout = &kernel.layout;
    let symbol = |&at: &u32| (layout.symbols[at as usize].name.clone(), layout.symbols[at as usize].bytes);
    KernelInfo {
        name: kernel.name.clone(),
        parameters: layout.params.iter().map(symbol).collect(),
        // The `ret` that was added at the end is none of the PTX.
        instructions: kernel.code.len() - 1,
        shared_bytes: layout.shared_bytes,
        local_bytes: layout.local_bytes,
        ordered: kernel.ordered,
        cluster: kernel.cluster,
    }
}

/// Source line of a `.loc`.
pub(crate) fn source_line(files: &[(u32, String)], (file, line): (u32, u32)) -> Option<SourceLine> {
    let name = files.iter().find(|f| f.0 == file)?;
    (line > 0).then(|| SourceLine { file: name.1.clone(), line })
}
