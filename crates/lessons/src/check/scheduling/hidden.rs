//! A paged cache, and a text that fills it. Something is wrong here.

pub(super) const BLOCK: usize = 16; // tokens

pub(super) struct Cache {
    pub(super) free: usize, // blocks
}

#[derive(Default)]
pub(super) struct Text {
    pub(super) tokens: usize, // in the cache
    pub(super) blocks: usize, // held
}

impl Text {
    /// Reads a prompt, if there are blocks for it and for the first token of the answer.
    pub(super) fn admit(&mut self, prompt: usize, cache: &mut Cache) -> bool {
        let needed = prompt / BLOCK + 1;
        if needed > cache.free {
            return false;
        }
        (self.tokens, self.blocks, cache.free) = (prompt, needed, cache.free - needed);
        true
    }

    /// One more token; a full block is followed by the next one at once, so that there is always room. False where none is free.
    pub(super) fn append(&mut self, cache: &mut Cache) -> bool {
        if (self.tokens + 1).is_multiple_of(BLOCK) {
            if cache.free == 0 {
                return false;
            }
            (self.blocks, cache.free) = (self.blocks + 1, cache.free - 1);
        }
        self.tokens += 1;
        true
    }

    /// The answer is over: the blocks of its tokens are free again.
    pub(super) fn finish(self, cache: &mut Cache) {
        cache.free += self.tokens.div_ceil(BLOCK); // a block that was taken ahead, and is empty, is no part of that
    }

    /// The client went away, or others need the memory.
    pub(super) fn give_back(self, cache: &mut Cache) {
        cache.free += self.blocks;
    }
}
