//! `gpulab train-sharded` from outside, as a launcher starts it: ranks that are processes, one that is killed, and a training that goes on
//! with the ones that are left.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gpulab-train-sharded-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

/// All ranks of a job, as torchrun would start them.
fn start(folder: &Path, ranks: usize, arguments: &[&str]) -> Vec<Child> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let one = |rank: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpulab"));
        command.args(["train-sharded", "--width", "8", "--folder"]).arg(folder).args(arguments);
        let variables =
            [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("MASTER_PORT", usize::from(port))];
        command.envs(variables.map(|(name, number)| (name, number.to_string()))).env("MASTER_ADDR", "127.0.0.1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    (0..ranks).map(one).collect()
}

fn ended(children: Vec<Child>) -> Vec<Output> {
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn out(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The last loss, as rank 0 says it.
fn loss(outputs: &[Output]) -> f64 {
    assert!(outputs.iter().all(|output| output.status.success()), "{}", outputs.iter().map(out).collect::<String>());
    let text = out(&outputs[0]);
    text.trim_end().rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn a_killed_rank_ends_the_job_and_fewer_ranks_go_on() {
    let (straight, broken) = (folder("straight"), folder("broken"));
    let expected = loss(&ended(start(&straight, 1, &["--steps", "60", "--every", "60"])));
    let mut ranks = start(&broken, 4, &["--steps", "1000000", "--every", "10"]);
    let mut said = String::new();
    let mut from = BufReader::with_capacity(1, ranks[0].stdout.as_mut().unwrap());
    while !said.contains("step 20:") {
        said.clear();
        assert!(from.read_line(&mut said).unwrap() > 0, "it has ended");
    }
    let begin = Instant::now();
    ranks[2].kill().unwrap();
    let outputs = ended(ranks);
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| *rank != 2) {
        let text = out(output);
        assert!(output.status.code() == Some(2) && text.contains("rank 2 is gone"), "rank {rank}: {text}");
        assert!(text.contains("next: look for that process"), "{text}");
    }
    // Whatever was written last is whole; so many steps as one run without a break are made from an early one.
    let kept: Vec<PathBuf> = std::fs::read_dir(&broken).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(
        kept.iter()
            .all(|file| file.file_name().unwrap() == "unfinished" || file.metadata().unwrap().len() == 12 * 6 * 552),
        "{kept:?}"
    );
    let again = folder("again");
    loss(&ended(start(&again, 4, &["--steps", "20", "--every", "10"])));
    let outputs = ended(start(&again, 3, &["--steps", "60", "--every", "10"]));
    assert!(out(&outputs[0]).contains("3 ranks: the training goes on from step 20"), "{}", out(&outputs[0]));
    let resumed = loss(&outputs);
    assert!((resumed - expected).abs() < 0.02 * expected, "{resumed} {expected}");
    // Two checkpoints are kept.
    assert_eq!(std::fs::read_dir(&again).unwrap().count(), 2);
    for folder in [straight, broken, again] {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn what_does_not_fit_is_refused_by_every_rank() {
    let folder = folder("refused");
    loss(&ended(start(&folder, 2, &["--steps", "2"])));
    for (ranks, arguments, said) in [
        (2, &["--batch", "7"][..], "7 examples cannot be divided evenly among 2 ranks"),
        (2, &["--blocks", "4", "--steps", "3"][..], "a network of this size"),
        (1, &["--steps", "0"][..], "1 or more"),
    ] {
        for output in ended(start(&folder, ranks, arguments)) {
            let text = out(&output);
            assert!(output.status.code() == Some(2) && text.contains(said) && text.contains("\nnext: "), "{text}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
