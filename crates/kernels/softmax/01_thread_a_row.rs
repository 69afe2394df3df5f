// idea: one thread takes one row: its largest number, then the sum of exp(x - largest), then every quotient.
use gpulab_device::*;

/// exp(x) is 2 to the power of x · log2(e), which the hardware computes.
fn exp(x: f32) -> f32 {
    (x * core::f32::consts::LOG2_E).exp2_approx()
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn softmax(x: *const Bf16, y: *mut Bf16, rows: i32, columns: i32) {
    let (rows, columns) = (rows as usize, columns as usize);
    // SAFETY: the launch has one dimension and passes two tables of that shape.
    let (x, mut y) = unsafe { (Slice::new(x, rows * columns), DisjointSlice::new(y, rows * columns)) };
    let row = index_1d().get();
    if row >= rows {
        return;
    }
    let own = row * columns..(row + 1) * columns;
    // Below every bf16, and finite: exp(-infinity - f32::MIN) is 0, where -infinity - -infinity were no number.
    let mut most = f32::MIN;
    for i in own.clone() {
        most = most.max(x[i].to_f32());
    }
    // Without `most`, exp of a number above 88 is infinite. With it the largest number adds exp(0) = 1.
    let mut sum = 0.0;
    for i in own.clone() {
        sum += exp(x[i].to_f32() - most);
    }
    let scale = 1.0 / sum;
    for i in own {
        // SAFETY: of this thread's own row.
        unsafe { *y.own_at(i) = Bf16::from_f32(exp(x[i].to_f32() - most) * scale) };
    }
}
