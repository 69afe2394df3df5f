//! A network that is small enough to train on any machine, and made of equal blocks, as a transformer is: each block is its MLP, with a
//! residual. Weights are bf16 and of one array a block, sums are f32; no candle, so that a notebook builds it in seconds. It computes for
//! long, so it stands here and not with the lessons' checks, which a notebook's build does not optimise.

use crate::BFloat16;

/// The network's shape. A block computes `x + W2ᵀ relu(W1 x + b1) + b2`; its array holds W1 (`hidden` rows of `width`), b1, W2 (`hidden`
/// rows of `width`), b2.
///
/// # Examples
/// ```
/// use gpulab_ranks::BFloat16;
/// use gpulab_ranks::blocks::MlpBlocks;
/// let net = MlpBlocks { width: 8, hidden: 32, count: 2 };
/// let weights = BFloat16::round(&net.random(1)[0]);
/// let examples = net.examples(0..3);
/// let (y, saved) = net.forward(&weights, &examples.x);
/// let (loss, d) = examples.loss(&y);
/// let (dx, gradient) = net.backward(&weights, &saved, &d);
/// assert_eq!((y.len(), dx.len(), gradient.len()), (3 * 8, 3 * 8, net.numbers()));
/// assert!(loss > 0.0 && saved.bytes() == 3 * (8 + 32) * 4);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MlpBlocks {
    /// Numbers of an example between two blocks.
    pub width: usize,
    /// Numbers of an example inside of a block.
    pub hidden: usize,
    /// How many blocks.
    pub count: usize,
}

/// What the backward pass of a block needs of its forward pass: its activations, in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    x: Vec<f32>,
    h: Vec<f32>,
}

impl Saved {
    /// Bytes of the activations.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.x[..]) + size_of_val(&self.h[..])
    }
}

/// ExampleBatch: what goes in, and what should come out, `width` numbers of each.
#[derive(Debug, Clone, PartialEq)]
pub struct ExampleBatch {
    /// What goes in.
    pub x: Vec<f32>,
    /// What should come out.
    pub target: Vec<f32>,
    width: usize,
}

impl ExampleBatch {
    /// The mean squared error over all examples, and its gradient by `y`.
    ///
    /// # Panics
    /// Where `y` is not as long as the targets.
    pub fn loss(&self, y: &[f32]) -> (f32, Vec<f32>) {
        assert_eq!(y.len(), self.target.len(), "as many outputs as targets\nnext: give the last block's output");
        let scale = 1.0 / y.len() as f32;
        let off: Vec<f32> = y.iter().zip(&self.target).map(|(y, target)| y - target).collect();
        let loss = scale * off.iter().map(|off| off * off).sum::<f32>();
        (loss, off.into_iter().map(|off| 2.0 * scale * off).collect())
    }

    /// How many examples there are.
    pub fn len(&self) -> usize {
        self.x.len() / self.width
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }
}

/// A number from −1 to 1 that looks random: the same for the same two numbers, on every machine.
fn noise(seed: u64, at: usize) -> f32 {
    let mut z = (seed << 40).wrapping_add(at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// The sum of products, in eight sums side by side, so that the compiler uses vector instructions: one order on every machine.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

fn add_scaled(sums: &mut [f32], x: &[f32], by: f32) {
    sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += by * x);
}

impl MlpBlocks {
    /// Parameters of one block.
    pub fn numbers(&self) -> usize {
        2 * self.width * self.hidden + self.hidden + self.width
    }

    /// First weights, an array for each block.
    pub fn random(&self, seed: u64) -> Vec<Vec<f32>> {
        let (matrix, scale) = (self.width * self.hidden, (1.0 / self.width as f32).sqrt());
        let biases = [matrix..matrix + self.hidden, self.numbers() - self.width..self.numbers()];
        let number = |block: usize, at: usize| match biases.iter().any(|bias| bias.contains(&at)) {
            true => 0.0,
            false => scale * noise(seed, block * self.numbers() + at),
        };
        // The second matrix begins small, so that a block begins as almost nothing beside its residual.
        let small = |at: usize| if at > matrix + self.hidden { 0.2 } else { 1.0 };
        (0..self.count).map(|block| (0..self.numbers()).map(|at| small(at) * number(block, at)).collect()).collect()
    }

    /// These examples of an endless list: eight numbers, over and over, of which a smooth function is to be learned.
    pub fn examples(&self, which: std::ops::Range<usize>) -> ExampleBatch {
        let all = which.flat_map(|one| (0..self.width).map(move |at| noise(7, one * 8 + at % 8)));
        let x: Vec<f32> = all.collect();
        let target = |one: &[f32]| -> Vec<f32> {
            (0..one.len()).map(|at| (2.0 * one[at] + one[(at + 1) % one.len()]).sin()).collect()
        };
        let target = x.chunks(self.width).flat_map(target).collect();
        ExampleBatch { x, target, width: self.width }
    }

    /// W1, b1, W2 and b2 as f32. What lies behind them, such as padding, is passed over.
    fn parts(&self, weights: &[BFloat16]) -> [Vec<f32>; 4] {
        let matrix = self.width * self.hidden;
        assert!(
            weights.len() >= self.numbers(),
            "{} weights, and a block has {}\nnext: gather the parts of all ranks first",
            weights.len(),
            self.numbers()
        );
        let mut from = 0;
        [matrix, self.hidden, matrix, self.width].map(|len| {
            from += len;
            weights[from - len..from].iter().map(|x| x.to_f32()).collect()
        })
    }

    /// A block without its residual: what it adds to `x`, and what its backward pass needs.
    ///
    /// # Panics
    /// With fewer weights than a block has; more are padding.
    pub fn branch(&self, weights: &[BFloat16], x: &[f32]) -> (Vec<f32>, Saved) {
        let [w1, b1, w2, b2] = self.parts(weights);
        let (mut y, mut h) = (Vec::with_capacity(x.len()), Vec::new());
        for x in x.chunks(self.width) {
            let mut out = b2.clone();
            for (unit, bias) in b1.iter().enumerate() {
                let row = unit * self.width..(unit + 1) * self.width;
                let active = (dot(&w1[row.clone()], x) + bias).max(0.0);
                add_scaled(&mut out, &w2[row], active);
                h.push(active);
            }
            y.extend(out);
        }
        (y, Saved { x: x.to_vec(), h })
    }

    /// The backward pass of [`MlpBlocks::branch`]: the gradient by `x`, without the residual's, and by the weights, as long as they are.
    ///
    /// # Panics
    /// As [`MlpBlocks::branch`].
    pub fn branch_backward(&self, weights: &[BFloat16], saved: &Saved, d: &[f32]) -> (Vec<f32>, Vec<BFloat16>) {
        let [w1, _, w2, _] = self.parts(weights);
        let mut sums = vec![0.0_f32; weights.len()];
        let (dw1, rest) = sums.split_at_mut(w1.len());
        let (db1, rest) = rest.split_at_mut(self.hidden);
        let (dw2, db2) = rest.split_at_mut(w2.len());
        let mut dx = vec![0.0; d.len()];
        for (at, d) in d.chunks(self.width).enumerate() {
            let of = at * self.width..(at + 1) * self.width;
            let (x, dx) = (&saved.x[of.clone()], &mut dx[of]);
            add_scaled(&mut db2[..self.width], d, 1.0);
            for (unit, db1) in db1.iter_mut().enumerate() {
                let (row, active) = (unit * self.width..(unit + 1) * self.width, saved.h[at * self.hidden + unit]);
                if active > 0.0 {
                    let inner = dot(&w2[row.clone()], d);
                    add_scaled(&mut dw2[row.clone()], d, active);
                    add_scaled(&mut dw1[row.clone()], x, inner);
                    add_scaled(dx, &w1[row], inner);
                    *db1 += inner;
                }
            }
        }
        (dx, BFloat16::round(&sums))
    }

    /// A block: `x` and its branch, and what its backward pass needs.
    ///
    /// # Panics
    /// As [`MlpBlocks::branch`].
    pub fn forward(&self, weights: &[BFloat16], x: &[f32]) -> (Vec<f32>, Saved) {
        let (mut y, saved) = self.branch(weights, x);
        add_scaled(&mut y, x, 1.0);
        (y, saved)
    }

    /// The backward pass of [`MlpBlocks::forward`].
    ///
    /// # Panics
    /// As [`MlpBlocks::branch`].
    pub fn backward(&self, weights: &[BFloat16], saved: &Saved, d: &[f32]) -> (Vec<f32>, Vec<BFloat16>) {
        let (mut dx, gradient) = self.branch_backward(weights, saved, d);
        add_scaled(&mut dx, d, 1.0);
        (dx, gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET: MlpBlocks = MlpBlocks { width: 6, hidden: 20, count: 2 };

    fn loss(weights: &[Vec<BFloat16>], batch: &ExampleBatch) -> f32 {
        let y = weights.iter().fold(batch.x.clone(), |x, block| NET.forward(block, &x).0);
        batch.loss(&y).0
    }

    #[test]
    fn gradients_are_those_of_differences() {
        let mut weights: Vec<Vec<BFloat16>> = NET.random(3).iter().map(|block| BFloat16::round(block)).collect();
        let batch = NET.examples(5..12);
        assert_eq!((batch.len(), batch.is_empty()), (7, false));
        let (mut x, mut saved) = (batch.x.clone(), Vec::new());
        for block in &weights {
            let (y, kept) = NET.forward(block, &x);
            saved.push(kept);
            x = y;
        }
        let mut d = batch.loss(&x).1;
        for block in (0..2).rev() {
            let (dx, gradient) = NET.backward(&weights[block], &saved[block], &d);
            for at in (0..NET.numbers()).step_by(7).chain([NET.numbers() - 1]) {
                // Two neighbours that bf16 holds exactly.
                let (own, step) = (weights[block][at], 1.0 / 64.0);
                let [up, down] = [step, -step].map(|step| {
                    weights[block][at] = BFloat16::from_f32(own.to_f32() + step);
                    (f64::from(weights[block][at].to_f32()), f64::from(loss(&weights, &batch)))
                });
                weights[block][at] = own;
                let (expected, given) = ((up.1 - down.1) / (up.0 - down.0), f64::from(gradient[at].to_f32()));
                assert!((given - expected).abs() < 0.02 * expected.abs() + 2e-3, "{block} {at}: {given} {expected}");
            }
            d = dx;
        }
    }

    #[test]
    fn padding_changes_nothing_and_gets_no_gradient() {
        let weights = BFloat16::round(&NET.random(1)[0]);
        let mut padded = weights.clone();
        padded.extend([BFloat16::from_f32(9.0); 3]);
        let batch = NET.examples(0..4);
        let ((y, saved), other) = (NET.forward(&weights, &batch.x), NET.forward(&padded, &batch.x));
        assert_eq!((&y, &saved), (&other.0, &other.1));
        let d = batch.loss(&y).1;
        let (gradient, more) = (NET.backward(&weights, &saved, &d).1, NET.backward(&padded, &saved, &d).1);
        assert!(gradient == more[..gradient.len()] && more[gradient.len()..] == [BFloat16::default(); 3]);
    }

    #[test]
    #[should_panic(expected = "gather the parts")]
    fn a_part_of_the_weights_is_refused() {
        NET.forward(&[BFloat16::default(); 10], &[0.0; 6]);
    }
}
