//! The step of a scheduler, written by the reader: who leaves, who loses blocks, who joins.

use crate::check::Verdict;
use crate::check::verdict::{Check, ask, asking, timed, told};
use gpulab::cpu::mix;
use std::collections::VecDeque;

/// A text in the server: a prompt, and behind it the answer so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Its number, in the order in which the texts came.
    pub id: usize,
    /// Its tokens: the model lets it grow by one a step.
    pub tokens: usize,
    /// Blocks of the cache that it holds; 0 in the queue.
    pub blocks: usize,
    /// Whether the model has ended the answer.
    pub done: bool,
}

/// A server between two steps of its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// The batch, the oldest first.
    pub running: Vec<Sequence>,
    /// The queue, the next one first.
    pub waiting: VecDeque<Sequence>,
    /// Blocks of the cache that nobody holds.
    pub free: usize,
    /// Tokens in a block.
    pub block_size: usize,
    /// The most texts in the batch.
    pub sequences: usize,
}

/// A scheduler's step of the reader's own.
type Step = fn(&mut ServerState);

/// A cache, a batch, and the texts that come: at which step, tokens of the prompt and of the answer.
struct Load {
    name: &'static str,
    blocks: usize,
    block_size: usize,
    sequences: usize,
    texts: Vec<(usize, usize, usize)>,
}

impl Load {
    fn new(name: &'static str, shape: (usize, usize, usize), texts: &[(usize, usize, usize)]) -> Load {
        let (blocks, block_size, sequences) = shape;
        Load { name, blocks, block_size, sequences, texts: texts.to_vec() }
    }

    /// Texts that come at any step, each of which fits into the cache alone.
    fn random(seed: u64) -> Load {
        let mut state = mix(seed);
        let mut below = |n: usize| {
            state = mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15));
            (state % n as u64) as usize
        };
        let (blocks, block_size, sequences) = (4 + below(20), 1 + below(8), 1 + below(6));
        let most = blocks * block_size;
        let mut at = 0;
        let mut text = |_| {
            at += below(4);
            let prompt = 1 + below(most.div_ceil(2));
            (at, prompt, 1 + below((most - prompt).min(3 * block_size)))
        };
        let texts = (0..30).map(&mut text).collect();
        Load { name: "a random load", blocks, block_size, sequences, texts }
    }

    /// Few texts first, so that what is wrong can be followed by hand.
    fn all() -> Vec<Load> {
        let mut all = vec![
            Load::new("one text alone", (8, 4, 2), &[(0, 5, 6)]),
            Load::new(
                "more texts than the batch has room for",
                (32, 4, 2),
                &[(0, 3, 2), (0, 3, 5), (0, 3, 3), (0, 3, 2)],
            ),
            Load::new("a prompt that has to wait for blocks", (5, 4, 4), &[(0, 8, 4), (0, 16, 3), (0, 3, 2)]),
            Load::new("a full cache", (4, 4, 4), &[(0, 6, 6), (0, 6, 5)]),
            Load::new("a full cache, and a queue", (6, 2, 4), &[(0, 3, 7), (0, 3, 6), (0, 3, 5), (1, 2, 4)]),
        ];
        all.extend((0..40).map(Load::random));
        all
    }
}

/// Checks a scheduler's step, over whole loads, after each step: whose text, whose blocks, who joined, who gave way.
pub fn scheduler_step(answer: fn(&mut ServerState)) -> Verdict {
    timed("scheduler_step", move || Load::all().iter().try_for_each(|load| serve(load, answer)))
}

/// The rules.
fn right_step(server: &mut ServerState) {
    let ServerState { running, waiting, free, block_size, sequences } = server;
    running.retain(|text| {
        *free += if text.done { text.blocks } else { 0 };
        !text.done
    });
    let mut at = 0;
    while at < running.len() {
        let missing = running[at].tokens.div_ceil(*block_size) - running[at].blocks;
        if missing <= *free {
            (running[at].blocks, *free) = (running[at].blocks + missing, *free - missing);
            at += 1;
            continue;
        }
        let mut youngest = running.pop().expect("this one at least is there");
        *free += youngest.blocks;
        youngest.blocks = 0;
        waiting.push_front(youngest);
    }
    while running.len() < *sequences {
        let Some(next) = waiting.front_mut() else { break };
        let needed = next.tokens.div_ceil(*block_size);
        if needed > *free {
            break;
        }
        (next.blocks, *free) = (needed, *free - needed);
        running.extend(waiting.pop_front());
    }
}

/// Lets the answer serve a load to its end, and compares after each step.
fn serve(load: &Load, answer: Step) -> Check {
    let Load { name, blocks, block_size, sequences, texts } = load;
    let mut server = ServerState {
        running: Vec::new(),
        waiting: VecDeque::new(),
        free: *blocks,
        block_size: *block_size,
        sequences: *sequences,
    };
    let (mut coming, mut step) = (texts.iter().enumerate().peekable(), 0);
    while coming.peek().is_some() || !server.running.is_empty() || !server.waiting.is_empty() {
        while let Some((id, (_, prompt, _))) = coming.next_if(|(_, text)| text.0 <= step) {
            server.waiting.push_back(Sequence { id, tokens: *prompt, blocks: 0, done: false });
        }
        let case = format!("{name}, step {step}: {}", shown(&server));
        let (mut given, mut right) = (server.clone(), server.clone());
        asking(&case);
        given = ask(&case, move || {
            answer(&mut given);
            given
        })?;
        right_step(&mut right);
        if given != right {
            return differs(&case, &server, &given, &right);
        }
        for text in &mut given.running {
            text.tokens += 1;
            let (_, prompt, answer) = texts[text.id];
            text.done = text.tokens == prompt + answer;
        }
        server = given;
        step += 1;
    }
    Ok(())
}

fn shown(server: &ServerState) -> String {
    let tokens = |text: &Sequence| format!("{} ({} tokens)", text.id, text.tokens);
    let batch = |text: &Sequence| {
        let done = if text.done { ", done" } else { "" };
        let blocks = if text.blocks == 1 { "block" } else { "blocks" };
        format!("{} ({} tokens, {} {blocks}{done})", text.id, text.tokens, text.blocks)
    };
    let list = |texts: Vec<String>| if texts.is_empty() { "nobody".to_string() } else { texts.join(", ") };
    format!(
        "{} blocks of {} tokens free, a batch of at most {}; batch: {}; queue: {}",
        server.free,
        server.block_size,
        server.sequences,
        list(server.running.iter().map(batch).collect()),
        list(server.waiting.iter().map(tokens).collect())
    )
}

/// What is wrong with a step, by what it would lead to.
fn differs(case: &str, before: &ServerState, given: &ServerState, right: &ServerState) -> Check {
    let case = format!("{case}\n");
    let all = |server: &ServerState| server.running.iter().chain(&server.waiting).cloned().collect::<Vec<Sequence>>();
    let (texts_before, texts) = (all(before), all(given));
    let ids = |texts: &[Sequence]| texts.iter().map(|text| text.id).collect::<Vec<usize>>();
    if (given.block_size, given.sequences) != (before.block_size, before.sequences) {
        return told(
            format!(
                "{case}after your step a block has {} tokens, and the batch room for {}",
                given.block_size, given.sequences
            ),
            "how large the cache and the batch are is given",
            "change `running`, `waiting` and `free`, and nothing else",
        );
    }
    for text in &texts {
        let Some(old) = texts_before.iter().find(|old| old.id == text.id) else {
            return told(
                format!("{case}after your step there is a text {}, which was not there before", text.id),
                "texts come from clients",
                "move texts from one list to the other; make none",
            );
        };
        if (text.tokens, text.done) != (old.tokens, old.done) {
            return told(
                format!(
                    "{case}text {} had {} tokens, done: {}; after your step {}, done: {}",
                    text.id, old.tokens, old.done, text.tokens, text.done
                ),
                "tokens are the model's: it lets each text of the batch grow by one after your step, and says when an answer is over",
                "change `blocks` of a text, and nothing else",
            );
        }
        if texts.iter().filter(|other| other.id == text.id).count() > 1 {
            return told(
                format!("{case}text {} is there twice after your step", text.id),
                "it is in both lists, or in one of them twice",
                "remove it from the one list when you put it into the other: `Vec::pop`, `VecDeque::pop_front`",
            );
        }
    }
    if let Some(text) = texts.iter().find(|text| text.done) {
        return told(
            format!("{case}text {} is done, and is still there after your step", text.id),
            "its client has the whole answer: it needs neither room in the batch nor blocks",
            "`retain` the texts that are not done, and give the blocks of the others back first",
        );
    }
    if let Some(lost) = texts_before.iter().find(|old| !old.done && !ids(&texts).contains(&old.id)) {
        return told(
            format!("{case}text {} is gone after your step, and it was not done", lost.id),
            "its client waits for ever",
            "whoever leaves the batch before its end goes to the front of the queue; whoever leaves the queue joins the batch",
        );
    }
    let held = |server: &ServerState| all(server).iter().map(|text| text.blocks).sum::<usize>();
    let (cache, now) = (before.free + held(before), given.free + held(given));
    if cache != now {
        return told(
            format!(
                "{case}the cache has {cache} blocks; after your step {} are free and {} are held: {now}",
                given.free,
                held(given)
            ),
            "every block is either free or held by one text: otherwise the server loses memory, or two texts write into the same block",
            "each line that changes `blocks` of a text has to change `free` by as many, the other way; count first those of the texts that are done",
        );
    }
    if let Some(text) = given.waiting.iter().find(|text| text.blocks > 0) {
        return told(
            format!("{case}text {} waits, and holds {} blocks", text.id, text.blocks),
            "whoever waits for blocks while it holds some may wait for ever, as the others do",
            "who goes back to the queue gives back all of its blocks; its keys and values are computed again when it is let in",
        );
    }
    if given.running.len() > given.sequences {
        return told(
            format!("{case}after your step the batch has {} texts", given.running.len()),
            "it has room for `sequences` of them",
            "look at `running.len()` before each one that joins",
        );
    }
    let needed = |text: &Sequence| text.tokens.div_ceil(given.block_size);
    if let Some(text) = given.running.iter().find(|text| text.blocks != needed(text)) {
        let more = text.blocks > needed(text);
        return told(
            format!(
                "{case}text {} of {} tokens holds {} blocks after your step, and it needs {}",
                text.id,
                text.tokens,
                text.blocks,
                needed(text)
            ),
            if more {
                "blocks that it does not need yet are others' room"
            } else {
                "the model is about to write its newest token's keys and values: where to?"
            },
            "a text needs ⌈tokens / block_size⌉ blocks: `div_ceil`",
        );
    }
    who(&case, before, given, right)
}

/// The books agree: it is about who runs and who waits.
fn who(case: &str, before: &ServerState, given: &ServerState, right: &ServerState) -> Check {
    let runs = |server: &ServerState, id: usize| server.running.iter().any(|text| text.id == id);
    let ids = |texts: &mut dyn Iterator<Item = &Sequence>| texts.map(|text| text.id).collect::<Vec<usize>>();
    let (batch, queue) = (ids(&mut given.running.iter()), ids(&mut given.waiting.iter()));
    let (right_batch, right_queue) = (ids(&mut right.running.iter()), ids(&mut right.waiting.iter()));
    if let Some(id) = batch.iter().find(|id| runs(before, **id) && !right_batch.contains(id)) {
        let gave =
            queue.iter().find(|id| runs(before, **id)).map_or(String::new(), |id| format!(", and text {id} gave way"));
        return told(
            format!(
                "{case}text {id} is still in the batch{gave}; it is the youngest of the batch, and blocks are missing"
            ),
            "the youngest has lost least when it begins anew, and the oldest always comes to its end",
            "take the last one of `running`, also where it is the one that needs a block, as often as blocks are missing",
        );
    }
    if let Some(id) = queue.iter().find(|id| runs(before, **id) && right_batch.contains(id)) {
        return told(
            format!("{case}text {id} lost its blocks, and it need not have"),
            "what it had computed is computed again: that is paid for only where a text of the batch needs a block and none is free",
            "the blocks of texts that are done are free first; then go through the batch from the oldest on, and stop taking when there is room",
        );
    }
    if let Some(id) = batch.iter().find(|id| !right_batch.contains(id)) {
        return told(
            format!("{case}text {id} joined, and an earlier one waits: the queue is now {queue:?}"),
            "where small ones may overtake, a large one may never get in",
            "look at the first of the queue alone: where it does not fit, nobody joins",
        );
    }
    if let Some(id) = queue.iter().find(|id| right_batch.contains(id)) {
        return told(
            format!(
                "{case}text {id} waits, and it could join: the batch has {} of {} texts, and {} blocks are free",
                batch.len(),
                given.sequences,
                given.free
            ),
            "who waits without need makes everybody behind wait as well",
            "let the first of the queue in as long as there is room in the batch and blocks for all of its tokens; several may join in one step",
        );
    }
    let (what, given, right) =
        if queue == right_queue { ("batch", batch, right_batch) } else { ("queue", queue, right_queue) };
    told(
        format!("{case}the {what} is {given:?} after your step, and not {right:?}"),
        "the batch is sorted by age, the oldest first, and whoever gave way waits before all others",
        "`push` those that join behind the batch; `push_front` those that give way, the youngest first",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(answer: Step, said: &str) {
        let text = scheduler_step(answer).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    /// Written another way: by numbers instead of lists.
    fn by_index(server: &mut ServerState) {
        let size = server.block_size;
        server.free += server.running.iter().filter(|text| text.done).map(|text| text.blocks).sum::<usize>();
        server.running = server.running.drain(..).filter(|text| !text.done).collect();
        let count = server.running.len();
        let mut stay = count;
        let free_with = |server: &ServerState, stay: usize| -> Option<usize> {
            let back: usize = server.running[stay..].iter().map(|text| text.blocks).sum();
            let missing: usize =
                server.running[..stay].iter().map(|text| text.tokens.div_ceil(size) - text.blocks).sum();
            (server.free + back).checked_sub(missing)
        };
        while free_with(server, stay).is_none() {
            stay -= 1;
        }
        server.free = free_with(server, stay).unwrap();
        for mut text in server.running.split_off(stay).into_iter().rev() {
            text.blocks = 0;
            server.waiting.push_front(text);
        }
        server.running.iter_mut().for_each(|text| text.blocks = text.tokens.div_ceil(size));
        if stay < count {
            return;
        }
        while server.running.len() < server.sequences {
            match server.waiting.pop_front() {
                Some(mut text) if text.tokens.div_ceil(size) <= server.free => {
                    text.blocks = text.tokens.div_ceil(size);
                    server.free -= text.blocks;
                    server.running.push(text);
                }
                Some(text) => {
                    server.waiting.push_front(text);
                    break;
                }
                None => break,
            }
        }
    }

    #[test]
    fn the_rules_pass_in_either_form() {
        assert!(scheduler_step(right_step).passed(), "{}", scheduler_step(right_step).text());
        assert!(scheduler_step(by_index).passed(), "{}", scheduler_step(by_index).text());
    }

    #[test]
    fn the_loads_have_what_they_are_for() {
        let mut preempted = 0;
        for load in Load::all() {
            assert!(load.texts.iter().all(|(_, prompt, answer)| prompt + answer <= load.blocks * load.block_size));
            let mut server = ServerState {
                running: Vec::new(),
                waiting: VecDeque::new(),
                free: load.blocks,
                block_size: load.block_size,
                sequences: load.sequences,
            };
            let prompts = load.texts.iter().enumerate();
            server.waiting.extend(prompts.map(|(id, text)| Sequence { id, tokens: text.1, blocks: 0, done: false }));
            for _ in 0..60 {
                let before = server.waiting.len();
                right_step(&mut server);
                preempted += usize::from(server.waiting.len() > before);
                for text in &mut server.running {
                    let (_, prompt, answer) = load.texts[text.id];
                    text.tokens += 1;
                    text.done = text.tokens == prompt + answer;
                }
            }
        }
        assert!(preempted > 20, "{preempted}");
    }

    /// The rules, with one of their parts replaced.
    fn with(server: &mut ServerState, change: impl FnOnce(&mut ServerState, &ServerState)) {
        let before = server.clone();
        right_step(server);
        change(server, &before);
    }

    #[test]
    fn wrong_steps_are_told_what_is_wrong() {
        // As given.
        refused(|_| todo!("the step"), "panicked");
        // Nothing at all.
        refused(|_| {}, "it could join");
        // Done texts stay.
        refused(
            |server| {
                server.running.iter_mut().for_each(|text| text.done = false);
                right_step(server);
            },
            "done: true; after your step",
        );
        // Their blocks are not given back.
        refused(
            |server| {
                server.running.retain(|text| !text.done);
                right_step(server);
            },
            "the cache has 8 blocks",
        );
        // Done texts leave after the others have got their blocks.
        refused(
            |server| {
                let done = server.running.extract_if(.., |text| text.done).collect::<Vec<_>>();
                right_step(server);
                server.free += done.iter().map(|text| text.blocks).sum::<usize>();
            },
            "NOT YET",
        );
        // One block more where the last one is exactly full.
        refused(
            |server| {
                with(server, |server, _| {
                    for text in &mut server.running {
                        if text.tokens.is_multiple_of(server.block_size) && server.free > 0 {
                            (text.blocks, server.free) = (text.blocks + 1, server.free - 1);
                        }
                    }
                });
            },
            "others' room",
        );
        // Who needs a block and finds none waits in the batch without it.
        refused(
            |server| {
                with(server, |server, before| {
                    while let Some(mut text) =
                        server.waiting.pop_front_if(|text| before.running.iter().any(|old| old.id == text.id))
                    {
                        text.blocks = 0;
                        server.running.push(text);
                    }
                });
            },
            "where to?",
        );
        // A block more than needed, in case.
        refused(
            |server| {
                right_step(server);
                if server.free > 0 && !server.running.is_empty() {
                    server.free -= 1;
                    server.running[0].blocks += 1;
                }
            },
            "others' room",
        );
        // Rounded down.
        refused(
            |server| {
                with(server, |server, _| {
                    for text in &mut server.running {
                        let blocks = text.tokens / server.block_size;
                        server.free += text.blocks - blocks;
                        text.blocks = blocks;
                    }
                });
            },
            "where to?",
        );
        // The queue is searched for somebody who fits.
        refused(
            |server| {
                with(server, |server, _| {
                    let size = server.block_size;
                    let fits = |text: &Sequence, free: usize| text.tokens.div_ceil(size) <= free;
                    while server.running.len() < server.sequences {
                        let Some(at) = server.waiting.iter().position(|text| fits(text, server.free)) else { break };
                        let mut text = server.waiting.remove(at).unwrap();
                        text.blocks = text.tokens.div_ceil(size);
                        server.free -= text.blocks;
                        server.running.push(text);
                    }
                });
            },
            "an earlier one waits",
        );
        // One joins a step.
        refused(
            |server| {
                with(server, |server, before| {
                    while server.running.len() > before.running.iter().filter(|text| !text.done).count() + 1 {
                        let mut text = server.running.pop().unwrap();
                        server.free += text.blocks;
                        text.blocks = 0;
                        server.waiting.push_front(text);
                    }
                });
            },
            "it could join",
        );
        // A batch without an end.
        refused(
            |server| {
                let sequences = server.sequences;
                server.sequences = 100;
                right_step(server);
                server.sequences = sequences;
            },
            "the batch has 4 texts",
        );
        // The oldest gives way.
        refused(
            |server| {
                server.running.reverse();
                right_step(server);
                server.running.reverse();
            },
            "NOT YET",
        );
        // Who gave way goes to the end of the queue.
        refused(
            |server| {
                with(server, |server, before| {
                    let gave = before.running.iter().filter(|text| !text.done).count();
                    let gave = gave.saturating_sub(server.running.len());
                    (0..gave).for_each(|_| server.waiting.rotate_left(1));
                });
            },
            "before all others",
        );
        // Who gave way keeps its blocks.
        refused(
            |server| {
                let before = server.clone();
                right_step(server);
                let gave = |text: &&mut Sequence| before.running.iter().any(|old| old.id == text.id);
                for text in server.waiting.iter_mut().filter(gave) {
                    text.blocks = server.free;
                    server.free = 0;
                }
            },
            "waits, and holds",
        );
        // Everybody gives way where one block is missing.
        refused(
            |server| {
                with(server, |server, before| {
                    if server.waiting.iter().any(|text| before.running.iter().any(|old| old.id == text.id)) {
                        while let Some(mut text) = server.running.pop() {
                            server.free += text.blocks;
                            text.blocks = 0;
                            server.waiting.push_front(text);
                        }
                    }
                });
            },
            "it need not have",
        );
        // Never comes back.
        refused(
            |_| {
                loop {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            },
            "has not come back",
        );
    }

    #[test]
    fn cheats_are_refused() {
        // A cache that grows.
        refused(
            |server| {
                server.free += 1000;
                right_step(server);
            },
            "the cache has 8 blocks",
        );
        // Shorter texts need fewer blocks.
        refused(
            |server| {
                server.waiting.iter_mut().for_each(|text| text.tokens = 1);
                right_step(server);
            },
            "tokens are the model's",
        );
        // Whoever does not fit is sent away.
        refused(
            |server| {
                right_step(server);
                server.waiting.clear();
            },
            "it was not done",
        );
        // Blocks of one token less.
        refused(
            |server| {
                server.block_size += 1;
                right_step(server);
            },
            "a block has 5 tokens",
        );
        // Everybody in both lists.
        refused(
            |server| {
                right_step(server);
                server.waiting.extend(server.running.clone());
            },
            "is there twice",
        );
    }
}
