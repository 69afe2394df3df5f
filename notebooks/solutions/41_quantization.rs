// Solutions of lesson 41. Each section replaces the exercise cell of that name.

// exercise: pack_words
fn my_pack(codes: &[i8]) -> Vec<u32> {
    // From the last of eight to the first: each moves those before it up by four bits.
    let word = |eight: &[i8]| eight.iter().rev().fold(0, |word, code| word << 4 | (i32::from(*code) + 8) as u32);
    codes.chunks(8).map(word).collect()
}
fn my_unpack(words: &[u32]) -> Vec<i8> {
    words.iter().flat_map(|word| (0..8).map(move |i| (word >> (4 * i) & 15) as i8 - 8)).collect()
}

// exercise: scale_search
fn my_scale(weights: &[f32], bits: u32) -> f32 {
    let (most, high) = (absmax(weights, bits), ((1 << (bits - 1)) - 1) as f32);
    if most == 0.0 {
        return 0.0; // nothing but zeros: any scale is right, and 0 ÷ 0 is not
    }
    let lost = |scale: f32| -> f32 {
        weights.iter().map(|x| (x - scale * (x / scale).round_ties_even().clamp(-high, high)).powi(2)).sum()
    };
    let scales = (20..=200).map(|step| most * step as f32 / 200.0);
    scales.min_by(|a, b| lost(*a).total_cmp(&lost(*b))).unwrap_or(most)
}

// exercise: quantized_matvec
const MATVEC: &str = r#"extern "C" __global__ void matvec(const unsigned *codes, const unsigned short *scales, const unsigned short *x,
                                  float *y, int rows, int columns) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32; // a warp for each row
    if (row >= rows) { return; }
    float sum = 0.0f;
    for (int word = lane; word < columns / 8; word += 32) { // neighbouring lanes, neighbouring words
        unsigned eight = codes[row * (columns / 8) + word];
        uint4 bits = ((const uint4 *)x)[word]; // eight numbers of x, two in each 32 bits
        unsigned pairs[4] = {bits.x, bits.y, bits.z, bits.w};
        float part = 0.0f;
        for (int i = 0; i < 8; ++i) {
            float x_i = __uint_as_float(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xffff0000);
            part += ((int)(eight >> (4 * i) & 15) - 8) * x_i;
        }
        // Eight neighbours always share a scale: 64 is a multiple of 8.
        sum += part * __uint_as_float((unsigned)scales[row * (columns / 64) + word / 8] << 16);
    }
    for (int distance = 16; distance > 0; distance /= 2) { sum += __shfl_xor_sync(~0u, sum, distance); }
    if (lane == 0) { y[row] = sum; }
}"#;

// exercise: four_bit_gain
// For each weight: bf16 2 bytes ÷ 4.8 TB/s = 0.42 ps, 128 multiply-adds 256 ÷ 989e12 = 0.26 ps: memory is the limit.
// 4.25 bits: 0.53 bytes take 0.11 ps, the arithmetic still 0.26 ps: it is the limit now.
let my_gain: Option<f64> = Some((2.0 / 4.8e12) / (256.0 / 989e12));

// exercise: diagnose_scales
// Scales are read as [groups, rows] where they lie as [rows, groups]: with one row, or one group, it makes no difference. Group g of
// row r gets its own where r · 9 + g = g · 33 + r, so r = 4 g: rows 0, 4, … 32.
let my_diagnosis: Option<(check::ScaleFault, f64)> = Some((check::ScaleFault::ScalesTransposed, 9.0));
