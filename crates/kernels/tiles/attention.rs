// o = softmax(q · kᵀ · scale) · v for each head, in bf16, with sums in f32; under a causal mask a query sees no key behind it.
use gpulab_device::*;

const QUERIES: usize = 64 * GROUPS;

/// Below every score, and finite: −∞ less than that is −∞, where −∞ − −∞ would be no number.
const LOWEST: f32 = f32::MIN;

/// The largest score of a row so far, and the thread's own part of the sum of exponentials.
struct Online {
    most: PerRow,
    total: PerRow,
}

impl Online {
    /// Turns scores into powers of 2 below the rows' maximum. What is summed so far is to be multiplied by what this returns.
    #[inline(always)]
    fn weigh<S: Sums>(&mut self, on: &mut impl Role, s: &mut Sum<S>, scale: f32) -> PerRow {
        let most = on.reduce(s.fold(self.most, f32::max), f32::max);
        let shift = most.with(most, |most, _| most * scale);
        let factor = self.most.with(shift, |most, shift| most.fma(scale, -shift).exp2_fast());
        *s = s.map(shift, |s, shift| s.fma(scale, -shift).exp2_fast());
        self.total = s.fold(self.total.with(factor, |total, factor| total * factor), |total, s| total + s);
        self.most = most;
        factor
    }
}

#[derive(Clone, Copy)]
struct Attention {
    q: Matrix<QUERIES, HEAD>,
    k: Matrix<KEYS, HEAD>,
    v: Matrix<KEYS, HEAD>,
    o: Matrix<64, 64>,
    queries: Ring<1>,
    keys: Ring<{ STAGES as u32 }>,
    values: Ring<{ STAGES as u32 }>,
    length: u32,
    /// So many heads of q share one of k and v.
    group: u32,
    scale: f32,
    causal: bool,
}

impl Program for Attention {
    #[inline(always)]
    fn run<R: Role>(mut self, on: &mut R) {
        // Under a causal mask the last queries have most to do: they begin.
        let (block, head) = (if self.causal { blocks_x() - 1 - block_x() } else { block_x() }, block_y());
        let first = block * QUERIES as u32;
        let seen = if self.causal { self.length.min(first + QUERIES as u32) } else { self.length };
        let steps = seen.div_ceil(KEYS as u32);
        // From the last tile of keys to the first: only there may something have to be hidden.
        let key = |step: u32| (steps - 1 - step) * KEYS as u32;
        let (k, v) = (self.k.number(head / self.group), self.v.number(head / self.group));
        let mut stage = on.next(&mut self.queries);
        let q = on.load(&mut stage, self.q.number(head), first, 0);

        let (mut s, mut o) = (Sum::<[f32; KEYS / 2]>::zeros(), Sum::<[f32; HEAD / 2]>::zeros());
        let mut rows = Online { most: PerRow::full(LOWEST), total: PerRow::full(0.0) };
        // The scores of a step: those that are not to be seen hidden, the others as powers of 2.
        let weigh = |on: &mut R, rows: &mut Online, s: &mut Sum<[f32; KEYS / 2]>, key: u32| {
            if key + KEYS as u32 > self.length || self.causal && key + KEYS as u32 > first {
                let seen = |row| if self.causal { self.length.min(first + row + 1) } else { self.length };
                *s = on.keep_below(*s, |row| seen(row) as i32 - key as i32, f32::NEG_INFINITY);
            }
            rows.weigh(on, s, self.scale)
        };
        let mut keys = on.next(&mut self.keys);
        let tile = on.load(&mut keys, k, key(0), 0);
        on.start(&mut s, q, tile.transposed(), false);
        on.wait::<_, 0>(&mut s);
        on.free(keys);
        weigh(on, &mut rows, &mut s, key(0));
        let mut p = s.rounded();
        for step in 1..steps {
            let mut keys = on.next(&mut self.keys);
            let tile = on.load(&mut keys, k, key(step), 0);
            on.start(&mut s, q, tile.transposed(), false);
            let mut values = on.next(&mut self.values);
            let tile = on.load(&mut values, v, key(step - 1), 0);
            on.start(&mut o, p, tile, true);
            // The scores are here; the product with v goes on while they are weighed.
            on.wait::<_, 1>(&mut s);
            on.free(keys);
            let factor = weigh(on, &mut rows, &mut s, key(step));
            if SETTLE == 1 {
                on.settle(rows.total);
            }
            on.wait::<_, 0>(&mut o);
            on.free(values);
            o = o.map(factor, |x, factor| x * factor);
            p = s.rounded();
        }
        let mut values = on.next(&mut self.values);
        let tile = on.load(&mut values, v, key(steps - 1), 0);
        on.start(&mut o, p, tile, true);
        on.wait::<_, 0>(&mut o);
        let part = on.reduce(rows.total, |x, y| x + y).with(rows.total, |whole, _| 1.0 / whole);
        on.store(self.o.number(head), first, 0, o.map(part, |x, part| x * part));
    }
}

launch_bounds!(attention, 128 * (GROUPS + 1), 1);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn attention(
    _q: CuTensorMap,
    _k: CuTensorMap,
    _v: CuTensorMap,
    _o: CuTensorMap,
    length: i32,
    group: i32,
    scale: f32,
    causal: i32,
) {
    // SAFETY: the launch describes stacks of as many heads as it has rows of blocks, and each tile is one block's.
    let (q, k, v, o) = unsafe {
        (
            Matrix::new(tensor_map!(attention, 0)),
            Matrix::new(tensor_map!(attention, 1)),
            Matrix::new(tensor_map!(attention, 2)),
            Matrix::new(tensor_map!(attention, 3)),
        )
    };
    let mut memory = SharedMemory::new();
    let (output, tile) = (memory.take(OUTPUT), (KEYS * HEAD * 2) as u32);
    let (queries, keys, values) = (memory.ring((QUERIES * HEAD * 2) as u32), memory.ring(tile), memory.ring(tile));
    run(
        Attention {
            q,
            k,
            v,
            o,
            queries,
            keys,
            values,
            length: length as u32,
            group: group as u32,
            scale,
            causal: causal != 0,
        },
        output,
    );
}
