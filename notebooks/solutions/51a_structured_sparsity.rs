// Solutions of lesson 51a: each section replaces the exercise cell of that name.

// exercise: two_four
fn my_compress(dense: &[f32], columns: usize) -> Result<(Vec<f32>, Vec<u32>), (usize, usize)> {
    let (mut values, mut metadata) = (Vec::new(), vec![0; dense.len() / 32]);
    for (group, four) in dense.chunks(4).enumerate() {
        let there: Vec<usize> = (0..4).filter(|&at| four[at] != 0.0).collect();
        let places = match there[..] {
            [] => [0, 1],
            [0] => [0, 1],
            [at] => [0, at], // a zero in front of it
            [first, second] => [first, second],
            _ => return Err((4 * group / columns, group % (columns / 4))),
        };
        for place in places {
            metadata[values.len() / 16] |= (place as u32) << (values.len() % 16 * 2);
            values.push(four[place]);
        }
    }
    Ok((values, metadata))
}
fn my_decompress(values: &[f32], metadata: &[u32], _columns: usize) -> Vec<f32> {
    let mut dense = vec![0.0; 2 * values.len()];
    for (at, value) in values.iter().enumerate() {
        let place = metadata[at / 16] >> (at % 16 * 2) & 3;
        dense[at / 2 * 4 + place as usize] = *value;
    }
    dense
}

// exercise: two_four_bytes
// A group of four: 4 · 16 bits in full, 2 · (16 + 2) in 2:4. With 4 bits, 4 · 4 against 2 · (4 + 2).
let my_bytes: [Option<f64>; 2] = [16.0, 4.0].map(|bits| Some(4.0 * bits / (2.0 * (bits + 2.0))));

// exercise: diagnose_places
// A number becomes right when the group 32 columns further on has the same places. Of six pairs one is the same.
let my_diagnosis: Option<(check::PlacesFault, f64)> = Some((check::PlacesFault::OtherWord, 100.0 / 6.0));
