//! Checks of the lesson about watching a GPU: an alert with hysteresis, the energy of a run on paper, and a recorded trace of a training
//! that is too slow.

use super::Verdict;
use super::on_paper::{number, part, within};
use super::verdict::{self, Check, asking, timed, told, wrong};
use gpulab::error::{Error, Result};
use gpulab::measurement::figures;
use serde_json::Value;
use std::path::Path;

// ----------------------------------------------------------------------
// An alert with hysteresis.

/// Seconds and a temperature, where it is known, of each sample; what comes back: whether the alert fires after each.
type Alert = fn(&[(f64, Option<f64>)]) -> Vec<bool>;

const HOT: f64 = 85.0;
const COOL: f64 = 80.0;
const HOT_S: f64 = 30.0;
const COOL_S: f64 = 20.0;

/// What the exercise asks for.
fn alert(samples: &[(f64, Option<f64>)]) -> Vec<bool> {
    let (mut firing, mut since) = (false, None);
    let one = |&(now, celsius): &(f64, Option<f64>)| {
        let holds = celsius.is_some_and(|celsius| if firing { celsius <= COOL } else { celsius > HOT });
        since = if holds { since.or(Some(now)) } else { None };
        if since.is_some_and(|since: f64| now - since >= if firing { COOL_S } else { HOT_S }) {
            (firing, since) = (!firing, None);
        }
        firing
    };
    samples.iter().map(one).collect()
}

/// A trace that a case is about: its name, what a wrong answer to it means, how to go on, and the samples.
type AlertCase = (&'static str, &'static str, &'static str, Vec<(f64, Option<f64>)>);

/// Samples a second apart.
fn each_second(celsius: impl Fn(usize) -> f64, seconds: usize) -> Vec<(f64, Option<f64>)> {
    (0..seconds).map(|second| (second as f64, Some(celsius(second)))).collect()
}

fn alert_cases() -> Vec<AlertCase> {
    let hot = |from: usize, to: usize| move |second: usize| if (from..to).contains(&second) { 90.0 } else { 70.0 };
    let irregular = |samples: Vec<(f64, Option<f64>)>, step: f64| {
        samples.into_iter().map(|(second, celsius)| (second * step, celsius)).collect::<Vec<_>>()
    };
    let mut holes = each_second(hot(0, 100), 100);
    holes.iter_mut().skip(20).step_by(25).for_each(|sample| sample.1 = None);
    let mut blind = each_second(hot(0, 40), 120);
    blind.iter_mut().skip(50).step_by(15).for_each(|sample| sample.1 = None);
    // Deterministic, and near both thresholds.
    let walk = |seconds: usize, step: f64| {
        let (mut seed, mut celsius, mut now) = (7_u32, 82.0, 0.0);
        let one = |_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = f64::from(seed >> 8) / f64::from(1 << 24);
            celsius = f64::clamp(celsius + 3.0 * (noise - 0.5), 77.0, 89.0);
            now += step * (0.2 + f64::from(seed >> 28) / 8.0);
            (now, (seed % 23 != 0).then_some(celsius))
        };
        (0..seconds).map(one).collect::<Vec<_>>()
    };
    vec![
        ("no samples", "an empty list has an empty answer", "does your loop run for no sample at all?", Vec::new()),
        (
            "a spike of 10 s",
            "that spike is over before it has lasted for 30 s",
            "keep the time at which it became hot, and compare now with it",
            each_second(hot(20, 30), 90),
        ),
        (
            "hot from 10 s to 60 s, then 70 °C",
            "it fires when it has been hot for 30 s, and is over when it has been cool for 20 s",
            "two durations and two thresholds: which of them asks depends on whether it fires",
            each_second(hot(10, 60), 120),
        ),
        (
            "spikes with dips between them, none of them 30 s long",
            "each dip ends a hot stretch: the next one begins anew",
            "what has to be forgotten when a sample is not hot?",
            each_second(|second| if second % 20 < 15 { 90.0 } else { 84.0 }, 150),
        ),
        (
            "90 °C for 40 s, then between the thresholds, at 83 °C",
            "83 °C is not hot, and it is not cool either: what fires goes on firing",
            "the second threshold is there for this: compare with 80 °C while it fires",
            each_second(|second| if second < 40 { 90.0 } else { 83.0 }, 150),
        ),
        (
            "firing, then cool for 10 s at a time",
            "it is over when it has been cool for 20 s without a break",
            "the end has a duration, too, and it begins anew like the first one",
            each_second(
                |second| {
                    if second < 40 {
                        90.0
                    } else if second % 15 < 10 {
                        75.0
                    } else {
                        82.0
                    }
                },
                150,
            ),
        ),
        (
            "exactly 85 °C, then exactly 80 °C after it fired",
            "above 85 °C does not mean 85 °C; at most 80 °C does mean 80 °C",
            "look at < and <= once more",
            each_second(
                |second| match second {
                    0..40 => 85.0,
                    40..80 => 90.0,
                    _ => 80.0,
                },
                130,
            ),
        ),
        (
            "four samples a second",
            "the durations are seconds, and not numbers of samples",
            "the first number of each sample is the time",
            irregular(each_second(hot(20, 120), 200), 0.25),
        ),
        (
            "a sample every ten seconds",
            "the durations are seconds, and not numbers of samples",
            "the first number of each sample is the time",
            irregular(each_second(hot(2, 9), 20), 10.0),
        ),
        (
            "hot, with samples whose temperature is not known",
            "nobody has seen that it was hot all the time: the 30 s begin anew",
            "`None` is neither hot nor cool",
            holes,
        ),
        (
            "cool after it fired, with samples whose temperature is not known",
            "nobody has seen that it was cool all the time: the 20 s begin anew, and it goes on firing",
            "`None` is neither hot nor cool",
            blind,
        ),
        (
            "a random walk",
            "see at which second it differs first",
            "follow the state from there by hand",
            walk(600, 1.0),
        ),
        (
            "a slow random walk",
            "see at which second it differs first",
            "follow the state from there by hand",
            walk(300, 7.0),
        ),
    ]
}

/// Checks an alert for a temperature: fires above 85 °C for 30 s, is over at 80 °C or less for 20 s.
pub fn hysteresis(answer: Alert) -> Verdict {
    timed("hysteresis", move || {
        for (case, meaning, idea, samples) in alert_cases() {
            asking(case);
            let (given, right) = (answer(&samples), alert(&samples));
            if given.len() != right.len() {
                return told(
                    format!("{case}: {} answers for {} samples", given.len(), right.len()),
                    "each sample has an answer: whether the alert fires after it",
                    "push one `bool` in each iteration of the loop",
                );
            }
            if let Some(at) = (0..right.len()).find(|at| given[*at] != right[*at]) {
                let fires = |firing: bool| if firing { "fires" } else { "does not fire" };
                let what = format!(
                    "{case}: at {:.1} s your alert {}, and it {}",
                    samples[at].0,
                    fires(given[at]),
                    if right[at] { "should" } else { "should not" }
                );
                return told(what, meaning, idea);
            }
            // Whoever looks ahead answers otherwise when less is to come.
            for end in (0..samples.len()).step_by(7) {
                if answer(&samples[..end]) != right[..end] {
                    return told(
                        format!(
                            "{case}: of the first {end} samples alone your alert says something else than of all of them"
                        ),
                        "an alert knows the past alone: what comes later cannot change what it says now",
                        "one loop, from the first sample to the last, and a state that lives from one iteration to the next",
                    );
                }
            }
        }
        Ok(())
    })
}

// ----------------------------------------------------------------------
// On paper.

/// Hours and watts of a GPU in the question: reading data, training, waiting.
const PHASES: [(f64, f64); 3] = [(0.5, 120.0), (6.0, 650.0), (1.5, 250.0)];
const GPUS: f64 = 8.0;
const PUE: f64 = 1.2;
const EURO_PER_KWH: f64 = 0.3;

/// Energy, in kWh, of 8 GPUs that draw 120 W for 0.5 h, 650 W for 6 h and 250 W for 1.5 h, and what it costs, in euros, with a PUE of
/// 1.2 and 0.30 € a kWh.
pub fn run_energy(answer: [Option<f64>; 2]) -> Verdict {
    let one = PHASES.iter().map(|(hours, watts)| hours * watts).sum::<f64>() / 1e3;
    let (kwh, hours) = (GPUS * one, PHASES.iter().map(|phase| phase.0).sum::<f64>());
    let mean = PHASES.iter().map(|phase| phase.1).sum::<f64>() / 3.0;
    let cost = kwh * PUE * EURO_PER_KWH;
    verdict::verdict("run_energy", || {
        let slips = [
            (one, "that is one GPU"),
            (kwh * 1e3, "a kWh is 1000 Wh"),
            (kwh * 3.6, "that is MJ; a kWh is 3.6 of them"),
            (
                GPUS * PHASES[1].0 * PHASES[1].1 / 1e3,
                "that is the training alone: the rest of the run draws power, too",
            ),
            (GPUS * hours * 0.65, "not the whole run draws 650 W"),
            (
                GPUS * hours * mean / 1e3,
                "the phases are not of the same length: a mean of the three powers weighs them alike",
            ),
            (kwh * PUE, "the PUE belongs to the cost: the question asks for the GPUs' energy first"),
        ];
        part("kWh", answer[0], within(kwh, 0.005), &slips, "energy is power times time, phase by phase")?;
        let slips = [
            (kwh * EURO_PER_KWH, "the building takes its share: what does a PUE of 1.2 say?"),
            (kwh / PUE * EURO_PER_KWH, "the PUE is what the building takes ÷ what the machines take"),
            (kwh * PUE, "that is the energy of GPUs and building in kWh"),
            (cost / GPUS, "that is one GPU"),
            (cost * 100.0, "in euros, please"),
        ];
        part("euros", answer[1], within(cost, 0.005), &slips, "the building's energy is the machines' times the PUE")
            .map(|_| ())
    })
}

// ----------------------------------------------------------------------
// A training that is too slow, from its trace.

/// The trace, below `results/`.
const TRACE: &str = "h200/monitor_case.jsonl";

const SOURCE: &str = "let host = vec![0.5_f32; 1 << 29];
let mut weights = gpu.zeros::<f32>(host.len())?;
loop {
    wait_for_data();                 // short
    weights.copy_from(&host)?;       // 2 GiB of weights, which nobody has changed, from pageable memory: in each step
    products()?;
}";

/// What may make a training slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowFault {
    /// The step waits for the data loader.
    LoaderStalled,
    /// The GPU is too hot, and lowers its clocks.
    Throttled,
    /// The memory is full.
    MemoryFull,
    /// The kernels have so few blocks that most multiprocessors have nothing to do.
    FewBlocks,
    /// Something large crosses PCIe in each step.
    UploadsEachStep,
    /// The loss is not finite any more.
    LossNotFinite,
}

/// What the trace says, in figures.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    samples: usize,
    utilization: f64,
    wait: f64,
    memory: f64,
    slowdowns: usize,
    losses: usize,
    gb_per_s: f64,
    steps_per_s: f64,
}

impl Seen {
    /// # Errors
    /// [`Error::File`], [`Error::Invalid`] where the file is not the trace of a training.
    fn read(path: &Path) -> Result<Seen> {
        let failed = Error::io(path, "read the trace", "bring the file back: `git checkout results`");
        Seen::of(&std::fs::read_to_string(path).map_err(failed)?).ok_or_else(|| {
            Error::invalid(
                format!("{} is not the trace of a training", path.display()),
                "bring the file back: `git checkout results`",
            )
        })
    }

    fn of(text: &str) -> Option<Seen> {
        let lines: Vec<Value> = text.lines().skip(1).map(serde_json::from_str).collect::<Result<_, _>>().ok()?;
        // The steps' own samples: before the first step there is set-up.
        let lines: Vec<&Value> = lines.iter().filter(|line| line["job"]["step"].is_number()).collect();
        let all = |get: &dyn Fn(&Value) -> Option<f64>| lines.iter().filter_map(|line| get(line)).collect::<Vec<f64>>();
        let of = |name: &'static str| all(&|line| line[name].as_f64());
        let of_job = |name: &'static str| all(&|line| line["job"][name].as_f64());
        let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let share =
            all(&|line| Some(100.0 * line["memory_used_bytes"].as_f64()? / line["memory_total_bytes"].as_f64()?));
        let slow = |line: &&&Value| line["throttle"].to_string().contains("SLOWDOWN");
        let second = |line: &Value| seconds_of_day(line["time"].as_str()?);
        let (first, last) = (lines.first()?, lines.last()?);
        let wall = (second(last)? - second(first)?).rem_euclid(86400.0);
        let steps = last["job"]["step"].as_f64()? - first["job"]["step"].as_f64()?;
        Some(Seen {
            samples: lines.len(),
            utilization: mean(&of("utilization_percent"))?,
            wait: 100.0 * mean(&of_job("loader_wait"))?,
            memory: share.get(share.len() / 2).copied()?,
            slowdowns: lines.iter().filter(slow).count(),
            losses: lines.iter().filter(|line| line["job"]["loss"].is_string()).count(),
            gb_per_s: mean(&of("pcie_rx_bytes_per_s"))? / 1e9,
            steps_per_s: (wall > 0.0).then_some(steps / wall)?,
        })
    }

    fn gb_per_step(&self) -> f64 {
        self.gb_per_s / self.steps_per_s
    }
}

/// `2026-11-23T23:10:05.25Z` → 83405.25.
fn seconds_of_day(time: &str) -> Option<f64> {
    let (_, clock) = time.trim_end_matches('Z').split_once('T')?;
    clock.split(':').try_fold(0.0, |sum, part| Some(60.0 * sum + part.parse::<f64>().ok()?))
}

/// Checks a diagnosis of the recorded training: what makes it slow, and how many GB each step moves to the GPU over PCIe.
pub fn diagnose_slow(diagnosis: Option<(SlowFault, f64)>) -> Verdict {
    diagnose(diagnosis, &gpulab::repository().join("results").join(TRACE))
}

fn diagnose(diagnosis: Option<(SlowFault, f64)>, path: &Path) -> Verdict {
    const NAME: &str = "diagnose_slow";
    let Some((fault, gb)) = diagnosis else {
        return verdict::verdict(NAME, || {
            wrong(
                "there is no diagnosis yet",
                "which of the numbers is far from what a training of such products has? Look at each, and not at the lowest alone",
            )
        });
    };
    let seen = match Seen::read(path) {
        Ok(seen) => seen,
        Err(error) => return Verdict::of(NAME, Err(error.into()), |_| "the check needs the recorded trace"),
    };
    let innocent = verdict::verdict(NAME, || against(fault, &seen));
    if !innocent.passed() {
        return innocent;
    }
    let right = seen.gb_per_step();
    let slips = [
        (seen.gb_per_s, "that is GB a second: how many steps are there in a second?"),
        (
            seen.gb_per_s * seen.steps_per_s,
            "divide by the steps a second: a slower training moves more in each step, at the same rate",
        ),
        (right * 1e3, "in GB, please"),
        (right * 8.0, "bytes, and not bits"),
        (1.0 / seen.steps_per_s, "that is the seconds that a step takes"),
    ];
    let start = "the mean of `pcie_rx_bytes_per_s` over the training, and the steps from its first sample to its last";
    // The counter looks at 20 ms of each quarter of a second.
    number(NAME, Some(gb), within(right, 0.15), &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: SlowFault, seen: &Seen) -> Check {
    let what = match named {
        SlowFault::UploadsEachStep => return Ok(()),
        SlowFault::LoaderStalled => format!(
            "the job itself says how long a step waits for data: {} % of it on average. The GPU is idle for another reason",
            figures(seen.wait)
        ),
        SlowFault::Throttled => {
            format!("{} of {} samples name a slowdown as the reason for their clocks", seen.slowdowns, seen.samples)
        }
        SlowFault::MemoryFull => format!(
            "{} % of the memory is taken, from the first step to the last: that changes nothing about a step's time. An allocation that does not fit fails",
            figures(seen.memory)
        ),
        SlowFault::FewBlocks => format!(
            "a kernel with few blocks that runs all the time shows 100 %: here the mean is {} %",
            figures(seen.utilization)
        ),
        SlowFault::LossNotFinite => {
            format!(
                "in {} of {} samples the loss is not finite; and NaN is as fast as any number",
                seen.losses, seen.samples
            )
        }
    };
    wrong(
        what,
        "what does the GPU wait for while no kernel runs, if not for the loader? Something else keeps a path busy",
    )
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_slow(diagnosis: Option<(SlowFault, f64)>) -> &'static str {
    diagnose_slow(diagnosis).reveals(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(verdict: &Verdict, said: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    /// An alert by thresholds, durations, what it counts, and what it makes of `None`.
    fn made(
        samples: &[(f64, Option<f64>)],
        hot_s: f64,
        cool: f64,
        cool_s: f64,
        none: Option<f64>,
        reset: bool,
    ) -> Vec<bool> {
        let (mut firing, mut since) = (false, None);
        let one = |&(now, celsius): &(f64, Option<f64>)| {
            let holds = celsius.or(none).is_some_and(|celsius| if firing { celsius <= cool } else { celsius > HOT });
            since = if holds || !reset { since.or(holds.then_some(now)) } else { None };
            if since.is_some_and(|since: f64| now - since >= if firing { cool_s } else { hot_s }) && holds {
                (firing, since) = (!firing, None);
            }
            firing
        };
        samples.iter().map(one).collect()
    }

    #[test]
    fn alerts_right_and_wrong() {
        assert!(hysteresis(alert).passed(), "{}", hysteresis(alert).text());
        let right: Alert = |samples| made(samples, 30.0, 80.0, 20.0, None, true);
        assert!(hysteresis(right).passed(), "{}", hysteresis(right).text());
        refused(&hysteresis(|_| todo!()), "panicked");
        // A threshold alone.
        refused(
            &hysteresis(|samples| samples.iter().map(|sample| sample.1.is_some_and(|c| c > HOT)).collect()),
            "a spike of 10 s",
        );
        refused(&hysteresis(|samples| made(samples, 30.0, 85.0, 0.0, None, true)), "hot from 10 s to 60 s");
        refused(&hysteresis(|samples| made(samples, 30.0, 85.0, 20.0, None, true)), "between the thresholds");
        refused(&hysteresis(|samples| made(samples, 30.0, 80.0, 0.0, None, true)), "NOT YET");
        // A dip is not noticed.
        refused(&hysteresis(|samples| made(samples, 30.0, 80.0, 20.0, None, false)), "spikes with dips");
        // `None` as cool, and as hot.
        refused(&hysteresis(|samples| made(samples, 30.0, 80.0, 20.0, Some(20.0), true)), "not known");
        refused(&hysteresis(|samples| made(samples, 30.0, 80.0, 20.0, Some(90.0), true)), "not known");
        // Samples for seconds.
        refused(
            &hysteresis(|samples| {
                let counted: Vec<(f64, Option<f64>)> =
                    samples.iter().enumerate().map(|(at, sample)| (at as f64, sample.1)).collect();
                alert(&counted)
            }),
            "four samples a second",
        );
        // 85 °C counted as above it.
        refused(
            &hysteresis(|samples| {
                let shifted: Vec<(f64, Option<f64>)> =
                    samples.iter().map(|one| (one.0, one.1.map(|c| if c == 85.0 { 85.1 } else { c }))).collect();
                alert(&shifted)
            }),
            "exactly 85",
        );
        refused(&hysteresis(|samples| alert(&samples[..samples.len().min(50)])), "answers for");
    }

    #[test]
    fn alerts_that_cheat() {
        refused(&hysteresis(|samples| vec![false; samples.len()]), "your alert does not fire, and it should");
        // Knows the future: right for the whole, from the last sample on.
        refused(
            &hysteresis(|samples| {
                let mut all = alert(samples);
                if samples.len() < 90 {
                    all.iter_mut().for_each(|firing| *firing = false);
                }
                all
            }),
            "of the first",
        );
        refused(
            &hysteresis(|samples| {
                let ever = samples.iter().any(|sample| sample.1.is_some_and(|c| c > 89.0));
                alert(samples).into_iter().map(|firing| firing || (ever && samples.len() == 90)).collect()
            }),
            "NOT YET",
        );
    }

    #[test]
    fn the_energy_on_paper_and_each_slip() {
        let right = [Some(34.68), Some(12.48)];
        assert!(run_energy(right).passed(), "{}", run_energy(right).text());
        for (answer, said) in [
            ([None, None], "kWh: no number yet"),
            ([Some(4.335), None], "one GPU"),
            ([Some(34_680.0), None], "1000 Wh"),
            ([Some(124.8), None], "that is MJ"),
            ([Some(31.2), None], "the training alone"),
            ([Some(41.6), None], "NOT YET"),
            ([Some(21.76), None], "not of the same length"),
            ([Some(5.0), None], "phase by phase"),
            ([Some(34.68), None], "euros: no number yet"),
            ([Some(34.68), Some(10.4)], "what does a PUE"),
            ([Some(34.68), Some(8.67)], "÷ what the machines take"),
            ([Some(34.68), Some(1.56)], "one GPU"),
            ([Some(34.68), Some(1248.5)], "in euros"),
            ([Some(f64::NAN), None], "is no answer"),
            ([Some(34.68), Some(f64::INFINITY)], "is no answer"),
        ] {
            refused(&run_energy(answer), said);
        }
    }

    /// A trace with 2 steps a second, and 4 GB/s.
    fn trace() -> String {
        let line = |at: usize| {
            format!(
                "{{\"time\":\"2026-01-01T00:00:{:02}.5Z\",\"gpu\":0,\"utilization_percent\":25,\"memory_used_bytes\":80,\
                 \"memory_total_bytes\":100,\"throttle\":[\"NONE\"],\"pcie_rx_bytes_per_s\":4e9,\
                 \"job\":{{\"step\":{},\"loss\":1.5,\"loader_wait\":0.02}}}}\n",
                at,
                2 * at + 1
            )
        };
        format!("{{\"gpulab_trace\":1}}\n{}", (0..40).map(line).collect::<String>())
    }

    #[test]
    fn only_the_trace_convicts() {
        let path = std::env::temp_dir().join(format!("gpulab-case-{}.jsonl", std::process::id()));
        std::fs::write(&path, trace()).unwrap();
        let check = |diagnosis| diagnose(diagnosis, &path);
        let right = Some((SlowFault::UploadsEachStep, 2.0));
        assert!(check(right).passed(), "{}", check(right).text());
        assert!(check(Some((SlowFault::UploadsEachStep, 1.9))).passed());
        for (answer, said) in [
            (None, "no diagnosis yet"),
            (Some((SlowFault::LoaderStalled, 2.0)), "2.00 % of it on average"),
            (Some((SlowFault::Throttled, 2.0)), "0 of 40 samples"),
            (Some((SlowFault::MemoryFull, 2.0)), "80.0 % of the memory is taken"),
            (Some((SlowFault::FewBlocks, 2.0)), "the mean is 25.0 %"),
            (Some((SlowFault::LossNotFinite, 2.0)), "in 0 of 40 samples"),
            (Some((SlowFault::UploadsEachStep, 4.0)), "GB a second"),
            (Some((SlowFault::UploadsEachStep, 8.0)), "divide by the steps"),
            (Some((SlowFault::UploadsEachStep, 0.5)), "seconds that a step takes"),
            (Some((SlowFault::UploadsEachStep, 16.0)), "not bits"),
            (Some((SlowFault::UploadsEachStep, 2000.0)), "in GB"),
            (Some((SlowFault::UploadsEachStep, f64::NAN)), "is no answer"),
            (Some((SlowFault::UploadsEachStep, f64::INFINITY)), "is no answer"),
        ] {
            refused(&check(answer), said);
        }
        std::fs::write(&path, "nothing").unwrap();
        refused(&check(right), "not the trace of a training");
        std::fs::remove_file(&path).unwrap();
        refused(&check(right), "cannot read the trace");
    }

    #[test]
    fn the_recorded_trace_has_the_fault_and_its_suspects() {
        let seen = Seen::read(&gpulab::repository().join("results").join(TRACE)).unwrap();
        // Each step copies 2 GiB; PCIe's counter also counts what the copies need around the data.
        assert!((1.7..2.7).contains(&seen.gb_per_step()), "{seen:?}");
        assert!(seen.wait < 10.0 && seen.memory > 60.0 && seen.slowdowns == 0 && seen.losses == 0, "{seen:?}");
        assert!(seen.utilization < 60.0, "the obvious suspect: {seen:?}");
        assert!(revealed_slow(Some((SlowFault::LoaderStalled, 1.0))).starts_with("The source shows itself"));
    }
}
