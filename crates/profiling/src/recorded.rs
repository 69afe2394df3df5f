//! Nsight Compute's counters of the course's rungs, as the tables under `results/ncu` keep them: rung, metric, unit, value.

use super::ncu::Counted;
use gpulab::error::{Error, Result};
use std::collections::BTreeMap;

/// The machine of those tables; `results/ncu/README.md` says with which driver.
const MACHINE: &str = "NVIDIA H200";

/// What Nsight Compute's sections call a figure that has a counter's name as well.
const SECTION_NAMES: [(&str, &str); 2] = [
    ("Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
    ("Duration", "gpu__time_duration.sum"),
];

impl Counted {
    /// What a table under `results/ncu` holds, such as `12_matmul`, a rung after the other.
    ///
    /// # Examples
    /// ```
    /// use gpulab_profiling::Counted;
    /// let counted = Counted::recorded("12_matmul_bf16")?;
    /// let wmma = &Counted::select(&counted, &["01"])[0];
    /// assert!(wmma.get("tensor cores") < 10.0 && wmma.recorded && wmma.machine == "NVIDIA H200");
    /// # Ok::<(), gpulab::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] where there is no such table, or it cannot be read.
    pub fn recorded(table: &str) -> Result<Vec<Counted>> {
        let path = gpulab::repository().join("results/ncu").join(format!("{table}.csv"));
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(parse_table(&text)),
            Err(error) => Err(Error::File {
                path,
                during: "read the recorded counters".to_string(),
                text: error.to_string(),
                fix: "give the name of a table in results/ncu, without `.csv`".to_string(),
            }),
        }
    }

    /// Those rungs of a list, by their numbers such as `03`, in the order in which they are named; others are passed over.
    pub fn select(counted: &[Counted], rungs: &[&str]) -> Vec<Counted> {
        let number =
            |one: &Counted| one.rung.rsplit('/').next().and_then(|name| name.split('_').next().map(str::to_string));
        let of = |rung: &&str| counted.iter().find(|one| number(one).as_deref() == Some(*rung)).cloned();
        rungs.iter().filter_map(of).collect()
    }
}

/// A line is a figure of one launch; the head and lines that are none are passed over.
fn parse_table(text: &str) -> Vec<Counted> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut found: Vec<Counted> = Vec::new();
    for row in reader.records().flatten() {
        let (Some(rung), Some(metric), Some(value)) =
            (row.get(0), row.get(1), row.get(3).and_then(|it| it.parse().ok()))
        else {
            continue;
        };
        if found.last().is_none_or(|one| one.rung != rung) {
            let (rung, machine) = (rung.to_string(), MACHINE.to_string());
            found.push(Counted { rung, launches: 1, metrics: BTreeMap::new(), machine, recorded: true });
        }
        let name = SECTION_NAMES.iter().find(|names| names.0 == metric).map_or(metric, |names| names.1);
        if let Some(one) = found.last_mut() {
            one.metrics.insert(name.to_string(), value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_a_rung_after_the_other() {
        let text = "rung,metric,unit,value\n\
            01_a,Duration,ns,2000\n\
            01_a,smsp__average_warps_issue_stalled_wait_per_issue_active.ratio,inst,1.5\n\
            01_a,smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio,inst,2.25\n\
            02_b,Achieved Occupancy,%,50\n\
            02_b,nothing,%,\n";
        let counted = parse_table(text);
        assert_eq!(counted.iter().map(|one| one.rung.as_str()).collect::<Vec<_>>(), ["01_a", "02_b"]);
        assert_eq!((counted[0].get("time"), counted[1].get("occupancy")), (2.0, 50.0));
        assert_eq!(counted[0].stalls().longest(2), "barrier 2.2, wait 1.5");
        let second = Counted::select(&counted, &["02", "07"]);
        assert_eq!(second.len(), 1);
        assert!(Counted::table(&second, &["occupancy"]).contains("50.0"));
    }

    #[test]
    fn recorded_tables_hold_what_lessons_ask_for() {
        let bf16 = Counted::recorded("12_matmul_bf16").unwrap();
        assert_eq!(bf16.len(), 10);
        for one in &bf16 {
            for name in ["time", "tensor cores", "shared data path", "instructions", "conflicts", "clock", "occupancy"]
            {
                assert!(one.get(name).is_finite(), "{} has no {name}", one.rung);
            }
            assert!(!one.stalls().longest(3).is_empty());
        }
        let fp32 = Counted::recorded("12_matmul").unwrap();
        assert!(fp32.iter().all(|one| one.get("fp32 units") > 0.0 && one.get("time") > 0.0));
        assert!(matches!(Counted::recorded("99_nothing"), Err(Error::File { .. })));
    }
}
