// Solutions of lesson 61. Each section replaces the exercise cell of that name.

// exercise: sharded_step
fn my_step(rank: &Rank, weights: &mut [f32], gradient: &[f32], momentum: &mut [f32]) -> Result<()> {
    let (len, part) = (weights.len(), momentum.len());
    let mut padded = gradient.to_vec();
    padded.resize(part * rank.size(), 0.0);
    let mut average = vec![0.0; part];
    rank.reduce_scatter(&padded, &mut average, Op::Avg)?;
    padded[..len].copy_from_slice(weights); // from here on the weights, padded
    let mine = &mut padded[rank.rank() * part..][..part];
    for at in 0..part {
        momentum[at] = 0.9 * momentum[at] + average[at];
        mine[at] -= 0.1 * momentum[at];
    }
    let mine = mine.to_vec();
    rank.all_gather(&mine, &mut padded)?;
    weights.copy_from_slice(&padded[..len]);
    Ok(())
}

// exercise: fewest_gpus
// Stage 1: 4 · 13 = 52 GB stay whole, 12 · 13 = 156 GB are shared out over 60 − 52 = 8 GB each: 19.5, so 20 GPUs.
// Stage 2: 26 GB whole, 182 GB shared out over 34 GB each: 5.4, so 6. Stage 3: 208 GB over 60 GB each: 3.5, so 4.
let my_gpus: [Option<f64>; 3] = [Some(20.0), Some(6.0), Some(4.0)];

// exercise: micro_batches
// 7 / (m + 7) ≤ 0.1, so m + 7 ≥ 70.
let my_parts_of_a_batch: Option<f64> = Some(63.0);

// exercise: diagnose_checkpoint
// Up to 10 old ranks all is right, with padding and without, and for any number of new ranks; from 11 on all but the first two parts are
// wrong, weights and momentum alike. 10 is the first number with two digits: the parts are joined in the order of their names, as text,
// and `part-10` comes before `part-2`. Of 64, parts 0 and 1 stay where they are: each of 2 to 9 has some of two digits before it, and
// each of those stands too far in front.
let my_diagnosis: Option<(check::CheckpointFault, f64)> = {
    let mut names: Vec<String> = (0..64).map(|rank| rank.to_string()).collect();
    names.sort();
    let moved = (0..64).filter(|place| names[*place] != place.to_string()).count();
    Some((check::CheckpointFault::JoinedInWrongOrder, moved as f64))
};
