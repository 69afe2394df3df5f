// Solutions of lesson 15a: each section replaces the exercise cell of that name.

// exercise: masked_normalise
fn masked_normalise(x: &Tensor, low: f32, high: f32) -> candle_core::Result<Tensor> {
    let (believed, zeros) = ((x.ge(low)? * x.le(high)?)?, x.zeros_like()?);
    let count = believed.to_dtype(DType::F32)?.sum_all()?.maximum(1f32)?;
    let mean = (believed.where_cond(x, &zeros)?.sum_all()? / &count)?;
    // Chosen again: a row that became 0 before the mean was taken away would be -mean now.
    let away = believed.where_cond(&x.broadcast_sub(&mean)?, &zeros)?;
    let deviation = (away.sqr()?.sum_all()? / &count)?.sqrt()?.maximum(f32::MIN_POSITIVE)?;
    away.broadcast_div(&deviation)
}

// exercise: pass_bytes
// ge: 4 + 1, le: 4 + 1, masks: 1 + 1 + 1, to_dtype: 1 + 4, product: 4 + 4 + 4, two sums: 4 + 4.
let my_pass_bytes: u64 = 1_000_000 * (5 + 5 + 3 + 5 + 12 + 8);
