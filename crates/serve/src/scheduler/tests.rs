use super::*;
use crate::random::Random;
use std::collections::{BTreeSet, HashMap};

const END: u32 = 0;

fn limits(sequences: usize, step_tokens: usize) -> Limits {
    Limits { sequences, step_tokens, ..Limits::default() }
}

fn never(_: u32) -> bool {
    false
}

/// Chooses token 9 for each piece that asks.
fn run(scheduler: &mut Scheduler, step: &Step) -> Vec<SequenceEvent> {
    let chosen = vec![9; step.pieces.iter().filter(|piece| piece.samples).count()];
    scheduler.complete(step, &chosen, &never)
}

fn read(step: &Step) -> Vec<(u64, usize, usize)> {
    step.pieces.iter().map(|piece| (piece.id.0, piece.first, piece.tokens.len())).collect()
}

#[test]
fn answers_go_on_while_a_long_prompt_is_read_in_parts() {
    let mut scheduler = Scheduler::new(limits(4, 10), 64, 4).unwrap();
    scheduler.submit(Request::new(vec![1; 3], 5)).unwrap();
    let step = scheduler.plan();
    run(&mut scheduler, &step);
    scheduler.submit(Request::new(vec![2; 20], 5)).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let step = scheduler.plan();
        assert!(step.tokens() <= 10);
        seen.push(read(&step));
        run(&mut scheduler, &step);
    }
    assert_eq!(seen, [vec![(0, 3, 1), (1, 0, 9)], vec![(0, 4, 1), (1, 9, 9)], vec![(0, 5, 1), (1, 18, 2)]]);
}

/// Submits prompts of so many tokens, and makes steps: what each reads of prompts.
fn read_of_prompts(scheduler: &mut Scheduler, prompts: &[usize], steps: usize) -> Vec<Vec<usize>> {
    for prompt in prompts {
        scheduler.submit(Request::new(vec![1; *prompt], 40)).unwrap();
    }
    let one = |_| {
        let step = scheduler.plan();
        run(scheduler, &step);
        step.pieces.iter().map(|piece| piece.tokens.len()).filter(|tokens| *tokens > 1).collect()
    };
    (0..steps).map(one).collect()
}

#[test]
fn a_busy_batch_reads_prompts_in_small_chunks_and_any_other_as_fast_as_a_step_can() {
    let limits = Limits { prefix_reuse: false, ..limits(8, 100) };
    let mut scheduler = Scheduler::new(limits, 256, 4).unwrap().with_chunked_prefill(16);
    assert_eq!(read_of_prompts(&mut scheduler, &[8; 5], 1), [[8; 5]]);
    // Five of eight places are answers: too few to spare them.
    assert_eq!(read_of_prompts(&mut scheduler, &[30, 20, 10], 1), [[30, 20, 10]]);
    // Six are, and the eighth place is free.
    (0..2).for_each(|id| assert!(scheduler.cancel(RequestId(id))));
    assert_eq!(read_of_prompts(&mut scheduler, &[60], 1), [[60]]);
    // Nobody else may join.
    assert_eq!(read_of_prompts(&mut scheduler, &[25], 4), [vec![9], vec![9], vec![7], vec![]]);
    (2..4).for_each(|id| assert!(scheduler.cancel(RequestId(id))));
    assert_eq!(read_of_prompts(&mut scheduler, &[12, 12], 3), [vec![10], vec![2, 8], vec![4]]);
    // As large as a step, a chunk is no limit.
    assert_eq!(scheduler.with_chunked_prefill(1000).chunked_prefill(), 100);
}

#[test]
fn a_chunk_without_room_for_prompts_reads_a_block_of_the_oldest_in_each_step() {
    let mut scheduler = Scheduler::new(limits(4, 100), 256, 4).unwrap().with_chunked_prefill(1);
    for text in 0..3 {
        scheduler.submit(Request::new(vec![text; 8], 90)).unwrap();
    }
    let step = scheduler.plan();
    run(&mut scheduler, &step);
    scheduler.submit(Request::new(vec![9; 10], 90)).unwrap();
    let parts: Vec<usize> = (0..3)
        .map(|_| {
            let step = scheduler.plan();
            run(&mut scheduler, &step);
            step.pieces.last().unwrap().tokens.len()
        })
        .collect();
    assert_eq!((parts, scheduler.plan().tokens()), (vec![4, 4, 2], 4));
}

#[test]
fn a_token_is_asked_for_only_at_the_end_of_a_text() {
    let mut scheduler = Scheduler::new(limits(1, 4), 8, 4).unwrap();
    scheduler.submit(Request::new(vec![1; 6], 2)).unwrap();
    let asks: Vec<bool> = (0..3)
        .map(|_| {
            let step = scheduler.plan();
            run(&mut scheduler, &step);
            step.pieces[0].samples
        })
        .collect();
    assert_eq!((asks, scheduler.is_idle()), (vec![false, true, true], true));
}

#[test]
fn a_prompt_that_begins_as_one_before_reads_only_the_rest() {
    let mut scheduler = Scheduler::new(limits(4, 64), 64, 4).unwrap();
    let prompt: Vec<u32> = (0..10).collect();
    scheduler.submit(Request::new(prompt.clone(), 1)).unwrap();
    let step = scheduler.plan();
    run(&mut scheduler, &step);
    assert!(scheduler.is_idle());
    scheduler.submit(Request::new(prompt[..8].to_vec(), 1)).unwrap();
    scheduler.submit(Request::new(prompt, 1)).unwrap();
    let step = scheduler.plan();
    // Of eight known tokens the last is read again: the next one is chosen after it, and its block is its own.
    assert_eq!(read(&step), [(1, 4, 4), (2, 8, 2)]);
    assert_eq!(step.pieces[0].blocks[0], step.pieces[1].blocks[0]);
    assert_ne!(step.pieces[0].blocks[1], step.pieces[1].blocks[1]);
    assert_eq!(scheduler.counters().reused_tokens, 12);
    scheduler.audit().unwrap();
}

#[test]
fn without_reuse_each_prompt_is_read_in_full() {
    let mut scheduler = Scheduler::new(Limits { prefix_reuse: false, ..limits(4, 64) }, 64, 4).unwrap();
    for _ in 0..2 {
        scheduler.submit(Request::new((0..10).collect(), 1)).unwrap();
        let step = scheduler.plan();
        assert_eq!(step.tokens(), 10);
        run(&mut scheduler, &step);
    }
    assert_eq!((scheduler.counters().reused_tokens, scheduler.pool().idle()), (0, 0));
}

#[test]
fn where_the_cache_is_full_the_youngest_waits_and_loses_no_token() {
    let mut scheduler = Scheduler::new(limits(2, 16), 4, 2).unwrap();
    let old = scheduler.submit(Request::new(vec![1, 2, 3], 5)).unwrap();
    let young = scheduler.submit(Request::new(vec![4, 5, 6], 4)).unwrap();
    let (mut answers, mut preempted) = (HashMap::<RequestId, Vec<u32>>::new(), Vec::new());
    for number in 10.. {
        let step = scheduler.plan();
        if step.is_empty() {
            break;
        }
        preempted.extend(step.preempted.clone());
        let chosen = vec![number; step.pieces.iter().filter(|piece| piece.samples).count()];
        for event in scheduler.complete(&step, &chosen, &never) {
            if let SequenceEvent::Token(id, token) = event {
                answers.entry(id).or_default().push(token);
            }
        }
        scheduler.audit().unwrap();
    }
    assert_eq!(preempted, [young]);
    assert_eq!((answers[&old].len(), answers[&young].len()), (5, 4));
    assert_eq!(scheduler.counters().preemptions, 1);
}

#[test]
fn a_static_batch_lets_nobody_in_until_all_are_answered() {
    let mut scheduler = Scheduler::new(Limits { batching: Batching::Static, ..limits(2, 16) }, 64, 4).unwrap();
    for most_new in [1, 3, 1] {
        scheduler.submit(Request::new(vec![1; 2], most_new)).unwrap();
    }
    let mut batches = Vec::new();
    while !scheduler.is_idle() {
        let step = scheduler.plan();
        batches.push(step.pieces.iter().map(|piece| piece.id.0).collect::<Vec<u64>>());
        run(&mut scheduler, &step);
    }
    assert_eq!(batches, [vec![0, 1], vec![1], vec![1], vec![2]]);
}

#[test]
fn refusals_say_what_to_do() {
    let mut scheduler = Scheduler::new(Limits { queue: 1, context: 40, ..Limits::default() }, 2, 16).unwrap();
    let mut refused = |prompt: usize, most_new| scheduler.submit(Request::new(vec![1; prompt], most_new)).unwrap_err();
    let all = [refused(0, 1), refused(1, 0), refused(41, 1), refused(40, 1), refused(30, 11), refused(30, 10)];
    let texts = all.map(|refusal| refusal.to_string());
    let ends = ["one character", "at least 1", "most 39 tokens", "most 39 tokens", "at most 10 tokens", "--cache-mib)"];
    for (text, end) in texts.iter().zip(ends) {
        assert!(text.contains("\nnext: ") && text.contains(end), "{text}");
    }
    scheduler.submit(Request::new(vec![1], 1)).unwrap();
    assert_eq!(scheduler.submit(Request::new(vec![1], 1)), Err(Refusal::QueueFull { waiting: 1 }));
}

#[test]
fn limits_that_let_nobody_in_are_refused() {
    assert!(Scheduler::new(limits(8, 7), 4, 4).unwrap_err().to_string().contains("\nnext: "));
    assert!(Scheduler::new(limits(0, 7), 4, 4).unwrap_err().to_string().contains("\nnext: "));
}

/// A text, and of each token what a model would write for it: its key says the token and all before it.
struct Text {
    tokens: Vec<u32>,
    keys: Vec<u64>,
}

impl Text {
    fn new(tokens: Vec<u32>) -> Text {
        let mut text = Text { tokens: Vec::new(), keys: Vec::new() };
        tokens.into_iter().for_each(|token| text.push(token));
        text
    }

    fn push(&mut self, token: u32) {
        let before = self.keys.last().copied().unwrap_or(1);
        self.tokens.push(token);
        self.keys.push((before ^ u64::from(token)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(7));
    }
}

/// Writes a piece's keys into the cache, and checks that those of all tokens before are there.
fn write(slots: &mut [[u64; SIZE]], piece: &Piece, text: &Text) {
    assert_eq!(piece.tokens, text.tokens[piece.first..piece.first + piece.tokens.len()]);
    let end = piece.first + piece.tokens.len();
    for (at, (id, keys)) in piece.blocks.iter().zip(text.keys[..end].chunks(SIZE)).enumerate() {
        let known = piece.first.saturating_sub(at * SIZE).min(keys.len());
        let slot = &mut slots[*id as usize];
        assert_eq!(slot[..known], keys[..known], "{:?}: keys of block {at} were lost", piece.id);
        slot[..keys.len()].copy_from_slice(keys);
    }
}

const SIZE: usize = 4;

/// Requests arrive at random, prompts share beginnings, clients cancel at any moment.
fn random_requests(seed: u64, requests: usize, batching: Batching, (blocks, chunk): (usize, usize)) {
    let mut random = Random::new(seed);
    let mut below = move |n: usize| (random.bits() % n as u64) as usize;
    let limits = Limits { sequences: 6, step_tokens: 16, queue: 10, context: 72, batching, prefix_reuse: true };
    let mut scheduler = Scheduler::new(limits, blocks, SIZE).unwrap().with_chunked_prefill(chunk);
    let mut slots = vec![[0; SIZE]; blocks];
    let (mut texts, mut open) = (HashMap::<RequestId, Text>::new(), BTreeSet::new());
    let mut spread = 0;
    let (mut submitted, mut full, mut cancelled, mut finished) = (0, 0, 0, 0);
    let mut first_planned: Vec<RequestId> = Vec::new();
    let mut known = BTreeSet::new();
    while submitted < requests || !scheduler.is_idle() {
        for _ in 0..below(4) {
            if submitted == requests {
                break;
            }
            submitted += 1;
            let shared = below(3) * 6;
            let prompt: Vec<u32> =
                (0..1 + below(40)).map(|at| 1 + if at < shared { at } else { below(50) } as u32).collect();
            match scheduler.submit(Request::new(prompt.clone(), 1 + below(30))) {
                Ok(id) => {
                    texts.insert(id, Text::new(prompt));
                    open.insert(id);
                }
                Err(Refusal::QueueFull { waiting }) => {
                    // Who was taken on and lost its blocks waits beside the queue.
                    assert!((limits.queue..limits.queue + limits.sequences).contains(&waiting));
                    full += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        let served = scheduler.running.len() + scheduler.waiting.len();
        let step = scheduler.plan();
        assert!(step.tokens() <= limits.step_tokens && scheduler.batch() <= limits.sequences);
        assert!(step.is_empty() == scheduler.is_idle(), "work is there, and nobody does it");
        let answers = step
            .pieces
            .iter()
            .take_while(|piece| scheduler.running.iter().any(|one| one.id == piece.id && one.decodes()));
        let answers = answers.count();
        if 4 * answers >= 3 * limits.sequences && 16 * served >= 15 * limits.sequences {
            assert!(step.tokens() <= chunk.max(answers + SIZE), "{answers} answers beside too much");
            spread += usize::from(step.tokens() > answers);
        }
        let oldest = scheduler.running.iter().find(|one| !one.decodes());
        assert!(oldest.is_none_or(|oldest| step.pieces.iter().any(|piece| piece.id == oldest.id)), "a prompt starves");
        for piece in &step.pieces {
            write(&mut slots, piece, &texts[&piece.id]);
            if known.insert(piece.id) {
                first_planned.push(piece.id);
            }
        }
        // Clients go away while the model computes.
        for _ in 0..below(3) {
            let chosen = open.iter().nth(below(open.len().max(1))).copied();
            if let Some(id) = chosen.filter(|_| below(3) == 0) {
                assert!(scheduler.cancel(id) && !scheduler.cancel(id));
                open.remove(&id);
                cancelled += 1;
            }
        }
        let chosen: Vec<u32> = step.pieces.iter().filter(|piece| piece.samples).map(|_| below(25) as u32).collect();
        for event in scheduler.complete(&step, &chosen, &|token| token == END) {
            match event {
                SequenceEvent::Token(id, token) => texts.get_mut(&id).unwrap().push(token),
                SequenceEvent::Finished(id, _) => {
                    assert!(open.remove(&id));
                    finished += 1;
                }
            }
        }
        if below(8) == 0 {
            scheduler.audit().unwrap();
        }
    }
    assert!(open.is_empty() && scheduler.pool().free() == blocks, "blocks were lost");
    assert_eq!(submitted, full + cancelled + finished);
    assert!(first_planned.is_sorted(), "somebody in the queue was overtaken");
    let counters = scheduler.counters();
    assert!(cancelled > requests / 20 && counters.reused_tokens > 0, "{cancelled} cancelled, {counters:?}");
    if batching == Batching::Continuous {
        assert!(chunk == usize::MAX || spread > requests / 20, "{spread} steps that read prompts in a busy batch");
        assert!(counters.preemptions > 0, "{counters:?}");
    }
}

#[test]
fn after_10_000_random_requests_and_cancellations_no_block_is_lost_and_nobody_was_overtaken() {
    random_requests(1, 10_000, Batching::Continuous, (24, usize::MAX));
}

#[test]
fn nor_with_other_requests_and_static_batches() {
    for seed in 2..6 {
        random_requests(seed, 1_000, Batching::Continuous, (24, usize::MAX));
        random_requests(seed, 1_000, Batching::Static, (24, usize::MAX));
    }
}

#[test]
fn nor_where_prompts_are_spread() {
    for (seed, chunk) in [(6, 1), (7, 7), (8, 10)] {
        random_requests(seed, 3_000, Batching::Continuous, (48, chunk));
    }
}
