//! Softmax, a matrix product and attention in NVIDIA's cuTile (crate `cutile`), on the arrays of `examples/record_tiles` or on its own.
//!
//! | argument | what it does |
//! | --- | --- |
//! | `--pack FOLDER` | compiles every setting to a cubin for sm_90, by `tileiras`, and makes that folder what a machine without it needs; no GPU is needed |
//! | `--check` | compares every setting with f64 on the host at awkward sizes |
//! | `--times` | the fastest setting of each topic on random arrays, as rows of `results/h200/tiles.csv` |
//! | `--talk FOLDER` | answers the recorder (`env/baselines/cutile_peer.py`), by the lines of `examples/record_ladders/partner.rs` |
//!
//! Topics may be named, too. `CUTILE_TILEIRAS_PATH` names the assembler; in a folder of `--pack` the program needs none, and no CUDA
//! but the driver (580 or later, as cuTile Python asks for).
//!
//! To build it, the crate wants CUDA's headers and libclang, to pack, `tileiras`, `ptxas` and libNVVM; PyPI has all of them:
//!
//! ```text
//! python3 -m venv cuda && cuda/bin/pip install nvidia-cuda-tileiras nvidia-cuda-runtime nvidia-curand libclang
//! export CUDA_TOOLKIT_PATH=$(echo $PWD/cuda/lib/python3.*/site-packages/nvidia/cu13)
//! export LIBCLANG_PATH=$(echo $PWD/cuda/lib/python3.*/site-packages/clang/native)
//! export BINDGEN_EXTRA_CLANG_ARGS="-I$(gcc -print-file-name=include)"   # libclang's package has no headers of C itself
//! cargo run --release --manifest-path env/baselines/cutile/Cargo.toml -- --pack cutile-packed
//! ```
//!
//! Then, on a machine with an H200: `cutile-packed/cutile --check && cutile-packed/cutile --times`, or, beside Triton and the others,
//! `python3 -m env.baselines.record_tiles --cutile cutile-packed/cutile`.

mod host;
mod kernels;
mod settings;
mod work;

use cutile::cuda_core::Stream;
use cutile::cutile_compiler::cuda_tile_runtime_utils::tileiras_binary;
use cutile::half::bf16;
use cutile::jit_cache::{self, FileSystemJitStore};
use cutile::prelude::*;
use serde_json::{Value, json};
use settings::{Setting, Topic};
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use work::{Arrays, Timed};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NAME: &str = "cuTile 0.5.0";
const GPU: &str = "sm_90";
/// An error beyond this, relative to the result, is a mistake, as in the recorder.
const WRONG: f64 = 0.02;
/// Calls of which each setting's time is the mean; the fastest settings are timed again, longer. As in `triton_peer.py`.
const FEW: usize = 5;
const MANY: usize = 30;
const FINALISTS: usize = 3;
/// Samples of `--times`.
const SAMPLES: usize = 21;
/// Rows of the result that are compared with f64 where all of them would take too long.
const COMPARED: usize = 8;

/// What a packed folder has beside the program: the cubins, and what stands for the assembler.
const CUBINS: &str = "cubins";
const STAND_IN: &str = "tileiras";

fn main() -> ExitCode {
    let packed = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_path_buf()));
    if let Some(folder) = packed.filter(|folder| folder.join(STAND_IN).is_file() && folder.join(CUBINS).is_dir()) {
        // SAFETY: no other thread has started.
        unsafe { std::env::set_var("CUTILE_TILEIRAS_PATH", folder.join(STAND_IN)) };
        keep_cubins(&folder).expect("the folder of cubins can be opened");
    }
    // The compiler walks deep trees.
    let worker = std::thread::Builder::new().stack_size(256 << 20).spawn(run).expect("a thread can be started");
    match worker.join().expect("the thread does not panic") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cuTile: {error}");
            ExitCode::FAILURE
        }
    }
}

enum Mode {
    Pack(PathBuf),
    Check,
    Times,
    Talk(PathBuf),
}

fn run() -> Outcome<()> {
    let (mut mode, mut topics) = (None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut folder = || arguments.next().map(PathBuf::from).ok_or("this option is followed by a folder");
        match argument.as_str() {
            "--pack" => mode = Some(Mode::Pack(folder()?)),
            "--check" => mode = Some(Mode::Check),
            "--times" => mode = Some(Mode::Times),
            "--talk" => mode = Some(Mode::Talk(folder()?)),
            name => topics.push(Topic::of(name).ok_or_else(|| format!("there is no topic `{name}`"))?),
        }
    }
    if topics.is_empty() {
        topics = Topic::ALL.to_vec();
    }
    match mode.ok_or("name one of --pack FOLDER, --check, --times and --talk FOLDER")? {
        Mode::Pack(folder) => pack(&folder, &topics),
        Mode::Check => {
            let stream = Context::new(0)?.new_stream()?;
            let mut wrong = 0;
            for topic in topics {
                for setting in Setting::all(topic) {
                    let errors = check(&setting, &stream);
                    wrong += usize::from(!errors.as_ref().is_ok_and(|error| *error <= WRONG));
                    println!("{} {}: {}", topic.name(), setting.name(), said(&errors));
                }
            }
            if wrong > 0 { Err(format!("{wrong} settings are wrong, or do not run").into()) } else { Ok(()) }
        }
        Mode::Times => times(&topics),
        Mode::Talk(folder) => talk(&folder),
    }
}

fn keep_cubins(folder: &Path) -> Outcome<()> {
    jit_cache::enable(Arc::new(FileSystemJitStore::new(folder.join(CUBINS))?));
    Ok(())
}

fn pack(folder: &Path, topics: &[Topic]) -> Outcome<()> {
    fs::create_dir_all(folder)?;
    keep_cubins(folder)?;
    fs::copy(std::env::current_exe()?, folder.join("cutile"))?;
    stand_in(&folder.join(STAND_IN))?;
    let mut failed = 0;
    for topic in topics {
        let sizes = [vec![topic.recorded_size()], topic.awkward_sizes()].concat();
        for setting in Setting::all(*topic) {
            let cubins: Result<Vec<usize>, String> =
                sizes.iter().map(|size| setting.compile(*size, GPU).map(|(_, cubin)| cubin.len())).collect();
            failed += usize::from(cubins.is_err());
            println!("{} {}: {cubins:?}", topic.name(), setting.name());
        }
    }
    if failed > 0 { Err(format!("{failed} settings do not compile").into()) } else { Ok(()) }
}

/// A cubin is found by what it is made of: the bytecode, whose version the assembler is asked for, and the assembler's version. On a
/// machine that has all cubins a script answers both questions as the assembler did, and compiles nothing.
fn stand_in(path: &Path) -> Outcome<()> {
    let answer = |question: &str| -> Outcome<String> {
        let answer = Command::new(tileiras_binary()).arg(question).output()?;
        Ok(String::from_utf8(answer.stdout)?.trim_end().to_string())
    };
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n--version) cat <<'END'\n{}\nEND\n;;\n--list-versions) cat <<'END'\n{}\nEND\n;;\n\
         *) echo 'this cubin was not packed, or the driver has refused it' >&2; exit 1 ;;\nesac\n",
        answer("--version")?,
        answer("--list-versions")?
    );
    fs::write(path, script)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn said(error: &Outcome<f64>) -> String {
    match error {
        Ok(error) if *error <= WRONG => format!("off by {error:.1e}"),
        Ok(error) => format!("WRONG: off by {error:.1e}"),
        Err(error) => format!("left out: {error}"),
    }
}

/// The largest error at the awkward sizes.
fn check(setting: &Setting, stream: &Arc<Stream>) -> Outcome<f64> {
    let mut worst: f64 = 0.0;
    for size in setting.topic.awkward_sizes() {
        let inputs = host::inputs(setting.topic, size, 1);
        let exact = host::exact(setting.topic, size, &inputs, 0..host::rows(setting.topic, size).1);
        let mut arrays = Arrays::new(setting.topic, size, inputs, stream)?;
        let (off, whole) = host::squares(&arrays.given(setting, stream)?, &exact);
        // A NaN is no number to compare with: it is as wrong as can be.
        let error = (off / whole).sqrt();
        worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
    }
    Ok(worst)
}

/// The fastest of all settings that are right at awkward sizes.
fn tuned(topic: Topic, sets: &mut [Arrays], stream: &Arc<Stream>) -> Outcome<Setting> {
    let time = |setting: Setting, sets: &mut [Arrays], calls: usize| -> Outcome<f64> {
        Ok(Timed::first(setting, stream).ms(sets, calls)?)
    };
    let mut times = Vec::new();
    for setting in Setting::all(topic) {
        let timed = check(&setting, stream).and_then(|error| {
            if error > WRONG {
                return Err(format!("WRONG: off by {error:.1e} at an awkward size").into());
            }
            time(setting, sets, 1)?;
            time(setting, sets, FEW)
        });
        match timed {
            Ok(ms) => times.push((ms, setting)),
            Err(error) => eprintln!("cuTile: left out: {} {}: {error}", topic.name(), setting.name()),
        }
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (ms, setting) in times.iter().take(6) {
        eprintln!("cuTile {}: {ms:.4} ms {}", topic.name(), setting.name());
    }
    let mut again = Vec::new();
    for (_, setting) in times.into_iter().take(FINALISTS) {
        again.push((time(setting, sets, MANY)?, setting));
    }
    again.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ms, chosen) = *again.first().ok_or("no setting runs")?;
    eprintln!("cuTile {}: chosen {ms:.4} ms {}", topic.name(), chosen.name());
    Ok(chosen)
}

fn times(topics: &[Topic]) -> Outcome<()> {
    let context = Context::new(0)?;
    let stream = context.new_stream()?;
    println!("topic,rung,dtype,size,metric,value,unit,error,peer,peer_value,ratio,peer_error,samples,p10,p90");
    for &topic in topics {
        let size = topic.recorded_size();
        let (work, unit, metric) = work_of(topic, size);
        let bytes: usize = host::inputs(topic, size, 0).iter().map(|x| 2 * x.len()).sum();
        let count = (3 * context.l2_cache_size_bytes()?).div_ceil(bytes).clamp(2, 64);
        let inputs = host::inputs(topic, size, 0);
        let (width, rows) = host::rows(topic, size);
        let starts: Vec<usize> = (0..COMPARED).map(|at| at * (rows - 1) / (COMPARED - 1)).collect();
        let exact: Vec<Vec<f64>> = starts.iter().map(|&row| host::exact(topic, size, &inputs, row..row + 1)).collect();
        let mut sets = vec![Arrays::new(topic, size, inputs, &stream)?];
        for seed in 1..count as u64 {
            sets.push(Arrays::new(topic, size, host::inputs(topic, size, seed), &stream)?);
        }
        let setting = tuned(topic, &mut sets, &stream)?;
        let given = sets[0].given(&setting, &stream)?;
        let (mut off, mut whole) = (0.0, 0.0);
        for (row, exact) in starts.iter().zip(&exact) {
            let (of_row, all_of_row) = host::squares(&given[row * width..][..width], exact);
            (off, whole) = (off + of_row, whole + all_of_row);
        }
        let error = (off / whole).sqrt();
        if error.is_nan() || error > WRONG {
            return Err(format!("{} {}: WRONG: off by {error:.1e}", topic.name(), setting.name()).into());
        }
        let mut timed = Timed::new(setting, &mut sets, &stream)?;
        let mut rates = (0..SAMPLES).map(|_| Ok(work / timed.sample(&mut sets)?)).collect::<Outcome<Vec<f64>>>()?;
        rates.sort_by(f64::total_cmp);
        let at = |part: f64| rates[(part * (SAMPLES - 1) as f64).round() as usize];
        let size = size.map(|side| side.to_string()).join("x");
        let size = if topic == Topic::Softmax { size.trim_end_matches("x1") } else { &size };
        println!(
            "{},{NAME} {},bf16,{size},{metric},{:.2},{unit},{error:.2e},,,,,{SAMPLES},{:.2},{:.2}",
            topic.name(),
            setting.name(),
            at(0.5),
            at(0.1),
            at(0.9)
        );
        stream.synchronize()?;
    }
    Ok(())
}

/// What a call does, so that over its ms it is a rate; the unit of that, and its name in the table.
fn work_of(topic: Topic, [m, n, k]: [usize; 3]) -> (f64, &'static str, &'static str) {
    let product = m as f64 * n as f64 * k as f64;
    match topic {
        Topic::Softmax => (4.0 * product / 1e6, "GB/s", "bandwidth"),
        Topic::Matmul => (2.0 * product / 1e9, "TFLOP/s", "throughput"),
        // Two products, half of them where a causal mask hides half of the keys, as the recorder counts.
        Topic::Attention { causal } => {
            (if causal { 2.0 } else { 4.0 } * product * n as f64 / 1e9, "TFLOP/s", "throughput")
        }
    }
}

/// What the recorder asks for, and answers to it.
fn talk(folder: &Path) -> Outcome<()> {
    let stream = Context::new(0)?.new_stream()?;
    let mut job: Option<(Vec<Arrays>, Timed<'_>)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = match (line.trim(), &mut job) {
            ("go", Some((sets, timed))) => format!("{:.6}", timed.sample(sets)?),
            ("go", None) => return Err("nothing is prepared".into()),
            (asked, _) => {
                stream.synchronize()?;
                drop(job.take());
                match prepare(&serde_json::from_str(asked)?, folder, &stream) {
                    Ok((name, error, sets, timed)) => {
                        job = Some((sets, timed));
                        json!({"name": name, "error": error}).to_string()
                    }
                    Err(error) => {
                        eprintln!("cuTile: left out: {error}");
                        "{}".to_string()
                    }
                }
            }
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Its name, its error, and the arrays and calls of what is asked for.
fn prepare<'a>(
    asked: &Value,
    folder: &Path,
    stream: &'a Arc<Stream>,
) -> Outcome<(String, f64, Vec<Arrays>, Timed<'a>)> {
    let name = asked["topic"].as_str().ok_or("no topic")?;
    let topic = Topic::of(name).ok_or_else(|| format!("it has nothing for {name}"))?;
    let mut size = [1; 3];
    let asked_size = asked["size"].as_array().ok_or("no size")?;
    for (side, asked) in size.iter_mut().zip(asked_size) {
        *side = asked.as_u64().ok_or("a size is no number")? as usize;
    }
    let counts = host::counts(topic, size);
    let mut sets = Vec::new();
    for set in 0..asked["sets"].as_u64().ok_or("no number of sets")? {
        let read = |at: usize| -> Outcome<Vec<bf16>> {
            let bytes = fs::read(folder.join(format!("{set}_{at}.bin")))?;
            let numbers: Vec<bf16> = bytes.chunks_exact(2).map(|x| bf16::from_le_bytes([x[0], x[1]])).collect();
            if numbers.len() == counts[at] { Ok(numbers) } else { Err("an array of another length".into()) }
        };
        let inputs = (0..counts.len()).map(read).collect::<Outcome<Vec<_>>>()?;
        sets.push(Arrays::new(topic, size, inputs, stream)?);
    }
    let setting = tuned(topic, &mut sets, stream)?;
    let exact: Vec<f64> = fs::read(folder.join("exact.bin"))?
        .chunks_exact(8)
        .map(|x| f64::from_le_bytes(x.try_into().expect("8 bytes")))
        .collect();
    let (mut off, mut whole, mut place) = (0.0, 0.0, 0);
    for (set, pieces) in sets.iter_mut().zip(asked["exact"].as_array().ok_or("no exact values")?) {
        let pieces: Vec<[usize; 3]> = serde_json::from_value(pieces.clone())?;
        if pieces.is_empty() {
            continue;
        }
        let given = set.given(&setting, stream)?;
        for [_, start, count] in pieces {
            let (of_piece, all) = host::squares(&given[start..][..count], &exact[place..][..count]);
            (off, whole, place) = (off + of_piece, whole + all, place + count);
        }
    }
    let error = f64::sqrt(off / whole);
    if error.is_nan() || error > WRONG {
        return Err(format!("WRONG: off by {error:.1e} at the recorded size").into());
    }
    let timed = Timed::new(setting, &mut sets, stream)?;
    Ok((NAME.to_string(), error, sets, timed))
}
