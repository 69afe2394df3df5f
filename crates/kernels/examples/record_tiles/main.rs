//! Times the programs on tiles in Rust (`tiles/`) on this GPU beside Triton and PyTorch, and writes a table.
//!
//! `cargo run --release -p gpulab-kernels --example record_tiles -- [--out tiles.csv] [--talk FOLDER] [--ptx FOLDER] [--sweep]
//! [topics]`; `env/baselines/record_tiles.py` does that, and brings both along. Each program is checked at awkward sizes and at the
//! timed one before its times count. With `--sweep` other constants than the chosen ones are timed, too: what they are chosen from.
//! `--pack FOLDER` compiles all of them to PTX for a machine without rustc, which `--ptx FOLDER` takes; no GPU is needed.

#[path = "../record_ladders/partner.rs"]
mod partner;

use gpulab::gpu::{Module, TimedWork};
use gpulab::prelude::*;
use gpulab_kernels::run::{PeerWork, Workload};
use gpulab_kernels::tiles::TileProgram;
use gpulab_kernels::topics::{Array, Launches, Topic, relative_error};
use gpulab_kernels::*;
use partner::Partner;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const PLAN: Bench = Bench { warm_ups: 1, samples: 21, min_sample_ms: 1.0, budget_ms: 4000.0 };
const SWEEP: Bench = Bench { samples: 7, budget_ms: 1000.0, ..PLAN };
/// An error beyond this, relative to the result, is a mistake.
const WRONG: f64 = 0.02;

/// What is timed: the arrays are those of the ladder of this name, the programs all do the same.
struct Race {
    ladder: Ladder,
    size: Size,
    /// The chosen one is the first.
    programs: Vec<TileProgram>,
}

fn races() -> Vec<Race> {
    let products = [
        (2, 256, 4, 16),
        (2, 256, 4, 8),
        (2, 256, 4, 32),
        (2, 256, 3, 16),
        (2, 192, 4, 16),
        (2, 128, 6, 16),
        (2, 128, 6, 8),
        (3, 128, 4, 11),
        (3, 192, 3, 11),
    ];
    let products = products.map(|(groups, n, stages, band)| TileProgram::matmul(groups, n, stages, band)).to_vec();
    let attention = [(2, 128, 2, 1), (2, 128, 2, 0), (2, 64, 4, 1), (2, 64, 4, 0), (3, 64, 3, 1), (3, 64, 3, 0)];
    let attention = attention
        .map(|(groups, keys, stages, settle)| TileProgram::attention(groups, 128, keys, stages, settle))
        .to_vec();
    let heads = Size::from((64, 4096, 128));
    vec![
        Race { ladder: Ladder::MatmulBf16, size: (4096, 4096, 4096).into(), programs: products },
        Race {
            ladder: Ladder::Softmax,
            size: (32_768, 8192).into(),
            programs: [4, 2, 1, 3].map(TileProgram::softmax).to_vec(),
        },
        Race { ladder: Ladder::FlashAttention, size: heads, programs: attention.clone() },
        Race { ladder: Ladder::CausalFlashAttention, size: heads, programs: attention },
    ]
}

fn main() -> Result<()> {
    let (mut out, mut talk, mut ptx, mut sweep, mut topics) = ("tiles.csv".to_string(), None, None, false, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("this option is followed by a path");
        match argument.as_str() {
            "--out" => out = value(),
            "--talk" => talk = Some(value()),
            "--ptx" => ptx = Some(PathBuf::from(value())),
            "--pack" => return pack(Path::new(&value())),
            "--sweep" => sweep = true,
            topic => topics.push(Ladder::of(topic)?),
        }
    }
    let mut recorder = Recorder {
        gpu: Gpu::open_index(0)?,
        partner: talk.map(|folder| RefCell::new(Partner::new(&folder))),
        ptx,
        plan: if sweep { SWEEP } else { PLAN },
        modules: HashMap::new(),
    };
    eprintln!("{}", recorder.gpu);
    let mut table =
        "topic,rung,dtype,size,metric,value,unit,error,peer,peer_value,ratio,peer_error,samples,p10,p90\n".to_string();
    let mut all_right = true;
    for mut race in races().into_iter().filter(|race| topics.is_empty() || topics.contains(&race.ladder)) {
        race.programs.truncate(if sweep { usize::MAX } else { 1 });
        match recorder.run(&race) {
            Ok(rows) => table += &rows,
            // The others are measured all the same; the exit status tells.
            Err(error) => {
                all_right = false;
                eprintln!("FAILED: {} at {}: {error}\n", race.ladder.topic(), race.size);
            }
        }
        std::fs::write(&out, &table).expect("the table can be written");
    }
    if !all_right {
        std::process::exit(1)
    }
    Ok(())
}

/// The file of a program's PTX.
fn file(folder: &Path, program: &TileProgram) -> PathBuf {
    folder.join(format!("{}.ptx", program.full_name().replace([' ', '='], "_")))
}

fn pack(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).expect("the folder can be made");
    for program in races().iter().flat_map(|race| &race.programs) {
        let ptx = gpulab::rust::compile_to_ptx(&program.source()?, 90)?;
        std::fs::write(file(folder, program), ptx).expect("the PTX can be written");
    }
    Ok(())
}

struct Recorder {
    gpu: Gpu,
    partner: Option<RefCell<Partner>>,
    ptx: Option<PathBuf>,
    plan: Bench,
    /// What was compiled, by name: attention is, once for both masks.
    modules: HashMap<String, Module>,
}

impl Recorder {
    /// Compiled and checked.
    fn open(&mut self, ladder: Ladder, program: &TileProgram) -> Result<Box<dyn Topic>> {
        let Recorder { gpu, ptx, modules, .. } = self;
        let (gpu, ptx) = (&*gpu, &*ptx);
        let compile = || match ptx.as_deref() {
            Some(folder) => {
                let path = file(folder, program);
                let text = std::fs::read_to_string(&path);
                gpu.load_ptx(&text.unwrap_or_else(|error| panic!("{}: {error}\nnext: --pack", path.display())))
            }
            None => gpu.compile(program.source()?),
        };
        let module = match modules.entry(program.full_name()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(compile()?),
        };
        Ok(match ladder {
            Ladder::Softmax => Box::new(Softmax::on_tiles(gpu, program, module)?),
            Ladder::MatmulBf16 => Box::new(MatmulBf16::on_tiles(gpu, program, module)?),
            _ => Box::new(FlashAttention::on_tiles(gpu, program, module, ladder == Ladder::CausalFlashAttention)?),
        })
    }

    /// Rows of the table; a short one, the fastest first, goes to stderr.
    fn run(&mut self, race: &Race) -> Result<String> {
        let Race { ladder, size, .. } = *race;
        let mut opened = Vec::new();
        for program in &race.programs {
            match self.open(ladder, program) {
                Ok(topic) => opened.push((program.full_name(), topic)),
                Err(error) => eprintln!("left out: {}: {error}", program.full_name()),
            }
        }
        let gpu = &self.gpu;
        let Some((_, first)) = opened.first() else {
            return Err(Error::invalid("no program runs here", "look at what was left out, and why"));
        };
        let work = first.work(size)?;
        let count = gpu.sets_past_cache(work.bytes);
        let sets = (0..count as u64).map(|seed| first.inputs(size, seed)).collect::<Result<Vec<_>>>()?;
        let exact = vec![first.exact(&sets[0], size)?];
        let peers = match &self.partner {
            Some(partner) => Partner::prepare(partner, &Workload { ladder, size, work, sets: &sets, exact: &exact })?,
            None => Vec::new(),
        };
        let arrays = sets.iter().map(|set| {
            let inputs = set.iter().map(|host| Array::new(gpu, host)).collect::<Result<Vec<_>>>()?;
            let outputs =
                first.outputs(size)?.into_iter().map(|it| Array::poisoned(gpu, it)).collect::<Result<Vec<_>>>()?;
            Ok((inputs, outputs))
        });
        let arrays = RefCell::new(arrays.collect::<Result<Vec<_>>>()?);
        let (mut names, mut errors, mut timed) = (Vec::new(), Vec::new(), Vec::<TimedWork<'_>>::new());
        for (name, topic) in &opened {
            let error = relative_error(&exact, |set| {
                let (inputs, outputs) = &mut arrays.borrow_mut()[set];
                outputs.iter_mut().try_for_each(Array::poison)?;
                topic.call(inputs, outputs, size, &mut Launches::queue())?;
                outputs.iter().map(Array::to_host).collect()
            })?;
            if error.is_nan() || error > WRONG {
                eprintln!("WRONG: {name} at {size}: off by {error:.1e}");
                continue;
            }
            names.push(name.clone());
            errors.push(error);
            timed.push(TimedWork::Calls(Box::new(|call| {
                let (inputs, outputs) = &mut arrays.borrow_mut()[call % count];
                topic.call(inputs, outputs, size, &mut Launches::queue())
            })));
        }
        let ours = timed.len();
        for peer in peers {
            let (PeerWork::Clocked(sample), Some(error)) = (peer.work, peer.error) else { continue };
            if error.is_nan() || error > WRONG {
                eprintln!("WRONG: {} at {size}: off by {error:.1e}", peer.name);
                continue;
            }
            names.push(peer.name);
            errors.push(error);
            timed.push(TimedWork::Clocked(sample));
        }
        let samples = gpu.time_interleaved(&self.plan, &mut timed)?;
        drop(timed);
        let rate = |at: usize| Summary::of(&samples[at]).map(|ms| work.rate(ms));
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|&a, &b| rate(b).median.total_cmp(&rate(a).median));
        eprintln!("{} {}:", ladder.topic(), size.name());
        for &at in &order {
            eprintln!("{:100} {:8.1} {} off by {:.1e}", names[at], rate(at).median, work.unit(), errors[at]);
        }
        eprintln!();
        let mut rows = String::new();
        let metric = if work.unit() == "GB/s" { "bandwidth" } else { "throughput" };
        for at in 0..ours {
            for peer in ours..names.len() {
                // Round by round, so that what changes with time is the same for both.
                let ratios: Vec<f64> =
                    samples[at].iter().zip(&samples[peer]).map(|(ours, theirs)| theirs / ours).collect();
                let Summary { median, p10, p90, samples } = rate(at);
                let start = format!("{},{},{},{}", ladder.topic(), names[at], work.dtype, size.name());
                let (theirs, ratio) = (rate(peer).median, Summary::of(&ratios).median);
                let (unit, error, peer_error) = (work.unit(), errors[at], errors[peer]);
                writeln!(rows, "{start},{metric},{median:.2},{unit},{error:.2e},{},{theirs:.2},{ratio:.4},{peer_error:.2e},{samples},{p10:.2},{p90:.2}", names[peer])
                .expect("a String takes everything");
            }
        }
        Ok(rows)
    }
}
