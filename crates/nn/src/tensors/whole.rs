//! A file that a stop in the middle cannot damage.

use super::disk::Disk;
use gpulab::error::{Error, Result};
use std::io::Write;
use std::path::Path;

/// Writes `bytes` to a temporary file beside `path` and renames it: `path` is the old file or the new one, never half of it.
///
/// # Errors
/// [`Error::File`]; the old file stays.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole_by(path, |out| out.write_all(bytes))
}

/// As [`write_whole`], for what need not lie in memory at once: `write` gets where to write it. When that fails, nothing was
/// written.
///
/// # Errors
/// [`Error::File`]; the old file stays.
pub fn write_whole_by(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let failed = |error: std::io::Error| fail(path, error.to_string());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Two programs at once must not write into one temporary file.
    let beside = folder.join(format!(".{name}.{}.part", std::process::id()));
    let written = Disk::create(&beside)
        // The name must not become valid before the bytes are on the disk.
        .and_then(|mut disk| write(&mut disk).and_then(|()| disk.finish()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // What is left of it is of no use; the first error is the one to tell.
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}

pub(super) fn fail(path: &Path, text: String) -> Error {
    Error::File {
        path: path.to_path_buf(),
        during: "write".to_string(),
        text,
        fix: "make room, or name a folder that can be written; what was there before is still there".to_string(),
    }
}
