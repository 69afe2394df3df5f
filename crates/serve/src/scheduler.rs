//! Which requests are in the batch, what each step reads of them, and who waits.

use super::blocks::{BlockId, BlockPool};
use gpulab_measure::{Error, Result};
use std::collections::VecDeque;
use std::fmt;

/// The number of a request, in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// How much a scheduler takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests in the batch.
    pub sequences: usize,
    /// Tokens that a step computes: one of each request that is being answered, and what else fits of prompts (vLLM's
    /// `max_num_batched_tokens`). [`Scheduler::with_chunked_prefill`] makes the steps of a busy batch smaller.
    pub step_tokens: usize,
    /// Requests that wait.
    pub queue: usize,
    /// The longest text, prompt and answer together, in tokens.
    pub context: usize,
    /// When requests join the batch.
    pub batching: Batching,
    /// Whether prompts that begin alike share blocks.
    pub prefix_reuse: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sequences: 16,
            step_tokens: 256,
            queue: 64,
            context: 2048,
            batching: Batching::Continuous,
            prefix_reuse: true,
        }
    }
}

/// When requests join the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batching {
    /// As soon as there is room, at any step.
    Continuous,
    /// When all of the batch before are answered.
    Static,
}

/// A prompt, and how long its answer may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The most tokens of an answer.
    pub most_new: usize,
}

impl Request {
    /// A request for at most `most_new` tokens behind a prompt.
    pub fn new(prompt: Vec<u32>, most_new: usize) -> Request {
        Request { prompt, most_new }
    }
}

/// Why a request is not taken. Its text ends with what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing to go on from.
    EmptyPrompt,
    /// An answer of no tokens.
    NoAnswer,
    /// More than the context.
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that were asked for behind it.
        most_new: usize,
        /// The longest text.
        context: usize,
    },
    /// More than the whole cache has room for.
    LargerThanCache {
        /// Tokens of prompt and answer.
        tokens: usize,
        /// Tokens that the cache has room for.
        capacity: usize,
    },
    /// As many wait as may.
    QueueFull {
        /// Requests that wait.
        waiting: usize,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refusal::EmptyPrompt => {
                f.write_str("the prompt has no tokens\nnext: give a prompt of at least one character")
            }
            Refusal::NoAnswer => f.write_str("an answer of 0 tokens was asked for\nnext: ask for at least 1"),
            Refusal::TooLong { prompt, most_new, context } => {
                write!(
                    f,
                    "a prompt of {prompt} tokens and an answer of {most_new} do not fit into {context} tokens\nnext: "
                )?;
                match context.checked_sub(prompt) {
                    None | Some(0) => write!(f, "shorten the prompt to at most {} tokens", context.saturating_sub(1)),
                    Some(room) => write!(f, "ask for at most {room} tokens (`max_tokens`), or shorten the prompt"),
                }
            }
            Refusal::LargerThanCache { tokens, capacity } => write!(
                f,
                "{tokens} tokens of prompt and answer do not fit into the whole KV cache of {capacity}\n\
                 next: ask for a shorter answer (`max_tokens`), or start the server with a larger cache (--cache-mib)"
            ),
            Refusal::QueueFull { waiting } => {
                write!(f, "{waiting} requests wait already\nnext: try again later; Retry-After says when")
            }
        }
    }
}

/// What one step computes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// A piece of each text that takes part.
    pub pieces: Vec<Piece>,
    /// Requests whose blocks were taken away for this step. Their tokens are kept, and read again later.
    pub preempted: Vec<RequestId>,
}

impl Step {
    /// Tokens that are computed.
    pub fn tokens(&self) -> usize {
        self.pieces.iter().map(|piece| piece.tokens.len()).sum()
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

/// The part of a step that belongs to one text: `tokens` stand at positions `first ..` of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Whose it is.
    pub id: RequestId,
    /// Position of the first token.
    pub first: usize,
    /// What is read.
    pub tokens: Vec<u32>,
    /// The blocks of the whole text up to the last of these tokens: position p is in `blocks[p / block_size]`.
    pub blocks: Vec<BlockId>,
    /// Whether a token is to be chosen after the last one: the text was read to its end.
    pub samples: bool,
}

/// What a step has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceEvent {
    /// One more token of an answer.
    Token(RequestId, u32),
    /// An answer is over.
    Finished(RequestId, Finish),
}

/// Why an answer is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model has ended it.
    Stop,
    /// It has as many tokens as were asked for.
    Length,
}

/// Sums since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedulerCounters {
    /// Steps that were completed.
    pub steps: u64,
    /// Tokens that were computed, of prompts and of answers.
    pub computed_tokens: u64,
    /// Tokens of prompts that were found in the cache.
    pub reused_tokens: u64,
    /// Tokens of answers.
    pub answer_tokens: u64,
    /// How often a text's blocks were taken away.
    pub preemptions: u64,
}

/// A request in the batch, for those who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Whose it is.
    pub id: RequestId,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens whose keys and values are in the cache.
    pub read: usize,
    /// Tokens of the answer so far.
    pub answered: usize,
    /// The blocks that it holds, in the order of its text.
    pub blocks: Vec<BlockId>,
}

#[derive(Debug, Clone)]
struct Sequence {
    id: RequestId,
    /// The prompt, and behind it the answer so far.
    tokens: Vec<u32>,
    prompt: usize,
    most_new: usize,
    /// Tokens whose keys and values are in the cache.
    read: usize,
    blocks: Vec<BlockId>,
}

impl Sequence {
    /// Whether all was read but the newest token, which is the answer's.
    fn decodes(&self) -> bool {
        self.read + 1 == self.tokens.len() && self.tokens.len() > self.prompt
    }

    fn answered(&self) -> usize {
        self.tokens.len() - self.prompt
    }
}

/// Continuous batching over a paged KV cache.
///
/// Requests are served in the order in which they came: nobody in the queue is overtaken. A step computes one token of each
/// answer first, then parts of prompts, then it lets the next ones in, each with blocks for its whole prompt. Where an answer
/// needs a block and none is free, the youngest in the batch gives all of its own back and waits again, before all others.
///
/// Prompts are read in parts (chunked prefill): as much as a step has room for, or, with [`Scheduler::with_chunked_prefill`], less of
/// them while the batch is busy.
///
/// [`Scheduler::plan`] and [`Scheduler::complete`] take turns; requests may be submitted and cancelled in between at any time.
#[derive(Debug, Clone)]
pub struct Scheduler {
    limits: Limits,
    /// Tokens of a step while the batch is busy.
    chunk: usize,
    pool: BlockPool,
    waiting: VecDeque<Sequence>,
    /// By age, the oldest first.
    running: Vec<Sequence>,
    next: u64,
    counters: SchedulerCounters,
}

impl Scheduler {
    /// A scheduler for a cache of `blocks` blocks of `block_size` tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] for limits that let nobody in.
    pub fn new(limits: Limits, blocks: usize, block_size: usize) -> Result<Scheduler> {
        if [limits.sequences, limits.queue, limits.context, blocks, block_size].contains(&0) {
            return Err(Error::invalid(
                format!("{limits:?} with {blocks} blocks of {block_size} tokens lets no request in"),
                "give each limit, and the cache, at least 1",
            ));
        }
        if limits.step_tokens < limits.sequences {
            return Err(Error::invalid(
                format!("a step of {} tokens has none for some of {} answers", limits.step_tokens, limits.sequences),
                "let a step compute at least as many tokens as there are requests in the batch",
            ));
        }
        Ok(Scheduler {
            limits,
            chunk: limits.step_tokens,
            pool: BlockPool::new(blocks, block_size),
            waiting: VecDeque::new(),
            running: Vec::new(),
            next: 0,
            counters: SchedulerCounters::default(),
        })
    }

    /// Spreads prompts over more steps while the batch is busy: where at least three quarters of [`Limits::sequences`] are being answered in
    /// a step, and of all places at most a sixteenth is neither taken nor waited for, it computes at most `tokens` tokens, answers
    /// included, and of prompts what that leaves, but always a block's worth. Any other step reads as much of prompts as
    /// [`Limits::step_tokens`] leaves, and so does every step when `tokens` is no smaller.
    ///
    /// The chunk that a step reads of prompts is what its answers wait for. On a GPU a small one may cost less than its share of a large
    /// one: the step reads all weights anyway, and the products of some more rows hide behind that. Where few are served, first tokens
    /// count for more. Prompts that outweigh their answers do not starve: they keep answers from beginning, until so few are left
    /// that a step reads prompts as fast as it can.
    ///
    /// ```
    /// use gpulab_serve::{Limits, Request, Scheduler};
    /// let limits = Limits { sequences: 4, step_tokens: 2048, ..Limits::default() };
    /// let mut scheduler = Scheduler::new(limits, 1024, 16)?.with_chunked_prefill(128);
    /// let read = |scheduler: &mut Scheduler| {
    ///     let step = scheduler.plan();
    ///     let chosen = vec![7; step.pieces.iter().filter(|piece| piece.samples).count()];
    ///     scheduler.complete(&step, &chosen, &|_| false);
    ///     step.tokens()
    /// };
    /// for text in 0..3 {
    ///     scheduler.submit(Request::new(vec![text; 500], 100)).expect("the queue is empty");
    /// }
    /// assert_eq!(read(&mut scheduler), 1500); // nobody is answered yet
    /// scheduler.submit(Request::new(vec![3; 300], 100)).expect("the queue is empty");
    /// assert_eq!([128, 128, 53, 4], [(); 4].map(|()| read(&mut scheduler))); // three answers, and parts of a prompt
    /// # Ok::<(), gpulab_serve::Error>(())
    /// ```
    pub fn with_chunked_prefill(self, tokens: usize) -> Scheduler {
        Scheduler { chunk: tokens, ..self }
    }

    /// Tokens of a step while the batch is busy.
    pub fn chunked_prefill(&self) -> usize {
        self.chunk.min(self.limits.step_tokens)
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The cache's blocks.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Sums since the beginning.
    pub fn counters(&self) -> SchedulerCounters {
        self.counters
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The batch, the oldest first.
    pub fn running(&self) -> impl Iterator<Item = Running> + '_ {
        self.running.iter().map(|sequence| Running {
            id: sequence.id,
            prompt: sequence.prompt,
            read: sequence.read,
            answered: sequence.answered(),
            blocks: sequence.blocks.clone(),
        })
    }

    /// How many are in the batch.
    pub fn batch(&self) -> usize {
        self.running.len()
    }

    /// Whether nobody waits and nobody is served.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Takes a request on, at the end of the queue.
    ///
    /// # Errors
    /// [`Refusal`] when it can never be served, or the queue is full.
    pub fn submit(&mut self, request: Request) -> std::result::Result<RequestId, Refusal> {
        let (prompt, most_new, context) = (request.prompt.len(), request.most_new, self.limits.context);
        if prompt == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if most_new == 0 {
            return Err(Refusal::NoAnswer);
        }
        let tokens = prompt.saturating_add(most_new);
        if tokens > context {
            return Err(Refusal::TooLong { prompt, most_new, context });
        }
        // Alone it must come to its end: then the oldest in the batch always does.
        let capacity = self.pool.blocks() * self.pool.block_size();
        if tokens > capacity {
            return Err(Refusal::LargerThanCache { tokens, capacity });
        }
        if self.waiting.len() >= self.limits.queue {
            return Err(Refusal::QueueFull { waiting: self.waiting.len() });
        }
        let id = RequestId(self.next);
        self.next += 1;
        self.waiting.push_back(Sequence { id, tokens: request.prompt, prompt, most_new, read: 0, blocks: Vec::new() });
        Ok(id)
    }

    /// Lets go of a request, wherever it is: whether it was still there.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if let Some(at) = self.waiting.iter().position(|sequence| sequence.id == id) {
            self.waiting.remove(at);
            return true;
        }
        let at = self.running.iter().position(|sequence| sequence.id == id);
        at.map(|at| self.leave(at)).is_some()
    }

    /// What the next step computes. Nothing, where nobody is there.
    pub fn plan(&mut self) -> Step {
        let mut step = Step::default();
        let was_empty = self.running.is_empty();
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].decodes() && self.grow(at, &mut step.preempted) {
                step.pieces.push(self.piece(at, 1));
            }
            at += 1;
        }
        let mut budget = self.room_for_prompts(step.pieces.len());
        for at in 0..self.running.len() {
            budget -= self.read_on(at, budget, &mut step);
        }
        let may_join = self.limits.batching == Batching::Continuous || was_empty;
        // Who has just lost blocks would take them back at once.
        while may_join && step.preempted.is_empty() && budget > 0 && self.admit() {
            budget -= self.read_on(self.running.len() - 1, budget, &mut step);
        }
        step
    }

    /// Takes in what a step has given: the tokens that were chosen, in the order of the pieces that ask for one. Requests that were
    /// cancelled since are passed over.
    ///
    /// # Panics
    /// When there are not as many tokens as pieces that ask for one.
    pub fn complete(&mut self, step: &Step, chosen: &[u32], ends: &dyn Fn(u32) -> bool) -> Vec<SequenceEvent> {
        let asked = step.pieces.iter().filter(|piece| piece.samples).count();
        assert_eq!(chosen.len(), asked, "a step of {asked} texts that ask for a token");
        self.counters.steps += 1;
        let (mut events, mut chosen) = (Vec::new(), chosen.iter().copied());
        for piece in &step.pieces {
            let token = piece.samples.then(|| chosen.next().expect("counted above"));
            let Some(at) = self.running.iter().position(|sequence| sequence.id == piece.id) else { continue };
            self.counters.computed_tokens += piece.tokens.len() as u64;
            self.advance(at, piece.tokens.len());
            let Some(token) = token else { continue };
            if ends(token) {
                self.leave(at);
                events.push(SequenceEvent::Finished(piece.id, Finish::Stop));
                continue;
            }
            let sequence = &mut self.running[at];
            sequence.tokens.push(token);
            self.counters.answer_tokens += 1;
            events.push(SequenceEvent::Token(piece.id, token));
            if sequence.answered() == sequence.most_new {
                self.leave(at);
                events.push(SequenceEvent::Finished(piece.id, Finish::Length));
            }
        }
        events
    }

    /// Whether the books agree: no block is lost, and none is held by more or fewer than say so. What is wrong, in words, else.
    pub fn audit(&self) -> std::result::Result<(), String> {
        self.pool.audit()?;
        let mut holders = vec![0; self.pool.blocks()];
        self.running.iter().flat_map(|sequence| &sequence.blocks).for_each(|id| holders[*id as usize] += 1);
        if let Some(id) = (0..self.pool.blocks()).find(|id| self.pool.holders(*id as BlockId) != holders[*id]) {
            let counted = self.pool.holders(id as BlockId);
            return Err(format!("block {id} counts {counted} holders, and {} texts hold it", holders[id]));
        }
        match self.waiting.iter().find(|sequence| !sequence.blocks.is_empty() || sequence.read > 0) {
            Some(sequence) => Err(format!("{:?} waits and holds blocks", sequence.id)),
            None => Ok(()),
        }
    }

    /// A block for the next token of the answer at `at`; the youngest gives up its own where none is free. False where that is `at`
    /// itself.
    fn grow(&mut self, at: usize, preempted: &mut Vec<RequestId>) -> bool {
        let needed = self.pool.needed(self.running[at].read + 1);
        while self.running[at].blocks.len() < needed {
            if let Some(block) = self.pool.take() {
                self.running[at].blocks.push(block);
                continue;
            }
            let youngest = self.running.len() - 1;
            preempted.push(self.running[youngest].id);
            self.preempt(youngest);
            if youngest == at {
                return false;
            }
        }
        true
    }

    /// How many tokens of prompts a step reads beside so many answers.
    fn room_for_prompts(&self, answers: usize) -> usize {
        let room = self.limits.step_tokens - answers;
        let (served, places) = (self.running.len() + self.waiting.len(), self.limits.sequences);
        match 4 * answers >= 3 * places && 16 * served >= 15 * places {
            // A block's worth at least: the oldest prompt goes on in any case.
            true => room.min(self.chunk.saturating_sub(answers).max(self.pool.block_size())),
            false => room,
        }
    }

    fn preempt(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        self.give_back(&mut sequence);
        self.waiting.push_front(sequence);
        self.counters.preemptions += 1;
    }

    /// Plans as much of a prompt as the step has room for: how many tokens.
    fn read_on(&self, at: usize, budget: usize, step: &mut Step) -> usize {
        let sequence = &self.running[at];
        let left = (sequence.tokens.len() - sequence.read).min(budget);
        if sequence.decodes() || left == 0 {
            return 0;
        }
        step.pieces.push(self.piece(at, left));
        left
    }

    fn piece(&self, at: usize, tokens: usize) -> Piece {
        let sequence = &self.running[at];
        let end = sequence.read + tokens;
        Piece {
            id: sequence.id,
            first: sequence.read,
            tokens: sequence.tokens[sequence.read..end].to_vec(),
            blocks: sequence.blocks[..self.pool.needed(end)].to_vec(),
            samples: end == sequence.tokens.len(),
        }
    }

    /// Lets the first of the queue in, with blocks for all of its tokens. False where there is no room for it, or nobody waits.
    fn admit(&mut self) -> bool {
        let Some(sequence) = self.waiting.front().filter(|_| self.running.len() < self.limits.sequences) else {
            return false;
        };
        // The last token is read in any case: the next one is chosen after it.
        let known = match self.limits.prefix_reuse {
            true => self.pool.matching(&sequence.tokens[..sequence.tokens.len() - 1]),
            false => Vec::new(),
        };
        let idle = known.iter().filter(|id| self.pool.holders(**id) == 0).count();
        let needed = self.pool.needed(sequence.tokens.len()) - known.len();
        if needed > self.pool.free() - idle {
            return false;
        }
        let mut sequence = self.waiting.pop_front().expect("looked at above");
        known.iter().for_each(|id| self.pool.hold(*id));
        sequence.read = known.len() * self.pool.block_size();
        self.counters.reused_tokens += sequence.read as u64;
        sequence.blocks = known;
        sequence.blocks.extend((0..needed).map(|_| self.pool.take().expect("counted above")));
        self.running.push(sequence);
        true
    }

    /// Notes that more tokens are in the cache; blocks that are full by that may be shared.
    fn advance(&mut self, at: usize, tokens: usize) {
        let (sequence, size) = (&mut self.running[at], self.pool.block_size());
        let full = sequence.read / size;
        sequence.read += tokens;
        if !self.limits.prefix_reuse {
            return;
        }
        for block in full..sequence.read / size {
            let before = block.checked_sub(1).map(|before| sequence.blocks[before]);
            self.pool.publish(before, sequence.blocks[block], &sequence.tokens[block * size..(block + 1) * size]);
        }
    }

    fn leave(&mut self, at: usize) {
        let mut sequence = self.running.remove(at);
        self.give_back(&mut sequence);
    }

    /// The end of the text first: of what nobody holds, its beginning stays known for longest.
    fn give_back(&mut self, sequence: &mut Sequence) {
        sequence.blocks.drain(..).rev().for_each(|block| self.pool.give_back(block));
        sequence.read = 0;
    }
}

#[cfg(test)]
mod tests;
