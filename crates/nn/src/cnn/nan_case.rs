//! A step whose loss is finite and whose gradients are not, for an exercise: what a watch on every operator says about it.

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Shape, Tensor, Var};
use gpulab::cpu::random_f32;
use gpulab::error::Result;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// Operator, pass, and the images with a number that is not finite.
type Seen = Arc<Mutex<Vec<(&'static str, &'static str, Vec<usize>)>>>;

const FORWARD: &str = "result";
const BACKWARD: &str = "gradient that arrives";

/// Images of the batch, and numbers of each.
const IMAGES: usize = 8;
const WIDTH: usize = 4;

/// A copy that notes which images have a number that is not finite, in either pass.
struct Watch(&'static str, Seen);

impl Watch {
    fn note(&self, pass: &'static str, numbers: &[f32]) {
        let rows = numbers.chunks(numbers.len() / IMAGES).enumerate();
        let wrong = rows.filter(|(_, row)| row.iter().any(|x| !x.is_finite())).map(|(at, _)| at).collect();
        self.1.lock().expect("no holder panics").push((self.0, pass, wrong));
    }
}

impl CustomOp1 for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn cpu_fwd(&self, x: &CpuStorage, at: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        self.note(FORWARD, x.as_slice::<f32>()?);
        Ok((x.clone(), at.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        self.note(BACKWARD, &gradient.flatten_all()?.to_vec1::<f32>()?);
        Ok(Some(gradient.clone()))
    }
}

/// The step's operators in the order in which they ran forward, and of each how many images have a result, or a gradient that
/// arrives, that is not finite.
///
/// # Errors
/// candle's error, which there is none of.
pub fn nan_case() -> Result<String> {
    let seen = run()?;
    let mut text =
        String::from("operator, result / gradient that arrives: images (of 8) with a number that is not finite\n");
    for (name, _, forward) in seen.iter().filter(|(_, pass, _)| *pass == FORWARD) {
        let backward = seen.iter().find(|(other, pass, _)| other == name && *pass == BACKWARD);
        let list = |images: &[usize]| match images {
            [] => "none".to_string(),
            images => images.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let backward = backward.map_or("none".to_string(), |(_, _, images)| list(images));
        let _ = writeln!(text, "{name:>12}: {} / {backward}", list(forward));
    }
    Ok(text.trim_end().to_string())
}

fn run() -> Result<Vec<(&'static str, &'static str, Vec<usize>)>> {
    let device = Device::Cpu;
    let seen = Seen::default();
    let watch = |name, x: Tensor| x.contiguous()?.apply_op1(Watch(name, seen.clone()));
    let mut images = random_f32(IMAGES * WIDTH, 5);
    // Image 6 is so faint that the square of its length is 0 in f32, and its length is not.
    images[6 * WIDTH..7 * WIDTH].iter_mut().for_each(|x| *x = 1e-25 * (1.0 + x.abs()));
    let x = Tensor::from_vec(images, (IMAGES, WIDTH), &device)?;
    let weight =
        Var::from_vec(vec![1f32, 0.5, 0., 0., 0., 1., 0.5, 0., 0., 0., 1., 0.5, 0.5, 0., 0., 1.], (4, 4), &device)?;
    let h = watch("linear", x.matmul(&weight)?)?;
    let length = watch("length", h.abs()?.sum_keepdim(1)?)?;
    let divided = watch("division", h.broadcast_div(&length)?)?;
    let exponential = watch("exponential", divided.exp()?)?;
    let sum = watch("sum", exponential.sum_keepdim(1)?)?;
    let logarithm = watch("logarithm", sum.log()?)?;
    (logarithm - divided.narrow(1, 0, 1)?)?.mean_all()?.backward()?;
    let seen = seen.lock().expect("no holder panics");
    Ok(seen.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_division_made_it_of_image_6_and_the_forward_pass_is_clean() {
        let seen = run().unwrap();
        let of = |name: &str, pass: &str| {
            seen.iter().find(|(other, of, _)| *other == name && *of == pass).map(|(_, _, images)| images.clone())
        };
        for name in ["linear", "length", "division", "exponential", "sum", "logarithm"] {
            assert_eq!(of(name, FORWARD), Some(vec![]), "{name}");
            let expected = if ["linear", "length"].contains(&name) { vec![6] } else { vec![] };
            assert_eq!(of(name, BACKWARD), Some(expected), "{name}");
        }
        let text = nan_case().unwrap();
        assert!(text.contains("length: none / 6") && text.contains("division: none / none"), "{text}");
    }
}
