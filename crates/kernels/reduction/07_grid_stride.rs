// idea: as many blocks as the GPU holds at a time walk over the array, with VECTORS loads of 16 bytes in flight a thread.
use gpulab_device::*;

/// The sum over the block, in its first thread.
fn block_sum(sum: f32) -> f32 {
    let sums = shared!(SUMS: [f32; THREADS / 32]);
    let thread = thread_x() as usize;
    let sum = warp::sum(sum);
    if thread % 32 == 0 {
        sums.set(thread / 32, sum);
    }
    sync_threads();
    if thread < 32 {
        return warp::sum(if thread < THREADS / 32 { sums.get(thread) } else { 0.0 });
    }
    sum
}

const TILE: usize = 4 * THREADS * VECTORS;

launch_bounds!(reduce, THREADS, BLOCKS);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn reduce(a: *const f32, partial: *mut f32, n: i32) {
    let n = n as usize;
    // SAFETY: the launch has one dimension and passes a buffer of n elements, which begins at a multiple of 16 bytes, and
    // another with one for each block.
    let (a, a4, mut partial) = unsafe {
        (Slice::new(a, n), Slice::new(a.cast::<Vec4<f32>>(), n / 4), DisjointSlice::new(partial, blocks_x() as usize))
    };
    let (thread, block, blocks) = (thread_x() as usize, block_x() as usize, blocks_x() as usize);
    let (mut own, mut chain, mut iterations) = (0.0, 0.0, 0);
    // Not `step_by`: it counts the iterations ahead, by a division, and of what is counted LLVM makes one iteration of two. A
    // thread has 32 registers here, which are too few for that: ptxas would have two loads in flight in place of four.
    let mut tile = block;
    while tile < n / TILE {
        let mut x: [f32; VECTORS] = core::array::from_fn(|v| {
            // Each element is used once: the caches need not keep it.
            let four = a4.load_streaming(tile * (TILE / 4) + v * THREADS + thread);
            (four.x + four.y) + (four.z + four.w)
        });
        let mut half = VECTORS / 2;
        while half > 0 {
            for v in 0..half {
                x[v] += x[v + half];
            }
            half /= 2;
        }
        chain += x[0];
        // The longer a chain of additions, the more it rounds away.
        iterations += 1;
        if iterations % 16 == 0 {
            own += chain;
            chain = 0.0;
        }
        tile += blocks;
    }
    let mut sum = own + chain;
    // What fills no tile.
    let mut i = n / TILE * TILE + block * THREADS + thread;
    while i < n {
        sum += a[i];
        i += blocks * THREADS;
    }
    sum = block_sum(sum);
    if let Some(partial) = partial.own_of_block() {
        *partial = sum;
    }
}
