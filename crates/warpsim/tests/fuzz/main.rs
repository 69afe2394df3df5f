//! Random and mutated PTX: errors, never panics, and an end to each. `WARPSIM_FUZZ=1000000` asks for more inputs than the short
//! run, `WARPSIM_FUZZ_FROM` for other ones.

#[path = "../common/mod.rs"]
mod common;
mod mutate;
mod pieces;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::Random;
use mutate::{Words, mutate};
use warpsim::{Arg, Device, Launch, PtxModule, survey};

/// An input that takes longer is a loop without end, however busy the machine.
const LONGEST: Duration = Duration::from_secs(30);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

fn run(module: &PtxModule, random: &mut Random) {
    let mut device = Device::new();
    device.set_cores(1);
    device.set_step_budget(300);
    device.set_checks(!random.bits().is_multiple_of(4));
    let Ok(buffer) = device.alloc(4096) else { return };
    for kernel in module.kernels() {
        let args = kernel.parameters.iter().map(|(_, bytes)| match bytes {
            8 => Arg::Pointer(buffer + random.bits() % 16 * 4),
            4 => Arg::I32((random.bits() % 100) as i32),
            bytes => Arg::Bytes(vec![1; *bytes as usize % 4096]),
        });
        let args: Vec<Arg> = args.collect();
        let block = [1 + (random.bits() % 70) as u32, 1 + (random.bits() % 2) as u32, 1];
        let launch = Launch { grid: [2, 1, 1], block, shared_bytes: 256 };
        // Either way, it comes back.
        let _ = device.launch(module, &kernel.name, launch, &args);
    }
}

/// Runs one input; true if it loaded.
fn one(seed: u64, texts: &[String], words: &Words) -> bool {
    let mut random = Random(seed);
    let text = &texts[random.bits() as usize % texts.len()];
    let mutant = mutate(text, words, &mut random);
    match PtxModule::load(&mutant) {
        Ok(module) => {
            run(&module, &mut random);
            true
        }
        // Errors can be shown.
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

#[test]
fn mutated_ptx_never_panics() {
    let count = setting("WARPSIM_FUZZ").unwrap_or(20_000);
    let from = setting("WARPSIM_FUZZ_FROM").unwrap_or(0);
    let mut texts = pieces::kernels();
    // A few fixtures show what is refused.
    let before = texts.len();
    texts.retain(|text| PtxModule::load(text).is_ok());
    assert!(texts.len() + 5 > before, "{} of {before} kernels load", texts.len());
    let words = Words::of(&texts);
    let (next, loaded) = (AtomicU64::new(from), AtomicU64::new(0));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= from + count {
                return;
            }
            let start = Instant::now();
            let ran = catch_unwind(AssertUnwindSafe(|| one(seed, &texts, &words)));
            assert!(start.elapsed() < LONGEST, "seed {seed} took {:?}", start.elapsed());
            loaded.fetch_add(ran.unwrap_or_else(|_| panic!("seed {seed} panics")).into(), Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let loaded = loaded.into_inner();
    println!("{count} inputs of {} kernels, {loaded} loaded and ran", texts.len());
    assert!(loaded > count / 5, "the mutants must also reach the interpreter: {loaded} of {count}");
}

#[test]
fn random_bytes_never_panic() {
    for seed in 0..setting("WARPSIM_FUZZ").unwrap_or(3000) {
        let mut random = Random(seed);
        let length = random.bits() % 300;
        let text: String = (0..length).map(|_| (random.bits() % 128) as u8 as char).collect();
        let _ = survey(&text);
    }
}
