//! Asking other programs, without ever waiting for one that hangs.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a program printed, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Whether it ended with status 0.
    pub good: bool,
    /// How it ended, in words: `exit status: 1`.
    pub status: String,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// What `program` prints on its standard output, or why there is none: it is missing, it failed
/// (with the last line that it printed), or it took longer than `limit` and was stopped.
pub fn output_of(program: &str, arguments: &[&str], limit: Duration) -> Result<String, String> {
    let Output { good, status, out, err } = run(program, arguments, limit)?;
    if good {
        return Ok(out);
    }
    let last = err.lines().chain(out.lines()).rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{program} failed ({status}): {}", last.trim()))
}

/// Both outputs of `program`, whatever its status; an error when it is missing, or took longer than `limit` and was stopped.
pub fn run(program: &str, arguments: &[&str], limit: Duration) -> Result<Output, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C") // what is parsed must not be translated
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    // Read on threads of their own: a program that fills a pipe nobody empties would wait for ever.
    let outputs = [
        child.stdout.take().map(|pipe| std::thread::spawn(move || read(pipe))),
        child.stderr.take().map(|pipe| std::thread::spawn(move || read(pipe))),
    ];
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < limit => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{program} did not answer within {} s", limit.as_secs_f64()));
            }
            Err(error) => return Err(format!("{program}: {error}")),
        }
    };
    let [out, err] = outputs.map(|thread| thread.and_then(|t| t.join().ok()).unwrap_or_default());
    Ok(Output { good: status.success(), status: status.to_string(), out, err })
}

fn read(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn output_comes_back_however_much_it_is() {
        assert_eq!(output_of("sh", &["-c", "echo hello; echo no >&2"], LIMIT).unwrap(), "hello\n");
        let much = output_of("sh", &["-c", "yes | head -c 1000000; yes | head -c 1000000 >&2"], LIMIT).unwrap();
        assert_eq!(much.len(), 1_000_000);
    }

    #[test]
    fn each_way_to_fail_is_named() {
        let missing = output_of("no-such-program", &[], LIMIT).unwrap_err();
        assert!(missing.starts_with("no-such-program: "), "{missing}");
        let failed = output_of("sh", &["-c", "echo broken >&2; exit 3"], LIMIT).unwrap_err();
        assert!(failed.contains("3") && failed.ends_with("broken"), "{failed}");
        let start = Instant::now();
        let slow = output_of("sleep", &["30"], Duration::from_millis(100)).unwrap_err();
        assert!(slow.contains("did not answer") && start.elapsed() < Duration::from_secs(5), "{slow}");
    }
}
