//! Rules with a duration, so that one spike does not fire: the states are Prometheus's (inactive, pending, firing).

use crate::sample::{Field, Sample};
use gpulab_measure::{Error, Result};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// What a rule asks of a sample.
#[derive(Debug, Clone)]
pub enum Condition {
    /// A number is above a threshold.
    Above(&'static Field, f64),
    /// A number is below a threshold.
    Below(&'static Field, f64),
    /// More than this share of the memory is taken, 0 to 1.
    MemoryFull(f64),
    /// The hardware, or the driver for its sake, lowers the clocks: too hot, or a power brake. A power cap is not meant:
    /// under full load it is how many GPUs work.
    Throttled,
    /// There is a job, and the utilisation is below so many percent.
    IdleWithJob(f64),
    /// ECC has found an error that it could not correct since the sample before.
    EccErrors,
    /// A training's step waits for data for more than this share of its time, 0 to 1.
    LoaderStalled(f64),
    /// A training's loss is NaN or infinite.
    LossNotFinite,
}

/// NVML's names of what [`Condition::Throttled`] means.
pub const SLOWDOWNS: [&str; 4] =
    ["HW_SLOWDOWN", "SW_THERMAL_SLOWDOWN", "HW_THERMAL_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN"];

impl Condition {
    /// Whether it holds; `None` where the sample does not say. `before` is the sample before, of the same GPU.
    fn holds(&self, sample: &Sample, before: Option<&Sample>) -> Option<bool> {
        let job = sample.job.as_ref();
        match self {
            Condition::Above(field, value) => Some((field.get)(sample)? > *value),
            Condition::Below(field, value) => Some((field.get)(sample)? < *value),
            Condition::MemoryFull(share) => Some(sample.memory_share()? > *share),
            Condition::Throttled => {
                Some(sample.throttle.as_ref()?.iter().any(|reason| SLOWDOWNS.contains(&reason.as_str())))
            }
            Condition::IdleWithJob(percent) => Some(sample.has_job()? && sample.utilization_percent? < *percent),
            Condition::EccErrors => Some(sample.ecc_uncorrected? > before?.ecc_uncorrected?),
            Condition::LoaderStalled(share) => Some(job?.loader_wait? > *share),
            Condition::LossNotFinite => Some(!job?.loss?.is_finite()),
        }
    }
}

/// A rule: fires when its condition has held for `for_s` seconds, and resolves when it has not held for `keep_firing_for_s`.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// What is asked.
    pub condition: Condition,
    /// Seconds that the condition has to hold for, in every sample.
    pub for_s: f64,
    /// Seconds without it, until the alert is over.
    pub keep_firing_for_s: f64,
}

impl Rule {
    /// A rule that is over as soon as its condition does not hold any more.
    pub fn new(name: &str, condition: Condition, for_s: f64) -> Rule {
        Rule { name: name.to_string(), condition, for_s, keep_firing_for_s: 0.0 }
    }

    /// Stays firing for so many seconds after the condition held last.
    #[must_use]
    pub fn keep_firing_for(mut self, seconds: f64) -> Rule {
        self.keep_firing_for_s = seconds;
        self
    }
}

/// The rules that `gpulab monitor` has without a file.
pub fn built_in() -> Vec<Rule> {
    let temperature = Field::named("temperature_c").expect("one of the fields");
    vec![
        Rule::new("hot", Condition::Above(temperature, 85.0), 30.0).keep_firing_for(10.0),
        Rule::new("throttled", Condition::Throttled, 5.0).keep_firing_for(10.0),
        Rule::new("memory-nearly-full", Condition::MemoryFull(0.95), 10.0),
        Rule::new("idle-with-job", Condition::IdleWithJob(5.0), 60.0),
        Rule::new("ecc-errors", Condition::EccErrors, 0.0).keep_firing_for(600.0),
        Rule::new("loader-stalled", Condition::LoaderStalled(0.5), 5.0),
        Rule::new("loss-not-finite", Condition::LossNotFinite, 0.0),
    ]
}

/// Rules from a file: `[{"alert": "warm", "above": {"temperature_c": 70}, "for_s": 30}, …]`.
///
/// Besides `above` and `below`, which take a field of a sample, there are `memory_above`, `idle_below_percent`,
/// `loader_wait_above` with a number, and `throttled`, `ecc_errors`, `loss_not_finite` with `true`.
///
/// # Errors
/// [`Error::File`]; [`Error::Invalid`] with the rule and what is wrong with it.
pub fn read_rules(path: &Path) -> Result<Vec<Rule>> {
    let failed = Error::io(path, "read the alert rules", "give a file with a JSON list of rules");
    let text = std::fs::read_to_string(path).map_err(failed)?;
    parse_rules(&text).map_err(|error| match error {
        Error::Invalid { what, fix } => Error::invalid(format!("{}: {what}", path.display()), fix),
        other => other,
    })
}

/// An example, for errors.
const EXAMPLE: &str =
    r#"write such as [{"alert": "warm", "above": {"temperature_c": 70}, "for_s": 30, "keep_firing_for_s": 10}]"#;

fn parse_rules(text: &str) -> Result<Vec<Rule>> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| Error::invalid(format!("no JSON: {error}"), EXAMPLE))?;
    let list = value.as_array().ok_or_else(|| Error::invalid("no list of rules", EXAMPLE))?;
    list.iter().enumerate().map(|(at, rule)| parse_rule(rule, at + 1)).collect()
}

fn parse_rule(rule: &Value, number: usize) -> Result<Rule> {
    let wrong = |what: String| Error::invalid(format!("rule {number}: {what}"), EXAMPLE);
    let object = rule.as_object().ok_or_else(|| wrong("no JSON object".to_string()))?;
    let name = rule["alert"].as_str().ok_or_else(|| wrong("its name, `alert`, is missing".to_string()))?;
    let (mut conditions, mut durations) = (Vec::new(), [0.0; 2]);
    for (key, value) in object {
        let number = || value.as_f64().ok_or_else(|| wrong(format!("`{key}` takes a number")));
        let field = || -> Result<(&'static Field, f64)> {
            let pair = value.as_object().filter(|pair| pair.len() == 1).and_then(|pair| pair.iter().next());
            let (field, value) = pair.ok_or_else(|| wrong(format!("`{key}` takes a field and a number")))?;
            let value = value.as_f64().ok_or_else(|| wrong(format!("`{field}` takes a number")))?;
            Ok((Field::named(field)?, value))
        };
        let condition = match key.as_str() {
            "alert" => continue,
            "for_s" | "keep_firing_for_s" => {
                let seconds = Some(number()?).filter(|seconds| *seconds >= 0.0);
                durations[usize::from(key != "for_s")] =
                    seconds.ok_or_else(|| wrong(format!("`{key}` takes seconds, 0 or more")))?;
                continue;
            }
            "above" => field().map(|(field, value)| Condition::Above(field, value))?,
            "below" => field().map(|(field, value)| Condition::Below(field, value))?,
            "memory_above" => Condition::MemoryFull(number()?),
            "idle_below_percent" => Condition::IdleWithJob(number()?),
            "loader_wait_above" => Condition::LoaderStalled(number()?),
            "throttled" => Condition::Throttled,
            "ecc_errors" => Condition::EccErrors,
            "loss_not_finite" => Condition::LossNotFinite,
            other => return Err(wrong(format!("it does not know `{other}`"))),
        };
        conditions.push(condition);
    }
    match <[Condition; 1]>::try_from(conditions) {
        Ok([condition]) => {
            Ok(Rule { name: name.to_string(), condition, for_s: durations[0], keep_firing_for_s: durations[1] })
        }
        Err(others) => Err(wrong(format!("it has {} conditions, and one is what it needs", others.len()))),
    }
}

/// What a rule says of a GPU now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum State {
    /// The condition does not hold.
    #[default]
    Inactive,
    /// It has held since then, and not long enough.
    Pending {
        /// When it began to hold.
        since: Timestamp,
    },
    /// It has held for long enough.
    Firing {
        /// When the alert fired.
        since: Timestamp,
        /// When the condition held last.
        last: Timestamp,
    },
}

/// An alert fires, or is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The rule's name.
    pub alert: String,
    /// The GPU.
    pub gpu: u32,
    /// When.
    pub time: Timestamp,
    /// True when it fires, false when it is over.
    pub firing: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.firing { "firing" } else { "resolved" };
        write!(f, "{:.0} GPU {}: {} is {state}", self.time, self.gpu, self.alert)
    }
}

/// Rules, and their state on each GPU.
#[derive(Debug, Clone, Default)]
pub struct Alerts {
    rules: Vec<Rule>,
    states: BTreeMap<(u32, usize), State>,
    before: BTreeMap<u32, Sample>,
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

impl Alerts {
    /// Of these rules.
    pub fn new(rules: Vec<Rule>) -> Alerts {
        Alerts { rules, ..Alerts::default() }
    }

    /// Takes a sample into account; gives what fires or is over with it. Where a sample does not say whether a condition
    /// holds, a pending alert begins anew, and a firing one stays: nobody has seen that the trouble is over.
    pub fn see(&mut self, sample: &Sample) -> Vec<Change> {
        let (now, gpu) = (sample.time, sample.gpu);
        let before = self.before.insert(gpu, sample.clone());
        let mut changes = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            let state = self.states.entry((gpu, at)).or_default();
            let was = matches!(state, State::Firing { .. });
            *state = match (rule.condition.holds(sample, before.as_ref()), *state) {
                (Some(true), State::Firing { since, .. }) => State::Firing { since, last: now },
                (Some(true), State::Pending { since }) if seconds(since, now) >= rule.for_s => {
                    State::Firing { since: now, last: now }
                }
                (Some(true), State::Inactive) if rule.for_s == 0.0 => State::Firing { since: now, last: now },
                (Some(true), State::Inactive) => State::Pending { since: now },
                (Some(true), pending) => pending,
                (Some(false), State::Firing { since, last }) if seconds(last, now) < rule.keep_firing_for_s => {
                    State::Firing { since, last }
                }
                (None, firing @ State::Firing { .. }) => firing,
                (Some(false) | None, _) => State::Inactive,
            };
            let firing = matches!(state, State::Firing { .. });
            if was != firing {
                changes.push(Change { alert: rule.name.clone(), gpu, time: now, firing });
            }
        }
        changes
    }

    /// Each rule's name, a GPU that it has seen, and its state there.
    pub fn states(&self) -> impl Iterator<Item = (&str, u32, State)> {
        self.states.iter().map(|((gpu, rule), state)| (self.rules[*rule].name.as_str(), *gpu, *state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Job, Process};

    /// Samples a second apart, changed by `change`, and the seconds at which the one rule fires and resolves.
    fn seen(rule: Rule, seconds: i64, change: impl Fn(i64, &mut Sample)) -> Vec<(i64, bool)> {
        let mut alerts = Alerts::new(vec![rule]);
        let one = |second: i64| {
            let mut sample = Sample { time: Timestamp::from_second(second).unwrap(), ..Sample::default() };
            change(second, &mut sample);
            sample
        };
        let all: Vec<Change> = (0..seconds).flat_map(|second| alerts.see(&one(second))).collect();
        all.iter().map(|change| (change.time.as_second(), change.firing)).collect()
    }

    fn built(name: &str) -> Rule {
        built_in().into_iter().find(|rule| rule.name == name).unwrap()
    }

    #[test]
    fn each_rule_fires_when_it_should_and_not_before_and_resolves() {
        // Trouble from second 100 on, until 300.
        let bad = |second: i64| (100..300).contains(&second);
        let hot = |s, sample: &mut Sample| sample.temperature_c = Some(if bad(s) { 90.0 } else { 60.0 });
        assert_eq!(seen(built("hot"), 400, hot), [(130, true), (309, false)]);
        let slow = |s, sample: &mut Sample| {
            let reason = if bad(s) { "HW_THERMAL_SLOWDOWN" } else { "SW_POWER_CAP" };
            sample.throttle = Some(vec![reason.to_string()]);
        };
        assert_eq!(seen(built("throttled"), 400, slow), [(105, true), (309, false)]);
        let full = |s, sample: &mut Sample| {
            (sample.memory_total_bytes, sample.memory_used_bytes) =
                (Some(100.0), Some(if bad(s) { 96.0 } else { 94.0 }));
        };
        assert_eq!(seen(built("memory-nearly-full"), 400, full), [(110, true), (300, false)]);
        let idle = |s, sample: &mut Sample| {
            sample.utilization_percent = Some(0.0);
            sample.processes = Some(if bad(s) { vec![Process::default()] } else { Vec::new() });
        };
        assert_eq!(seen(built("idle-with-job"), 400, idle), [(160, true), (300, false)]);
        let ecc = |s, sample: &mut Sample| sample.ecc_uncorrected = Some(if s >= 100 { 3.0 } else { 2.0 });
        assert_eq!(seen(built("ecc-errors"), 800, ecc), [(100, true), (700, false)]);
        let waits = |s, sample: &mut Sample| {
            sample.job = Some(Job { loader_wait: Some(if bad(s) { 0.9 } else { 0.1 }), ..Job::default() });
        };
        assert_eq!(seen(built("loader-stalled"), 400, waits), [(105, true), (300, false)]);
        let nan = |s, sample: &mut Sample| {
            sample.job = Some(Job { loss: Some(if bad(s) { f64::NAN } else { 2.0 }), ..Job::default() });
        };
        assert_eq!(seen(built("loss-not-finite"), 400, nan), [(100, true), (300, false)]);
    }

    #[test]
    fn a_spike_does_not_fire_and_a_dip_does_not_resolve() {
        let spikes = |s, sample: &mut Sample| sample.temperature_c = Some(if s % 30 == 0 { 60.0 } else { 90.0 });
        assert_eq!(seen(built("hot"), 200, spikes), [], "never above for 30 s on end");
        let dips = |s: i64, sample: &mut Sample| {
            sample.temperature_c = Some(if s > 40 && s % 9 == 0 { 60.0 } else { 90.0 });
        };
        assert_eq!(seen(built("hot"), 200, dips), [(30, true)], "never below for 10 s on end");
    }

    #[test]
    fn what_is_not_known_neither_fires_nor_resolves() {
        for rule in built_in() {
            assert_eq!(seen(rule, 100, |_, _| {}), []);
        }
        let gap = |s, sample: &mut Sample| sample.temperature_c = (s < 50).then_some(90.0);
        assert_eq!(seen(built("hot"), 200, gap), [(30, true)]);
        let holes = |s: i64, sample: &mut Sample| sample.temperature_c = (s % 20 != 0).then_some(90.0);
        assert_eq!(seen(built("hot"), 200, holes), []);
    }

    #[test]
    fn gpus_have_states_of_their_own() {
        let mut alerts = Alerts::new(built_in());
        for gpu in [0, 1] {
            let job = Job { loss: Some(if gpu == 0 { 1.0 } else { f64::INFINITY }), ..Job::default() };
            let changes = alerts.see(&Sample { gpu, job: Some(job), ..Sample::default() });
            assert_eq!(changes.len(), gpu as usize);
        }
        let firing: Vec<u32> =
            alerts.states().filter(|one| matches!(one.2, State::Firing { .. })).map(|one| one.1).collect();
        assert_eq!(firing, [1]);
    }

    #[test]
    fn rules_from_a_file_and_what_is_wrong_with_them() {
        let rules = parse_rules(
            r#"[{"alert": "warm", "above": {"temperature_c": 70}, "for_s": 3, "keep_firing_for_s": 2},
                {"alert": "nan", "loss_not_finite": true}]"#,
        )
        .unwrap();
        let warm = |s, sample: &mut Sample| sample.temperature_c = Some(if s < 10 { 75.0 } else { 65.0 });
        assert_eq!(seen(rules[0].clone(), 20, warm), [(3, true), (11, false)]);
        for (text, said) in [
            ("[", "no JSON"),
            ("{}", "no list of rules"),
            ("[3]", "rule 1: no JSON object"),
            (r#"[{"above": {"power_w": 1}}]"#, "`alert`, is missing"),
            (r#"[{"alert": "a"}]"#, "it has 0 conditions"),
            (r#"[{"alert": "a", "throttled": true, "ecc_errors": true}]"#, "it has 2 conditions"),
            (r#"[{"alert": "a", "above": 3}]"#, "takes a field and a number"),
            (r#"[{"alert": "a", "above": {"watts": 3}}]"#, "no field `watts`"),
            (r#"[{"alert": "a", "throttled": true, "for_s": -1}]"#, "0 or more"),
            (r#"[{"alert": "a", "throttle": true}]"#, "does not know `throttle`"),
        ] {
            let error = parse_rules(text).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("\nnext: "), "{text}: {error}");
        }
    }
}
