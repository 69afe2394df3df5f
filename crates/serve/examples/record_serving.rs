//! How fast a server answers so many clients at once, beside another server that speaks the same interface, asked alternately.
//!
//! `cargo run --release -p gpulab-serve --features server --example record_serving -- target/release/gpulab OUT [--peer ADDRESS --name NAME]
//! [--clients 1,8] [--prompt 128] [--answer 64] [--requests 16] [--rounds 5] [-- OPTIONS OF gpulab serve]` starts `gpulab serve`, lets so
//! many clients send one request after the other, each with a prompt of its own, and writes OUT.csv and OUT.md. A peer, such as llama.cpp's
//! `llama-server`, is started by hand; rounds alternate. Prompts are words that a seed draws, or with `--characters` so many characters (tokens of
//! a model with random weights); tokens are counted by each server. `--half` adds, for each count of clients, requests that come by chance (Poisson)
//! half as often as that many clients had them answered.

mod client;

use client::{Served, TOKEN, connect, head, receive};
use gpulab_measure::measurement::{Summary, figures};
use gpulab_measure::{Error, Result, cpu_info, results};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const WORDS: [&str; 24] = [
    "river", "seven", "paper", "window", "green", "north", "signal", "memory", "garden", "orange", "winter", "circle",
    "engine", "silver", "market", "letter", "summer", "bridge", "number", "forest", "copper", "island", "thread",
    "cloud",
];

struct Load {
    clients: usize,
    requests: usize,
    prompt: usize,
    /// Whether the prompt is so many characters, and not words.
    characters: bool,
    answer: usize,
}

/// Of one round with one server.
#[derive(Debug, Default, Clone)]
struct Round {
    seconds: f64,
    /// Tokens of prompts and of answers, as the server counts them.
    read: u64,
    answered: u64,
    /// Of each request, until its first piece of text.
    first_ms: Vec<f64>,
    /// Between two steps of the model.
    between_us: Option<f64>,
}

/// A request, timed until its first piece of text and to its end.
fn ask(address: SocketAddr, load: &Load, seed: usize) -> std::io::Result<(f64, u64, u64)> {
    let mut state = seed as u64;
    let words: Vec<&str> = (0..load.prompt)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            WORDS[(state >> 33) as usize % WORDS.len()]
        })
        .collect();
    let mut prompt = words.join(" ");
    if load.characters {
        prompt.truncate(load.prompt);
    }
    let body = json!({
        "prompt": prompt, "max_tokens": load.answer, "temperature": 0, "stream": true,
        "stream_options": {"include_usage": true},
    });
    let body = body.to_string();
    let mut stream = connect(address)?;
    let begin = Instant::now();
    let head = head("POST", "/v1/completions", Some(TOKEN), "application/json", body.len());
    stream.write_all(&[&head[..], body.as_bytes()].concat())?;
    let mut first = None;
    let told = receive(&mut BufReader::new(stream), usize::MAX, &mut |piece| {
        if first.is_none() && !piece.is_empty() {
            first = Some(begin.elapsed().as_secs_f64() * 1e3);
        }
    })?;
    let mut events =
        told.body.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let usage = events.rfind(|event| event["usage"].is_object());
    let count = |name: &str| usage.as_ref().and_then(|event| event["usage"][name].as_u64());
    match (first, count("prompt_tokens"), count("completion_tokens")) {
        (Some(first), Some(read), Some(answered)) if told.status == 200 => Ok((first, read, answered)),
        _ => Err(std::io::Error::other(format!(
            "status {}: {}",
            told.status,
            told.body.chars().take(300).collect::<String>()
        ))),
    }
}

/// Sorts times, and gives that below which 99 of 100 are.
fn latest(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[(times.len() * 99).div_ceil(100) - 1]
}

/// Requests that come by chance, `rate` of them a second on average, whoever is still waiting: until each one's first piece of text, in ms.
fn by_chance(address: SocketAddr, load: &Load, rate: f64, count: usize) -> Result<Vec<f64>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut at = 0.0;
    let times = (0..count).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at -= (((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64).ln() / rate;
        at
    });
    let (times, begin) = (times.collect::<Vec<f64>>(), Instant::now());
    let told: Vec<std::io::Result<f64>> = std::thread::scope(|scope| {
        let clients = times.iter().enumerate().map(|(number, at)| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_secs_f64(*at).saturating_sub(begin.elapsed()));
                ask(address, load, 77 * 100_003 + number).map(|(first, ..)| first)
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    told.into_iter().collect::<std::io::Result<Vec<f64>>>().map_err(|error| {
        Error::unsupported(format!("a request by chance to {address} failed: {error}"), "see the server's log")
    })
}

/// Seconds that the model has computed in all, and steps: what is between them is the server's. Nothing of a peer.
fn computed(address: SocketAddr) -> Option<(f64, f64)> {
    let mut stream = connect(address).ok()?;
    stream.write_all(&head("GET", "/metrics", Some(TOKEN), "text/plain", 0)).ok()?;
    let told = receive(&mut BufReader::new(stream), usize::MAX, &mut |_| ()).ok()?;
    let number =
        |name: &str| -> Option<f64> { told.body.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()) };
    Some((number("gpulab_serve_step_seconds_sum")?, number("gpulab_serve_step_seconds_count")?))
}

/// All clients send their requests, one after the other.
fn round(address: SocketAddr, load: &Load, seed: usize) -> Result<Round> {
    let (left, all) = (AtomicUsize::new(load.requests * load.clients), Mutex::new((Round::default(), Vec::new())));
    let before = computed(address);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..load.clients {
            scope.spawn(|| {
                while let Ok(number) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) {
                    let told = ask(address, load, seed * 100_003 + number);
                    let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match told {
                        Ok((first, read, answered)) => {
                            all.0.first_ms.push(first);
                            all.0.read += read;
                            all.0.answered += answered;
                        }
                        Err(error) => all.1.push(error.to_string()),
                    }
                }
            });
        }
    });
    let (mut found, failed) = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.seconds = begin.elapsed().as_secs_f64();
    found.between_us = before
        .zip(computed(address))
        .map(|((before, steps), (after, more))| 1e6 * (found.seconds - (after - before)) / (more - steps).max(1.0));
    match failed.first() {
        Some(error) => Err(Error::unsupported(
            format!("{} requests to {address} failed: {error}", failed.len()),
            "see the server's log",
        )),
        None => Ok(found),
    }
}

/// The processor, and the GPU with its driver where the options ask for one.
fn machine(options: &[String]) -> String {
    let cpu = cpu_info::info().short_name();
    if !options.iter().any(|option| option == "cuda") {
        return cpu;
    }
    let asked = Command::new("nvidia-smi").args(["--query-gpu=name,driver_version", "--format=csv,noheader"]).output();
    let told = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    told.lines().next().map_or(cpu.clone(), |gpu| format!("{}; {cpu}", gpu.replacen(", ", ", driver ", 1)))
}

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let at = given.iter().position(|word| word == "--").unwrap_or(given.len());
    let (own, options) = (&given[..at], given.get(at + 1..).unwrap_or_default());
    let (mut places, mut peer, mut name, mut counts) = (Vec::new(), None, "peer".to_string(), vec![1, 8]);
    let (mut prompt, mut answer, mut requests, mut rounds) = (128, 64, 16, 5);
    let (mut characters, mut half) = (false, false);
    let mut arguments = own.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value")).clone();
        let number = |text: String| -> usize { text.parse().expect("a number follows") };
        match argument.as_str() {
            "--peer" => peer = Some(value().parse::<SocketAddr>().expect("an address such as 127.0.0.1:8080")),
            "--name" => name = value(),
            "--clients" => counts = value().split(',').map(|one| number(one.to_string())).collect(),
            "--prompt" => prompt = number(value()),
            "--characters" => characters = true,
            "--half" => half = true,
            "--answer" => answer = number(value()),
            "--requests" => requests = number(value()),
            "--rounds" => rounds = number(value()),
            place => places.push(PathBuf::from(place)),
        }
    }
    let [program, out] = places.as_slice() else {
        return Err(Error::invalid(
            "no program and place",
            "name target/release/gpulab, and where the results go, such as results/cpu/serving",
        ));
    };
    let log = std::env::temp_dir().join(format!("gpulab-serving-{}.log", std::process::id()));
    let served = Served::start(program, options, &[], &log)?;
    let mut sides = vec![("gpulab serve".to_string(), served.address)];
    sides.extend(peer.map(|address| (name, address)));
    let (now, commit, machine) = (results::now_utc(), results::commit(), machine(options));
    let stamp = format!("{now},{commit},\"{machine}\"");
    let mut csv = "time,commit,machine,server,clients,what,value,unit,samples,p10,p90\n".to_string();
    let unit = if characters { "characters" } else { "words" };
    let mut page = format!(
        "# Servers beside each other\n\n<!-- written by record_serving -->\n\nEach client sends {requests} requests, one after the other: a prompt of {prompt} {unit}, at most {answer} tokens \
         answered. {rounds} rounds, the servers alternately; {}.\n`record_serving {}`; ours: {}\n\n| clients | server | answered tokens/s | all tokens/s | first token, median | \
         its 99th percentile |\n| ---: | --- | ---: | ---: | ---: | ---: |\n",
        format_args!("{now}, {commit}, {machine}"),
        given.join(" "),
        served.said.trim_end()
    );
    let mut between_steps = Vec::new();
    for clients in counts {
        let load = Load { clients, requests, prompt, characters, answer };
        let mut found = vec![Vec::new(); sides.len()];
        // What is loaded or allocated at first is not timed.
        for (_, address) in &sides {
            round(*address, &Load { requests: 1, ..load }, 0)?;
        }
        for turn in 0..rounds {
            for (number, (_, address)) in sides.iter().enumerate() {
                found[number].push(round(*address, &load, 1 + turn)?);
            }
        }
        let rate = |of: &dyn Fn(&Round) -> u64, rounds: &[Round]| -> Vec<f64> {
            rounds.iter().map(|round| of(round) as f64 / round.seconds).collect()
        };
        for ((name, _), rounds) in sides.iter().zip(&found) {
            let mut first: Vec<f64> = rounds.iter().flat_map(|round| round.first_ms.clone()).collect();
            let late = latest(&mut first);
            let answered = rate(&|round| round.answered, rounds);
            let all = rate(&|round| round.answered + round.read, rounds);
            for (what, unit, samples) in
                [("answered tokens", "1/s", &answered), ("all tokens", "1/s", &all), ("first token", "ms", &first)]
            {
                let Summary { median, p10, p90, .. } = Summary::of(samples);
                let _ = writeln!(
                    csv,
                    "{stamp},{name},{clients},{what},{median:.4},{unit},{},{p10:.4},{p90:.4}",
                    samples.len()
                );
            }
            let _ = writeln!(
                csv,
                "{stamp},{name},{clients},first token: p99,{late:.4},ms,{},{late:.4},{late:.4}",
                first.len()
            );
            let between: Vec<f64> = rounds.iter().filter_map(|round| round.between_us).collect();
            if !between.is_empty() {
                let Summary { median, p10, p90, .. } = Summary::of(&between);
                let _ = writeln!(
                    csv,
                    "{stamp},{name},{clients},between two steps,{median:.1},µs,{},{p10:.1},{p90:.1}",
                    between.len()
                );
                between_steps.push(format!("{clients} clients, {} µs", figures(median)));
            }
            let median = |samples: &[f64]| figures(Summary::of(samples).median);
            let _ = writeln!(
                page,
                "| {clients} | {name} | {} | {} | {} ms | {} ms |",
                median(&answered),
                median(&all),
                median(&first),
                figures(late)
            );
        }
        if half {
            let requests: Vec<f64> = found[0].iter().map(|round| round.first_ms.len() as f64 / round.seconds).collect();
            let rate = Summary::of(&requests).median / 2.0;
            let mut first = by_chance(sides[0].1, &load, rate, (requests.len() * 40).max(200))?;
            let late = latest(&mut first);
            let Summary { median, p10, p90, .. } = Summary::of(&first);
            for (what, value, low, high) in [("median", median, p10, p90), ("p99", late, late, late)] {
                let _ = writeln!(
                    csv,
                    "{stamp},{},{clients},first token at half the load: {what},{value:.4},ms,{},{low:.4},{high:.4}",
                    sides[0].0,
                    first.len()
                );
            }
            let _ = writeln!(
                page,
                "| half of {clients}: {} requests/s by chance | {} | | | {} ms | {} ms |",
                figures(rate),
                sides[0].0,
                figures(median),
                figures(late)
            );
        }
        if let [ours, theirs] = &found[..] {
            let pairs = rate(&|round| round.answered, ours).into_iter().zip(rate(&|round| round.answered, theirs));
            let Summary { median, p10, p90, .. } =
                Summary::of(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<f64>>());
            let _ = writeln!(csv, "{stamp},ratio,{clients},answered tokens,{median:.4},×,{rounds},{p10:.4},{p90:.4}");
            let _ = writeln!(page, "| {clients} | ratio | {} | | | |", figures(median));
        }
    }
    let _ = writeln!(
        page,
        "\nBetween two steps of our model: {}.\n\nMemory of our process at the end: {:.0} MB; it answered {:.2} s after its start.",
        between_steps.join("; "),
        served.resident() / 1e6,
        served.start_s
    );
    for (ending, text) in [("csv", csv), ("md", page.clone())] {
        let path = out.with_extension(ending);
        std::fs::write(&path, text).map_err(Error::io(&path, "write", "choose another folder"))?;
    }
    println!("{page}");
    let _ = std::fs::remove_file(&log);
    Ok(())
}
