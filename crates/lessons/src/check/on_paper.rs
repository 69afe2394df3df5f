//! Questions on paper of lessons 10, 11, 13 and 14: one number each, derived from the lesson's rules.

use super::Verdict;
use super::verdict::{self, wrong};

/// A number that follows from a well-known slip, and a question that leads away from it.
struct Slip {
    number: f64,
    question: &'static str,
}

/// What is right, how far off an answer may be as a part of it, and what else people get.
struct Question {
    name: &'static str,
    right: f64,
    tolerance: f64,
    slips: &'static [Slip],
    /// Where to begin, for any other number.
    start: &'static str,
}

impl Question {
    fn verdict(&self, answer: Option<f64>) -> Verdict {
        verdict::verdict(self.name, || {
            let Some(answer) = answer else { return wrong("there is no answer yet", self.start) };
            let near = |number: f64| (answer - number).abs() <= self.tolerance * number.abs();
            if near(self.right) {
                return Ok(());
            }
            let slip = self.slips.iter().find(|slip| near(slip.number));
            wrong(format!("{answer} is not it"), slip.map_or(self.start, |slip| slip.question))
        })
    }
}

/// Lesson 10: `y[i] = x[i + 1]` for 2²⁰ floats; the sectors that the load requests touch in all.
pub fn shifted_sectors(answer: Option<f64>) -> Verdict {
    Question {
        name: "shifted_sectors",
        right: ((1 << 20) / 32 * 5) as f64,
        tolerance: 0.0,
        slips: &[
            Slip {
                number: ((1 << 20) / 32 * 4) as f64,
                question: "a warp's 128 bytes fill 4 sectors where they begin at a multiple of 32. Where do these begin?",
            },
            Slip {
                number: ((1 << 20) / 32 * 4 + 1) as f64,
                question: "so many different sectors there are. But two warps may ask for the same one: each request counts its own",
            },
            Slip { number: ((1 << 20) / 32) as f64, question: "that is the number of requests" },
            Slip { number: 5.0, question: "that is one request's; how many requests make up the launch?" },
        ],
        start: "draw the 128 bytes that one warp asks for, and the borders of the sectors below them",
    }
    .verdict(answer)
}

/// Lesson 11: the occupancy, in percent, at which one load of 16 bytes per thread saturates a memory.
pub fn least_occupancy(answer: Option<f64>) -> Verdict {
    // 3.35e12 B/s × 600e-9 s, over 132 multiprocessors of 2048 threads with 16 bytes each.
    const RIGHT: f64 = 100.0 * 3.35e12 * 600e-9 / (132.0 * 2048.0 * 16.0);
    Question {
        name: "least_occupancy",
        right: RIGHT,
        tolerance: 0.015,
        slips: &[
            Slip { number: RIGHT / 100.0, question: "in percent, please" },
            Slip { number: 4.0 * RIGHT, question: "how many bytes does one thread have in flight?" },
            Slip { number: RIGHT * 132.0, question: "the memory serves all multiprocessors: which part of it is one's share?" },
            Slip { number: RIGHT * 32.0, question: "each of a warp's lanes has a load of its own" },
        ],
        start: "Little's law gives the bytes in flight for the whole GPU: how many are those of one multiprocessor, of one thread?",
    }
    .verdict(answer)
}

/// Lesson 13: bytes that memory hands out for one row of 20 bytes, on average, in pieces of 64.
pub fn straddling_rows(answer: Option<f64>) -> Verdict {
    Question {
        name: "straddling_rows",
        right: 80.0,
        tolerance: 0.001,
        slips: &[
            Slip { number: 64.0, question: "does every row of 20 bytes lie within one piece of 64? Where does row 3 begin?" },
            Slip { number: 128.0, question: "some rows need two pieces, but not all: at which of its possible starts does a row cross a border?" },
            Slip { number: 32.0, question: "that is a sector; memory behind the L2 cache hands out more at a time" },
            Slip { number: 20.0, question: "that is what is used" },
        ],
        start: "list where rows can begin within a piece of 64 bytes, and mark those that cross its end",
    }
    .verdict(answer)
}

/// Lesson 14: percent of a step's time that fusing a chain saves, when the chain is 5 percent of it.
pub fn fused_share(answer: Option<f64>) -> Verdict {
    // Chained: 4 + 4 + 5 + 6 bytes per element; fused: two tables and a mask in, one table out.
    const CHAINED: f64 = 19.0;
    const FUSED: f64 = 7.0;
    Question {
        name: "fused_share",
        right: 5.0 * (1.0 - FUSED / CHAINED),
        tolerance: 0.01,
        slips: &[
            Slip { number: 5.0 * FUSED / CHAINED, question: "that is what is left of the chain, not what is saved" },
            Slip { number: CHAINED / FUSED, question: "that is how many times faster the chain becomes: what does the whole step gain?" },
            Slip { number: 5.0 * (1.0 - 8.0 / 20.0), question: "the mask is one byte an element, and read once" },
            Slip { number: 5.0, question: "the fused kernel takes time, too" },
        ],
        start: "for each of the four kernels, write down the bytes per element that it reads and writes; then the fused one's",
    }
    .verdict(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(check: fn(Option<f64>) -> Verdict, right: &[f64], wrong: &[(f64, &str)]) {
        let none = check(None).text();
        assert!(none.contains("no answer yet"), "{none}");
        for &answer in right {
            assert!(check(Some(answer)).passed(), "{}", check(Some(answer)).text());
        }
        for &(answer, said) in wrong {
            let text = check(Some(answer)).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer}: {text}");
        }
        for cheat in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -right[0]] {
            assert!(!check(Some(cheat)).passed(), "{cheat}");
        }
    }

    #[test]
    fn slips_are_told_apart() {
        let sectors = [
            (131_072.0, "Where do these begin"),
            (131_073.0, "each request counts its own"),
            (32_768.0, "number of requests"),
            (5.0, "how many requests"),
            (262_144.0, "draw the 128 bytes"),
        ];
        answers(shifted_sectors, &[163_840.0], &sectors);
        let occupancy = [
            (0.465, "in percent"),
            (186.0, "one thread have in flight"),
            (6134.0, "one's share"),
            (1487.0, "a load of its own"),
            (50.0, "Little's law"),
        ];
        answers(least_occupancy, &[46.5, 46.47, 46.0], &occupancy);
        let rows = [
            (64.0, "Where does row 3 begin"),
            (128.0, "but not all"),
            (32.0, "that is a sector"),
            (20.0, "what is used"),
            (84.0, "list where rows"),
        ];
        answers(straddling_rows, &[80.0], &rows);
        let share = [
            (1.842, "what is left"),
            (2.714, "how many times faster"),
            (3.0, "the mask is one byte"),
            (5.0, "takes time, too"),
            (4.0, "write down the bytes"),
        ];
        answers(fused_share, &[3.16, 3.158], &share);
    }
}
