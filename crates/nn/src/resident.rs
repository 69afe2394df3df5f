//! How much memory this process holds.

use gpulab::command::output_of;
use std::time::Duration;

/// Bytes of memory that this process has in use now, as the operating system counts them; `None` where it does not tell.
pub fn resident_bytes() -> Option<u64> {
    let kib = match std::fs::read_to_string("/proc/self/status") {
        Ok(status) => status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()),
        // macOS has no such file; `ps` counts the same.
        Err(_) => {
            let pid = std::process::id().to_string();
            output_of("ps", &["-o", "rss=", "-p", &pid], Duration::from_secs(2))
                .ok()
                .and_then(|text| text.trim().parse().ok())
        }
    };
    kib.map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_written_shows() {
        let before = resident_bytes().unwrap();
        let held = vec![1u8; 256 << 20];
        let after = resident_bytes().unwrap();
        // Other tests run beside it; what they give back is less than half of this.
        assert!(after > before + (128 << 20), "{before} {after} {}", held[7]);
    }
}
