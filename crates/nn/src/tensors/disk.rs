//! Bytes on their way to a new file.
//!
//! What goes through the system's cache of pages needs room there, and all of it must be written out before the file is safe:
//! half a gigabyte took 0.4 to 1.3 s so, and past the cache 0.3 to 0.6 s, in turns on four cores that others used as well.
//! Where the system takes it, blocks go past.

use std::fs::File;
use std::io::{ErrorKind, Result, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes in a block: enough to keep a disk at work, and a small part of a model.
const BLOCK: usize = 8 << 20;
/// What the system asks of memory and places that go past its cache; no disk that we know has larger sectors.
const ALIGNED: usize = 4096;

/// A file under construction, which is safe once [`Disk::finish`] came back.
pub(super) struct Disk {
    path: PathBuf,
    file: File,
    /// The same file, past the cache: from the first whole block on, where the system can.
    past: Option<File>,
    /// A block on an aligned place, which begins at `start`.
    room: Vec<u8>,
    start: usize,
    filled: usize,
    /// Bytes of the file that were written.
    written: u64,
}

impl Disk {
    pub(super) fn create(path: &Path) -> Result<Disk> {
        let file = File::create(path)?;
        let room = vec![0; BLOCK + ALIGNED];
        let start = room.as_ptr().align_offset(ALIGNED);
        Ok(Disk { path: path.to_path_buf(), file, past: None, room, start, filled: 0, written: 0 })
    }

    /// Writes the rest, and comes back when all of it is on the disk.
    pub(super) fn finish(mut self) -> Result<()> {
        self.file.write_all_at(&self.room[self.start..][..self.filled], self.written)?;
        self.filled = 0;
        self.file.sync_all()
    }

    fn block(&mut self) -> Result<()> {
        if self.written == 0 {
            self.past = open_past(&self.path);
        }
        let block = &self.room[self.start..][..BLOCK];
        match self.past.as_ref().map(|past| past.write_all_at(block, self.written)) {
            Some(Ok(())) => {}
            // There are file systems that refuse only now.
            Some(Err(error)) if error.kind() != ErrorKind::InvalidInput => return Err(error),
            _ => {
                self.past = None;
                self.file.write_all_at(block, self.written)?;
            }
        }
        self.written += BLOCK as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let taken = bytes.len().min(BLOCK - self.filled);
        self.room[self.start + self.filled..][..taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        if self.filled == BLOCK {
            self.block()?;
        }
        Ok(taken)
    }

    /// Nothing is safe before the end, and then all is.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn open_past(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).custom_flags(libc::O_DIRECT).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_past(_path: &Path) -> Option<File> {
    None
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
