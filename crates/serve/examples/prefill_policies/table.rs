//! Three tables: what mixed steps should take, what that makes of each policy, and what was recorded afterwards.

use gpulab_serve::{
    Error, Lengths, Limits, Load, RequestTimes, Result, RooflineCost, Scheduler, Simulation, Step, StepPrice, simulate,
    simulate_clients,
};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

const ANSWERS: usize = 64;
const PROMPT: usize = 512;
const ANSWER: usize = 128;
/// Tokens of a text when a token of its answer is read, on average.
const CONTEXT: usize = 576;
const STEP_TOKENS: usize = 2048;
/// Tokens of a prompt beside the answers.
const BESIDE: [usize; 6] = [0, 64, 128, 192, 256, 448];
const CHUNKS: [usize; 4] = [STEP_TOKENS, 512, 384, 256];
/// Of a token's keys and values: 16 layers, 8 heads, 64 numbers of 2 bytes.
const CACHED_BYTES: f64 = (2 * 16 * 8 * 64 * 2) as f64;
/// To which rows of a step are filled up, from 256 on.
const FILLED: usize = 128;

/// Recorded rows, each with its columns by name.
struct Rows(Vec<HashMap<String, String>>);

impl Rows {
    fn read(path: &Path) -> Result<Rows> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path, "read", "take it from the repository"))?;
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        // The machine's name stands in quotes, with commas in it; the columns behind it count from the end.
        let row = |line: &str| {
            let (mut fields, mut quoted) = (vec![String::new()], false);
            for letter in line.chars() {
                match letter {
                    '"' => quoted = !quoted,
                    ',' if !quoted => fields.push(String::new()),
                    other => fields.last_mut().expect("it begins with one").push(other),
                }
            }
            names.iter().map(ToString::to_string).zip(fields).collect()
        };
        Ok(Rows(lines.map(row).collect()))
    }

    /// The number in `column` of the row whose other columns are these.
    fn number(&self, with: &[(&str, &str)], column: &str) -> f64 {
        let row = self.0.iter().find(|row| with.iter().all(|(name, value)| row[*name] == *value));
        row.unwrap_or_else(|| panic!("no row with {with:?}"))[column].parse().expect("a number")
    }
}

/// What was recorded, and prices of steps that follow from it.
struct Recorded {
    steps: Rows,
    serving: Rows,
}

/// Of each of [`CHUNKS`], few requests and many.
type Runs = Vec<(usize, [Simulation; 2])>;

/// The longer of all bytes and all operations of a step.
struct Bound {
    weights_s: f64,
    row_s: f64,
    cached_s: f64,
}

impl StepPrice for Bound {
    fn seconds_of(&self, step: &Step) -> f64 {
        let cached: usize = step.pieces.iter().map(|piece| piece.first + piece.tokens.len()).sum();
        (self.weights_s + self.cached_s * cached as f64).max(self.row_s * step.tokens() as f64)
    }
}

impl Recorded {
    fn read(folder: &Path) -> Result<Recorded> {
        Ok(Recorded {
            steps: Rows::read(&folder.join("batch_engine.csv"))?,
            serving: Rows::read(&folder.join("serving.csv"))?,
        })
    }

    fn step(&self, name: &str, column: &str) -> f64 {
        self.steps.number(&[("step", name)], column)
    }

    fn served(&self, clients: &str, what: &str) -> f64 {
        self.serving.number(&[("clients", clients), ("what", what)], "value")
    }

    fn of_answers(&self, column: &str) -> f64 {
        self.step("64 x 1 at 576", column)
    }

    /// The copy's bytes a second, the product's operations a second.
    fn rates(&self) -> (f64, f64) {
        (1e9 * self.of_answers("copy_gb_s"), 1e12 * self.of_answers("product_tflop_s"))
    }

    fn weight_bytes(&self) -> f64 {
        1e9 * self.step("1 x 1 at 576", "gb") - CONTEXT as f64 * CACHED_BYTES
    }

    /// What each token of a prompt adds to a step of many: by the steps of one and of four prompts.
    fn of_each(&self, column: &str) -> f64 {
        (self.step("4 x 512 at 512", column) - self.step("1 x 512 at 512", column)) / (3 * PROMPT) as f64
    }

    /// Steps as long as the recorded ones, in between too, from what is left of these when one looks at rows and the cache apart.
    fn price(&self) -> RooflineCost {
        let ms = |name: &str| self.step(name, "ms");
        let cached = (ms("64 x 1 at 1024") - ms("64 x 1 at 576")) / (ANSWERS * (1024 - CONTEXT)) as f64;
        let one = ms("1 x 1 at 576") - CONTEXT as f64 * cached;
        let answer = (ms("64 x 1 at 576") - one) / ANSWERS as f64 - CONTEXT as f64 * cached;
        let row = self.of_each("ms");
        let between = [self.served("1", "between two steps"), self.served("64", "between two steps")];
        let each = (between[1] - between[0]) / (ANSWERS - 1) as f64;
        RooflineCost {
            weights_s: 1e-3 * one + 1e-6 * (between[0] - each),
            large_s: 1e-3 * (ms("1 x 512 at 512") - PROMPT as f64 * row) + 1e-6 * (between[0] - each),
            row_s: 1e-3 * row,
            cached_s: 1e-3 * cached,
            answer_s: 1e-3 * answer + 1e-6 * each,
            block_rows: FILLED,
        }
    }

    /// Products at the longer of weights and operations, attention to the cache by itself, as kernels that follow one another allow.
    fn kernels(&self) -> RooflineCost {
        let (bytes_per_s, operations_per_s) = self.rates();
        RooflineCost {
            weights_s: self.weight_bytes() / bytes_per_s,
            large_s: 0.0,
            row_s: 1e12 * self.of_each("tflop") / operations_per_s,
            cached_s: CACHED_BYTES / bytes_per_s,
            answer_s: 0.0,
            block_rows: 1,
        }
    }

    fn bound(&self) -> Bound {
        let RooflineCost { weights_s, row_s, cached_s, .. } = self.kernels();
        Bound { weights_s, row_s, cached_s }
    }

    /// A step for each answer and so many tokens of a prompt: bytes, operations, bounds, and what it should take.
    fn mixed(&self) -> String {
        let mut text = "| a step: 64 answers at 576 and | GB | TFLOP | by bytes | by operations | kernel by kernel | by recorded steps |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_string();
        let (bytes_per_s, operations_per_s) = self.rates();
        for beside in BESIDE {
            let bytes = self.weight_bytes() + (ANSWERS * CONTEXT) as f64 * CACHED_BYTES;
            let operations = 1e12 * (self.of_answers("tflop") + beside as f64 * self.of_each("tflop"));
            let [kernels, steps] =
                [self.kernels(), self.price()].map(|cost| cost.seconds(ANSWERS + beside, ANSWERS, ANSWERS * CONTEXT));
            let _ = writeln!(
                text,
                "| {beside} tokens of a prompt | {:.2} | {:.2} | {:.2} ms | {:.2} ms | {:.2} ms | {:.2} ms |",
                bytes / 1e9,
                operations / 1e12,
                1e3 * bytes / bytes_per_s,
                1e3 * operations / operations_per_s,
                1e3 * kernels,
                1e3 * steps
            );
        }
        text
    }

    /// All clients in the simulator, each with so many requests, one after the other.
    fn clients(&self, chunk: usize, each: usize, price: &dyn StepPrice) -> Result<Simulation> {
        let requests = load(each * ANSWERS, 1.0).arrivals();
        Ok(simulate_clients(&mut scheduler(chunk)?, &requests, ANSWERS, Priced(price)))
    }

    /// Each policy by the recorded steps: 4 requests of each client, and 20.
    fn runs(&self) -> Result<Runs> {
        let price = self.price();
        CHUNKS
            .into_iter()
            .map(|chunk| Ok((chunk, [self.clients(chunk, 4, &price)?, self.clients(chunk, 20, &price)?])))
            .collect()
    }

    /// Each policy in the simulator.
    fn policies(&self, runs: &Runs) -> Result<String> {
        let mut text = "| `--chunked-prefill-size` | tokens/s, 4 requests each | 20 each | first token, median | p99 | next token, p99 | \
             half the load: first token, median | p99 | 20 each, kernel by kernel | 20 each, bound |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_string();
        let served = |what| self.served("64", what);
        let _ = writeln!(
            text,
            "| 2048 (recorded) | {:.0} | | {:.1} ms | {:.1} ms | | {:.2} ms | {:.2} ms | | |",
            served("answered tokens"),
            served("first token"),
            served("first token: p99"),
            served("first token at half the load: median"),
            served("first token at half the load: p99")
        );
        let rate = served("answered tokens") / ANSWER as f64 / 2.0;
        for (chunk, [few, many]) in runs {
            let half = simulate(&mut scheduler(*chunk)?, &load(2000, rate).arrivals(), self.price());
            let _ = writeln!(
                text,
                "| {chunk} | {:.0} | {:.0} | {:.1} ms | {:.1} ms | {:.2} ms | {:.2} ms | {:.2} ms | {:.0} | {:.0} |",
                few.throughput(),
                many.throughput(),
                first_ms(few, 0.5),
                first_ms(few, 0.99),
                1e3 * next_token_s(many, 0.99),
                first_ms(&half, 0.5),
                first_ms(&half, 0.99),
                self.clients(*chunk, 20, &self.kernels())?.throughput(),
                self.clients(*chunk, 20, &self.bound())?.throughput()
            );
        }
        Ok(text)
    }
}

/// What was predicted, beside what a GPU took afterwards.
fn outcome(recorded: &Recorded, runs: &Runs, folder: &Path) -> Result<String> {
    let later = folder.join("2026-11-28");
    let steps = Rows::read(&later.join("mixed_steps.csv"))?;
    let mut text = "| | predicted | recorded |\n| --- | ---: | ---: |\n".to_string();
    for row in &steps.0 {
        let [answers, beside]: [usize; 2] = ["texts", "prompt"].map(|name| row[name].parse().expect("a number"));
        // These steps were timed without a server, so what passes between two of them goes.
        let predicted = 1e3 * recorded.price().seconds(answers + beside, answers, answers * CONTEXT)
            - 1e-3 * recorded.served("64", "between two steps");
        let _ = writeln!(
            text,
            "| {answers} answers and {beside} tokens of a prompt | {predicted:.2} ms | {} ms |",
            row["ms"]
        );
    }
    for (which, file, each) in [(0, "serve_policies.csv", 4), (1, "serve_policies_20.csv", 20)] {
        let rows = Rows::read(&later.join(file))?;
        for (chunk, server) in [(STEP_TOKENS, "gpulab serve"), (512, "gpulab serve --chunked-prefill-size 512")] {
            let run = &runs.iter().find(|(of, _)| *of == chunk).expect("it is one of CHUNKS").1[which];
            let said = |what| rows.number(&[("server", server), ("clients", "64"), ("what", what)], "value");
            for (what, predicted, recorded, unit, places) in [
                ("answered tokens", run.throughput(), said("answered tokens"), "tokens/s", 0),
                ("first token, median", first_ms(run, 0.5), said("first token"), "ms", 1),
                ("first token, p99", first_ms(run, 0.99), said("first token: p99"), "ms", 1),
            ] {
                let _ = writeln!(
                    text,
                    "| {chunk}, {each} requests each: {what} | {predicted:.places$} {unit} | {recorded:.places$} {unit} |"
                );
            }
        }
    }
    Ok(text)
}

/// Until an answer's first token: the time that this share of all does not exceed.
fn first_ms(run: &Simulation, share: f64) -> f64 {
    1e3 * run.quantile(share, RequestTimes::first_token_s)
}

/// Prompts and answers of the recorded length, so many a second.
fn load(requests: usize, rate: f64) -> Load {
    let (prompt, answer) = (Lengths::Fixed(PROMPT), Lengths::Fixed(ANSWER));
    Load { rate, requests, prompt, answer, ..Load::default() }
}

/// A borrowed price.
struct Priced<'a>(&'a dyn StepPrice);

impl StepPrice for Priced<'_> {
    fn seconds_of(&self, step: &Step) -> f64 {
        self.0.seconds_of(step)
    }
}

fn scheduler(chunk: usize) -> Result<Scheduler> {
    let limits = Limits {
        sequences: ANSWERS,
        step_tokens: STEP_TOKENS,
        queue: 4096,
        context: PROMPT + ANSWER,
        prefix_reuse: false,
        ..Limits::default()
    };
    Ok(Scheduler::new(limits, 8192, 16)?.with_chunked_prefill(chunk))
}

/// The time from one token of an answer to the next that the share `q` of all does not exceed.
fn next_token_s(run: &Simulation, q: f64) -> f64 {
    let mut last: HashMap<_, f64> = run.served.iter().map(|one| (one.id, one.first_s)).collect();
    let mut gaps = Vec::new();
    for step in &run.steps {
        for (id, _) in &step.pieces {
            let before = last.get_mut(id).expect("it was served");
            if step.end_s > *before {
                gaps.push(step.end_s - *before);
                *before = step.end_s;
            }
        }
    }
    gaps.sort_by(f64::total_cmp);
    gaps[((gaps.len() as f64 * q).ceil() as usize).max(1) - 1]
}

/// All tables, from the rows in that folder.
///
/// # Errors
/// When a file is not there.
pub fn tables(folder: &Path) -> Result<String> {
    let recorded = Recorded::read(folder)?;
    let runs = recorded.runs()?;
    Ok(format!("{}\n{}\n{}", recorded.mixed(), recorded.policies(&runs)?, outcome(&recorded, &runs, folder)?))
}
