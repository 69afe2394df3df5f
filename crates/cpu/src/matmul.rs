//! Matrix multiplication as a good BLAS does it; the kernels are those of the `gemm` crates.

use gemm_common::Parallelism;
use gpulab_measure::Result;
use gpulab_measure::error::same_length;

/// `c = a · b` for square row-major matrices of side `n`, in f32, on all cores: 2n³ operations.
///
/// # Errors
/// [`Error::LengthMismatch`](gpulab_measure::Error::LengthMismatch) when a slice does not hold n² numbers.
pub fn matmul(a: &[f32], b: &[f32], c: &mut [f32], n: usize) -> Result<()> {
    multiply(a, b, c, (n, n, n), Parallelism::Rayon(0))
}

/// The same on one core.
///
/// # Errors
/// As [`matmul`].
pub fn matmul_one_core(a: &[f32], b: &[f32], c: &mut [f32], n: usize) -> Result<()> {
    multiply(a, b, c, (n, n, n), Parallelism::None)
}

/// `c = a · b` for row-major `a` of `m` × `k`, `b` of `k` × `n` and `c` of `m` × `n`, in f32, on all cores.
///
/// # Errors
/// [`Error::LengthMismatch`](gpulab_measure::Error::LengthMismatch) when a slice's length is not rows × columns.
pub fn matmul_shape(a: &[f32], b: &[f32], c: &mut [f32], m: usize, k: usize, n: usize) -> Result<()> {
    multiply(a, b, c, (m, k, n), Parallelism::Rayon(0))
}

/// [`matmul_shape`] on the calling thread: for callers that share out the work themselves.
pub(super) fn matmul_shape_one_core(a: &[f32], b: &[f32], c: &mut [f32], m: usize, k: usize, n: usize) -> Result<()> {
    multiply(a, b, c, (m, k, n), Parallelism::None)
}

type Shape = (usize, usize, usize);

/// A matrix that lies in a slice with any strides: element (r, c) is `numbers[r * row + c * column]`.
#[derive(Clone, Copy)]
pub struct MatrixRef<'a> {
    /// The elements.
    pub numbers: &'a [f32],
    /// Elements between a row and the next.
    pub row: usize,
    /// Elements between a column and the next.
    pub column: usize,
}

impl<'a> MatrixRef<'a> {
    /// Rows of so many numbers one after the other.
    pub fn rows(numbers: &'a [f32], columns: usize) -> MatrixRef<'a> {
        MatrixRef { numbers, row: columns, column: 1 }
    }

    /// The same numbers, rows as columns.
    pub fn turned(self) -> MatrixRef<'a> {
        MatrixRef { row: self.column, column: self.row, ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        (rows - 1) * self.row + (columns - 1) * self.column < self.numbers.len()
    }
}

/// `a · b`, m × k times k × n, row-major, on all cores.
///
/// # Panics
/// When a slice does not hold its matrix, or a side is 0: the callers are of this crate.
pub fn product(a: MatrixRef, b: MatrixRef, (m, k, n): (usize, usize, usize)) -> Vec<f32> {
    assert!(m > 0 && k > 0 && n > 0 && a.holds(m, k) && b.holds(k, n), "{m} × {k} × {n}");
    let mut c = vec![0f32; m * n];
    // SAFETY: the assertion holds both inputs within their slices with these strides; `c` holds m × n numbers.
    unsafe { gemm(a, b, &mut c, (m, k, n), Parallelism::Rayon(0)) };
    c
}

/// # Safety
/// `a` holds m × k numbers, `b` k × n, and `c` m × n; none of the sides is 0.
unsafe fn gemm(a: MatrixRef, b: MatrixRef, c: &mut [f32], (m, k, n): Shape, threads: Parallelism) {
    // The kernels want a column-major output, and row-major c is the transpose of one: cᵀ = bᵀ · aᵀ.
    // SAFETY: the caller's promise; `c` is borrowed mutably, so it overlaps neither input, and nothing of it is read, as
    // `read_dst` is false.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            n,
            m,
            k,
            c.as_mut_ptr(),
            n as isize,
            1,
            false,
            b.numbers.as_ptr(),
            b.row as isize,
            b.column as isize,
            a.numbers.as_ptr(),
            a.row as isize,
            a.column as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            threads,
        );
    }
}

fn multiply(a: &[f32], b: &[f32], c: &mut [f32], (m, k, n): Shape, threads: Parallelism) -> Result<()> {
    // Saturating: a product that overflows is longer than any slice, and must not wrap to a length that fits.
    same_length("matmul's first input", m.saturating_mul(k), a.len())?;
    same_length("matmul's second input", k.saturating_mul(n), b.len())?;
    same_length("matmul's output", m.saturating_mul(n), c.len())?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    if k == 0 {
        c.fill(0.0);
        return Ok(());
    }
    // SAFETY: the slices hold exactly these shapes, row after row.
    unsafe { gemm(MatrixRef::rows(a, k), MatrixRef::rows(b, n), c, (m, k, n), threads) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_f32;

    /// Σ a·b in f64, and Σ |a·b|, which scales the error that f32 may make.
    fn reference(a: &[f32], b: &[f32], (m, k, n): Shape) -> Vec<(f64, f64)> {
        let dot = |row: usize, column: usize| {
            (0..k).fold((0.0, 0.0), |(sum, magnitude), i| {
                let product = f64::from(a[row * k + i]) * f64::from(b[i * n + column]);
                (sum + product, magnitude + product.abs())
            })
        };
        (0..m * n).map(|at| dot(at / n, at % n)).collect()
    }

    fn check(shape: Shape, threads: Parallelism) {
        let (m, k, n) = shape;
        let (a, b) = (random_f32(m * k, 1), random_f32(k * n, 2));
        // Poisoned: an element that is never written stays NaN and fails below.
        let mut c = vec![f32::NAN; m * n];
        multiply(&a, &b, &mut c, shape, threads).unwrap();
        for (at, (exact, magnitude)) in reference(&a, &b, shape).into_iter().enumerate() {
            let tolerance = (k as f64 + 1.0) * 2f64.powi(-24) * magnitude;
            let error = (f64::from(c[at]) - exact).abs();
            // Written as `<=`, which is false for NaN.
            assert!(error <= tolerance, "{m}×{k}×{n}, element {at}: {} instead of {exact}", c[at]);
        }
    }

    #[test]
    fn awkward_shapes_agree_with_f64() {
        let squares = [1, 2, 15, 16, 17, 31, 32, 33, 64, 100].map(|n| (n, n, n));
        let others = [(127, 65, 129), (1, 300, 1), (300, 1, 300), (1, 64, 257), (257, 64, 1), (5, 1000, 3)];
        for shape in squares.into_iter().chain(others) {
            check(shape, Parallelism::Rayon(0));
            check(shape, Parallelism::None);
        }
    }

    #[test]
    fn a_shape_of_nothing_is_fine() {
        let mut c = vec![f32::NAN; 6];
        matmul_shape(&[], &[], &mut c, 2, 0, 3).unwrap();
        assert_eq!(c, [0.0; 6]);
        matmul(&[], &[], &mut [], 0).unwrap();
    }

    #[test]
    fn a_nan_reaches_the_result() {
        let (mut a, b, mut c) = (vec![1.0; 100], vec![1.0; 100], vec![0.0; 100]);
        a[37] = f32::NAN;
        matmul(&a, &b, &mut c, 10).unwrap();
        let is_nan: Vec<bool> = c.iter().map(|v| v.is_nan()).collect();
        assert!((0..100).all(|at| is_nan[at] == (at / 10 == 3)), "{is_nan:?}");
    }

    #[test]
    fn wrong_lengths_are_named() {
        let text = matmul(&[1.0; 9], &[1.0; 9], &mut [0.0; 8], 3).unwrap_err().to_string();
        assert!(text.contains("output: 9 elements expected, 8 given"), "{text}");
        assert!(matmul_one_core(&[1.0; 8], &[1.0; 9], &mut [0.0; 9], 3).is_err());
        assert!(matmul_shape(&[], &[], &mut [], usize::MAX, 2, 0).is_err());
    }
}
