//! Checks of the lesson about serving: a scheduler's step, a batch for a latency, Little's law, and a server that loses memory.

mod case;
mod hidden;
mod step;

pub use case::{ServerFault, ServerLoad, ServerTrace, TraceLine, diagnose_server, revealed_server, server_trace};
pub use step::{Sequence, ServerState, scheduler_step};

use super::Verdict;
use super::on_paper::{part, within};
use super::verdict::verdict;

/// The question about a latency: bytes a second, seconds of a step, bytes of the weights, bytes of keys and values of a token, tokens of a
/// text, tokens of a block.
const RATE: f64 = 3e12;
const STEP_S: f64 = 2e-3;
const WEIGHTS: f64 = 2.4e9;
const KEYS: f64 = 32768.0;
const TEXT: f64 = 2000.0;
const BLOCK: f64 = 16.0;

/// The largest batch whose step takes at most 2 ms, and the blocks that it needs: 3.0 TB/s, weights of 2.4 GB, 32 KiB of keys and values
/// for each token, texts of 2,000 tokens, blocks of 16.
pub fn batch_for_latency(answer: [Option<f64>; 2]) -> Verdict {
    verdict("batch_for_latency", || {
        let bytes = RATE * STEP_S;
        let exact = (bytes - WEIGHTS) / (TEXT * KEYS);
        let batch = exact.floor();
        let slips = [
            (batch + 1.0, "with that many the step takes longer than it may"),
            ((bytes / (TEXT * KEYS)).floor(), "the keys and values are not all that a step reads"),
            (((bytes - WEIGHTS) / (TEXT * 32e3)).floor(), "a KiB has 1024 bytes"),
            (((bytes - WEIGHTS) / KEYS).floor(), "that is tokens in the cache: a text has 2,000 of them"),
            ((bytes / WEIGHTS).floor(), "who reads the weights, each text or each step?"),
            ((bytes / (WEIGHTS + TEXT * KEYS)).floor(), "who reads the weights, each text or each step?"),
            (exact, "a batch has a whole number of texts"),
        ];
        let start = "how many bytes can move in a step? Which of them are there at any batch, and which for each text?";
        part("the batch", answer[0], batch..=batch, &slips, start)?;
        let blocks = (TEXT / BLOCK).ceil();
        let slips = [
            (batch * TEXT, "that is tokens"),
            (blocks, "that is one text's"),
            (batch * (blocks + 1.0), "2,000 tokens fill their last block"),
            (batch, "each text needs more than one"),
            ((exact * TEXT / BLOCK).floor(), "for the whole number of texts"),
        ];
        let start = "how many blocks does one text of 2,000 tokens hold?";
        part("the blocks", answer[1], batch * blocks..=batch * blocks, &slips, start).map(|_| ())
    })
}

/// The question about a queue: requests that were answered, in so many seconds; requests inside, and those of them in the batch.
const ANSWERED: f64 = 15_000.0;
const SECONDS: f64 = 600.0;
const INSIDE: f64 = 40.0;
const BATCH: f64 = 16.0;

/// 15,000 requests answered in ten minutes; on average 40 are in the server, 16 of them in the batch. The ms that a request spends in the
/// server on average, and in the queue.
pub fn littles_law(answer: [Option<f64>; 2]) -> Verdict {
    verdict("littles_law", || {
        let rate = ANSWERED / SECONDS;
        let ms = |inside: f64| 1e3 * inside / rate;
        let slips = [
            (ms(INSIDE) / 1e3, "in milliseconds, please"),
            (1e3 * rate / INSIDE, "that is the other way round: more requests inside, and each stays longer"),
            (1e3 * SECONDS / ANSWERED, "that is the time from one answer to the next: 40 are on their way at once"),
            (ms(BATCH), "that is the time in the batch alone"),
            (ms(INSIDE - BATCH), "that is the time in the queue alone"),
            (ms(INSIDE + BATCH), "the 16 are among the 40"),
            (ms(INSIDE) / 60.0, "how many are answered in a second?"),
        ];
        let start =
            "how many requests are answered in a second? If each stayed for one second, how many would be inside?";
        part("in the server", answer[0], within(ms(INSIDE), 0.002), &slips, start)?;
        let slips = [
            (ms(INSIDE - BATCH) / 1e3, "in milliseconds, please"),
            (ms(BATCH), "that is the time in the batch"),
            (ms(INSIDE), "that is the whole time"),
            (ms(INSIDE) / 2.0, "half of it? How many of the 40 wait?"),
        ];
        let start = "the law holds for the queue alone, too: how many are in it, and how many leave it in a second?";
        part("in the queue", answer[1], within(ms(INSIDE - BATCH), 0.002), &slips, start).map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(verdict: &Verdict, said: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    #[test]
    fn a_batch_for_a_latency_and_each_slip() {
        assert!(batch_for_latency([Some(54.0), Some(6750.0)]).passed());
        for (batch, said) in [
            (55.0, "longer than it may"),
            (91.0, "not all that a step reads"),
            (56.0, "1024 bytes"),
            (109_863.0, "tokens in the cache"),
            (2.0, "each text or each step"),
            (54.93, "whole number"),
            (10.0, "at any batch"),
        ] {
            refused(&batch_for_latency([Some(batch), Some(6750.0)]), said);
        }
        for (blocks, said) in [
            (108_000.0, "that is tokens"),
            (125.0, "one text's"),
            (6804.0, "fill their last block"),
            (54.0, "more than one"),
            (6866.0, "whole number of texts"),
            (1.0, "how many blocks"),
        ] {
            refused(&batch_for_latency([Some(54.0), Some(blocks)]), said);
        }
        // Cheats: no number, and what compares with nothing.
        refused(&batch_for_latency([None, Some(6750.0)]), "no number yet");
        refused(&batch_for_latency([Some(f64::NAN), Some(6750.0)]), "is no answer");
        refused(&batch_for_latency([Some(54.0), Some(f64::INFINITY)]), "is no answer");
    }

    #[test]
    fn littles_law_and_each_slip() {
        assert!(littles_law([Some(1600.0), Some(960.0)]).passed());
        for (ms, said) in [
            (1.6, "in milliseconds"),
            (625.0, "the other way round"),
            (40.0, "one answer to the next"),
            (640.0, "the batch alone"),
            (960.0, "the queue alone"),
            (2240.0, "among the 40"),
            (5.0, "answered in a second"),
        ] {
            refused(&littles_law([Some(ms), Some(960.0)]), said);
        }
        for (ms, said) in [
            (0.96, "in milliseconds"),
            (640.0, "time in the batch"),
            (1600.0, "whole time"),
            (800.0, "half of it"),
            (1.0, "the queue alone, too"),
        ] {
            refused(&littles_law([Some(1600.0), Some(ms)]), said);
        }
        refused(&littles_law([None, None]), "no number yet");
        refused(&littles_law([Some(f64::NEG_INFINITY), None]), "is no answer");
    }
}
