//! A model that knows nothing: each token follows from all before it by a hash. It reads them from its paged cache alone, so that a
//! wrong block shows in the text. For tests, and to try the server where no model was fetched.

use super::model::{SamplingParams, ServedModel, TextCodec, Turn};
use crate::scheduler::{Piece, RequestId, Step};
use gpulab_measure::Result;
use std::sync::Arc;
use std::time::Duration;

/// Bytes, and one token more that ends a text.
const END: u32 = 256;

/// A model that knows nothing, and answers at once or after a wait.
#[derive(Debug)]
pub struct Babble {
    block_size: usize,
    /// Of each block, a number for each of its tokens that stands for the text up to there.
    slots: Vec<u64>,
    wait: Duration,
}

#[derive(Debug)]
struct Bytes;

impl Babble {
    /// With a cache of that many blocks; a step takes `wait`.
    pub fn new(blocks: usize, block_size: usize, wait: Duration) -> Babble {
        Babble { block_size, slots: vec![0; blocks * block_size], wait }
    }

    /// Its text: a token is a byte.
    pub fn text() -> Arc<dyn TextCodec> {
        Arc::new(Bytes)
    }

    /// What it answers, by the definition.
    pub fn answer(prompt: &str, most_new: usize) -> String {
        let mut key = prompt.bytes().fold(0, |key, byte| after(key, u32::from(byte)));
        let mut tokens = Vec::new();
        while tokens.len() < most_new && token(key) != END {
            tokens.push(token(key));
            key = after(key, token(key));
        }
        Bytes.decode(&tokens)
    }

    fn read(&mut self, piece: &Piece) -> u32 {
        let size = self.block_size;
        let slot = |at: usize| piece.blocks[at / size] as usize * size + at % size;
        let mut key = if piece.first == 0 { 0 } else { self.slots[slot(piece.first - 1)] };
        for (at, one) in piece.tokens.iter().enumerate() {
            key = after(key, *one);
            self.slots[slot(piece.first + at)] = key;
        }
        token(key)
    }
}

/// The number of a text with one token more.
fn after(key: u64, token: u32) -> u64 {
    (key ^ (u64::from(token) + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
}

/// A small letter, now and then a space, seldom the end.
fn token(key: u64) -> u32 {
    match (key >> 20) % 256 {
        0..2 => END,
        2..40 => u32::from(b' '),
        other => u32::from(b'a') + (other % 26) as u32,
    }
}

impl ServedModel for Babble {
    fn begin(&mut self, _: RequestId, _: SamplingParams) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<Vec<Result<u32>>> {
        std::thread::sleep(self.wait);
        let read: Vec<(bool, u32)> = step.pieces.iter().map(|piece| (piece.samples, self.read(piece))).collect();
        Ok(read.into_iter().filter(|(samples, _)| *samples).map(|(_, token)| Ok(token)).collect())
    }

    fn end(&mut self, _: RequestId) {}

    fn cache_bytes(&self) -> u64 {
        8 * self.slots.len() as u64
    }
}

impl TextCodec for Bytes {
    fn name(&self) -> &str {
        "babble"
    }

    fn vocabulary(&self) -> usize {
        257
    }

    fn context(&self) -> usize {
        4096
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().map(|token| u8::try_from(*token).unwrap_or(b'?')).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn chat(&self, turns: &[Turn]) -> Result<String> {
        let lines = turns.iter().map(|turn| format!("{}: {}\n", turn.role, turn.content));
        Ok(lines.chain(["assistant:".to_string()]).collect())
    }

    fn ends(&self, token: u32) -> bool {
        token == END
    }
}
