// Solutions of lesson 22. Each section replaces the exercise cell of that name.

// exercise: bigram
fn bigram(train: &[u32], held_out: &[u32], vocab: usize, strength: f64) -> f64 {
    let (mut single, mut followed, mut pairs) = (vec![1.0; vocab], vec![0.0; vocab], HashMap::<(u32, u32), f64>::new());
    for token in train { single[*token as usize] += 1.0; }
    for pair in train.windows(2) {
        followed[pair[0] as usize] += 1.0;
        *pairs.entry((pair[0], pair[1])).or_default() += 1.0;
    }
    let total: f64 = single.iter().sum();
    let cost = |pair: &[u32]| {
        let seen = pairs.get(&(pair[0], pair[1])).copied().unwrap_or(0.0);
        -((seen + strength * single[pair[1] as usize] / total) / (followed[pair[0] as usize] + strength)).ln()
    };
    held_out.windows(2).map(cost).sum::<f64>() / (held_out.len() - 1) as f64
}

// exercise: model_of_a_day
// A day has 0.4 · 989e12 · 86,400 operations. P parameters and 20 P tokens need 6 · P · 20 P = 120 P² of them, so P is a root:
// a hundred times the hours make a model ten times as large.
let my_model: Option<f64> = Some((0.4 * 989e12 * 86_400.0 / 120.0f64).sqrt());

// exercise: diagnose_long_text
// 4 bytes from position 0 on and 4 from position 56 on are equally long, and cost different amounts: it is the place. Pieces that always begin
// at position 0 never read the rows 16 to 63 of the table of positions; of GPT-2's 1,024 rows of 768 numbers, 768 rows.
let my_diagnosis: Option<(check::TrainFault, f64)> = Some((check::TrainFault::Positions, 768.0 * 768.0));
