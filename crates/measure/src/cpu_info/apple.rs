//! The CPU as macOS describes it, through `sysctl`.

use super::{Cache, CpuInfo};
use crate::command::output_of;
use std::time::Duration;

/// Asks `sysctl`; empty where there is none.
pub(super) fn ask() -> CpuInfo {
    parse(&output_of("sysctl", &["machdep.cpu.brand_string", "hw"], Duration::from_secs(2)).unwrap_or_default())
}

fn parse(text: &str) -> CpuInfo {
    let value = |key: &str| {
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(found, _)| *found == key).map(|(_, value)| value.trim())
    };
    let number = |key: &str| value(key).and_then(|text| text.parse::<u64>().ok()).filter(|&n| n > 0);
    // perflevel0 are the fast cores; Intel Macs have only the plain keys.
    let first = |keys: [&str; 2]| keys.into_iter().find_map(number);
    let cores = number("hw.perflevel0.physicalcpu").or(number("hw.physicalcpu")).unwrap_or(1);
    let shared_by = number("hw.perflevel0.cpusperl2").unwrap_or(1);
    let levels = [
        ("L1d", first(["hw.perflevel0.l1dcachesize", "hw.l1dcachesize"]), cores),
        ("L2", first(["hw.perflevel0.l2cachesize", "hw.l2cachesize"]), cores.div_ceil(shared_by)),
        ("L3", number("hw.l3cachesize"), 1),
    ];
    let cache = |(name, bytes, count): (&str, Option<u64>, u64)| {
        Some(Cache { name: name.to_string(), bytes: bytes?, count: count as usize })
    };
    CpuInfo {
        model: value("machdep.cpu.brand_string").unwrap_or_default().to_string(),
        physical_cores: number("hw.physicalcpu").map(|n| n as usize),
        logical_cores: number("hw.logicalcpu").map(|n| n as usize),
        caches: levels.into_iter().filter_map(cache).collect(),
        memory_bytes: number("hw.memsize"),
        ..CpuInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apple_chip_shows_its_fast_cores_caches() {
        let text = "machdep.cpu.brand_string: Apple M2 Pro\nhw.physicalcpu: 10\nhw.logicalcpu: 10\nhw.memsize: 17179869184\n\
                    hw.l1dcachesize: 65536\nhw.perflevel0.physicalcpu: 6\nhw.perflevel0.l1dcachesize: 131072\n\
                    hw.perflevel0.l2cachesize: 16777216\nhw.perflevel0.cpusperl2: 6\nhw.l3cachesize: 0\n";
        let info = parse(text);
        assert_eq!((info.model.as_str(), info.physical_cores), ("Apple M2 Pro", Some(10)));
        assert_eq!(info.memory_bytes, Some(16 << 30));
        let cache = |name: &str, bytes, count| Cache { name: name.into(), bytes, count };
        assert_eq!(info.caches, [cache("L1d", 131_072, 6), cache("L2", 16 << 20, 1)]);
    }

    #[test]
    fn no_sysctl_gives_an_empty_description() {
        assert_eq!(parse(""), CpuInfo::default());
    }
}
