//! The kernels that are timed, each with the launch and the data it needs.

use warpsim::{Arg, Device, Launch, PtxModule};

/// What is looked at while a kernel runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Neither counters nor checks; bounds and alignment always are checked.
    Off,
    /// Counters alone.
    Counters,
    /// Counters and all checks.
    Checks,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Counters, Self::Checks];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        ["off", "counters", "checks"][self as usize]
    }

    /// Sets a device so.
    pub fn set(self, device: &mut Device) {
        device.set_counters(self != Self::Off);
        device.set_checks(self == Self::Checks);
    }
}

/// A kernel of `tests/ptx`.
#[derive(Clone, Copy)]
pub enum Case {
    /// Tiles of 16 × 16 in shared memory; side.
    Matmul(u32),
    /// Elements.
    VectorAdd(u32),
    /// A sum of integers: a tree in shared memory, one atomic a block; elements.
    Reduce(u32),
}

/// A case on a device.
pub struct Ready {
    pub module: PtxModule,
    pub kernel: &'static str,
    pub launch: Launch,
    pub args: Vec<Arg>,
}

impl Case {
    /// Its name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Matmul(n) => format!("matmul, tiled 16 × 16, {n}³"),
            Self::VectorAdd(n) => format!("vector add, {n}"),
            Self::Reduce(n) => format!("sum in shared memory, {n}"),
        }
    }

    /// Additions or fused multiply-adds that the algorithm needs.
    pub fn operations(self) -> (f64, &'static str) {
        match self {
            Self::Matmul(n) => (f64::from(n).powi(3), "fma"),
            Self::VectorAdd(n) | Self::Reduce(n) => (f64::from(n), "add"),
        }
    }

    /// Bytes of each buffer.
    fn buffers(self) -> Vec<usize> {
        match self {
            Self::Matmul(n) => vec![(n * n * 4) as usize; 3],
            Self::VectorAdd(n) => vec![n as usize * 4; 3],
            Self::Reduce(n) => vec![n as usize * 4, 4],
        }
    }

    /// Bytes of all buffers.
    pub fn bytes(self) -> usize {
        self.buffers().iter().sum()
    }

    /// A case by the first word of its name, as the command line says it.
    pub fn named(word: &str, n: u32) -> Option<Self> {
        match word {
            "matmul" => Some(Self::Matmul(n)),
            "vector_add" => Some(Self::VectorAdd(n)),
            "sum" => Some(Self::Reduce(n)),
            _ => None,
        }
    }

    /// Buffers filled and the module loaded; `folder` is the crate's.
    pub fn ready(self, device: &mut Device, folder: &str) -> Ready {
        let (file, kernel) = match self {
            Self::Matmul(_) => ("matmul_tiled", "matmul"),
            Self::VectorAdd(_) => ("vector_add", "vector_add"),
            Self::Reduce(_) => ("reduce", "sum_int"),
        };
        let path = format!("{folder}/tests/ptx/{file}.ptx");
        let text = std::fs::read_to_string(path).expect("the fixture is there");
        let module = PtxModule::load(&text).expect("it loads");
        // In pieces: no second copy of a large buffer.
        let piece: Vec<u8> = (0..1u32 << 18).flat_map(|i| ((i % 1000) as f32 / 1000.0).to_le_bytes()).collect();
        let mut args = Vec::new();
        for bytes in self.buffers() {
            let address = device.alloc(bytes).expect("memory");
            for at in (0..bytes).step_by(piece.len()) {
                let part = &piece[..piece.len().min(bytes - at)];
                device.write(address + at as u64, part).expect("inside");
            }
            args.push(Arg::Pointer(address));
        }
        let (launch, n) = match self {
            Self::Matmul(n) => (Launch { grid: [n / 16, n / 16, 1], block: [16, 16, 1], shared_bytes: 0 }, n),
            Self::VectorAdd(n) => (Launch::linear(n / 256, 256), n),
            Self::Reduce(n) => (Launch { shared_bytes: 1024, ..Launch::linear(n / 256, 256) }, n),
        };
        args.push(Arg::I32(n as i32));
        Ready { module, kernel, launch, args }
    }
}
