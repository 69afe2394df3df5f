//! What the tests share: fixtures, buffers, random numbers.
#![allow(dead_code)]

pub mod one;

use warpsim::{Arg, Device, Launch, PtxModule, Report};

/// Loads `tests/ptx/NAME.ptx`.
pub fn module(name: &str) -> PtxModule {
    load(&format!("{}/tests/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR")))
}

/// Loads a PTX file.
pub fn load(path: &str) -> PtxModule {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    PtxModule::load(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A plain element of a buffer.
pub trait Element: Copy + Default {
    const SIZE: usize;
    fn put(self, out: &mut [u8]);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($t:ty),*) => {$(
        impl Element for $t {
            const SIZE: usize = size_of::<$t>();
            fn put(self, out: &mut [u8]) { out.copy_from_slice(&self.to_le_bytes()); }
            fn get(bytes: &[u8]) -> Self { Self::from_le_bytes(bytes.try_into().expect("an element")) }
        }
    )*};
}
element!(u8, u16, i32, u32, u64, f32, f64);

/// A buffer with these elements.
pub fn upload<T: Element>(device: &mut Device, data: &[T]) -> u64 {
    let mut bytes = vec![0; data.len() * T::SIZE];
    bytes.chunks_exact_mut(T::SIZE).zip(data).for_each(|(out, x)| x.put(out));
    let address = device.alloc(bytes.len()).expect("memory");
    device.write(address, &bytes).expect("inside");
    address
}

/// The first elements of a buffer.
pub fn download<T: Element>(device: &Device, address: u64, count: usize) -> Vec<T> {
    let mut bytes = vec![0; count * T::SIZE];
    device.read(address, &mut bytes).expect("inside");
    bytes.chunks_exact(T::SIZE).map(T::get).collect()
}

/// Launches a kernel that must do nothing wrong.
pub fn clean(device: &mut Device, module: &PtxModule, kernel: &str, launch: Launch, args: &[Arg]) -> Report {
    let report = device.launch(module, kernel, launch, args).unwrap_or_else(|e| panic!("{kernel}: {e}"));
    assert!(report.findings.is_empty(), "{kernel}: {}", report.findings[0]);
    report
}

/// A small generator (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Uniform in [-1, 1).
    pub fn float(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}
