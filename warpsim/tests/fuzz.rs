//! Random and mutated PTX: errors, never panics. `WARPSIM_FUZZ=100000` asks for more inputs than the short run.

mod common;

use common::Random;
use warpsim::{Arg, Device, Launch, Module, survey};

fn fixtures() -> Vec<String> {
    let folder = format!("{}/tests/ptx", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("fixtures").flatten().map(|f| f.path()).collect();
    paths.sort();
    let ptx = paths.iter().filter(|p| p.extension().is_some_and(|e| e == "ptx"));
    ptx.map(|p| std::fs::read_to_string(p).expect("text")).collect()
}

/// Changes a few places: bytes, words from elsewhere, whole lines.
fn mutate(text: &str, words: &[&str], random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..1 + random.bits() % 4 {
        let at = (random.bits() as usize) % lines.len();
        let other = (random.bits() as usize) % lines.len();
        let word = words[random.bits() as usize % words.len()];
        match random.bits() % 6 {
            0 => lines.swap(at, other),
            1 => drop(lines.remove(at)),
            2 => lines.insert(at, word.to_owned()),
            3 => {
                let mut parts: Vec<&str> = lines[at].split(' ').collect();
                let part = random.bits() as usize % parts.len();
                parts[part] = word;
                lines[at] = parts.join(" ");
            }
            4 => lines[at] = lines[at].replacen(['0', '1', '4'], "9999999999", 1),
            _ => {
                let mut bytes = lines[at].clone().into_bytes();
                if !bytes.is_empty() {
                    let place = random.bits() as usize % bytes.len();
                    bytes[place] = b' ' + (random.bits() % 95) as u8;
                }
                lines[at] = String::from_utf8_lossy(&bytes).into_owned();
            }
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join("\n")
}

fn run(module: &Module, random: &mut Random) {
    let mut device = Device::new();
    device.set_cores(1);
    device.set_step_budget(2000);
    let Ok(buffer) = device.alloc(4096) else { return };
    for kernel in module.kernels() {
        let args = kernel.parameters.iter().map(|(_, bytes)| match bytes {
            8 => Arg::Pointer(buffer + random.bits() % 16 * 4),
            4 => Arg::I32((random.bits() % 100) as i32),
            bytes => Arg::Bytes(vec![1; *bytes as usize % 4096]),
        });
        let args: Vec<Arg> = args.collect();
        let launch = Launch { grid: [2, 1, 1], block: [1 + (random.bits() % 70) as u32, 1, 1], shared_bytes: 256 };
        // Either way, it comes back.
        let _ = device.launch(module, &kernel.name, launch, &args);
    }
}

#[test]
fn mutated_ptx_never_panics() {
    let count = std::env::var("WARPSIM_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(1500u64);
    let texts = fixtures();
    let words: Vec<&str> = texts.iter().flat_map(|t| t.split_whitespace()).collect();
    let mut loaded = 0;
    for seed in 0..count {
        let mut random = Random(seed);
        let text = &texts[random.bits() as usize % texts.len()];
        let mutant = mutate(text, &words, &mut random);
        if let Ok(module) = Module::load(&mutant) {
            loaded += 1;
            run(&module, &mut random);
        } else {
            // Errors can be shown.
            if let Ok(survey) = survey(&mutant) {
                survey.refused.iter().flat_map(|r| &r.1).for_each(|e| assert!(!e.to_string().is_empty()));
            }
        }
    }
    println!("{count} inputs, {loaded} loaded and ran");
    assert!(loaded > count / 50, "the mutants must also reach the interpreter: {loaded} of {count}");
}

#[test]
fn random_bytes_never_panic() {
    for seed in 0..3000 {
        let mut random = Random(seed);
        let length = random.bits() % 300;
        let text: String = (0..length).map(|_| (random.bits() % 128) as u8 as char).collect();
        let _ = survey(&text);
    }
}
