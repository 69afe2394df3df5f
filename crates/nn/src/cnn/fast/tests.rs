use super::*;

// Against the definition, in f64.

/// Layer 1 and 2 before ReLU, and the pooled numbers, of one image: [channel][row][column].
fn reference(image: &[f32], layers: Layers) -> [Vec<f64>; 3] {
    let conv = |x: &[f64], inputs: usize, side: usize, w: &[f32], bias: &[f32]| -> Vec<f64> {
        let mut out = Vec::new();
        for (output, bias) in bias.iter().enumerate() {
            for at in 0..side * side {
                let (y, x_at) = (at / side, at % side);
                let mut sum = f64::from(*bias);
                for input in 0..inputs {
                    for tap in 0..9 {
                        let (row, column) = (y + tap / 3, x_at + tap % 3);
                        let pixel = x[(input * (side + 2) + row) * (side + 2) + column];
                        sum += pixel * f64::from(w[(output * inputs + input) * 9 + tap]);
                    }
                }
                out.push(sum);
            }
        }
        out
    };
    let relu = |x: &[f64]| -> Vec<f64> { x.iter().map(|x| x.max(0.0)).collect() };
    let image: Vec<f64> = image.iter().map(|&x| f64::from(x)).collect();
    let one = conv(&image, 1, SIDE_1, layers.weight_1, layers.bias_1);
    let two = conv(&relu(&one), CHANNELS_1, SIDE_2, layers.weight_2, layers.bias_2);
    let at = |channel: usize, y: usize, x: usize| two[(channel * SIDE_2 + y) * SIDE_2 + x].max(0.0);
    let pooled = (0..LEN_POOLED).map(|n| {
        let (channel, y, x) = (n / 144, n / 12 % 12 * 2, n % 12 * 2);
        at(channel, y, x).max(at(channel, y, x + 1)).max(at(channel, y + 1, x)).max(at(channel, y + 1, x + 1))
    });
    let pooled = pooled.collect();
    [one, two, pooled]
}

fn numbers(n: usize, seed: u64, scale: f32) -> Vec<f32> {
    gpulab::cpu::random_f32(n, seed).into_iter().map(|x| x * scale).collect()
}

struct Example {
    images: Vec<f32>,
    arrays: [Vec<f32>; 4],
}

impl Example {
    fn new(count: usize) -> Example {
        let arrays = [numbers(288, 1, 0.3), numbers(32, 2, 0.1), numbers(18432, 3, 0.06), numbers(64, 4, 0.1)];
        Example { images: numbers(count * LEN_0, 5, 1.0), arrays }
    }

    fn layers(&self) -> Layers<'_> {
        let [weight_1, bias_1, weight_2, bias_2] = &self.arrays;
        Layers { weight_1, bias_1, weight_2, bias_2 }
    }
}

#[test]
fn pooled_numbers_are_those_of_the_definition() {
    let example = Example::new(1);
    let (pooled, _) = forward(&example.images, example.layers());
    for image in 0..1 {
        let exact = &reference(&example.images[image * LEN_0..][..LEN_0], example.layers())[2];
        for (at, exact) in exact.iter().enumerate() {
            let found = f64::from(pooled[image * LEN_POOLED + at]);
            assert!((found - exact).abs() <= 2e-5, "image {image}, {at}: {found} instead of {exact}");
        }
    }
}

#[test]
fn gradients_are_those_of_the_definition() {
    // More images than a group has, and no whole number of groups.
    let count = GROUP + 1;
    let example = Example::new(count);
    let layers = example.layers();
    let (_, kept) = forward(&example.images, layers);
    // Most of it is zero, so that the definition is soon worked out.
    let mut gradient = numbers(count * LEN_POOLED, 6, 1.0);
    gradient.iter_mut().enumerate().filter(|(at, _)| at % 23 > 0).for_each(|(_, number)| *number = 0.0);
    let found = backward(&example.images, layers, &kept, &gradient);
    let mut exact = [vec![0f64; 288], vec![0f64; 32], vec![0f64; 18432], vec![0f64; 64]];
    for image in 0..count {
        let pixels = &example.images[image * LEN_0..][..LEN_0];
        let [one, two, _] = reference(pixels, layers);
        let mut one_gradient = vec![0f64; one.len()];
        for n in 0..LEN_POOLED {
            let g = f64::from(gradient[image * LEN_POOLED + n]);
            if g == 0.0 {
                continue;
            }
            let (channel, y, x) = (n / 144, n / 12 % 12 * 2, n % 12 * 2);
            let four = [(y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1)];
            let value = |&(y, x): &(usize, usize)| two[(channel * SIDE_2 + y) * SIDE_2 + x];
            let &(y, x) = four.iter().max_by(|a, b| value(a).total_cmp(&value(b))).unwrap();
            if value(&(y, x)) <= 0.0 {
                continue;
            }
            exact[3][channel] += g;
            for input in 0..32 {
                for tap in 0..9 {
                    let at = (input * 26 + y + tap / 3) * 26 + x + tap % 3;
                    exact[2][(channel * 32 + input) * 9 + tap] += g * one[at].max(0.0);
                    if one[at] > 0.0 {
                        one_gradient[at] += g * f64::from(layers.weight_2[(channel * 32 + input) * 9 + tap]);
                    }
                }
            }
        }
        for (at, g) in one_gradient.iter().enumerate() {
            let (channel, y, x) = (at / 676, at / 26 % 26, at % 26);
            exact[1][channel] += g;
            for tap in 0..9 {
                let pixel = pixels[(y + tap / 3) * 28 + x + tap % 3];
                exact[0][channel * 9 + tap] += g * f64::from(pixel);
            }
        }
    }
    for (which, (found, exact)) in found.iter().zip(&exact).enumerate() {
        let scale = exact.iter().fold(0f64, |largest, x| largest.max(x.abs()));
        for (at, (found, exact)) in found.iter().zip(exact).enumerate() {
            let error = (f64::from(*found) - exact).abs();
            assert!(error <= 1e-5 * scale, "{which}, {at}: {found} instead of {exact}");
        }
    }
}
