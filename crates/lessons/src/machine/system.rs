//! The operating system's name, and how it installs packages.

use gpulab::command::output_of;
use std::time::Duration;

/// `Debian GNU/Linux 12 (bookworm), Linux 6.1.0`.
pub(super) fn describe() -> String {
    if cfg!(target_os = "macos") {
        let version = output_of("sw_vers", &["-productVersion"], Duration::from_secs(2)).unwrap_or_default();
        return format!("macOS {}", version.trim()).trim_end().to_string();
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match (release_value(&os_release(), "PRETTY_NAME"), kernel.trim()) {
        (Some(name), "") => name,
        (Some(name), kernel) => format!("{name}, Linux {kernel}"),
        (None, kernel) => format!("{} {kernel}", std::env::consts::OS).trim_end().to_string(),
    }
}

/// The family of Linux that decides how packages are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Ubuntu,
    Debian,
    Fedora,
    Arch,
    Other,
}

pub(super) fn family() -> Family {
    family_of(&os_release())
}

fn os_release() -> String {
    std::fs::read_to_string("/etc/os-release").unwrap_or_default()
}

fn family_of(release: &str) -> Family {
    let words = [release_value(release, "ID"), release_value(release, "ID_LIKE")].into_iter().flatten();
    for word in words.flat_map(|value| value.split(' ').map(str::to_string).collect::<Vec<_>>()) {
        match word.as_str() {
            "ubuntu" => return Family::Ubuntu,
            "debian" => return Family::Debian,
            "fedora" | "rhel" => return Family::Fedora,
            "arch" => return Family::Arch,
            _ => {}
        }
    }
    Family::Other
}

/// The value of `KEY="value"` or `KEY=value`.
fn release_value(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_string()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_what_they_are_like() {
        for (release, family) in [
            ("PRETTY_NAME=\"Ubuntu 24.04\"\nID=ubuntu\nID_LIKE=debian\n", Family::Ubuntu),
            ("ID=debian\n", Family::Debian),
            ("ID=pop\nID_LIKE=\"ubuntu debian\"\n", Family::Ubuntu),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Family::Fedora),
            ("ID=manjaro\nID_LIKE=arch\n", Family::Arch),
            ("", Family::Other),
        ] {
            assert_eq!(family_of(release), family, "{release}");
        }
        assert_eq!(release_value("ID_LIKE=debian\nID=\"x y\"\n", "ID").as_deref(), Some("x y"));
    }

    #[test]
    fn this_system_has_a_name() {
        assert!(!describe().is_empty());
    }
}
