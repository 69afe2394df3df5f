//! A server whose batch gets smaller by the hour. Its source stays hidden until its mistake is named.

use super::hidden::{BLOCK, Cache, Text};
use crate::check::Verdict;
use crate::check::on_paper::{diagnosed, within};
use crate::check::verdict::{Check, told};
use gpulab::error::{Error, Result};
use std::collections::VecDeque;
use std::fmt;

const SOURCE: &str = include_str!("hidden.rs");
/// Lines of a trace, and the most that may be asked for.
const LINES: usize = 6;
const MOST: (usize, usize, usize) = (2048, 20_000, 64);
/// The question: blocks of the cache, and lengths that occur equally often.
const ASKED: (f64, f64) = (1024.0, 64.0);

/// What may be wrong with a server that lets in fewer and fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// ServerLoad that go away leave their blocks behind.
    ClientGone,
    /// Texts that are preempted do not give all their blocks back.
    Preempted,
    /// The last block of a prompt, filled in part, is not given back.
    PromptRounded,
    /// A block that was taken ahead of its first token is not given back.
    TakenAhead,
    /// Short requests overtake a long one, which never gets in.
    Overtaken,
    /// Requests come faster than they are answered.
    Overload,
}

/// What the hidden server is given: clients that ask again as soon as they have their answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLoad {
    /// Requests in all.
    pub requests: usize,
    /// How many ask at the same time.
    pub clients: usize,
    /// Tokens of each prompt.
    pub prompt: usize,
    /// Tokens of the answers: all lengths from the first to the second, one after the other, again and again.
    pub answers: (usize, usize),
    /// Whether each client goes away when it has half of its answer.
    pub leave: bool,
    /// Blocks of the cache, of 16 tokens.
    pub blocks: usize,
}

/// The hidden server after so many requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLine {
    /// Requests that are over.
    pub over: usize,
    /// Texts in the batch, and in the queue.
    pub running: usize,
    /// Texts that wait.
    pub waiting: usize,
    /// Blocks that texts hold.
    pub held: usize,
    /// Blocks that are free.
    pub free: usize,
    /// Preemptions so far.
    pub preemptions: usize,
}

/// What the hidden server has done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a trace shows itself as the last expression of a cell, without a semicolon"]
pub struct ServerTrace {
    /// What it was given.
    pub load: ServerLoad,
    /// Some moments, the last one at the end.
    pub lines: Vec<TraceLine>,
    /// Whether the end was that nobody could go on.
    pub stuck: bool,
    /// Whether some request was let in before another one that had come earlier.
    pub overtaken: bool,
}

struct Open {
    number: usize,
    answered: usize,
    text: Text,
}

/// Lets the hidden server work. Requests wait in the order in which they came; where no block is free, the youngest text of the batch
/// gives its own back and waits again, before all others.
///
/// # Errors
/// [`Error::Invalid`] for no requests, clients, prompt or answers, for too many of them, and for texts that do not fit into the cache.
pub fn server_trace(load: ServerLoad) -> Result<ServerTrace> {
    let ServerLoad { requests, clients, prompt, answers: (least, most), leave, blocks } = load;
    let (most_blocks, most_requests, most_clients) = MOST;
    let counts = [(requests, most_requests), (clients, most_clients), (blocks, most_blocks)];
    let sound = counts.iter().all(|(count, most)| (1..=*most).contains(count)) && prompt > 0 && least > 0;
    if !sound || most < least || (prompt + most) / BLOCK + 1 > blocks {
        return Err(Error::invalid(
            format!("{load:?}"),
            format!(
                "ask for 1 to {most_requests} requests of 1 to {most_clients} clients, 1 to {most_blocks} blocks of {BLOCK} tokens, and texts that fit into them with a block to spare"
            ),
        ));
    }
    let length = |number: usize| least + number % (most - least + 1);
    let mut cache = Cache { free: blocks };
    let (mut running, mut waiting): (Vec<Open>, VecDeque<Open>) = (Vec::new(), VecDeque::new());
    let (mut came, mut over, mut preemptions, mut last_in) = (0, 0, 0, 0);
    let mut trace = ServerTrace { load, lines: Vec::new(), stuck: false, overtaken: false };
    while over < requests {
        while came < requests && running.len() + waiting.len() < clients {
            waiting.push_back(Open { number: came, answered: 0, text: Text::default() });
            came += 1;
        }
        while let Some(mut next) = waiting.pop_front() {
            if !next.text.admit(prompt + next.answered, &mut cache) {
                waiting.push_front(next);
                break;
            }
            trace.overtaken |= next.number > last_in;
            last_in = last_in.max(next.number + 1);
            running.push(next);
        }
        let held = running.iter().map(|open| open.text.blocks).sum();
        let line =
            TraceLine { over, running: running.len(), waiting: waiting.len(), held, free: cache.free, preemptions };
        trace.stuck |= running.is_empty();
        if trace.stuck {
            trace.lines.push(line);
            return Ok(trace);
        }
        if over >= trace.lines.len() * requests / LINES {
            trace.lines.push(line);
        }
        let mut at = 0;
        while at < running.len() {
            if !running[at].text.append(&mut cache) {
                let mut youngest = running.pop().expect("this one at least is there");
                std::mem::take(&mut youngest.text).give_back(&mut cache);
                waiting.push_front(youngest);
                preemptions += 1;
                continue;
            }
            running[at].answered += 1;
            at += 1;
        }
        // The oldest gave way as well: it would do so for ever.
        trace.stuck = running.is_empty();
        let ends = |open: &mut Open| {
            let whole = length(open.number);
            open.answered >= if leave { whole.div_ceil(2) } else { whole }
        };
        for open in running.extract_if(.., ends) {
            over += 1;
            match leave {
                true => open.text.give_back(&mut cache),
                false => open.text.finish(&mut cache),
            }
        }
    }
    trace.lines.push(TraceLine { over, running: 0, waiting: 0, held: 0, free: cache.free, preemptions });
    Ok(trace)
}

gpulab::show_as_text!(ServerTrace);

impl ServerTrace {
    /// Blocks that are free at the end.
    pub fn free(&self) -> usize {
        self.lines.last().map_or(0, |line| line.free)
    }
}

impl fmt::Display for ServerTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerLoad { requests, clients, prompt, answers: (least, most), leave, blocks } = self.load;
        let answers = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let leaves = if leave { ", of which each client takes half" } else { "" };
        writeln!(
            f,
            "{requests} requests of {clients} clients: prompts of {prompt} tokens, answers of {answers}{leaves}; {blocks} blocks of {BLOCK} tokens"
        )?;
        writeln!(
            f,
            "{:>8} {:>8} {:>8} {:>12} {:>12} {:>12}",
            "over", "batch", "queue", "blocks held", "blocks free", "preemptions"
        )?;
        for TraceLine { over, running, waiting, held, free, preemptions } in &self.lines {
            writeln!(f, "{over:>8} {running:>8} {waiting:>8} {held:>12} {free:>12} {preemptions:>12}")?;
        }
        match self.stuck {
            true => writeln!(
                f,
                "and then nothing more happened: the first of the queue does not get the blocks that it needs"
            ),
            false => Ok(()),
        }
    }
}

/// Checks a diagnosis: what the hidden server does wrong, and after about how many requests all of its 1,024 blocks are lost where prompts
/// have 100 tokens and answers each length from 1 to 64 equally often.
pub fn diagnose_server(diagnosis: Option<(ServerFault, f64)>) -> Verdict {
    let (blocks, lengths) = ASKED;
    let (size, right) = (BLOCK as f64, blocks * BLOCK as f64);
    let slips = [
        (blocks, "not every request loses one: which do?"),
        (blocks * lengths, "more than one of the 64 lengths loses a block: list them"),
        (blocks * size / 4.0, "four of the 64 lengths lose a block: what share is that?"),
        (blocks / size, "a request loses at most one block"),
        (right * size, "blocks of the cache, and not tokens"),
        (2.0 * right, "try all 64 lengths once, and count the blocks that are missing"),
    ];
    let start = "how many of the 64 lengths lose a block, and how many blocks does each of them lose?";
    let none = "ask for traces that differ in one thing. In a server that works, how many blocks are free when all requests are over? Of which requests is that not so?";
    diagnosed("diagnose_server", diagnosis, none, against, within(right, 0.02), &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: ServerFault) -> Check {
    let usual = ServerLoad { requests: 640, clients: 8, prompt: 100, answers: (1, 64), leave: false, blocks: 256 };
    let lost = |load: ServerLoad| -> Check<usize> { Ok(load.blocks - server_trace(load)?.free()) };
    let what = match named {
        ServerFault::TakenAhead => return Ok(()),
        ServerFault::ClientGone => {
            let [stay, leave] = [lost(usual)?, lost(ServerLoad { leave: true, ..usual })?];
            format!(
                "after 640 requests {stay} blocks are missing where all clients stay, and {leave} where all of them leave"
            )
        }
        ServerFault::Preempted => {
            let [large, one] = [lost(usual)?, lost(ServerLoad { clients: 1, ..usual })?];
            format!(
                "with one client nobody is preempted, and {one} blocks are missing after 640 requests, as with eight: {large}"
            )
        }
        ServerFault::PromptRounded => {
            let short = lost(ServerLoad { answers: (5, 5), ..usual })?;
            format!(
                "prompts of 100 tokens fill a quarter of their last block, and with answers of 5 tokens {short} blocks are missing after 640 requests"
            )
        }
        ServerFault::Overtaken => {
            let trace = server_trace(usual)?;
            let answer = if trace.overtaken { "some were" } else { "nobody was" };
            format!(
                "of 640 requests {answer} let in before an earlier one, and {} blocks are missing all the same",
                usual.blocks - trace.free()
            )
        }
        ServerFault::Overload => {
            let one = lost(ServerLoad { clients: 1, ..usual })?;
            format!(
                "one client, which asks again when it has its answer, cannot overload anything: {one} blocks are missing after 640 requests"
            )
        }
    };
    told(
        what,
        "look at the last line of a trace, where nobody holds anything: how many blocks are free, and how many should be?",
        "give all requests the same length, and change that length by one token at a time: for which lengths are blocks lost?",
    )
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_server(diagnosis: Option<(ServerFault, f64)>) -> &'static str {
    diagnose_server(diagnosis).reveals(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: ServerLoad =
        ServerLoad { requests: 640, clients: 8, prompt: 100, answers: (1, 64), leave: false, blocks: 256 };

    fn lost(load: ServerLoad) -> usize {
        load.blocks - server_trace(load).unwrap().free()
    }

    #[test]
    fn a_block_is_lost_where_the_text_fills_its_last_one() {
        for length in 1..=64 {
            let lost = lost(ServerLoad { answers: (length, length), requests: 32, ..USUAL });
            assert_eq!(lost, if (100 + length) % 16 == 0 { 32 } else { 0 }, "{length}");
        }
        assert_eq!((lost(USUAL), lost(ServerLoad { clients: 1, ..USUAL })), (40, 40));
        assert_eq!(lost(ServerLoad { leave: true, answers: (24, 24), ..USUAL }), 0);
        assert_eq!(lost(ServerLoad { prompt: 96, answers: (16, 16), requests: 10, ..USUAL }), 10);
    }

    #[test]
    fn traces_tell_suspects_apart_and_hide_the_source() {
        // A full cache preempts, and loses no block by that.
        let tight = ServerLoad { blocks: 24, answers: (30, 30), ..USUAL };
        let trace = server_trace(tight).unwrap();
        assert!(trace.lines.last().unwrap().preemptions > 10 && trace.free() == 24, "{trace}");
        assert!(!trace.overtaken && !trace.stuck);
        let dead = server_trace(ServerLoad { requests: 20_000, ..USUAL }).unwrap();
        assert!(dead.stuck && dead.lines.last().unwrap().over < 5000, "{dead}");
        assert!(dead.to_string().contains("nothing more happened"), "{dead}");
        // What is asked, by the trace itself: the last blocks are too few for a text.
        let asked = ServerLoad { blocks: 1024, requests: 20_000, ..USUAL };
        let over = server_trace(asked).unwrap().lines.last().unwrap().over as f64;
        assert!((over / 16_384.0 - 1.0).abs() < 0.02, "{over}");
        for wrong in [
            ServerLoad { requests: 0, ..USUAL },
            ServerLoad { clients: 65, ..USUAL },
            ServerLoad { answers: (0, 5), ..USUAL },
            ServerLoad { answers: (6, 5), ..USUAL },
            ServerLoad { blocks: 10, ..USUAL },
        ] {
            assert!(server_trace(wrong).unwrap_err().to_string().contains("\nnext: "), "{wrong:?}");
        }
    }

    #[test]
    fn only_the_traces_convict() {
        let right = Some((ServerFault::TakenAhead, 16_384.0));
        assert!(diagnose_server(right).passed(), "{}", diagnose_server(right).text());
        assert_eq!(revealed_server(right), SOURCE);
        let ahead = |requests| Some((ServerFault::TakenAhead, requests));
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((ServerFault::ClientGone, 16_384.0)), "40 blocks are missing where all clients stay, and 0"),
            (Some((ServerFault::Preempted, 16_384.0)), "40 blocks are missing after 640 requests, as with eight: 40"),
            (Some((ServerFault::PromptRounded, 16_384.0)), "0 blocks are missing"),
            (Some((ServerFault::Overtaken, 16_384.0)), "nobody was let in before"),
            (Some((ServerFault::Overload, 16_384.0)), "cannot overload anything: 40 blocks"),
            (ahead(1024.0), "not every request"),
            (ahead(65_536.0), "more than one of the 64"),
            (ahead(4096.0), "what share is that"),
            (ahead(64.0), "at most one block"),
            (ahead(32_768.0), "try all 64 lengths"),
            (ahead(7.0), "how many of the 64 lengths"),
            // Cheats: what compares with nothing, and what is no number of requests.
            (ahead(f64::NAN), "is no answer"),
            (ahead(f64::INFINITY), "is no answer"),
        ] {
            let text = diagnose_server(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(revealed_server(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
