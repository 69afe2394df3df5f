// Solutions of lesson 40. Each section replaces the exercise cell of that name.

// exercise: top_p
fn my_nucleus(probabilities: &[f64], p: f64) -> Vec<usize> {
    let mut tokens: Vec<usize> = (0..probabilities.len()).collect();
    tokens.sort_by(|a, b| probabilities[*b].total_cmp(&probabilities[*a]));
    let mut sum = 0.0;
    let mut count = 0;
    while count == 0 || (sum < p && count < tokens.len()) {
        sum += probabilities[tokens[count]];
        count += 1;
    }
    tokens.truncate(count);
    tokens
}

// exercise: padding_mask
fn my_hidden(query: usize, key: usize, padding: usize) -> bool {
    key > query || key < padding // the future, and the filling
}

// exercise: token_floor
fn my_floor(it: check::Decode) -> f64 {
    let cache = 2 * it.layers * it.width * it.context * it.texts; // keys and values, each text its own
    let numbers = it.parameters + cache; // the weights are read once for all texts
    (numbers * it.bytes) as f64 / (it.gb_per_s * 1e6)
}
