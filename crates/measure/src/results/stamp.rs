//! When, and from which state of the repository.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now: RFC 3339, UTC, whole seconds, such as `2026-11-20T23:05:00Z`.
pub fn now_utc() -> String {
    // A clock set before 1970 gives 1970: a wrong time stamp is no reason to lose a measurement.
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// The repository's commit, short, with a `+` when tracked files differ from it: `GPULAB_COMMIT` where that is set,
/// else what git says, else `unknown`.
pub fn commit() -> String {
    if let Ok(commit) = std::env::var("GPULAB_COMMIT")
        && !commit.trim().is_empty()
    {
        return commit.trim().to_string();
    }
    let repository = super::repository();
    // Named outright: unpacked into a folder of some other repository, git would answer with that one's commit.
    let (git_dir, tree) = (repository.join(".git").display().to_string(), repository.display().to_string());
    let git = |arguments: &[&str]| {
        let all = [&["--git-dir", git_dir.as_str(), "--work-tree", tree.as_str()], arguments].concat();
        crate::command::output_of("git", &all, Duration::from_secs(3)).ok()
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_string() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.trim().is_empty());
    format!("{}{}", commit.trim(), if changed { "+" } else { "" })
}

/// Seconds since 1970 as a date and a time in the Gregorian calendar.
fn utc(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn a_commit_is_never_empty() {
        let commit = commit();
        assert!(!commit.is_empty() && !commit.contains(char::is_whitespace), "{commit:?}");
    }
}
