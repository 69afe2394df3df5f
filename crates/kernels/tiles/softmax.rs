// y = softmax of each row of x, in bf16: a block for each row, which its threads hold in registers.
use gpulab_device::*;

launch_bounds!(softmax, 1024);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn softmax(x: *const Bf16, y: *mut Bf16, _rows: i32, columns: i32) {
    // SAFETY: the launch passes a row for each block.
    let (x, mut y) = unsafe { (Rows::new(x, columns), Rows::new(y, columns)) };
    let x = x.load::<VECTORS>(f32::NEG_INFINITY);
    let most = x.max();
    let e = x.map(|x| ((x - most) * core::f32::consts::LOG2_E).exp2_fast());
    let part = 1.0 / e.sum();
    y.store(e.map(|e| e * part));
}
