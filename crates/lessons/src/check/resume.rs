//! Debugging case of lesson 20: a checkpoint that loses something. The run is small, and its steps are those of a large one.

use super::Verdict;
use super::verdict::{Check, ask, timed, told};
use gpulab::cpu::random::mix;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Examples, and the two numbers of each that the line through them is fitted to.
const EXAMPLES: u64 = 12;

/// A training run of two weights, a line's slope and height, on twelve examples, one a step, by AdamW. Each epoch has an order of
/// its own. Its fields are all that a run goes on from.
#[derive(Debug, Clone, PartialEq)]
pub struct SmallRun {
    /// Slope and height of the line.
    pub weights: [f64; 2],
    /// AdamW's running means of the gradients.
    pub m: [f64; 2],
    /// AdamW's running means of their squares.
    pub v: [f64; 2],
    /// Steps taken: where the run stands in its epoch, and how far AdamW corrects its means.
    pub steps: u64,
    /// What the order of the examples follows from.
    pub seed: u64,
}

impl SmallRun {
    /// A run before its first step.
    pub fn begin(seed: u64) -> SmallRun {
        SmallRun { weights: [0.0; 2], m: [0.0; 2], v: [0.0; 2], steps: 0, seed }
    }

    /// One step on the next example; its loss.
    pub fn step(&mut self) -> f64 {
        let (epoch, at) = (self.steps / EXAMPLES, self.steps % EXAMPLES);
        let mut order: Vec<u64> = (0..EXAMPLES).collect();
        order.sort_by_key(|&example| mix(mix(self.seed ^ (epoch << 32)) ^ example));
        let example = order[at as usize];
        let x = (mix(example) % 1000) as f64 / 500.0 - 1.0;
        let off = self.weights[0] * x + self.weights[1] - (0.7 * x - 0.2 + (example % 3) as f64 * 0.05);
        self.steps += 1;
        let corrected = |mean: f64, beta: f64| mean / (1.0 - beta.powf(self.steps as f64));
        for (at, gradient) in [2.0 * off * x, 2.0 * off].into_iter().enumerate() {
            self.m[at] = 0.9 * self.m[at] + 0.1 * gradient;
            self.v[at] = 0.999 * self.v[at] + 0.001 * gradient * gradient;
            let (m, v) = (corrected(self.m[at], 0.9), corrected(self.v[at], 0.999));
            self.weights[at] -= 0.05 * (m / (v.sqrt() + 1e-8) + 0.01 * self.weights[at]);
        }
        off * off
    }

    fn after(seed: u64, steps: u64) -> SmallRun {
        let mut run = SmallRun::begin(seed);
        (0..steps).for_each(|_| {
            run.step();
        });
        run
    }
}

type Save = fn(&SmallRun) -> Vec<f64>;
type Load = fn(&[f64]) -> SmallRun;

/// Seeds, and the steps after which each run is stopped: before the first, within an epoch, at its end, in later ones.
const STOPS: [(u64, u64); 5] = [(1, 0), (2, 5), (3, 12), (4, 41), (9, 100)];
/// Steps that are compared: into the next epoch at least.
const GOES_ON: u64 = 13;
/// Numbers that a run goes on from, of which a seed and a number of steps might share one.
const NUMBERS: usize = 7;

/// Checks a checkpoint of [`SmallRun`]: a run that goes on from the numbers of its file has the losses of one that never stopped,
/// bit for bit, and it has them from the file.
pub fn resume_run(save: Save, load: Load) -> Verdict {
    timed("resume_run", move || {
        // All are saved before the first is loaded: what is kept beside the files would be the last one's.
        let files: Vec<Vec<f64>> = STOPS
            .into_iter()
            .map(|(seed, steps)| {
                ask(&format!("saving a run after {steps} steps"), || save(&SmallRun::after(seed, steps)))
            })
            .collect::<Check<_>>()?;
        for ((seed, steps), file) in STOPS.into_iter().zip(&files) {
            let case = format!("seed {seed}, stopped after {steps} steps");
            let mut resumed = ask(&case, || load(file))?;
            let mut whole = SmallRun::after(seed, steps);
            for step in steps + 1..=steps + GOES_ON {
                // A run may come back with any numbers; a step of it can panic on none.
                let (expected, given) = (whole.step(), resumed.step());
                if given.to_bits() != expected.to_bits() {
                    let what = format!(
                        "{case}: step {step} of the resumed run has a loss of {given:e}, and without the stop it is {expected:e}"
                    );
                    return told(what, meaning(given, expected, step == steps + 1), IDEA);
                }
            }
        }
        from_the_file(load, &files[3])
    })
}

const IDEA: &str =
    "compare the run before `save` with the run after `load`, field by field: `SmallRun` prints with {:?}";

/// What it means that a loss is another one.
fn meaning(given: f64, expected: f64, at_once: bool) -> &'static str {
    if (given - expected).abs() <= 1e-4 * expected.abs() {
        "nearly the same is not the same: somewhere on the way a number lost digits"
    } else if at_once {
        "the first step after the stop is already another one: it has another example, or begins at other weights"
    } else {
        "the first step is right and a later one is not: what does an update need that a loss does not?"
    }
}

/// Whether the run comes from the numbers of the file: change each, and see whether what is loaded changes, too.
fn from_the_file(load: Load, file: &[f64]) -> Check {
    let loaded = load(file);
    let matters = |at: usize| {
        let mut changed = file.to_vec();
        changed[at] += 1.0;
        // A file that is refused has been read.
        catch_unwind(AssertUnwindSafe(|| load(&changed))).map_or(true, |run| run != loaded)
    };
    let counted = ask("files with one number changed", || (0..file.len()).filter(|&at| matters(at)).count())?;
    if counted >= NUMBERS {
        return Ok(());
    }
    told(
        format!("the losses are right, but only {counted} numbers of the file change what is loaded"),
        "a checkpoint holds the run: after the power has failed nothing else is left, and no time to make all steps again",
        "write the two weights, both means of each, the steps and the seed into the file, and read each from there",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn told(verdict: Verdict, part: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(part), "{part}: {text}");
    }

    fn save(run: &SmallRun) -> Vec<f64> {
        [run.weights, run.m, run.v, [run.steps as f64, run.seed as f64]].concat()
    }

    fn load(file: &[f64]) -> SmallRun {
        let two = |at: usize| [file[at], file[at + 1]];
        SmallRun { weights: two(0), m: two(2), v: two(4), steps: file[6] as u64, seed: file[7] as u64 }
    }

    #[test]
    fn right_checkpoints_pass_in_any_order() {
        assert!(resume_run(save, load).passed());
        // Another order, and a version number in front that is checked.
        let turned = |run: &SmallRun| [vec![3.0], save(run).into_iter().rev().collect()].concat();
        let back = |file: &[f64]| {
            assert!(file[0] == 3.0, "another version");
            load(&file[1..].iter().rev().copied().collect::<Vec<_>>())
        };
        assert!(resume_run(turned, back).passed());
    }

    #[test]
    fn each_mistake_is_told() {
        // Without the steps; rounded to f32; without the moments; m and v exchanged; without the seed; an epoch's begin.
        told(resume_run(|run| save(&SmallRun { steps: 0, ..run.clone() }), load), "already another one");
        let narrow = |run: &SmallRun| save(run).into_iter().map(|x| f64::from(x as f32)).collect();
        told(resume_run(narrow, load), "lost digits");
        told(resume_run(|run| save(&SmallRun { m: [0.0; 2], v: [0.0; 2], ..run.clone() }), load), "a later one is not");
        told(resume_run(|run| save(&SmallRun { m: run.v, v: run.m, ..run.clone() }), load), "a later one is not");
        told(resume_run(|run| save(&SmallRun { seed: 1, ..run.clone() }), load), "already another one");
        told(resume_run(|run| save(&SmallRun { steps: run.steps / 12 * 12, ..run.clone() }), load), "another one");
        told(resume_run(|_| Vec::new(), load), "panicked");
        told(resume_run(save, |_| SmallRun::begin(1)), "another one");
    }

    #[test]
    fn cheats_are_told() {
        // All steps made again from the seed.
        let again = |file: &[f64]| SmallRun::after(file[0] as u64, file[1] as u64);
        told(resume_run(|run| vec![run.seed as f64, run.steps as f64], again), "only 2 numbers");
        // The runs kept beside the files.
        static KEPT: Mutex<Vec<SmallRun>> = Mutex::new(Vec::new());
        let keep = |run: &SmallRun| {
            let mut kept = KEPT.lock().unwrap();
            kept.push(run.clone());
            vec![(kept.len() - 1) as f64; 9]
        };
        told(resume_run(keep, |file| KEPT.lock().unwrap()[file[0] as usize].clone()), "only 1 numbers");
    }

    #[test]
    fn a_run_learns_and_its_order_changes() {
        let mut run = SmallRun::begin(1);
        let epochs: Vec<Vec<f64>> = (0..20).map(|_| (0..EXAMPLES).map(|_| run.step()).collect()).collect();
        let sum = |at: usize| epochs[at].iter().sum::<f64>();
        assert!(sum(19) < 0.2 * sum(0), "{} {}", sum(0), sum(19));
        assert_ne!(SmallRun::after(1, 1), SmallRun::after(2, 1));
    }
}
