//! Products with weights in Q4_1 and Q8_0 on the CPU: whole numbers of 8 bits times whole numbers, with what the CPU has for that.
//!
//! candle has such instructions for GGUF's k-quants, whose rows are multiples of 256; for these two kinds it has a plain loop. The
//! arithmetic here is candle's (and ggml's): 32 inputs share a scale, are rounded to 8 bits, and the scale to f16; a block's
//! products are summed up exactly, and the blocks' sums in f32.

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{CpuStorage, CustomOp1, Layout, Module, Result, Shape, Tensor, bail};
use half::f16;
use rayon::prelude::*;
use std::sync::Arc;

/// Weights in a block.
const BLOCK: usize = 32;
/// Weights that a core takes at a time: enough that handing them out costs nothing.
const SHARE: usize = 1 << 16;

/// Which instructions multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    /// AVX-512's VNNI: 32 products and their sums in one instruction.
    Vnni,
    /// AVX2: three instructions for the same.
    Avx2,
    /// What the compiler makes of a plain loop.
    Plain,
}

impl Instructions {
    /// The best that this CPU has.
    pub fn best() -> Instructions {
        #[cfg(target_arch = "x86_64")]
        {
            let all =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            if all && is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl") {
                return Instructions::Vnni;
            }
            if all {
                return Instructions::Avx2;
            }
        }
        Instructions::Plain
    }
}

/// x · weightᵀ for a matrix in Q4_1 or Q8_0 on the CPU.
#[derive(Debug, Clone)]
pub(super) struct BlockProduct {
    weight: Arc<QTensor>,
    instructions: Instructions,
}

impl BlockProduct {
    /// For a weight of these kinds on the CPU; `None` for others.
    pub fn of(weight: &Arc<QTensor>) -> Option<BlockProduct> {
        BlockProduct::with(weight, Instructions::best())
    }

    pub fn with(weight: &Arc<QTensor>, instructions: Instructions) -> Option<BlockProduct> {
        let known = matches!(weight.dtype(), GgmlDType::Q4_1 | GgmlDType::Q8_0);
        let whole = weight.shape().dims().last().is_some_and(|inputs| inputs.is_multiple_of(BLOCK));
        (known && whole && weight.device().is_cpu()).then(|| BlockProduct { weight: weight.clone(), instructions })
    }
}

/// x · weightᵀ, `[rows, inputs]` to `[rows, outputs]` in f32: with our product for Q4_1 and Q8_0 on the CPU, with candle's for all else.
///
/// # Errors
/// What candle says, when the shapes do not fit above all.
pub fn quantized_product(weight: &Arc<QTensor>, x: &Tensor) -> gpulab::error::Result<Tensor> {
    Ok(match BlockProduct::of(weight) {
        Some(product) => x.contiguous()?.apply_op1_no_bwd(&product)?,
        None => QMatMul::from_arc(weight.clone())?.forward(&x.contiguous()?)?,
    })
}

/// A row of inputs, rounded to 8 bits by blocks.
struct Inputs {
    codes: Vec<i8>,
    /// Of each block: its scale, and the scale times the sum of its codes.
    scales: Vec<(f32, f32)>,
}

impl Inputs {
    fn of(row: &[f32]) -> Inputs {
        let mut inputs = Inputs { codes: Vec::with_capacity(row.len()), scales: Vec::with_capacity(row.len() / BLOCK) };
        for block in row.chunks(BLOCK) {
            let most = block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let scale = most / 127.0;
            let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
            inputs.codes.extend(block.iter().map(|x| (x * inverse).round() as i8));
            let sum: i32 = inputs.codes[inputs.codes.len() - BLOCK..].iter().map(|code| i32::from(*code)).sum();
            // A NaN among the inputs must not become a 0.
            let scale = f16::from_f32(if block.iter().any(|x| x.is_nan()) { f32::NAN } else { scale });
            inputs.scales.push((scale.to_f32(), (f16::from_f32(sum as f32) * scale).to_f32()));
        }
        inputs
    }
}

impl CustomOp1 for BlockProduct {
    fn name(&self) -> &'static str {
        "block-product"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (outputs, inputs) = self.weight.shape().dims2()?;
        let Some((start, end)) = layout.contiguous_offsets() else {
            bail!("the inputs of a product are not contiguous")
        };
        let x = &storage.as_slice::<f32>()?[start..end];
        let mut dims = layout.dims().to_vec();
        match dims.last_mut() {
            Some(last) if *last == inputs => *last = outputs,
            _ => bail!("inputs of {:?} for a matrix of {inputs} columns", layout.dims()),
        }
        let bytes = self.weight.data()?;
        let row_bytes = inputs / BLOCK * self.weight.dtype().type_size();
        let rows: Vec<Inputs> = x.par_chunks(inputs).map(Inputs::of).collect();
        let dot = self.dot();
        // Output by output: a row of weights is read once for all texts. The result lies the other way round, and is turned.
        let mut turned = vec![0.0; outputs * rows.len()];
        let at_a_time = (SHARE / inputs).max(1);
        turned.par_chunks_mut(rows.len()).zip(bytes.par_chunks(row_bytes)).with_min_len(at_a_time).for_each(
            |(results, weights)| {
                for (result, inputs) in results.iter_mut().zip(&rows) {
                    *result = dot(weights, inputs);
                }
            },
        );
        if rows.len() == 1 {
            return Ok((CpuStorage::F32(turned), dims.into()));
        }
        let mut y = vec![0.0; turned.len()];
        y.par_chunks_mut(outputs).enumerate().for_each(|(row, own)| {
            own.iter_mut().enumerate().for_each(|(output, y)| *y = turned[output * rows.len() + row]);
        });
        Ok((CpuStorage::F32(y), dims.into()))
    }
}

type Dot = fn(&[u8], &Inputs) -> f32;
/// The weights of a block, the inputs' codes beside it, and their scale and sum.
type Block<'a> = ((&'a [u8], &'a [i8]), &'a (f32, f32));

impl BlockProduct {
    fn dot(&self) -> Dot {
        let four = self.weight.dtype() == GgmlDType::Q4_1;
        #[cfg(target_arch = "x86_64")]
        match (self.instructions, four) {
            // SAFETY: `Instructions::best` has asked the CPU, and tests ask before they name any.
            (Instructions::Vnni, true) => return |w, x| unsafe { x86::dot_q4_1_vnni(w, x) },
            // SAFETY: as above.
            (Instructions::Vnni, false) => return |w, x| unsafe { x86::dot_q8_0_vnni(w, x) },
            // SAFETY: as above.
            (Instructions::Avx2, true) => return |w, x| unsafe { x86::dot_q4_1_avx2(w, x) },
            // SAFETY: as above.
            (Instructions::Avx2, false) => return |w, x| unsafe { x86::dot_q8_0_avx2(w, x) },
            (Instructions::Plain, _) => (),
        }
        if four { dot_q4_1 } else { dot_q8_0 }
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// A block of Q4_1: scale and least value in f16, then 16 bytes: the lower halves are weights 0 to 15, the upper ones 16 to 31.
fn dot_q4_1(weights: &[u8], inputs: &Inputs) -> f32 {
    let blocks = weights.chunks_exact(20).zip(inputs.codes.chunks_exact(BLOCK)).zip(&inputs.scales);
    let one = |((block, x), (scale, sum)): Block| {
        let mut whole = 0;
        for (i, byte) in block[4..].iter().enumerate() {
            whole += i32::from(byte & 15) * i32::from(x[i]) + i32::from(byte >> 4) * i32::from(x[i + 16]);
        }
        whole as f32 * half_at(block, 0) * scale + half_at(block, 2) * sum
    };
    blocks.map(one).sum()
}

/// A block of Q8_0: scale in f16, then 32 whole numbers.
fn dot_q8_0(weights: &[u8], inputs: &Inputs) -> f32 {
    let blocks = weights.chunks_exact(34).zip(inputs.codes.chunks_exact(BLOCK)).zip(&inputs.scales);
    let one = |((block, x), (scale, _)): Block| {
        let whole: i32 = block[2..].iter().zip(x).map(|(w, x)| i32::from(*w as i8) * i32::from(*x)).sum();
        whole as f32 * half_at(block, 0) * scale
    };
    blocks.map(one).sum()
}

/// The same with AVX2 and AVX-512's VNNI. A register holds the 32 codes of a block.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, Inputs};
    use std::arch::x86_64::*;

    /// Both halves of 16 bytes, as 32 bytes from 0 to 15.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn unpacked(bytes: __m128i) -> __m256i {
        _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes), _mm256_set1_epi8(15))
    }

    /// Products of bytes without and with a sign, summed up by fours.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products_avx2(positive: __m256i, signed: __m256i) -> __m256i {
        // Two products fit into 16 bits: 2 · 127 · 127 < 2¹⁵.
        _mm256_madd_epi16(_mm256_maddubs_epi16(positive, signed), _mm256_set1_epi16(1))
    }

    #[inline]
    #[target_feature(enable = "avx2,avx512vnni,avx512vl")]
    fn products_vnni(positive: __m256i, signed: __m256i) -> __m256i {
        _mm256_dpbusd_epi32(_mm256_setzero_si256(), positive, signed)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn summed(x: __m256) -> f32 {
        let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }

    /// Two f16 in 4 bytes, as f32.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn halves(bytes: &[u8]) -> (f32, f32) {
        let both = _mm_cvtph_ps(_mm_cvtsi32_si128(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])));
        (_mm_cvtss_f32(both), _mm_cvtss_f32(_mm_movehdup_ps(both)))
    }

    macro_rules! dots {
        ($q4_1:ident, $q8_0:ident, $products:ident, $features:literal) => {
            #[target_feature(enable = $features)]
            pub fn $q4_1(weights: &[u8], inputs: &Inputs) -> f32 {
                let (mut sums, mut least) = (_mm256_setzero_ps(), 0.0);
                let blocks = weights.chunks_exact(20).zip(inputs.codes.chunks_exact(BLOCK)).zip(&inputs.scales);
                for ((block, x), (scale, sum)) in blocks {
                    // SAFETY: the chunks have 4 + 16 and 32 bytes; neither load asks for an alignment.
                    let (w, x) = unsafe {
                        (_mm_loadu_si128(block.as_ptr().add(4).cast()), _mm256_loadu_si256(x.as_ptr().cast()))
                    };
                    let (d, m) = halves(block);
                    let whole = _mm256_cvtepi32_ps($products(unpacked(w), x));
                    sums = _mm256_fmadd_ps(whole, _mm256_set1_ps(d * scale), sums);
                    least += m * sum;
                }
                summed(sums) + least
            }

            #[target_feature(enable = $features)]
            pub fn $q8_0(weights: &[u8], inputs: &Inputs) -> f32 {
                let mut sums = _mm256_setzero_ps();
                let blocks = weights.chunks_exact(34).zip(inputs.codes.chunks_exact(BLOCK)).zip(&inputs.scales);
                for ((block, x), (scale, _)) in blocks {
                    // SAFETY: the chunks have 2 + 32 and 32 bytes; neither load asks for an alignment.
                    let (w, x) = unsafe {
                        (_mm256_loadu_si256(block.as_ptr().add(2).cast()), _mm256_loadu_si256(x.as_ptr().cast()))
                    };
                    // One side has to be positive: the weights' signs go over to the inputs.
                    let whole = _mm256_cvtepi32_ps($products(_mm256_sign_epi8(w, w), _mm256_sign_epi8(x, w)));
                    sums = _mm256_fmadd_ps(whole, _mm256_set1_ps(halves(block).0 * scale), sums);
                }
                summed(sums)
            }
        };
    }

    dots!(dot_q4_1_avx2, dot_q8_0_avx2, products_avx2, "avx2,fma,f16c");
    dots!(dot_q4_1_vnni, dot_q8_0_vnni, products_vnni, "avx2,fma,f16c,avx512vnni,avx512vl");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::SplitMix64;
    use candle_core::Device;

    fn random(count: usize, seed: u64) -> Vec<f32> {
        let mut random = SplitMix64::new(seed);
        (0..count).map(|_| random.unit() as f32 * 2.0 - 1.0).collect()
    }

    /// All that this CPU has.
    fn every() -> Vec<Instructions> {
        match Instructions::best() {
            Instructions::Vnni => vec![Instructions::Vnni, Instructions::Avx2, Instructions::Plain],
            Instructions::Avx2 => vec![Instructions::Avx2, Instructions::Plain],
            Instructions::Plain => vec![Instructions::Plain],
        }
    }

    #[test]
    fn every_instruction_gives_candles_product_and_that_of_f64() {
        for kind in [GgmlDType::Q4_1, GgmlDType::Q8_0] {
            for (rows, outputs, inputs) in [(1, 1, 64), (1, 37, 576), (3, 130, 128), (17, 5, 192)] {
                let weight = Tensor::from_vec(random(outputs * inputs, 1), (outputs, inputs), &Device::Cpu).unwrap();
                let weight = Arc::new(QTensor::quantize(&weight, kind).unwrap());
                let x = Tensor::from_vec(random(rows * inputs, 2), (rows, inputs), &Device::Cpu).unwrap();
                let candle = QMatMul::from_arc(weight.clone()).unwrap().forward(&x).unwrap().to_vec2::<f32>().unwrap();
                let exact = x.matmul(&weight.dequantize(&Device::Cpu).unwrap().t().unwrap()).unwrap();
                let exact = exact.to_vec2::<f32>().unwrap();
                for instructions in every() {
                    let op = BlockProduct::with(&weight, instructions).unwrap();
                    let own = x.apply_op1_no_bwd(&op).unwrap().to_vec2::<f32>().unwrap();
                    for row in 0..rows {
                        for output in 0..outputs {
                            let (own, candle) = (own[row][output], candle[row][output]);
                            assert!((own - candle).abs() < 1e-3, "{kind:?} {instructions:?} {own} {candle}");
                            // Inputs of up to 1 in 8 bits: each is off by at most 1/254, and the f16 scale by 1/2048.
                            let bound = inputs as f32 * (1.0 / 254.0 + 1.0 / 2048.0);
                            assert!((own - exact[row][output]).abs() < bound);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn by_hand() {
        // Weights 0 to 15 twice are Q4_1's codes themselves (scale 1, least 0); inputs of 127 have the scale 1.
        let weights: Vec<f32> = (0..32).map(|i| (i % 16) as f32).collect();
        let weight = Tensor::from_vec(weights, (1, 32), &Device::Cpu).unwrap();
        let weight = Arc::new(QTensor::quantize(&weight, GgmlDType::Q4_1).unwrap());
        let mut x = vec![0.0_f32; 32];
        (x[3], x[20], x[31]) = (127.0, -2.0, 1.0);
        let x = Tensor::from_vec(x, (1, 1, 32), &Device::Cpu).unwrap();
        for instructions in every() {
            let op = BlockProduct::with(&weight, instructions).unwrap();
            let y = x.apply_op1_no_bwd(&op).unwrap();
            assert_eq!((y.dims(), y.flatten_all().unwrap().to_vec1::<f32>().unwrap()[0]), (&[1, 1, 1][..], 388.0));
        }
    }

    #[test]
    fn nan_stays_nan_and_other_kinds_are_left_to_candle() {
        let weight = Tensor::from_vec(random(256, 3), (1, 256), &Device::Cpu).unwrap();
        let of = |kind| Arc::new(QTensor::quantize(&weight, kind).unwrap());
        let mut x = random(256, 4);
        x[77] = f32::NAN;
        let x = Tensor::from_vec(x, (1, 256), &Device::Cpu).unwrap();
        for kind in [GgmlDType::Q4_1, GgmlDType::Q8_0] {
            let y = x.apply_op1_no_bwd(&BlockProduct::of(&of(kind)).unwrap()).unwrap();
            assert!(y.to_vec2::<f32>().unwrap()[0][0].is_nan());
            assert!(x.narrow(1, 0, 32).unwrap().apply_op1_no_bwd(&BlockProduct::of(&of(kind)).unwrap()).is_err());
        }
        assert!(BlockProduct::of(&of(GgmlDType::Q4K)).is_none());
    }
}
