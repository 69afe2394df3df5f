//! A message on its way out: prost writes into a little memory, and weights go past it.

use prost::Message;
use prost::bytes::buf::UninitSlice;
use prost::bytes::{Buf, BufMut};
use std::io::{Result, Write};

/// Bytes that are gathered, so that not each name and number is a write of its own; what is longer is written as it lies.
const GATHERED: usize = 1 << 16;

/// Writes what `encode_to_vec` would give, which of a large model would be half a gigabyte a second time.
pub(super) fn encode(message: &impl Message, out: &mut dyn Write) -> Result<()> {
    let mut stream = Stream { gathered: Vec::with_capacity(GATHERED), out, outcome: Ok(()) };
    message.encode(&mut stream).map_err(std::io::Error::other)?;
    stream.pass_on();
    stream.outcome
}

struct Stream<'a> {
    gathered: Vec<u8>,
    out: &'a mut dyn Write,
    /// prost cannot be told of errors: after the first one nothing more is written.
    outcome: Result<()>,
}

impl Stream<'_> {
    fn write(&mut self, bytes: &[u8]) {
        if self.outcome.is_ok() {
            self.outcome = self.out.write_all(bytes);
        }
    }

    fn pass_on(&mut self) {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.write(&gathered);
        gathered.clear();
        self.gathered = gathered;
    }
}

// SAFETY: the room that is given out, and the count of bytes that fill it, are the vector's own.
unsafe impl BufMut for Stream<'_> {
    fn remaining_mut(&self) -> usize {
        self.gathered.remaining_mut()
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        // SAFETY: what the caller promises is what the vector asks for.
        unsafe { self.gathered.advance_mut(count) }
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        self.gathered.chunk_mut()
    }

    fn put_slice(&mut self, bytes: &[u8]) {
        if self.gathered.len() + bytes.len() > GATHERED {
            self.pass_on();
        }
        match bytes.len() {
            ..=GATHERED => self.gathered.extend_from_slice(bytes),
            _ => self.write(bytes),
        }
    }

    fn put<T: Buf>(&mut self, mut bytes: T) {
        while bytes.has_remaining() {
            let length = bytes.chunk().len();
            self.put_slice(bytes.chunk());
            bytes.advance(length);
        }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
