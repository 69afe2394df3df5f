//! The course's bf16 matmul by `wgmma`.

use warpsim::{Arg, Device, Launch, PtxModule};

use super::cases::{Mode, Ready};
use super::course::COURSE;
use super::measure::{Times, timed};

/// Shared memory of a block: four stages of tiles, their barriers, and tiles of the result.
const SHARED: u32 = 4 * (128 + 256) * 64 * 2 + 4 * 2 * 8 + 2 * 2 * 64 * 64 * 2;

/// Times a product of side `n`, a multiple of 256, of whole numbers from -3 to 3.
pub fn measure(n: u32, mode: Mode, cores: usize, runs: usize) -> Times {
    let mut device = Device::new();
    let upper = |i: u32| (((i % 7) as f32 - 3.0).to_bits() >> 16) as u16;
    let numbers: Vec<u8> = (0..n * n).flat_map(|i| upper(i).to_le_bytes()).collect();
    let mut args = Vec::new();
    for _ in 0..3 {
        let address = device.alloc(numbers.len()).expect("memory");
        device.write(address, &numbers).expect("inside");
        args.push(Arg::Pointer(address));
    }
    args.extend([n; 3].map(|n| Arg::I32(n as i32)));
    let module = PtxModule::load(&COURSE["course/matmul_bf16/05_wgmma"]).expect("it loads");
    let launch = Launch { grid: [n / 256, n / 128, 1], block: [256, 1, 1], shared_bytes: SHARED };
    timed(&mut device, &Ready { module, kernel: "matmul_bf16", launch, args }, (mode, cores), runs)
}
