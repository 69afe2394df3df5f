// idea: tensor cores for both products; the scores never leave registers, and as exponentials they are the next operand.
use gpulab_device::tensor::*;
use gpulab_device::*;

/// Rows in shared memory are 8 numbers longer: those that an ldmatrix reads then lie in different banks.
const ROW: usize = HEAD + 8;

/// Scores of a tile as an mma leaves them: of each 8 columns a thread holds two neighbours, of two rows that are eight apart; four
/// threads share a row.
type Scores = [[f32; 4]; KEYS / 8];

/// What a thread knows of its two rows: the largest score so far, and its own part of the sum of exponentials.
struct Rows {
    most: [f32; 2],
    total: [f32; 2],
}

/// What `join` makes of the numbers of the four threads of a row, in each of them.
#[inline(always)]
fn of_row(own: f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let joined = join(own, warp::shuffle_xor(warp::ALL, own, 1));
    join(joined, warp::shuffle_xor(warp::ALL, joined, 2))
}

/// Hides keys beyond the last one, and under a causal mask those behind the query. `row`: the thread's first one.
#[inline(always)]
fn hide(s: &mut Scores, key0: usize, row: usize, length: usize, causal: bool) {
    for x in 0..KEYS / 8 {
        for i in 0..4 {
            let key = key0 + x * 8 + thread_x() as usize % 4 * 2 + i % 2;
            if key >= length || (causal && key > row + i / 2 * 8) {
                s[x][i] = f32::NEG_INFINITY;
            }
        }
    }
}

/// Turns scores into powers of 2 below the rows' new maximum, and adds them up. Gives what has been summed so far is to be multiplied
/// with, as the maximum may have moved.
#[inline(always)]
fn softmax(s: &mut Scores, rows: &mut Rows, scale: f32) -> [f32; 2] {
    core::array::from_fn(|half| {
        let mut most = rows.most[half];
        for x in 0..KEYS / 8 {
            most = most.max(s[x][half * 2].max(s[x][half * 2 + 1]));
        }
        most = of_row(most, f32::max);
        let shift = most * scale;
        let factor = (rows.most[half].fma(scale, -shift)).exp2_fast();
        rows.most[half] = most;
        let mut total = 0.0;
        for x in 0..KEYS / 8 {
            for i in half * 2..half * 2 + 2 {
                s[x][i] = s[x][i].fma(scale, -shift).exp2_fast();
                total += s[x][i];
            }
        }
        rows.total[half] = rows.total[half].fma(factor, total);
        factor
    })
}

#[inline(always)]
fn multiply_rows(o: &mut [[f32; 4]; HEAD / 8], factor: [f32; 2]) {
    for x in 0..HEAD / 8 {
        for i in 0..4 {
            o[x][i] *= factor[i / 2];
        }
    }
}

launch_bounds!(flash_attention, WARPS * 32);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn flash_attention(
    q: *const Bf16, k: *const Bf16, v: *const Bf16, o: *mut Bf16, length: i32, group: i32, scale: f32, causal: i32,
) {
    let (length, group, heads, causal) = (length as usize, group as usize, blocks_y() as usize, causal != 0);
    // A thread reads two numbers of q at once, and writes two of o: an even one begins at a multiple of 4 bytes.
    // SAFETY: the launch passes so many heads of q and of o, and one of k and v for each `group` of them.
    let (q, mut o) = unsafe {
        (Slice::new(q.cast::<u32>(), heads * length * HEAD / 2), DisjointSlice::new(o.cast::<u32>(), heads * length * HEAD / 2))
    };
    // SAFETY: as above; eight numbers of k or v are copied at once, which a multiple of eight begins at a multiple of 16 bytes.
    let [k, v] = [k, v].map(|x| unsafe { Slice::new(x.cast::<Vec4<u32>>(), heads / group * length * HEAD / 8) });
    let k_tile = shared!(K_TILE: [Bf16; KEYS * ROW]);
    let v_tile = shared!(V_TILE: [Bf16; KEYS * ROW]);
    // SAFETY: an array in shared memory begins at a multiple of 16 bytes, and rows are eights of bf16.
    let [k_eights, v_eights] = [k_tile, v_tile].map(|tile| unsafe { tile.view::<Vec4<u32>>() });
    let (thread, lane) = (thread_x() as usize, thread_x() as usize % 32);
    let row0 = block_x() as usize * WARPS * 16;
    // The first of this thread's two rows, and of its columns.
    let (row, column) = (row0 + thread / 32 * 16 + lane / 4, lane % 4 * 2);
    let head = block_y() as usize;
    // `group` heads of q share one head of k and v.
    let (of_q, of_k) = (head * length * HEAD, head / group * length * HEAD);
    let q_part: [[u32; 4]; HEAD / 16] = core::array::from_fn(|part| {
        core::array::from_fn(|i| {
            let at = row + i % 2 * 8;
            if at < length { q[(of_q + at * HEAD + part * 16 + i / 2 * 8 + column) / 2] } else { 0 }
        })
    });
    let mut o_part = [[0.0_f32; 4]; HEAD / 8];
    let mut rows = Rows { most: [f32::MIN; 2], total: [0.0; 2] };
    // Up to the last key that one of the block's queries sees.
    let keys = if causal { length.min(row0 + WARPS * 16) } else { length };
    for key0 in (0..keys).step_by(KEYS) {
        sync_threads();
        for i in (thread * 8..KEYS * HEAD).step_by(WARPS * 32 * 8) {
            let (y, x) = (i / HEAD, i % HEAD);
            let (from, to) = ((of_k + (key0 + y) * HEAD + x) / 8, (y * ROW + x) / 8);
            let here = key0 + y < length;
            k_eights.set(to, if here { k[from] } else { Vec4::default() });
            v_eights.set(to, if here { v[from] } else { Vec4::default() });
        }
        sync_threads();
        let mut s: Scores = [[0.0; 4]; KEYS / 8];
        for x in (0..KEYS / 8).step_by(2) {
            for part in 0..HEAD / 16 {
                let at = (x * 8 + lane / 16 * 8 + lane % 8) * ROW + part * 16 + lane / 8 % 2 * 8;
                let [b0, b1, b2, b3] = load_matrices(k_tile, at);
                s[x] = mma(q_part[part], [b0, b1], s[x]);
                s[x + 1] = mma(q_part[part], [b2, b3], s[x + 1]);
            }
        }
        if key0 + KEYS > length || (causal && key0 + KEYS > row0) {
            hide(&mut s, key0, row, length, causal);
        }
        multiply_rows(&mut o_part, softmax(&mut s, &mut rows, scale));
        for part in 0..KEYS / 16 {
            // The exponentials as the left operand: the accumulators have just that layout, 16 columns at a time.
            let p = core::array::from_fn(|i| {
                let two = &s[part * 2 + i / 2][i % 2 * 2..];
                Bf16::pair_from_f32(two[0], two[1])
            });
            for x in (0..HEAD / 8).step_by(2) {
                // v's rows lie along the head, the instruction wants columns: ldmatrix transposes on the way.
                let at = (part * 16 + lane % 16) * ROW + x * 8 + lane / 16 * 8;
                let [b0, b1, b2, b3] = load_matrices_transposed(v_tile, at);
                o_part[x] = mma(p, [b0, b1], o_part[x]);
                o_part[x + 1] = mma(p, [b2, b3], o_part[x + 1]);
            }
        }
    }
    // The sums of whole rows, turned over.
    multiply_rows(&mut o_part, rows.total.map(|own| 1.0 / of_row(own, |a, b| a + b)));
    for x in 0..HEAD / 8 {
        for half in 0..2 {
            let row = row + half * 8;
            if row < length {
                let pair = Bf16::pair_from_f32(o_part[x][half * 2], o_part[x][half * 2 + 1]);
                // SAFETY: no two threads have the same rows and columns.
                unsafe { *o.own_at((of_q + row * HEAD + x * 8 + column) / 2) = pair };
            }
        }
    }
}
