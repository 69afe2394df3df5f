//! Ranks as processes of this host: each test starts this very program again, once for each rank.

use gpulab_measure::Result;
use gpulab_ranks::{Algorithm, BFloat16, Collectives, Communicator, Op, Processes, Rank, World};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Names what a started process is to do.
const CODE: &str = "GPULAB_RANKS_TEST_CODE";

fn numbers(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|at| ((at * 31 + rank * 17) as f32 * 0.37).sin() * 10_f32.powi(rank as i32 % 4)).collect()
}

/// A bit of everything; bits that a world of threads has as well.
fn everything(rank: &Rank) -> Result<Vec<u32>> {
    let (me, n) = (rank.rank(), rank.size());
    let mut found = Vec::new();
    for by in Algorithm::ALL.into_iter().chain([Algorithm::Direct]) {
        let mut x = numbers(me, 1001);
        rank.by(by).all_reduce(&mut x, Op::Avg)?;
        found.extend(x.iter().map(|x| x.to_bits()));
    }
    let (mut own, mut all) = (vec![BFloat16::default(); 5], vec![BFloat16::default(); 5 * n]);
    rank.reduce_scatter(&BFloat16::round(&numbers(me, 5 * n)), &mut own, Op::Sum)?;
    let gathering = rank.start_all_gather(&own)?;
    rank.barrier()?;
    gathering.wait(&mut all)?;
    found.extend(all.iter().map(|x| u32::from(x.0)));
    let mut left = [0_u64];
    rank.send_recv(&[me as u64][..], (me + 1) % n, &mut left[..], (me + n - 1) % n)?;
    let half = rank.split(me % 2)?;
    let mut sum = [me as i64];
    half.all_reduce(&mut sum[..], Op::Sum)?;
    // More than what fits into a connection's buffers, in both directions.
    let mut large = vec![1.0_f64; 1 << 18];
    rank.all_reduce(&mut large, Op::Sum)?;
    found.extend([left[0] as u32, half.size() as u32, sum[0] as u32, large[9] as u32]);
    Ok(found)
}

fn sum_for_ever(rank: &Rank) -> Result<Vec<u32>> {
    for step in 0_u32.. {
        rank.all_reduce(&mut vec![1.0_f32; 1000][..], Op::Sum)?;
        if step == 20 {
            println!("RUNNING");
        }
    }
    Ok(Vec::new())
}

fn other_calls(rank: &Rank) -> Result<Vec<u32>> {
    match rank.rank() {
        1 => rank.broadcast(&mut [0.0_f32; 8][..], 0)?,
        _ => rank.all_reduce(&mut [0.0_f32; 8][..], Op::Sum)?,
    }
    Ok(Vec::new())
}

fn panics(rank: &Rank) -> Result<Vec<u32>> {
    rank.barrier()?;
    assert!(rank.rank() != 1, "no such layer: {}", 77);
    rank.barrier()?;
    Ok(Vec::new())
}

fn skips(rank: &Rank) -> Result<Vec<u32>> {
    if rank.rank() > 0 {
        rank.barrier()?;
    }
    Ok(Vec::new())
}

/// What a started process does; without the variable it is a test that does nothing.
#[test]
fn as_a_rank() {
    let Ok(code) = std::env::var(CODE) else { return };
    let code = match code.as_str() {
        "everything" => everything,
        "sum for ever" => sum_for_ever,
        "other calls" => other_calls,
        "panics" => panics,
        _ => skips,
    };
    let limit = std::env::var("LIMIT_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000);
    let outcome = match Processes::from_environment(Duration::from_millis(limit)) {
        Ok(processes) => processes.run(code).map_err(|failure| failure.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(found) => println!("\nRESULT {found:?}"),
        Err(text) => println!("\nFAILED {text}"),
    }
}

const LAUNCHERS: [[&str; 3]; 3] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts one rank, as that launcher would.
fn start(code: &str, launcher: [&str; 3], rank: usize, size: usize, port: u16) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["as_a_rank", "--exact", "--nocapture"]).env(CODE, code);
    for name in LAUNCHERS.iter().flatten() {
        command.env_remove(name);
    }
    for (name, number) in launcher.iter().zip([rank, size, rank]) {
        command.env(name, number.to_string());
    }
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    // Long enough for a machine that has other work, and short where one is to be late.
    command.env("LIMIT_MS", if code == "sum for ever" { "5000" } else { "60000" });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn all(code: &str, size: usize) -> Vec<Child> {
    let port = free_port();
    (0..size).map(|rank| start(code, LAUNCHERS[0], rank, size, port)).collect()
}

/// What it printed behind `RESULT` or `FAILED`.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = text.find("RESULT").or_else(|| text.find("FAILED"));
    at.map_or(format!("{text}{}", String::from_utf8_lossy(&output.stderr)), |at| text[at..].to_string())
}

fn all_said(children: Vec<Child>) -> Vec<String> {
    children.into_iter().map(|child| said(&child.wait_with_output().unwrap())).collect()
}

#[test]
fn processes_compute_what_threads_compute_whoever_starts_them() {
    for (size, launcher) in [(2, LAUNCHERS[0]), (4, LAUNCHERS[1]), (8, LAUNCHERS[2])] {
        let threads = World::new(size).run(everything).unwrap().results;
        let port = free_port();
        // The last one first: they wait for rank 0.
        let mut children: Vec<Child> =
            (0..size).rev().map(|rank| start("everything", launcher, rank, size, port)).collect();
        children.reverse();
        for (rank, text) in all_said(children).iter().enumerate() {
            let expected = format!("RESULT {:?}", threads[rank]);
            assert!(text.starts_with(&expected), "{size} ranks, rank {rank}: {}", &text[..text.len().min(400)]);
        }
    }
}

/// Waits until that process says that it is at work.
fn running(child: &mut Child) {
    let mut line = String::new();
    let mut from = BufReader::with_capacity(1, child.stdout.as_mut().unwrap());
    while !line.contains("RUNNING") {
        line.clear();
        assert!(from.read_line(&mut line).unwrap() > 0, "it has ended");
    }
}

#[test]
fn a_killed_process_ends_the_others_within_ten_seconds_and_is_named() {
    for size in [2, 4, 8] {
        let mut children = all("sum for ever", size);
        children.iter_mut().for_each(running);
        let mut killed = children.remove(1);
        let (number, begin) = (killed.id(), Instant::now());
        killed.kill().unwrap();
        for text in all_said(children) {
            assert!(text.starts_with("FAILED rank 1 is gone (127.0.0.1, process"), "{text}");
            assert!(text.contains(&format!("process {number})")) && text.contains("next: look for that process"));
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
        killed.wait().unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_stopped_process_is_late_and_named() {
    // Of three, the one that waits for a waiting rank may be the first whose time is over.
    let mut children = all("sum for ever", 2);
    children.iter_mut().for_each(running);
    let mut stopped = children.remove(1);
    let begin = Instant::now();
    assert!(Command::new("kill").args(["-STOP", &stopped.id().to_string()]).status().unwrap().success());
    for text in all_said(children) {
        assert!(text.starts_with("FAILED rank 1 is late"), "{text}");
        assert!(text.contains("has waited 5 s in `all_reduce`") && text.contains("processes.rs:"), "{text}");
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    stopped.kill().unwrap();
    stopped.wait().unwrap();
}

#[test]
fn mistakes_end_every_process_with_the_same_words() {
    for (code, parts) in [
        (
            "other calls",
            ["the ranks do not make the same calls", "`broadcast` of 8 f32, from rank 0", "`all_reduce` of 8 f32, sum"],
        ),
        ("panics", ["rank 1 panicked after `barrier`", "no such layer: 77", "processes.rs:"]),
        ("skips", ["deadlock", "waits in `barrier`", "rank 0 has ended"]),
    ] {
        let texts = all_said(all(code, 2));
        let failed: Vec<&String> = texts.iter().filter(|text| text.starts_with("FAILED")).collect();
        assert!(failed.len() == 2, "{code}: {texts:?}");
        for text in failed {
            assert!(parts.iter().all(|part| text.contains(part)) && text.contains("\nnext: "), "{code}: {text}");
        }
    }
}

#[test]
fn ranks_that_do_not_belong_together_are_refused() {
    let port = free_port();
    let first = start("everything", LAUNCHERS[0], 0, 2, port);
    let second = start("everything", LAUNCHERS[0], 1, 3, port);
    for text in all_said(vec![first, second]) {
        assert!(text.contains("says that there are 3 ranks, and rank 0 says 2"), "{text}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let alone = start("everything", LAUNCHERS[0], 0, 2, taken.local_addr().unwrap().port());
    let text = all_said(vec![alone]).remove(0);
    assert!(text.contains("rank 0 cannot listen") && text.contains("MASTER_PORT"), "{text}");
}

#[test]
fn a_stranger_on_the_port_is_passed_over() {
    let port = free_port();
    let mut first = start("everything", LAUNCHERS[0], 0, 2, port);
    let mut stranger = loop {
        match std::net::TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(_) => assert!(first.try_wait().unwrap().is_none()),
        }
    };
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let second = start("everything", LAUNCHERS[0], 1, 2, port);
    let texts = all_said(vec![first, second]);
    assert!(texts.iter().all(|text| text.starts_with("RESULT")), "{texts:?}");
    drop(stranger.read(&mut [0; 1]));
}
