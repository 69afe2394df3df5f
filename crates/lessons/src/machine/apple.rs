//! Apple GPUs, as `system_profiler` describes them.

use gpulab::command::output_of;
use serde_json::Value;
use std::time::Duration;

/// An Apple GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppleGpu {
    /// `Apple M2 Pro`.
    pub name: String,
    /// GPU cores, where the system tells.
    pub cores: Option<u32>,
    /// The Metal version, such as `Metal 3`, where the system tells.
    pub metal: Option<String>,
}

impl AppleGpu {
    /// `Apple M2 Pro GPU`: the chip's name is its CPU's too, so legends need the last word.
    pub fn short_name(&self) -> String {
        format!("{} GPU", self.name)
    }
}

/// Empty off macOS.
pub(super) fn detect() -> Vec<AppleGpu> {
    if !cfg!(target_os = "macos") {
        return Vec::new();
    }
    let asked = output_of("system_profiler", &["SPDisplaysDataType", "-json"], Duration::from_secs(15));
    asked.map(|text| parse(&text)).unwrap_or_default()
}

/// Other makers' GPUs in Intel Macs are left out: the Metal room opens Apple's.
fn parse(text: &str) -> Vec<AppleGpu> {
    let Ok(report) = serde_json::from_str::<Value>(text) else { return Vec::new() };
    let displays = report["SPDisplaysDataType"].as_array().cloned().unwrap_or_default();
    let gpu = |entry: &Value| {
        let name = entry["sppci_model"].as_str().or_else(|| entry["_name"].as_str())?;
        let metal = entry["spdisplays_mtlgpufamilysupport"].as_str().or_else(|| entry["spdisplays_metal"].as_str());
        let version = metal.and_then(|text| text.strip_prefix("spdisplays_metal")).map(|v| format!("Metal {v}"));
        name.starts_with("Apple").then(|| AppleGpu {
            name: name.to_string(),
            cores: entry["sppci_cores"].as_str().and_then(|text| text.parse().ok()),
            metal: version,
        })
    };
    displays.iter().filter_map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_names_its_gpu() {
        let text = r#"{"SPDisplaysDataType": [{"_name": "Apple M2 Pro", "sppci_model": "Apple M2 Pro",
            "sppci_cores": "19", "spdisplays_mtlgpufamilysupport": "spdisplays_metal3"},
            {"_name": "kHW_AMDRadeon", "sppci_model": "AMD Radeon Pro 5500M"}]}"#;
        let gpu = AppleGpu { name: "Apple M2 Pro".into(), cores: Some(19), metal: Some("Metal 3".into()) };
        assert_eq!(parse(text), std::slice::from_ref(&gpu));
        assert_eq!(gpu.short_name(), "Apple M2 Pro GPU");
    }

    #[test]
    fn anything_else_is_no_gpu() {
        for text in ["", "{}", "[]", r#"{"SPDisplaysDataType": [{}]}"#, r#"{"SPDisplaysDataType": 3}"#] {
            assert_eq!(parse(text), []);
        }
    }
}
