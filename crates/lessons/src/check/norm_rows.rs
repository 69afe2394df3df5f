//! What the checks of both fused norms have in common: the rows, the loop over them, and what may cross to the memory. Lessons 14
//! and 90.

use super::kernels::left;
use super::verdict::Check;
use gpulab::cpu;
use gpulab::inspect::Inspection;

/// Rows that are added, and what the norm is scaled with.
pub(super) struct Rows {
    pub x: Vec<f32>,
    pub r: Vec<f32>,
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    pub rows: usize,
    pub columns: usize,
    /// Shape and range, in words.
    pub around: String,
}

/// Calls `run` with rows of each shape: around 0; at `far` from it, so (how wide, where); so small that the epsilon is most of the
/// sum; and nothing but zeros. What the launches with the last shape did goes to `cost`.
pub(super) fn each(
    shapes: &[(usize, usize)],
    far: (f32, f32),
    mut run: impl FnMut(&Rows) -> Check<Inspection>,
    cost: impl Fn(&Inspection) -> Check,
) -> Check {
    for shape in shapes {
        for (scale, shift) in [(1.0, 0.0), far, (1e-3, 0.0), (0.0, 0.0)] {
            let seen = run(&Rows::new(*shape, scale, shift))?;
            if Some(shape) == shapes.last() {
                cost(&seen)?;
            }
        }
    }
    Ok(())
}

impl Rows {
    fn new((rows, columns): (usize, usize), scale: f32, shift: f32) -> Rows {
        let random = |seed| cpu::random_f32(rows * columns, seed).into_iter().map(|x| scale * x + shift).collect();
        let weight = cpu::random_f32(columns, 3).into_iter().map(|w| 1.5 + w).collect();
        let around = format!("{rows} rows of {columns} numbers from {} to {}", shift - scale, shift + scale);
        Rows { x: random(1), r: random(2), weight, bias: cpu::random_f32(columns, 4), rows, columns, around }
    }

    /// What `s` should be.
    pub fn sums(&self) -> Vec<f32> {
        self.x.iter().zip(&self.r).map(|(x, r)| x + r).collect()
    }

    /// An element of `name`, and what the kernel left there.
    pub fn place(&self, name: &str, at: usize, given: f32) -> String {
        format!("{}: `{name}`[{}, {}] {}", self.around, at / self.columns, at % self.columns, left(given))
    }
}

/// What crosses to the memory more often than it has to: `vectors` are read for each row beside x and r, and they are named so.
pub(super) fn traffic(seen: &Inspection, (rows, columns): (usize, usize), vectors: u64, named: &str) -> Option<String> {
    let table = (rows * columns * 4 / 32) as u64;
    let c = &seen.counters;
    let both = [
        ("loads ask for", c.global_load_sectors, (2 + vectors) * table, named),
        ("stores touch", c.global_store_sectors, 2 * table, "s and y"),
    ];
    let (what, sectors, least, of) = both.into_iter().find(|(_, sectors, least, _)| sectors > least)?;
    Some(format!("right, but with {rows} rows of {columns} its {what} {sectors} sectors; {of} lie in {least}"))
}
