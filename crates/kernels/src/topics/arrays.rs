//! The arrays of a topic, on the host and in device memory: all rungs work on the same ones.

use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};
use std::fmt;

/// Numbers on the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Host {
    /// f32.
    F32(Vec<f32>),
    /// bf16, as bits.
    Bf16(Vec<u16>),
    /// Positions in another array.
    Index(Vec<i32>),
}

/// Numbers in device memory.
pub enum Array {
    /// f32.
    F32(Buffer<f32>),
    /// bf16, as bits.
    Bf16(Buffer<u16>),
    /// Positions in another array.
    Index(Buffer<i32>),
}

/// An array that a rung writes: what it holds, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// So many f32.
    F32(usize),
    /// So many bf16.
    Bf16(usize),
}

impl Host {
    /// Its bytes, as they lie in memory.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Host::F32(numbers) => gpulab::launch::as_bytes(numbers),
            Host::Bf16(numbers) => gpulab::launch::as_bytes(numbers),
            Host::Index(numbers) => gpulab::launch::as_bytes(numbers),
        }
    }

    /// What it holds: `f32`, `bf16` or `i32`.
    pub fn dtype(&self) -> &'static str {
        match self {
            Host::F32(_) => "f32",
            Host::Bf16(_) => "bf16",
            Host::Index(_) => "i32",
        }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            Host::F32(numbers) => numbers.len(),
            Host::Bf16(numbers) => numbers.len(),
            Host::Index(numbers) => numbers.len(),
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number `at`, exactly.
    pub fn get(&self, at: usize) -> f64 {
        match self {
            Host::F32(numbers) => f64::from(numbers[at]),
            Host::Bf16(numbers) => f64::from(cpu::f32_from_bf16(numbers[at])),
            Host::Index(numbers) => f64::from(numbers[at]),
        }
    }

    /// Numbers `from` to `from + count`, exactly.
    pub fn part(&self, from: usize, count: usize) -> Vec<f64> {
        (from..from + count).map(|at| self.get(at)).collect()
    }
}

impl Array {
    /// A copy in device memory.
    ///
    /// # Errors
    /// As [`Gpu::to_device`].
    pub fn new(gpu: &Gpu, host: &Host) -> Result<Array> {
        Ok(match host {
            Host::F32(numbers) => Array::F32(gpu.to_device(numbers)?),
            Host::Bf16(numbers) => Array::Bf16(gpu.to_device(numbers)?),
            Host::Index(numbers) => Array::Index(gpu.to_device(numbers)?),
        })
    }

    /// Poisoned: all bits set, so that a number that no kernel writes is NaN.
    ///
    /// # Errors
    /// As [`Gpu::poison`].
    pub fn poisoned(gpu: &Gpu, room: Room) -> Result<Array> {
        Ok(match room {
            Room::F32(len) => Array::F32(gpu.poison(len)?),
            Room::Bf16(len) => Array::Bf16(gpu.poison(len)?),
        })
    }

    /// Poisons it anew.
    ///
    /// # Errors
    /// As [`Buffer::fill_bytes`].
    pub fn poison(&mut self) -> Result<()> {
        match self {
            Array::F32(buffer) => buffer.fill_bytes(0xFF),
            Array::Bf16(buffer) => buffer.fill_bytes(0xFF),
            Array::Index(buffer) => buffer.fill_bytes(0xFF),
        }
    }

    /// Room for as much, poisoned.
    ///
    /// # Errors
    /// As [`Gpu::poison`].
    pub fn like(gpu: &Gpu, other: &Array) -> Result<Array> {
        Ok(match other {
            Array::F32(buffer) => Array::F32(gpu.poison(buffer.len())?),
            Array::Bf16(buffer) => Array::Bf16(gpu.poison(buffer.len())?),
            Array::Index(buffer) => Array::Index(gpu.poison(buffer.len())?),
        })
    }

    /// Copies another one of the same kind and length, in device memory.
    ///
    /// # Errors
    /// As [`Buffer::copy_from_buffer`]; [`Error::Invalid`] for another kind.
    pub fn copy_from(&mut self, other: &Array) -> Result<()> {
        match (self, other) {
            (Array::F32(to), Array::F32(from)) => to.copy_from_buffer(from),
            (Array::Bf16(to), Array::Bf16(from)) => to.copy_from_buffer(from),
            (Array::Index(to), Array::Index(from)) => to.copy_from_buffer(from),
            (to, _) => Err(other.other(&format!("the kind of {to:?}"))),
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Array::F32(buffer) => buffer.bytes(),
            Array::Bf16(buffer) => buffer.bytes(),
            Array::Index(buffer) => buffer.bytes(),
        }
    }

    /// A copy on the host.
    ///
    /// # Errors
    /// As [`Buffer::to_host`].
    pub fn to_host(&self) -> Result<Host> {
        Ok(match self {
            Array::F32(buffer) => Host::F32(buffer.to_host()?),
            Array::Bf16(buffer) => Host::Bf16(buffer.to_host()?),
            Array::Index(buffer) => Host::Index(buffer.to_host()?),
        })
    }

    /// Its f32.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it holds something else; so do its siblings.
    pub fn f32(&self) -> Result<&Buffer<f32>> {
        if let Array::F32(buffer) = self { Ok(buffer) } else { Err(self.other("f32")) }
    }

    /// Its f32, to be written.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn f32_mut(&mut self) -> Result<&mut Buffer<f32>> {
        if let Array::F32(buffer) = self { Ok(buffer) } else { Err(self.other("f32")) }
    }

    /// Its bf16.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn bf16(&self) -> Result<&Buffer<u16>> {
        if let Array::Bf16(buffer) = self { Ok(buffer) } else { Err(self.other("bf16")) }
    }

    /// Its bf16, to be written.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn bf16_mut(&mut self) -> Result<&mut Buffer<u16>> {
        if let Array::Bf16(buffer) = self { Ok(buffer) } else { Err(self.other("bf16")) }
    }

    /// Its indices.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn index(&self) -> Result<&Buffer<i32>> {
        if let Array::Index(buffer) = self { Ok(buffer) } else { Err(self.other("indices")) }
    }

    fn other(&self, wanted: &str) -> Error {
        Error::Invalid {
            what: format!("an array of {wanted} is needed here, and this is {self:?}"),
            fix: "look at the topic's `inputs` and `room`: they give the arrays in the order of `call`".to_string(),
        }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Array::F32(buffer) => write!(f, "{buffer:?}"),
            Array::Bf16(buffer) => write!(f, "{buffer:?}"),
            Array::Index(buffer) => write!(f, "{buffer:?}"),
        }
    }
}
