//! `gpulab train-gpt`: on candle, and on the course's kernels in the simulator. Each goes on from the other's checkpoint.

use super::{Folder, gpulab, interrupt, kill_after, succeeds};
use gpulab_nn::gpt::Weights;
use gpulab_nn::gpt::train::GptCheckpoint;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;

/// With a text to learn.
fn folder(name: &str) -> Folder {
    let folder = Folder::new(&format!("gpt-{name}"));
    let paragraph = |at: usize| format!("Warp {at} waits for the memory, and block {} does not.\n\n", at * at % 97);
    std::fs::write(folder.0.join("text.txt"), (0..1000).map(paragraph).collect::<String>()).unwrap();
    folder
}

impl Folder {
    fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    fn kept(&self) -> GptCheckpoint {
        GptCheckpoint::read(&self.checkpoint()).unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

/// The smallest model that both engines take.
const TINY: &str = "--model small --layers 1 --heads 1 --width 64 --context 12 --vocabulary 256 --dtype bf16 --batch-size 1 \
                    --accumulate 2 --held-out 13";

fn train(folder: &Folder, more: &str) -> Command {
    let mut command = gpulab("train-gpt");
    command.args(TINY.split_whitespace()).args(more.split_whitespace());
    command.arg("--text").arg(folder.0.join("text.txt")).arg("--out").arg(&folder.0);
    command.env("GPULAB_RESULTS", &folder.0);
    command
}

/// The same bits.
fn bits(checkpoint: &GptCheckpoint) -> Vec<u32> {
    let state = [&checkpoint.parameters, &checkpoint.m, &checkpoint.v];
    let numbers = state.into_iter().flat_map(Weights::iter).flat_map(|(_, tensor)| &tensor.values);
    numbers.chain(&checkpoint.losses).map(|x| x.to_bits()).collect()
}

/// Killed as soon as there is a checkpoint, and gone on with.
fn killed_and_resumed(engine: &str, (steps, every): (u64, u64)) {
    let (whole, killed) = (folder(&format!("whole-{engine}")), folder(&format!("killed-{engine}")));
    let plan = format!("--engine {engine} --steps {steps} --every {every}");
    let text = succeeds(train(&whole, &plan));
    assert!(text.contains("as --engine asks") && text.contains(&format!("after {steps} steps: The kernel")), "{text}");
    kill_after(train(&killed, &plan).spawn().unwrap(), &killed.checkpoint());
    let before = killed.kept();
    assert!(before.step < steps && before.step.is_multiple_of(every), "it was to be killed before its end");
    assert_eq!(before.engine, engine);
    let text = succeeds(train(&killed, &format!("--engine {engine} --every {every} --resume")));
    assert!(text.contains(&format!("going on after step {}, which {engine} made", before.step)), "{text}");
    let (whole_run, resumed) = (whole.kept(), killed.kept());
    assert_eq!(resumed.step, steps);
    assert!(bits(&resumed) == bits(&whole_run), "the runs' ends differ");
    assert!(bits(&before) != bits(&resumed));
    // Each step's row once, with the losses that the whole run has.
    let losses = |folder: &Folder| -> Vec<String> {
        folder.read("log.csv").lines().map(|row| row.split(',').take(6).collect::<Vec<_>>().join(",")).collect()
    };
    assert_eq!(losses(&killed), losses(&whole));
    assert_eq!(killed.read("samples.txt"), whole.read("samples.txt"));
    for file in ["train-loss-tokens.svg", "train-loss-compute.svg", "model.safetensors", "config.json"] {
        assert!(killed.0.join(file).is_file(), "{file}");
    }
}

#[test]
fn a_killed_run_goes_on_bit_for_bit_on_candle() {
    killed_and_resumed("candle", (400, 40));
}

#[test]
fn a_killed_run_goes_on_bit_for_bit_on_the_kernels() {
    killed_and_resumed("kernels", (3, 1));
}

#[test]
fn a_run_changes_its_engine_twice() {
    let folder = folder("both");
    succeeds(train(&folder, "--engine candle --steps 3"));
    // The plan of the file has three steps: with two of them made by candle and kernels in turn, all are made.
    let mut kept = folder.kept();
    assert_eq!((kept.step, kept.engine.as_str()), (3, "candle"));
    kept.plan.steps = 5;
    kept.write(&folder.checkpoint()).unwrap();
    let text = succeeds(train(&folder, "--engine kernels --resume"));
    assert!(text.contains("going on after step 3, which candle made"), "{text}");
    let mut kept = folder.kept();
    assert_eq!((kept.step, kept.losses.len(), kept.engine.as_str()), (5, 5, "kernels"));
    kept.plan.steps = 6;
    kept.write(&folder.checkpoint()).unwrap();
    // Without being asked for: candle.
    let text = succeeds(train(&folder, "--resume"));
    assert!(
        text.contains("candle: the course's kernels need an NVIDIA GPU") && text.contains("which kernels made"),
        "{text}"
    );
    let rows = gpulab::results::read(&folder.0.join("metrics.csv")).unwrap();
    let who: Vec<(&str, &str)> = rows.iter().map(|row| (row.experiment.as_str(), row.metric.as_str())).collect();
    assert!(
        who.contains(&("train-gpt, the course's kernels", "held-out loss")) && who.contains(&("train-gpt", "speed")),
        "{who:?}"
    );
    assert!(!who.contains(&("train-gpt, the course's kernels", "speed")), "a speed of the simulator: {who:?}");
}

#[test]
fn candle_goes_on_from_what_its_operators_have_made() {
    let folder = folder("operators");
    let text = succeeds(train(&folder, "--engine operators --steps 1"));
    assert!(
        text.contains("candle's autograd and the course's operators on ") && text.contains("as --engine asks"),
        "{text}"
    );
    let mut kept = folder.kept();
    assert_eq!((kept.step, kept.engine.as_str()), (1, "operators"));
    kept.plan.steps = 2;
    kept.write(&folder.checkpoint()).unwrap();
    let text = succeeds(train(&folder, "--engine candle --resume"));
    assert!(text.contains("going on after step 1, which operators made"), "{text}");
    assert_eq!(folder.kept().losses.len(), 2);
}

#[test]
fn ctrl_c_keeps_the_run_and_says_how_to_go_on() {
    let folder = folder("stopped");
    let mut run = train(&folder, "--steps 1000000").spawn().unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map(Result::unwrap).any(|line| line.starts_with("step")), "it ended before its first line");
    interrupt(&run);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(run.wait().unwrap().success());
    let step = folder.kept().step;
    assert!(step >= 20 && rest.iter().any(|line| line.starts_with(&format!("stopped after step {step};"))), "{rest:?}");
    assert!(rest.last().unwrap().contains("--resume"), "{rest:?}");
}

#[test]
fn a_rate_that_is_too_large_ends_the_run_and_leaves_its_checkpoint() {
    let folder = folder("wild");
    succeeds(train(&folder, "--steps 2"));
    let mut kept = folder.kept();
    kept.plan.steps = 60;
    kept.write(&folder.checkpoint()).unwrap();
    let before = std::fs::read(folder.checkpoint()).unwrap();
    let done = train(&folder, "--resume --rate 1e30").output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && text.contains("holds it after step 2"), "{text}");
    assert!(text.trim_end().ends_with("next: go on from there with --resume and a smaller --rate"), "{text}");
    assert!(std::fs::read(folder.checkpoint()).unwrap() == before, "the last good state was overwritten");
}
