//! The simulator's counters of the rungs that use Hopper's instructions, against the hardware's own: Nsight Compute counted one
//! call of each on an H200 (`python3 -m env.baselines.record_counters --only hopper`). What the TMA and wgmma move is
//! no request of a warp, for Nsight Compute and the simulator alike; so this is what the warps themselves ask for.
//!
//! One count is not the same: where the TMA stores the result, the GPU counts up to a third more wavefronts for
//! `stmatrix` than its addresses need, and some of them as bank conflicts. A guess, which nothing here shows: the stores meet the
//! engine's own traffic, and are repeated. In `flash_attention/07_warp_specialised` both counts are equal.
//!
//! `cargo test -p gpulab-kernels --test hopper_counters -- --nocapture` shows the counts that are of the PTX, too.

use gpulab_kernels::Ladder;
use gpulab_kernels::topics::Size;
use std::collections::BTreeMap;

/// Counts of the PTX, which the machine code only resembles.
const NEAR: [&str; 4] = ["warp_instructions", "thread_instructions", "branches", "divergent_branches"];

/// Counts that the GPU has higher while the TMA stores.
const BESIDE_COPIES: [&str; 2] = ["shared_store_wavefronts", "shared_store_bank_conflicts"];

#[test]
fn the_counters_of_hopper_rungs_are_the_hardwares() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hardware/hopper.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().unwrap().split(';').collect();
    let mut wrong = Vec::new();
    let mut calls = 0;
    for line in lines {
        let row: BTreeMap<&str, &str> = columns.iter().copied().zip(line.split(';')).collect();
        let (rung, size) = (row["rung"], row["size"]);
        let ladder = Ladder::of(rung.split('/').next().unwrap()).unwrap();
        let size = Size::from_name(size).unwrap();
        let seen = ladder.inspect_all(rung, ladder.size(size).unwrap()).unwrap();
        let sums = seen.iter().fold(BTreeMap::new(), |mut sums: BTreeMap<&str, u64>, launch| {
            for (name, count) in launch.counters.rows() {
                *sums.entry(name).or_default() += count;
            }
            sums
        });
        for (name, counted) in row.iter().filter(|(name, _)| !["rung", "size"].contains(name)) {
            let (hardware, simulator) = (counted.parse::<u64>().unwrap(), sums[name]);
            if NEAR.contains(name) {
                println!("{rung} {size}: {name} {hardware} on the GPU, {simulator} in the simulator");
            } else if BESIDE_COPIES.contains(name) && !rung.ends_with("07_warp_specialised") {
                let wavefronts = sums["shared_store_wavefronts"];
                if !(simulator..=simulator + wavefronts / 3).contains(&hardware) {
                    wrong.push(format!("{rung} {size}: {name} is {hardware} on the GPU, {simulator} in the simulator"));
                }
            } else if hardware != simulator {
                wrong.push(format!("{rung} {size}: {name} is {hardware} on the GPU, {simulator} in the simulator"));
            }
        }
        calls += 1;
    }
    assert!(calls >= 10, "only {calls} calls are recorded");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
