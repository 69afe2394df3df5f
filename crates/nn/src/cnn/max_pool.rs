//! Max-pool of 2 × 2 windows with a backward pass that sends each gradient to one number: the first of the largest.
//!
//! Not candle's `max_pool2d`, whose backward pass divides by four where one of the four is the largest (candle 0.11.1), and
//! not `max`, which gives each of several equal ones the whole gradient: on an even background all four are equal.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

/// The largest of each 2 × 2 of `x` [B, C, H, W] with even H and W: [B, C, H/2, W/2]. On the CPU and in f32 it is one operator;
/// elsewhere it is made of candle's `argmax` and `gather`, with the same gradient.
///
/// # Errors
/// candle's error for another shape.
pub fn max_pool2(x: &Tensor) -> Result<Tensor> {
    let (count, channels, high, wide) = x.dims4()?;
    if high % 2 != 0 || wide % 2 != 0 {
        bail!("max-pool of 2 × 2 windows needs even sides, and these are {high} × {wide}");
    }
    if x.device().is_cpu() && x.dtype() == candle_core::DType::F32 {
        return x.contiguous()?.apply_op1(MaxPool2);
    }
    let fours = x.reshape((count, channels, high / 2, 2, wide / 2, 2))?.permute((0, 1, 2, 4, 3, 5))?;
    let fours = fours.contiguous()?.flatten_from(4)?;
    fours.gather(&fours.argmax_keepdim(4)?, 4)?.squeeze(4)
}

struct MaxPool2;

/// Where the four numbers of window `at` of a channel lie, whose rows have `wide` numbers.
fn window(at: usize, wide: usize) -> [usize; 4] {
    let first = at / (wide / 2) * 2 * wide + at % (wide / 2) * 2;
    [first, first + 1, first + wide, first + wide + 1]
}

/// Of four places the one with the largest number; of several that are equal the first.
fn largest(x: &[f32], places: [usize; 4]) -> usize {
    places.into_iter().reduce(|best, at| if x[at] > x[best] { at } else { best }).expect("four")
}

impl CustomOp1 for MaxPool2 {
    fn name(&self) -> &'static str {
        "max-pool 2"
    }

    fn cpu_fwd(&self, x: &CpuStorage, at: &Layout) -> Result<(CpuStorage, Shape)> {
        let (count, channels, high, wide) = at.shape().dims4()?;
        let Some((start, end)) = at.contiguous_offsets() else { bail!("a contiguous tensor is needed") };
        let x = &x.as_slice::<f32>()?[start..end];
        let mut pooled = vec![0f32; x.len() / 4];
        pooled.par_chunks_mut(high * wide / 4).zip(x.par_chunks(high * wide)).for_each(|(pooled, x)| {
            pooled.iter_mut().enumerate().for_each(|(at, pooled)| *pooled = x[largest(x, window(at, wide))]);
        });
        Ok((CpuStorage::F32(pooled), (count, channels, high / 2, wide / 2).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let (_, _, high, wide) = x.dims4()?;
        let (numbers, gradients) = (x.flatten_all()?.to_vec1::<f32>()?, gradient.flatten_all()?.to_vec1::<f32>()?);
        let mut to_x = vec![0f32; numbers.len()];
        let channels = to_x.par_chunks_mut(high * wide).zip(numbers.par_chunks(high * wide));
        channels.zip(gradients.par_chunks(high * wide / 4)).for_each(|((to_x, x), gradients)| {
            gradients.iter().enumerate().for_each(|(at, gradient)| to_x[largest(x, window(at, wide))] = *gradient);
        });
        Tensor::from_vec(to_x, x.shape(), x.device()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Var};

    /// The gradient of Σ weight · pooled, by x.
    fn gradient(pool: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor, weight: &Tensor) -> Vec<f32> {
        let x = Var::from_tensor(x).unwrap();
        let sum = (pool(&x).unwrap() * weight).unwrap().sum_all().unwrap();
        sum.backward().unwrap().get(&x).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn each_gradient_goes_to_the_first_of_the_largest() {
        let numbers = [1f32, 5., 2., 2., 3., 4., 2., 2., 0., 0., -1., -2., 7., 0., -3., -1.];
        let x = Tensor::from_slice(&numbers, (1, 1, 4, 4), &Device::Cpu).unwrap();
        let weight = Tensor::from_slice(&[10f32, 20., 30., 40.], (1, 1, 2, 2), &Device::Cpu).unwrap();
        let pooled = max_pool2(&x).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(pooled, [5., 2., 7., -1.]);
        let expected = [0., 10., 20., 0., 0., 0., 0., 0., 0., 0., 40., 0., 30., 0., 0., 0.];
        assert_eq!(gradient(max_pool2, &x, &weight), expected);
        // What it is made of where it is not one operator: the same in f64.
        let whole = |x: &Tensor| max_pool2(&x.to_dtype(DType::F64)?)?.to_dtype(DType::F32);
        assert_eq!(gradient(whole, &x, &weight), expected);
        assert!(max_pool2(&Tensor::zeros((1, 1, 3, 4), DType::F32, &Device::Cpu).unwrap()).is_err());
    }

    #[test]
    fn candles_own_gradient_is_a_quarter_of_it() {
        // When a later candle no longer does so, this file and lesson 20a can say so.
        let x = Tensor::from_slice(&[1f32, 2., 3., 4.], (1, 1, 2, 2), &Device::Cpu).unwrap();
        let weight = Tensor::ones((1, 1, 1, 1), DType::F32, &Device::Cpu).unwrap();
        assert_eq!(gradient(|x| x.max_pool2d(2), &x, &weight), [0., 0., 0., 0.25]);
        assert_eq!(gradient(max_pool2, &x, &weight), [0., 0., 0., 1.]);
    }
}
