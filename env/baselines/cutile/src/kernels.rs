//! Softmax, a matrix product and attention in cuTile, in bf16 with sums in f32. The tile sizes are powers of two; sizes need not be
//! multiples of them.

#[cutile::module]
pub mod tiles {
    use cutile::core::*;

    /// y = softmax of each row of x: WIDTH is the next power of two of the columns, ROWS rows are one block's.
    #[cutile::entry()]
    pub fn softmax<const ROWS: i32, const WIDTH: i32>(
        y: &mut Tensor<bf16, { [ROWS, WIDTH] }>,
        x: &Tensor<bf16, { [-1, -1] }>,
    ) {
        let columns: i32 = get_shape_dim(x.shape(), 1i32);
        let x: Tile<bf16, { [ROWS, WIDTH] }> = x.load_like(y);
        let x: Tile<f32, { [ROWS, WIDTH] }> = convert_tile(x);
        // Beyond the last column a load gives 0: no part of the sum.
        let column: Tile<i32, { [WIDTH] }> = iota(shape![WIDTH]);
        let column: Tile<i32, { [ROWS, WIDTH] }> = column.reshape(shape![1, WIDTH]).broadcast(shape![ROWS, WIDTH]);
        let hidden: Tile<f32, { [ROWS, WIDTH] }> = constant(f32::NEG_INFINITY, shape![ROWS, WIDTH]);
        let x = select(lt_tile(column, columns.broadcast(shape![ROWS, WIDTH])), x, hidden);
        let most: Tile<f32, { [ROWS] }> = reduce_max(x, 1i32);
        let e: Tile<f32, { [ROWS, WIDTH] }> = exp(x - most.reshape(shape![ROWS, 1]).broadcast(shape![ROWS, WIDTH]));
        let total: Tile<f32, { [ROWS] }> = reduce_sum(e, 1i32);
        let part: Tile<f32, { [ROWS, WIDTH] }> = e / total.reshape(shape![ROWS, 1]).broadcast(shape![ROWS, WIDTH]);
        let part: Tile<bf16, { [ROWS, WIDTH] }> = convert_tile(part);
        y.store(part);
    }

    /// c = a · b: the blocks walk over c's tiles in groups of MAP, each from tile to tile.
    #[cutile::entry()]
    pub fn matmul<const M: i32, const N: i32, const K: i32, const MAP: [i32; 2]>(
        mut c: MappedPartitionMut<bf16, { [M, N] }, MAP>,
        a: &Tensor<bf16, { [-1, -1] }>,
        b: &Tensor<bf16, { [-1, -1] }>,
    ) {
        let a = a.partition(shape![M, K]);
        let b = b.partition(shape![K, N]);
        for tile in c.iter_indices() {
            let (row, column) = tile.components();
            let mut sum: Tile<f32, { [M, N] }> = constant(0.0f32, shape![M, N]);
            for step in 0i32..num_tiles(&a, 1) {
                sum = mma(a.load([row, step]), b.load([step, column]), sum);
            }
            let sum: Tile<bf16, { [M, N] }> = convert_tile(sum);
            c.store(sum, tile);
        }
    }

    /// o = softmax(q · kᵀ · scale) · v for each head; with CAUSAL a query sees no key behind it. `scale` includes log₂ e.
    #[cutile::entry()]
    pub fn attention<const QUERIES: i32, const KEYS: i32, const HEAD: i32, const CAUSAL: i32, const MAP: [i32; 3]>(
        mut o: MappedPartitionMut<bf16, { [1, QUERIES, HEAD] }, MAP>,
        q: &Tensor<bf16, { [-1, -1, HEAD] }>,
        k: &Tensor<bf16, { [-1, -1, HEAD] }>,
        v: &Tensor<bf16, { [-1, -1, HEAD] }>,
        scale: f32,
    ) {
        let length: i32 = get_shape_dim(k.shape(), 1i32);
        let q = q.partition(shape![1, QUERIES, HEAD]);
        let k = k.partition(shape![1, KEYS, HEAD]);
        let v = v.partition(shape![1, KEYS, HEAD]);
        let scales: Tile<f32, { [QUERIES, KEYS] }> = scale.broadcast(shape![QUERIES, KEYS]);
        let row_scales: Tile<f32, { [QUERIES, 1] }> = scale.broadcast(shape![QUERIES, 1]);
        let hidden: Tile<f32, { [QUERIES, KEYS] }> = constant(f32::NEG_INFINITY, shape![QUERIES, KEYS]);
        let key: Tile<i32, { [KEYS] }> = iota(shape![KEYS]);
        let key: Tile<i32, { [QUERIES, KEYS] }> = key.reshape(shape![1, KEYS]).broadcast(shape![QUERIES, KEYS]);
        let query: Tile<i32, { [QUERIES] }> = iota(shape![QUERIES]);
        let query: Tile<i32, { [QUERIES, KEYS] }> = query.reshape(shape![QUERIES, 1]).broadcast(shape![QUERIES, KEYS]);
        let lengths: Tile<i32, { [QUERIES, KEYS] }> = length.broadcast(shape![QUERIES, KEYS]);

        for tile in o.iter_indices() {
            let (head, block, _) = tile.components();
            let first: i32 = block * QUERIES;
            let own: Tile<bf16, { [QUERIES, HEAD] }> = q.load([head, block, 0i32]).reshape(shape![QUERIES, HEAD]);
            // Below every score, and finite: −∞ less than that is −∞, where −∞ − −∞ would be no number.
            let mut most: Tile<f32, { [QUERIES, 1] }> = constant(-3.0e38f32, shape![QUERIES, 1]);
            let mut total: Tile<f32, { [QUERIES, 1] }> = constant(0.0f32, shape![QUERIES, 1]);
            let mut sum: Tile<f32, { [QUERIES, HEAD] }> = constant(0.0f32, shape![QUERIES, HEAD]);
            // Tiles of keys that all of these queries see, then those of which they see a part.
            let mut whole: i32 = length / KEYS;
            let mut end: i32 = ceil_div(length, KEYS);
            if CAUSAL == 1i32 {
                whole = min(whole, first / KEYS);
                end = min(end, ceil_div(first + QUERIES, KEYS));
            }
            for step in 0i32..end {
                let keys: Tile<bf16, { [KEYS, HEAD] }> = k.load([head, step, 0i32]).reshape(shape![KEYS, HEAD]);
                let zeros: Tile<f32, { [QUERIES, KEYS] }> = constant(0.0f32, shape![QUERIES, KEYS]);
                let mut scores: Tile<f32, { [QUERIES, KEYS] }> = mma(own, keys.transpose(), zeros);
                if step >= whole {
                    let at: Tile<i32, { [QUERIES, KEYS] }> = (step * KEYS).broadcast(shape![QUERIES, KEYS]) + key;
                    let mut seen: Tile<bool, { [QUERIES, KEYS] }> = lt_tile(at, lengths);
                    if CAUSAL == 1i32 {
                        seen = seen & ge_tile(first.broadcast(shape![QUERIES, KEYS]) + query, at);
                    }
                    scores = select(seen, scores, hidden);
                }
                let largest: Tile<f32, { [QUERIES] }> = reduce_max(scores, 1i32);
                let largest: Tile<f32, { [QUERIES, 1] }> =
                    max_tile(most, largest.reshape(shape![QUERIES, 1]) * row_scales);
                let shifted = scores * scales - largest.broadcast(shape![QUERIES, KEYS]);
                let p: Tile<f32, { [QUERIES, KEYS] }> = exp2(shifted, ftz::Enabled);
                let factor: Tile<f32, { [QUERIES, 1] }> = exp2(most - largest, ftz::Enabled);
                let part: Tile<f32, { [QUERIES] }> = reduce_sum(p, 1i32);
                total = total * factor + part.reshape(shape![QUERIES, 1]);
                let p: Tile<bf16, { [QUERIES, KEYS] }> = convert_tile(p);
                let values: Tile<bf16, { [KEYS, HEAD] }> = v.load([head, step, 0i32]).reshape(shape![KEYS, HEAD]);
                sum = mma(p, values, sum * factor.broadcast(shape![QUERIES, HEAD]));
                most = largest;
            }
            let sum: Tile<f32, { [QUERIES, HEAD] }> = sum / total.broadcast(shape![QUERIES, HEAD]);
            let sum: Tile<bf16, { [QUERIES, HEAD] }> = convert_tile(sum);
            o.store(sum.reshape(shape![1, QUERIES, HEAD]), tile);
        }
    }
}
