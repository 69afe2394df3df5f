// c (m × n) = a (m × k) · b (k × n) in bf16, with sums in f32.
use gpulab_device::*;

#[derive(Clone, Copy)]
struct Product {
    a: Matrix<TILE_M, TILE_K>,
    b: Matrix<TILE_K, TILE_N>,
    c: Matrix<64, 64>,
    sides: [u32; 3],
    ring: Ring<{ STAGES as u32 }>,
}

impl Program for Product {
    #[inline(always)]
    fn run<R: Role>(mut self, on: &mut R) {
        let [m, n, k] = self.sides;
        for (row, column) in tiles::<TILE_M, TILE_N, BAND>(m, n) {
            let mut sum = Sum::<[f32; TILE_N / 2]>::zeros();
            for step in 0..k.div_ceil(TILE_K as u32) {
                let mut stage = on.next(&mut self.ring);
                let a = on.load(&mut stage, self.a, row, step * TILE_K as u32);
                let b = on.load(&mut stage, self.b, step * TILE_K as u32, column);
                on.dot(&mut sum, a, b, stage);
            }
            on.store(self.c, row, column, sum);
        }
    }
}

launch_bounds!(matmul, 128 * (GROUPS + 1), 1);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn matmul(_a: CuTensorMap, _b: CuTensorMap, _c: CuTensorMap, m: i32, n: i32, k: i32) {
    // SAFETY: the launch describes matrices of these shapes, and each tile is one block's.
    let (a, b, c) = unsafe {
        (Matrix::new(tensor_map!(matmul, 0)), Matrix::new(tensor_map!(matmul, 1)), Matrix::new(tensor_map!(matmul, 2)))
    };
    let mut memory = SharedMemory::new();
    let output = memory.take(OUTPUT);
    let ring = memory.ring((TILE_K * (TILE_M + TILE_N) * 2) as u32);
    run(Product { a, b, c, sides: [m, n, k].map(|side| side as u32), ring }, output);
}
