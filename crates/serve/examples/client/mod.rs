//! `gpulab serve` as a process of its own, and plain HTTP to it or to another server.

use gpulab_measure::{Error, Result};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the servers that are started here ask for, and clients send.
pub const TOKEN: &str = "a-token-of-this-run";
/// A client that waits longer for one answer gives up, and that is a finding.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs.
pub struct Served {
    child: Child,
    pub address: SocketAddr,
    /// From the start of the process to its first healthy answer.
    pub start_s: f64,
    /// The line in which it says where it is, and what it serves.
    pub said: String,
}

impl Served {
    /// Starts the program with these options of `gpulab serve`, at a free port, with `more` in its environment; what it logs goes to a file.
    pub fn start(program: &Path, options: &[String], more: &[(&str, &str)], log: &Path) -> Result<Served> {
        let begin = Instant::now();
        let log = std::fs::File::options().create(true).append(true).open(log).map_err(Error::io(
            log,
            "write",
            "choose another folder",
        ))?;
        let mut command = Command::new(program);
        command.args(["serve", "--port", "0"]).args(options);
        command.env("GPULAB_SERVE_TOKEN", TOKEN).envs(more.iter().copied()).stdout(Stdio::piped()).stderr(log);
        let mut child =
            command.spawn().map_err(Error::io(program, "start", "build it: cargo build --release -p gpulab-cli"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            let mut out = BufReader::new(out);
            let _ = out.read_line(&mut line);
            // The server goes on when nobody reads what it says.
            std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        }
        let address = line.split("http://").nth(1).and_then(|rest| rest.split([',', ' ']).next());
        let Some(address) = address.and_then(|text| text.trim_end_matches(':').parse().ok()) else {
            return Err(Error::unsupported(format!("the server said: {line:?}"), "read its log"));
        };
        let mut served = Served { child, address, start_s: 0.0, said: line };
        while served.get("/healthz").map(|answer| answer.status).unwrap_or(0) != 200 {
            std::thread::sleep(Duration::from_millis(5));
        }
        served.start_s = begin.elapsed().as_secs_f64();
        Ok(served)
    }

    /// What it answers at that path.
    pub fn get(&self, path: &str) -> std::io::Result<Told> {
        let mut stream = connect(self.address)?;
        stream.write_all(&head("GET", path, Some(TOKEN), "", 0))?;
        receive(&mut BufReader::new(stream), usize::MAX, &mut |_| ())
    }

    /// Bytes of the process in memory.
    pub fn resident(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        kib.and_then(|text| text.trim_end_matches("kB").trim().parse::<f64>().ok()).map_or(f64::NAN, |kib| kib * 1024.0)
    }
}

impl Served {
    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A connection that does not wait for ever.
pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// What a client was told. A status of 0: the connection ended without a word.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    pub head: String,
    pub body: String,
    pub whole: bool,
}

/// The head of a request.
pub fn head(method: &str, path: &str, token: Option<&str>, kind: &str, length: usize) -> Vec<u8> {
    let token = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
    let kind = if kind.is_empty() { String::new() } else { format!("content-type: {kind}\r\n") };
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{token}{kind}content-length: {length}\r\n\r\n").into_bytes()
}

/// Reads an answer, of a stream at most so many chunks; `each` hears of them as they come.
pub fn receive(stream: &mut impl BufRead, chunks: usize, each: &mut dyn FnMut(&[u8])) -> std::io::Result<Told> {
    let mut told = Told { status: 0, head: String::new(), body: String::new(), whole: false };
    while !told.head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut told.head)? == 0 {
            return Ok(told);
        }
    }
    told.head.make_ascii_lowercase();
    told.status = told.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let field = |name: &str| told.head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mut body = Vec::new();
    if let Some(length) = field("content-length:").and_then(|length| length.parse().ok()) {
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
        told.whole = true;
    } else {
        for _ in 0..chunks {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                break;
            }
            let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            let begin = body.len();
            body.resize(begin + length + 2, 0);
            stream.read_exact(&mut body[begin..])?;
            body.truncate(begin + length);
            each(&body[begin..]);
            if length == 0 {
                told.whole = true;
                break;
            }
        }
    }
    told.body = String::from_utf8_lossy(&body).into_owned();
    Ok(told)
}
