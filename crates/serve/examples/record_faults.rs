//! Thousands of requests, many of them wrong, slow or broken off, to `gpulab serve` as a process of its own: what each was told, what the
//! server's memory did, and whether a block of its cache was lost. Then it is killed in the middle of its answers and started again.
//!
//! `cargo run --release -p gpulab-serve --features server --example record_faults -- target/release/gpulab results/cpu [--model PATH]
//! [--requests 30000] [--clients 48]` writes `serve_faults.csv` and `serve_faults.md` there, and ends with 1 where something was not as it should be.

mod client;

use client::{PATIENCE, Served, TOKEN, Told, connect, head, receive};
use gpulab_measure::{Error, Result, cpu_info, results};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BATCH: usize = 8;
const QUEUE: usize = 24;
const CACHE_MIB: usize = 2;
const BODY_KIB: usize = 8;
/// Memory is looked at after each of so many parts of the requests. The first two thirds warm the server up: its heap
/// reaches its largest size only when the largest answers have met often enough.
const PARTS: usize = 12;
const WARM: usize = 8;
/// glibc's allocator is to give back what was freed at once: what it keeps for later would look like a leak, or hide one.
const GIVE_BACK: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "65536"), ("MALLOC_MMAP_THRESHOLD_", "65536")];
/// How much the memory may grow over the last third.
const FLAT: f64 = 0.01;
/// How many answers are on their way when the server is killed.
const STREAMS: usize = 6;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Answer,
    Stream,
    GoneAtOnce,
    GoneInTheMiddle,
    BadJson,
    WrongType,
    UnknownField,
    NotUtf8,
    TooLong,
    TooLarge,
    NoJsonType,
    CutOff,
    NoPath,
    WrongMethod,
    NoToken,
    WrongToken,
    SlowToSend,
    SlowToRead,
    Silent,
}

use Kind::*;

/// Each kind: its name, how many of a hundred, and the statuses that it may get. 0 stands for a connection that ended without an answer.
/// What could be answered may also find a full queue (429).
const KINDS: [(Kind, &str, usize, &[u16]); 19] = [
    (Answer, "a whole answer", 16, &[200, 429]),
    (Stream, "a stream, read to its end", 14, &[200, 429]),
    (GoneAtOnce, "gone when the request is sent", 10, &[0]),
    (GoneInTheMiddle, "gone in the middle of a stream", 20, &[200, 429]),
    (BadJson, "malformed JSON", 4, &[400]),
    (WrongType, "a value of another type", 4, &[400]),
    (UnknownField, "an unknown field", 3, &[400]),
    (NotUtf8, "invalid UTF-8", 4, &[400]),
    (TooLong, "a prompt beyond the context", 4, &[400]),
    (TooLarge, "a body beyond the limit", 3, &[413]),
    (NoJsonType, "another content type", 2, &[415]),
    (CutOff, "a body that is cut off", 3, &[0, 400]),
    (NoPath, "an unknown path", 2, &[404]),
    (WrongMethod, "another method", 2, &[405]),
    (NoToken, "no token", 3, &[401]),
    (WrongToken, "a wrong token", 3, &[401]),
    (SlowToSend, "a body that comes in small pieces", 1, &[200, 429]),
    (SlowToRead, "nothing of a stream is read for 1 s", 1, &[200, 429]),
    (Silent, "nothing comes behind half a head", 1, &[0, 408]),
];

/// The same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// How the server is started.
fn options(model: Option<&Path>) -> Vec<String> {
    let given = [("--batch", BATCH), ("--queue", QUEUE), ("--cache-mib", CACHE_MIB), ("--body-kib", BODY_KIB)];
    let mut options: Vec<String> = given.iter().flat_map(|(name, n)| [name.to_string(), n.to_string()]).collect();
    options.extend(model.iter().flat_map(|path| ["--model".to_string(), path.display().to_string()]));
    options
}

/// The longest text of the model that is served, in tokens.
fn context(served: &Served) -> usize {
    let behind = served.said.split("a context of ").nth(1).and_then(|rest| rest.split(' ').next());
    behind.and_then(|number| number.parse().ok()).unwrap_or(256)
}

/// What the server says of itself.
fn status(served: &Served) -> Result<Value> {
    let answer = served.get("/status").map_err(|error| {
        Error::unsupported(format!("the server gives no status: {error}"), "read its log for what ended it")
    })?;
    serde_json::from_str(&answer.body)
        .map_err(|error| Error::unsupported(format!("{error}: {}", answer.body), "look at /status by hand"))
}

/// Waits until nobody is served, and says how many blocks of the cache are held then, which should be none.
fn held_when_idle(served: &Served) -> Result<u64> {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = status(served)?;
        let idle = status["batch"].as_array().is_some_and(Vec::is_empty) && status["waiting"] == json!(0);
        let count = |name: &str| status["cache"][name].as_u64();
        let held = count("blocks").zip(count("free")).map_or(u64::MAX, |(blocks, free)| blocks - free);
        if idle && held == 0 || Instant::now() > until {
            return Ok(held);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One request of that kind.
fn ask(served: &Served, kind: Kind, random: &mut Random) -> std::io::Result<Told> {
    let (path, json_type) = ("/v1/completions", "application/json");
    let most = 2 + random.below(30);
    let good = |stream: bool, random: &mut Random| {
        let prompt: String = (0..1 + random.below(60)).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        json!({"prompt": prompt, "max_tokens": most, "stream": stream, "seed": random.below(1000)})
            .to_string()
            .into_bytes()
    };
    let streamed = matches!(kind, Stream | GoneInTheMiddle | SlowToRead);
    let body = match kind {
        BadJson => {
            let mut body = good(false, random);
            body.truncate(1 + random.below(body.len() - 1));
            body
        }
        WrongType => match random.below(4) {
            0 => br#"{"prompt": 5}"#.to_vec(),
            1 => br#"{"prompt": "a", "max_tokens": "many"}"#.to_vec(),
            2 => br#"{"prompt": "a", "temperature": [1]}"#.to_vec(),
            _ => br#"["prompt"]"#.to_vec(),
        },
        UnknownField => br#"{"prompt": "a", "max_token": 5}"#.to_vec(),
        NotUtf8 => [br#"{"prompt": "a"#.as_slice(), &[0xff, 0x80 + random.below(64) as u8], b"\"}"].concat(),
        TooLong => json!({"prompt": "word ".repeat(context(served) / 2)}).to_string().into_bytes(),
        TooLarge => json!({"prompt": "a".repeat(BODY_KIB * 1024 + random.below(1000))}).to_string().into_bytes(),
        _ => good(streamed, random),
    };
    let (method, path, token, content) = match kind {
        NoPath => ("POST", "/v1/embeddings", Some(TOKEN), json_type),
        WrongMethod => ("PUT", path, Some(TOKEN), json_type),
        NoToken => ("POST", path, None, json_type),
        WrongToken => ("POST", path, Some("another"), json_type),
        NoJsonType => ("POST", path, Some(TOKEN), "text/plain"),
        _ => ("POST", path, Some(TOKEN), json_type),
    };
    let mut stream = connect(served.address)?;
    let head = head(method, path, token, content, body.len());
    match kind {
        Silent => stream.write_all(&head[..head.len() / 2])?,
        CutOff => {
            stream.write_all(&[&head[..], &body[..body.len() / 2]].concat())?;
            stream.shutdown(std::net::Shutdown::Write)?;
        }
        SlowToSend => {
            stream.write_all(&head)?;
            for piece in body.chunks(body.len().div_ceil(10)) {
                std::thread::sleep(Duration::from_millis(100));
                stream.write_all(piece)?;
            }
        }
        // The server may answer, and close, before all of it was taken.
        _ => match stream.write_all(&[&head[..], &body[..]].concat()) {
            Err(_) if kind == TooLarge => {}
            other => other?,
        },
    }
    match kind {
        GoneAtOnce => Ok(Told { status: 0, head: String::new(), body: String::new(), whole: true }),
        GoneInTheMiddle => receive(&mut BufReader::new(stream), 1 + random.below(4), &mut |_| ()),
        SlowToRead => {
            std::thread::sleep(Duration::from_secs(1));
            receive(&mut BufReader::new(stream), 2, &mut |_| ())
        }
        _ => receive(&mut BufReader::new(stream), usize::MAX, &mut |_| ()),
    }
}

/// What is wrong with what a client of that kind was told.
fn wrong(kind: Kind, allowed: &[u16], told: &Told) -> Option<String> {
    let text = || told.body.chars().take(200).collect::<String>();
    if !allowed.contains(&told.status) {
        return Some(format!("{kind:?}: status {}: {}", told.status, text()));
    }
    if told.status == 200 {
        let ended = match kind {
            Answer | SlowToSend => told.whole && told.body.contains("\"usage\""),
            Stream => told.whole && told.body.ends_with("data: [DONE]\n\n"),
            _ => true,
        };
        return (!ended).then(|| format!("{kind:?}: it is not whole: {}", text()));
    }
    if told.status == 429 && !told.head.contains("\nretry-after:") {
        return Some(format!("{kind:?}: 429 without a time: {}", told.head));
    }
    let message = serde_json::from_str::<Value>(&told.body).ok();
    let message = message.as_ref().and_then(|body| body["error"]["message"].as_str()).unwrap_or_default();
    (told.status > 0 && !message.contains("\nnext: ")).then(|| format!("{kind:?}: no next step: {}", text()))
}

#[derive(Default)]
struct Findings {
    /// How many requests of a kind got a status.
    counts: BTreeMap<(Kind, u16), usize>,
    wrong: Vec<String>,
}

/// So many requests, by as many clients at once.
fn send(served: &Served, requests: usize, clients: usize, seed: u64, all: &Mutex<Findings>) {
    let left = AtomicUsize::new(requests);
    std::thread::scope(|scope| {
        for client in 0..clients as u64 {
            let (left, all) = (&left, &all);
            scope.spawn(move || {
                let mut random = Random(seed * 1000 + client);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    let mut at = random.below(100);
                    let Some((kind, _, _, allowed)) = KINDS.iter().find(|(_, _, share, _)| {
                        let here = at < *share;
                        at = at.wrapping_sub(if here { 0 } else { *share });
                        here
                    }) else {
                        continue;
                    };
                    let told = ask(served, *kind, &mut random);
                    let mut all = all.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match told {
                        Ok(told) => {
                            *all.counts.entry((*kind, told.status)).or_default() += 1;
                            all.wrong.extend(wrong(*kind, allowed, &told));
                        }
                        Err(error) => all.wrong.push(format!("{kind:?}: {error}")),
                    }
                }
            });
        }
    });
}

/// Kills the server once all of some streams have begun, and says how many ended without their last event.
fn kill_while_it_answers(mut served: Served) -> usize {
    let (begun, broken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let address = served.address;
    std::thread::scope(|scope| {
        for _ in 0..STREAMS {
            scope.spawn(|| {
                let body = json!({"prompt": "The", "max_tokens": 200, "stream": true}).to_string();
                let head = head("POST", "/v1/completions", Some(TOKEN), "application/json", body.len());
                let Ok(mut stream) = TcpStream::connect(address) else { return };
                if stream.write_all(&[&head[..], body.as_bytes()].concat()).is_err() {
                    return;
                }
                let (mut stream, mut text) = (BufReader::new(stream), String::new());
                while !text.contains("data: ") && stream.read_line(&mut text).is_ok_and(|bytes| bytes > 0) {}
                begun.fetch_add(1, Ordering::Relaxed);
                let _ = stream.read_to_string(&mut text);
                if text.contains("data: ") && !text.contains("[DONE]") {
                    broken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = Instant::now() + PATIENCE;
        while begun.load(Ordering::Relaxed) < STREAMS && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        served.kill();
    });
    broken.into_inner()
}

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let (mut places, mut model, mut requests, mut clients) = (Vec::new(), None, 30_000, 48);
    let mut arguments = given.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value")).clone();
        match argument.as_str() {
            "--model" => model = Some(PathBuf::from(value())),
            "--requests" => requests = value().parse().expect("a number follows"),
            "--clients" => clients = value().parse().expect("a number follows"),
            place => places.push(PathBuf::from(place)),
        }
    }
    let [program, folder] = places.as_slice() else {
        return Err(Error::invalid("no program and folder", "name target/release/gpulab and a folder for the results"));
    };
    let log = std::env::temp_dir().join(format!("gpulab-serve-faults-{}.log", std::process::id()));
    let served = Served::start(program, &options(model.as_deref()), &GIVE_BACK, &log)?;
    let first_start_s = served.start_s;
    let all = Mutex::new(Findings::default());
    let (begin, mut memory, mut held) = (Instant::now(), Vec::new(), 0);
    for part in 0..PARTS {
        send(&served, requests / PARTS, clients, 1 + part as u64, &all);
        held += held_when_idle(&served)?;
        memory.push(served.resident());
        println!(
            "{} requests, {:.1} MB, {:.0} s",
            (part + 1) * (requests / PARTS),
            memory[part] / 1e6,
            begin.elapsed().as_secs_f64()
        );
    }
    let seconds = begin.elapsed().as_secs_f64();
    let growth = memory[PARTS - 1] / memory[WARM - 1] - 1.0;
    let broken = kill_while_it_answers(served);
    let again = Served::start(program, &options(model.as_deref()), &GIVE_BACK, &log)?;
    let again_s = again.start_s;
    let mut random = Random(5);
    let after = ask(&again, Answer, &mut random).map(|told| told.status).unwrap_or(0);
    drop(again);
    let panics = std::fs::read_to_string(&log).unwrap_or_default().matches("panicked").count();
    let findings = all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);

    let checks = [
        ("requests that were told something wrong", findings.wrong.len() as f64, "1", findings.wrong.is_empty()),
        ("panics in the log", panics as f64, "1", panics == 0),
        ("blocks of the cache still held when nobody was served", held as f64, "1", held == 0),
        ("memory after a twelfth of the requests", memory[0] / 1e6, "MB", true),
        ("memory after two thirds of them", memory[WARM - 1] / 1e6, "MB", true),
        ("memory at the end", memory[PARTS - 1] / 1e6, "MB", true),
        ("growth over the last third", 100.0 * growth, "%", growth <= FLAT),
        ("first start, until it answers", first_start_s, "s", true),
        ("streams that broke off when it was killed, of 6", broken as f64, "1", broken > 0),
        ("start after the kill, until it answers", again_s, "s", again_s < 1.5 * first_start_s + 0.1),
        ("status of an answer after that", f64::from(after), "1", after == 200),
        ("all requests took", seconds, "s", true),
    ];
    for problem in findings.wrong.iter().take(20) {
        println!("WRONG {problem}");
    }
    let (now, commit, machine) = (results::now_utc(), results::commit(), cpu_info::info().short_name());
    let stamp = format!("{now},{commit},\"{machine}\"");
    let mut csv = "time,commit,machine,what,value,unit\n".to_string();
    let mut page = format!(
        "# A server, and clients that do everything wrong\n\n<!-- written by record_faults -->\n\n{} requests by {clients} clients at once to \
         `gpulab serve` with {}, a batch of {BATCH}, a queue of {QUEUE} and a KV cache of {CACHE_MIB} MiB, glibc told to give back at once what was freed; {}. Written by\n\
         `record_faults {}`.\n\n| what | requests | status |\n| --- | ---: | --- |\n",
        requests / PARTS * PARTS,
        model
            .as_deref()
            .and_then(Path::file_name)
            .map_or("the course's GPT".into(), |name| name.to_string_lossy().into_owned()),
        format_args!("{now}, {commit}, {machine}"),
        given.join(" ")
    );
    for (kind, name, _, _) in KINDS {
        let own =
            || findings.counts.iter().filter(|((one, _), _)| *one == kind).map(|((_, status), count)| (status, count));
        let told: Vec<String> = own()
            .map(
                |(status, count)| {
                    if *status == 0 { format!("{count} × connection ended") } else { format!("{count} × {status}") }
                },
            )
            .collect();
        let _ = writeln!(page, "| {name} | {} | {} |", own().map(|(_, count)| count).sum::<usize>(), told.join(", "));
        for (status, count) in own() {
            let _ = writeln!(csv, "{stamp},{name}: status {status},{count},1");
        }
    }
    page.push_str("\n| what | value |\n| --- | ---: |\n");
    for (what, value, unit, _) in &checks {
        let shown = if *unit == "1" { format!("{value}") } else { format!("{value:.2} {unit}") };
        let _ = writeln!(page, "| {what} | {shown} |");
        let _ = writeln!(csv, "{stamp},{},{value:.4},{unit}", what.replace(',', ""));
    }
    let failed: Vec<&str> = checks.iter().filter(|(.., good)| !good).map(|(what, ..)| *what).collect();
    let _ = writeln!(
        page,
        "\n{}",
        if failed.is_empty() {
            "Everything was as it should be.".to_string()
        } else {
            format!("Not as it should be: {}.", failed.join("; "))
        }
    );
    for (name, text) in [("serve_faults.csv", csv), ("serve_faults.md", page.clone())] {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(Error::io(&path, "write", "choose another folder"))?;
    }
    println!("{page}");
    if !failed.is_empty() {
        println!("the server's log: {}", log.display());
        std::process::exit(1);
    }
    let _ = std::fs::remove_file(&log);
    Ok(())
}
