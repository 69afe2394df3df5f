// idea: online softmax: one pass over the keys with a running maximum and sum, so that no score is ever stored.
use gpulab_device::*;

/// Numbers of q and of o that each lane holds.
const EACH: usize = HEAD / 32;

/// What `join` makes of the numbers of all lanes, in every lane.
fn of_warp(own: f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let (mut joined, mut lanes) = (own, 16);
    while lanes > 0 {
        joined = join(joined, warp::shuffle_xor(warp::ALL, joined, lanes));
        lanes /= 2;
    }
    joined
}

// Eight blocks fill a multiprocessor at 32 registers per thread. Left to itself ptxas takes 36 where HEAD is 128, and six fit.
launch_bounds!(flash_attention, 256, 8);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn flash_attention(
    q: *const Bf16, k: *const Bf16, v: *const Bf16, o: *mut Bf16, length: i32, group: i32, scale: f32, causal: i32,
) {
    let (length, group, heads) = (length as usize, group as usize, blocks_y() as usize);
    let (row, head) = ((block_x() * (threads_x() / 32) + thread_x() / 32) as usize, block_y() as usize);
    if row >= length {
        return;
    }
    // SAFETY: the launch passes so many heads of q and of o, and one of k and v for each `group` of them.
    let (q, mut o) = unsafe { (Slice::new(q, heads * length * HEAD), DisjointSlice::new(o, heads * length * HEAD)) };
    // SAFETY: as above.
    let [k, v] = [k, v].map(|x| unsafe { Slice::new(x, heads / group * length * HEAD) });
    let lane = thread_x() as usize % 32;
    let query = (head * length + row) * HEAD + lane;
    // `group` heads of q share one head of k and v.
    let shared_head = head / group * length * HEAD + lane;
    let q_part: [f32; EACH] = core::array::from_fn(|i| q[query + i * 32].to_f32() * scale);
    let mut o_part = [0.0_f32; EACH];
    let (mut most, mut total) = (f32::MIN, 0.0_f32);
    let keys = if causal != 0 { row + 1 } else { length };
    let mut see = |key: usize| {
        let from = shared_head + key * HEAD;
        let mut score = 0.0_f32;
        for i in 0..EACH {
            score = q_part[i].fma(k[from + i * 32].to_f32(), score);
        }
        score = of_warp(score, |a, b| a + b);
        // If the maximum moves, all that was summed so far is too large, by a factor that is known.
        let before = most;
        most = most.max(score);
        let (factor, p) = ((before - most).exp2_fast(), (score - most).exp2_fast());
        total = total.fma(factor, p);
        for i in 0..EACH {
            o_part[i] = p.fma(v[from + i * 32].to_f32(), o_part[i] * factor);
        }
    };
    // Two keys a round: loads of the second do not wait for the first one's sums. NVRTC does so by itself, rustc does not.
    for pair in 0..keys / 2 {
        see(2 * pair);
        see(2 * pair + 1);
    }
    if keys % 2 == 1 {
        see(keys - 1);
    }
    for i in 0..EACH {
        // SAFETY: this lane's numbers of the warp's own row.
        unsafe { *o.own_at(query + i * 32) = Bf16::from_f32(o_part[i] / total) };
    }
}
