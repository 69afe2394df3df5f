// idea: the queries of a block share tiles of k and v in shared memory: a key is fetched once for WARPS queries.
use gpulab_device::*;

/// Numbers of o that each lane holds.
const EACH: usize = HEAD / 32;
/// Rows of k in shared memory are 2 numbers longer: 32 lanes then read 32 banks.
const K_ROW: usize = HEAD + 2;

/// What `join` makes of the numbers of all lanes, in every lane.
fn of_warp(own: f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let (mut joined, mut lanes) = (own, 16);
    while lanes > 0 {
        joined = join(joined, warp::shuffle_xor(warp::ALL, joined, lanes));
        lanes /= 2;
    }
    joined
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn flash_attention(
    q: *const Bf16, k: *const Bf16, v: *const Bf16, o: *mut Bf16, length: i32, group: i32, scale: f32, causal: i32,
) {
    let (length, group, heads) = (length as usize, group as usize, blocks_y() as usize);
    // SAFETY: the launch passes so many heads of q and of o, and one of k and v for each `group` of them.
    let (q, mut o) = unsafe { (Slice::new(q, heads * length * HEAD), DisjointSlice::new(o, heads * length * HEAD)) };
    // SAFETY: as above.
    let [k, v] = [k, v].map(|x| unsafe { Slice::new(x, heads / group * length * HEAD) });
    let q_rows = shared!(Q_ROWS: [f32; WARPS * HEAD]);
    let k_tile = shared!(K_TILE: [Bf16; 32 * K_ROW]);
    let v_tile = shared!(V_TILE: [Bf16; 32 * HEAD]);
    // SAFETY: an array in shared memory begins at a multiple of 16 bytes, and rows of k have an even number of bf16.
    let k_pairs = unsafe { k_tile.view::<u32>() };
    let (thread, lane, warp) = (thread_x() as usize, thread_x() as usize % 32, thread_x() as usize / 32);
    let (row, head) = (block_x() as usize * WARPS + warp, block_y() as usize);
    let query = (head * length + row) * HEAD + lane;
    // `group` heads of q share one head of k and v.
    let shared_head = head / group * length * HEAD;
    for i in 0..EACH {
        let x = if row < length { q[query + i * 32].to_f32() * scale } else { 0.0 };
        q_rows.set(warp * HEAD + i * 32 + lane, x);
    }
    let mut o_part = [0.0_f32; EACH];
    let (mut most, mut total) = (f32::MIN, 0.0_f32);
    // Up to the last key that one of the block's queries sees.
    let keys = if causal != 0 { length.min((block_x() as usize + 1) * WARPS) } else { length };
    for key0 in (0..keys).step_by(32) {
        sync_threads();
        for i in (thread..32 * HEAD).step_by(WARPS * 32) {
            let (y, x) = (i / HEAD, i % HEAD);
            let from = shared_head + (key0 + y) * HEAD + x;
            let here = key0 + y < length;
            k_tile.set(y * K_ROW + x, if here { k[from] } else { Bf16(0) });
            v_tile.set(i, if here { v[from] } else { Bf16(0) });
        }
        sync_threads();
        let mut score = 0.0_f32;
        for pair in 0..HEAD / 2 {
            let bits = k_pairs.get(lane * (K_ROW / 2) + pair);
            let (first, second) = (f32::from_bits(bits << 16), f32::from_bits(bits & 0xFFFF_0000));
            let at = warp * HEAD + pair * 2;
            score = q_rows.get(at + 1).fma(second, q_rows.get(at).fma(first, score));
        }
        let key = key0 + lane;
        if key >= length || (causal != 0 && key > row) {
            score = f32::NEG_INFINITY;
        }
        let before = most;
        most = of_warp(most.max(score), f32::max);
        // If the maximum moves, all that was summed so far is too large, by a factor that is known.
        let (factor, p) = ((before - most).exp2_fast(), (score - most).exp2_fast());
        // Each lane sums its own keys; the 32 sums meet at the end.
        total = total.fma(factor, p);
        for i in 0..EACH {
            o_part[i] *= factor;
        }
        for y in 0..32 {
            let p_of = warp::shuffle(warp::ALL, p, y as u32);
            for i in 0..EACH {
                o_part[i] = p_of.fma(v_tile.get(y * HEAD + i * 32 + lane).to_f32(), o_part[i]);
            }
        }
    }
    total = of_warp(total, |a, b| a + b);
    if row < length {
        for i in 0..EACH {
            // SAFETY: this lane's numbers of the warp's own row.
            unsafe { *o.own_at(query + i * 32) = Bf16::from_f32(o_part[i] / total) };
        }
    }
}
