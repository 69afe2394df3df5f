//! The blocks of a paged KV cache: who holds which, and which hold the beginning of a text that the next prompt may share.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// The number of a block in the pool.
pub type BlockId = u32;

/// The blocks of a paged KV cache. A block has the keys and values of `block_size` tokens in a row of one text, and texts that
/// begin alike may hold the same ones. A full block that nobody holds any more stays known until its memory is needed.
///
/// ```
/// use gpulab_serve::BlockPool;
/// let mut pool = BlockPool::new(4, 2);
/// let first = pool.take().expect("all four are free");
/// pool.publish(None, first, &[7, 8]);
/// pool.give_back(first);
/// // Nobody holds it, and a text that begins with the same tokens finds it.
/// assert_eq!((pool.free(), pool.matching(&[7, 8, 9])), (4, vec![first]));
/// ```
#[derive(Debug, Clone)]
pub struct BlockPool {
    block_size: usize,
    blocks: Vec<Block>,
    /// Nobody holds them, and what they hold is of no use.
    empty: VecDeque<BlockId>,
    /// Nobody holds them, and a text may begin as they do: the one that has been idle for longest is taken first.
    idle: BTreeMap<u64, BlockId>,
    /// Which block has these tokens after that content.
    known: HashMap<Prefix, BlockId>,
    clock: u64,
    next_content: u64,
}

#[derive(Debug, Clone, Default)]
struct Block {
    holders: u32,
    /// A number for the whole text up to the end of this block: equal numbers mean equal texts.
    content: Option<u64>,
    /// Under what others find it; nothing where another block with the same content is found instead.
    found_by: Option<Prefix>,
    idle_since: u64,
}

/// A block's tokens, and the content of the block before; 0 where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Prefix {
    after: u64,
    tokens: Box<[u32]>,
}

impl BlockPool {
    /// A pool of `blocks` blocks of `block_size` tokens, all of them free.
    ///
    /// # Panics
    /// When there is no block, or none has room for a token.
    pub fn new(blocks: usize, block_size: usize) -> BlockPool {
        assert!(blocks > 0 && block_size > 0, "a cache of {blocks} blocks of {block_size} tokens holds nothing");
        BlockPool {
            block_size,
            blocks: vec![Block::default(); blocks],
            empty: (0..blocks as BlockId).collect(),
            idle: BTreeMap::new(),
            known: HashMap::new(),
            clock: 0,
            next_content: 1,
        }
    }

    /// Tokens in a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// All blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.empty.len() + self.idle.len()
    }

    /// Those of the free ones that still hold the beginning of a text.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Which these are, the one that is taken first first.
    pub fn idle_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.idle.values().copied()
    }

    /// How many blocks so many tokens need.
    pub fn needed(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_size)
    }

    /// How many hold a block.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.blocks[block as usize].holders
    }

    /// A free block, for one holder; what it held is forgotten. `None` where all are held.
    pub fn take(&mut self) -> Option<BlockId> {
        let id = match self.empty.pop_front() {
            Some(id) => id,
            None => self.idle.pop_first()?.1,
        };
        let block = &mut self.blocks[id as usize];
        if let Some(prefix) = block.found_by.take() {
            self.known.remove(&prefix);
        }
        *block = Block { holders: 1, ..Block::default() };
        Some(id)
    }

    /// One more holder of a block that [`BlockPool::matching`] has found.
    pub fn hold(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        assert!(block.content.is_some(), "block {id} holds nothing that could be shared");
        if block.holders == 0 {
            self.idle.remove(&block.idle_since);
        }
        block.holders += 1;
    }

    /// One holder less.
    ///
    /// # Panics
    /// When nobody holds it: a block that is given back twice would be two texts' at once.
    pub fn give_back(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        assert!(block.holders > 0, "block {id} is given back, and nobody holds it");
        block.holders -= 1;
        if block.holders > 0 {
            return;
        }
        if block.found_by.is_some() {
            block.idle_since = self.clock;
            self.idle.insert(self.clock, id);
            self.clock += 1;
        } else {
            block.content = None;
            self.empty.push_back(id);
        }
    }

    /// The blocks that hold the beginning of a text, as many full ones as are known. They are not held by that.
    pub fn matching(&self, tokens: &[u32]) -> Vec<BlockId> {
        let (mut found, mut after) = (Vec::new(), 0);
        for part in tokens.chunks_exact(self.block_size) {
            let Some(&id) = self.known.get(&Prefix { after, tokens: part.into() }) else { break };
            after = self.blocks[id as usize].content.expect("a known block has content");
            found.push(id);
        }
        found
    }

    /// Says what a held block has: these tokens, behind the text that ends with block `after`. From now on others may share it.
    pub fn publish(&mut self, after: Option<BlockId>, id: BlockId, tokens: &[u32]) {
        assert_eq!(tokens.len(), self.block_size, "only a full block can be shared");
        let after = match after {
            Some(before) => match self.blocks[before as usize].content {
                Some(content) => content,
                None => return,
            },
            None => 0,
        };
        let prefix = Prefix { after, tokens: tokens.into() };
        match self.known.get(&prefix) {
            // Two texts computed the same at the same time.
            Some(&twin) => self.blocks[id as usize].content = self.blocks[twin as usize].content,
            None => {
                self.blocks[id as usize].content = Some(self.next_content);
                self.blocks[id as usize].found_by = Some(prefix.clone());
                self.known.insert(prefix, id);
                self.next_content += 1;
            }
        }
    }

    /// Whether the books agree: each block is held, idle or empty, and nothing else. What is wrong, in words, else.
    pub fn audit(&self) -> std::result::Result<(), String> {
        let mut places = vec![0; self.blocks.len()];
        self.empty.iter().chain(self.idle.values()).for_each(|id| places[*id as usize] += 1);
        for (id, (block, places)) in self.blocks.iter().zip(places).enumerate() {
            if places + usize::from(block.holders > 0) != 1 {
                return Err(format!("block {id} has {} holders and is in {places} lists", block.holders));
            }
        }
        let known = self.known.iter().all(|(prefix, id)| self.blocks[*id as usize].found_by.as_ref() == Some(prefix));
        let found = self.blocks.iter().filter(|block| block.found_by.is_some()).count();
        match known && found == self.known.len() {
            true => Ok(()),
            false => Err(format!("{} prefixes are known, and {found} blocks say so", self.known.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pool: &mut BlockPool, tokens: &[u32]) -> Vec<BlockId> {
        let mut blocks: Vec<BlockId> = Vec::new();
        for part in tokens.chunks_exact(pool.block_size()) {
            let id = pool.take().unwrap();
            pool.publish(blocks.last().copied(), id, part);
            blocks.push(id);
        }
        blocks
    }

    #[test]
    fn a_text_finds_what_begins_alike_and_nothing_else() {
        let mut pool = BlockPool::new(8, 2);
        let blocks = text(&mut pool, &[1, 2, 3, 4]);
        assert_eq!(pool.matching(&[1, 2, 3, 4, 5, 6]), blocks);
        assert_eq!(pool.matching(&[1, 2, 3]), blocks[..1]);
        // The same tokens elsewhere in a text have other keys and values.
        assert!(pool.matching(&[3, 4]).is_empty() && pool.matching(&[1]).is_empty());
        pool.audit().unwrap();
    }

    #[test]
    fn what_was_idle_for_longest_is_taken_first_and_forgotten() {
        let mut pool = BlockPool::new(2, 1);
        let (old, new) = (text(&mut pool, &[1])[0], text(&mut pool, &[2])[0]);
        pool.give_back(old);
        pool.give_back(new);
        assert_eq!((pool.free(), pool.idle()), (2, 2));
        assert_eq!(pool.take(), Some(old));
        assert!(pool.matching(&[1]).is_empty() && pool.matching(&[2]) == [new]);
        pool.hold(new);
        assert_eq!((pool.take(), pool.free()), (None, 0));
        pool.audit().unwrap();
    }

    #[test]
    fn a_shared_block_is_free_when_its_last_holder_goes() {
        let mut pool = BlockPool::new(2, 1);
        let id = text(&mut pool, &[1])[0];
        pool.hold(id);
        pool.give_back(id);
        assert_eq!((pool.holders(id), pool.free()), (1, 1));
        pool.give_back(id);
        assert_eq!((pool.holders(id), pool.free()), (0, 2));
    }

    #[test]
    fn twins_are_one_text_to_those_behind_them() {
        let mut pool = BlockPool::new(4, 1);
        let (one, two) = (text(&mut pool, &[1])[0], text(&mut pool, &[1])[0]);
        let behind = pool.take().unwrap();
        pool.publish(Some(two), behind, &[5]);
        assert_eq!(pool.matching(&[1, 5]), [one, behind]);
        pool.give_back(two);
        assert_eq!((pool.idle(), pool.free()), (0, 2));
        pool.audit().unwrap();
    }

    #[test]
    #[should_panic(expected = "block 0 is given back, and nobody holds it")]
    fn a_block_is_not_given_back_twice() {
        let mut pool = BlockPool::new(1, 1);
        let id = pool.take().unwrap();
        pool.give_back(id);
        pool.give_back(id);
    }
}
