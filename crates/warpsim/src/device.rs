//! The device: memory that stays, launches that use it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::block_order::BlockOrder;
use crate::error::{Result, SimulatorError};
use crate::exec::{self, Machine};
use crate::launch::{Arg, Attributes, Launch, MULTIPROCESSORS, check_cluster, check_shape, pack, resident};
use crate::memory::{DeviceMemory, window};
use crate::module::{Inner, PtxModule};
use crate::ptx::ast::{Init, Variable};
use crate::ptx::types::Space;
use crate::report::Report;
use crate::watch::WatchedWarp;

/// A GPU that is simulated on this machine's cores.
#[derive(Debug)]
pub struct Device {
    memory: DeviceMemory,
    /// Addresses of the variables of each module that was launched from; the module is kept, so its address is its own.
    modules: HashMap<usize, (Arc<Inner>, Vec<u64>)>,
    cores: usize,
    step_budget: u64,
    checks: bool,
    counters: bool,
    watch: Option<WatchedWarp>,
    order: BlockOrder,
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

impl Device {
    /// A device that uses all cores of the machine.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = DeviceMemory::default();
        Self {
            memory,
            modules: HashMap::new(),
            cores,
            step_budget: 1 << 28,
            checks: true,
            counters: true,
            watch: None,
            order: BlockOrder::Forward,
        }
    }

    /// Uses this many cores at most; results do not depend on it.
    pub fn set_cores(&mut self, cores: usize) {
        self.cores = cores.max(1);
    }

    /// Warp instructions that a block may take before it is taken for an endless loop; 2^28 at first.
    pub fn set_step_budget(&mut self, steps: u64) {
        self.step_budget = steps;
    }

    /// Whether data races, in shared and in global memory, and reads of what nobody wrote are looked for, as they are at
    /// first. Bounds and alignment always are.
    ///
    /// With checks, a launch whose threads share global memory runs again, block after block, from the same memory: then
    /// its results, too, are those of blocks in order. A write that leaves the value as it is is no race.
    pub fn set_checks(&mut self, checks: bool) {
        self.checks = checks;
    }

    /// The order in which the blocks of launches start; [`BlockOrder::Forward`] at first. CUDA promises none: a kernel that
    /// is right must be right in each.
    ///
    /// Outside of cooperative launches no two blocks need run at the same time: a block that waits for one that has not
    /// started is a finding ([`Kind::BlockOrder`](crate::Kind::BlockOrder)).
    pub fn set_block_order(&mut self, order: BlockOrder) {
        self.order = order;
    }

    /// Keeps the accesses of one warp in [`Report::accesses`]; `None`, as at first, keeps none. A launch without that
    /// block or warp gives none. Only the watched warp runs slower.
    pub fn set_watch(&mut self, watch: Option<WatchedWarp>) {
        self.watch = watch;
    }

    /// Whether launches are counted, as they are at first. Without, all counts of their reports are 0, also those of a
    /// watched warp's accesses; findings stay.
    pub fn set_counters(&mut self, counters: bool) {
        self.counters = counters;
    }

    /// Allocates bytes; gives the address. They are zero, but reading them before something is written is a finding.
    ///
    /// # Errors
    /// The machine has no memory for it.
    pub fn alloc(&mut self, bytes: usize) -> Result<u64> {
        self.memory
            .alloc(bytes as u64, None)
            .ok_or_else(|| SimulatorError::Call(format!("no memory for {bytes} bytes\nnext: use smaller buffers")))
    }

    /// Frees an allocation by its address.
    ///
    /// # Errors
    /// No allocation starts there.
    pub fn free(&mut self, address: u64) -> Result<()> {
        let freed = self.memory.free(address);
        freed
            .then_some(())
            .ok_or_else(|| SimulatorError::Call(format!("no allocation starts at {address:#x}\nnext: free it once")))
    }

    /// Copies bytes to the device.
    ///
    /// # Errors
    /// The range is not inside one allocation.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<()> {
        let (number, at) = self.range(address, data.len())?;
        self.memory.write(number, at, data);
        Ok(())
    }

    /// Fills a range with one byte as if earlier owners had left it there: reading it is a finding again.
    ///
    /// # Errors
    /// The range is not inside one allocation.
    pub fn poison(&mut self, address: u64, len: usize, byte: u8) -> Result<()> {
        let (number, at) = self.range(address, len)?;
        self.memory.poison(number, at, len, byte);
        Ok(())
    }

    /// Copies bytes from the device.
    ///
    /// # Errors
    /// The range is not inside one allocation.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<()> {
        let (number, at) = self.range(address, out.len())?;
        if let Some(allocation) = self.memory.get(number) {
            allocation.bytes.copy_to(at, out);
        }
        Ok(())
    }

    fn range(&self, address: u64, len: usize) -> Result<(usize, usize)> {
        self.memory.range(address, len as u64).ok_or_else(|| {
            SimulatorError::Call(format!(
                "{len} bytes at {address:#x} are not inside one allocation\nnext: check the size"
            ))
        })
    }

    /// Runs a kernel to its end. Mistakes of the kernel are findings of the report.
    ///
    /// # Errors
    /// No such kernel, arguments that do not fit its parameters, a shape over the limits.
    pub fn launch(&mut self, module: &PtxModule, kernel: &str, launch: Launch, args: &[Arg]) -> Result<Report> {
        self.launch_with(module, kernel, launch, Attributes::NONE, args)
    }

    /// Runs a kernel whose blocks may wait for each other: all of them run at the same time, as CUDA's cooperative launches
    /// promise.
    ///
    /// # Errors
    /// As [`Device::launch`]; more blocks than [`Device::blocks_at_a_time`].
    pub fn launch_cooperative(
        &mut self,
        module: &PtxModule,
        kernel: &str,
        launch: Launch,
        args: &[Arg],
    ) -> Result<Report> {
        self.launch_with(module, kernel, launch, Attributes { cooperative: true, ..Attributes::NONE }, args)
    }

    /// Runs a kernel in clusters of blocks, cooperatively, or both. A kernel that is compiled for clusters
    /// (`__cluster_dims__`) has them in [`Device::launch`], too.
    ///
    /// # Errors
    /// As [`Device::launch_cooperative`]; a grid without whole clusters, more than 8 blocks a cluster.
    pub fn launch_with(
        &mut self,
        module: &PtxModule,
        kernel: &str,
        launch: Launch,
        attributes: Attributes,
        args: &[Arg],
    ) -> Result<Report> {
        let fit = self.blocks_at_a_time(module, kernel, launch)?;
        let blocks: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
        if attributes.cooperative && blocks > u64::from(fit) {
            return Err(SimulatorError::Call(format!(
                "a cooperative launch of {blocks} blocks, and {fit} of `{kernel}` run at a time on the \
                 {MULTIPROCESSORS} multiprocessors of the simulated GPU\nnext: launch at most {fit} blocks, and let each do more"
            )));
        }
        self.run(module, kernel, launch, args, attributes)
    }

    /// How many blocks of a launch run at the same time, whatever its grid: [`MULTIPROCESSORS`] times what threads and
    /// shared memory allow on an H100. Registers, which the driver's compiler gives out, may allow fewer there.
    ///
    /// # Errors
    /// No such kernel, a shape over the limits.
    pub fn blocks_at_a_time(&self, module: &PtxModule, kernel: &str, launch: Launch) -> Result<u32> {
        let kernel = module.kernel(kernel)?;
        check_shape(kernel, &launch).map(|shared| resident(&launch, shared))
    }

    fn run(
        &mut self,
        module: &PtxModule,
        kernel: &str,
        launch: Launch,
        args: &[Arg],
        Attributes { cluster, cooperative }: Attributes,
    ) -> Result<Report> {
        let kernel = module.kernel(kernel)?;
        let shared_bytes = check_shape(kernel, &launch)?;
        let cluster = check_cluster(kernel, &launch, cluster)?;
        let params = pack(kernel, args)?;
        let variables = self.variables(&module.inner)?;
        let symbol = |s: &crate::decode::Symbol| match s.space {
            Space::Global | Space::Const => variables[s.at as usize],
            _ => s.at,
        };
        let machine = Machine {
            kernel,
            memory: &self.memory,
            params,
            symbols: kernel.layout.symbols.iter().map(symbol).collect(),
            grid: launch.grid,
            block: launch.block,
            cluster,
            order: self.order,
            cooperative,
            shared_bytes,
            dynamic_bytes: launch.shared_bytes.into(),
            step_budget: self.step_budget,
            checks: self.checks,
            counters: self.counters,
            advance: exec::Advance::choose(self.counters),
            files: &module.inner.files,
            watch: self.watch,
        };
        let outcome = exec::launch(&machine, self.cores)
            .ok_or_else(|| SimulatorError::Call("no memory for the launch and its checks\nnext: launch smaller blocks, use smaller buffers, or leave the checks out".into()))?;
        Ok(Report::new(kernel, &module.inner.files, outcome))
    }

    /// Addresses of a module's variables, which live as long as the device.
    fn variables(&mut self, inner: &Arc<Inner>) -> Result<Vec<u64>> {
        let key = Arc::as_ptr(inner) as usize;
        if let Some((_, addresses)) = self.modules.get(&key) {
            return Ok(addresses.clone());
        }
        let mut addresses = Vec::new();
        for variable in &inner.variables {
            let address = self.memory.alloc(variable.bytes, Some(variable.name.clone()));
            addresses.push(address.ok_or_else(|| {
                SimulatorError::Call("no memory for the module's variables\nnext: make them smaller".into())
            })?);
        }
        for (variable, &address) in inner.variables.iter().zip(&addresses) {
            for (at, init) in variable.init.iter().enumerate() {
                let bits = match init {
                    Init::Bits(bits) => *bits,
                    Init::Address(name, ..) if inner.functions.contains(name) => {
                        inner.functions.iter().position(|f| f == name).map_or(0, crate::decode::pointer::address)
                    }
                    Init::Address(name, offset, generic) => {
                        let found = inner.variables.iter().position(|v| v.name == *name);
                        let index = found.ok_or_else(|| unknown(variable, name))?;
                        let space = inner.variables[index].space;
                        let base = addresses[index].wrapping_add_signed(*offset);
                        if *generic { base + window(space) } else { base }
                    }
                };
                let size = variable.ty.bytes() as usize;
                self.write(address + (at * size) as u64, &bits.to_le_bytes()[..size])?;
            }
        }
        self.modules.insert(key, (Arc::clone(inner), addresses.clone()));
        Ok(addresses)
    }
}

fn unknown(variable: &Variable, name: &str) -> SimulatorError {
    SimulatorError::Call(format!(
        "`{}` starts as the address of `{name}`, which is no variable\nnext: compile again",
        variable.name
    ))
}
