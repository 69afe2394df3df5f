//! Matrix products: cuBLASLt's on a GPU, each shape by the algorithm that was fastest there, the plain kernel in the simulator.

use crate::ladder::operator;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, CublasLt, Gpu, Kernel, LtAlgorithm, LtEpilogue, LtExtra, LtProduct, LtShape};
use gpulab::launch::LaunchConfig;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

/// Algorithms that are timed for each shape.
const TRIED: usize = 16;
/// Calls of each that are timed.
const TIMED: usize = 3;

/// Who multiplies.
#[derive(Debug)]
pub(crate) enum Products {
    /// A kernel of one thread a number: bf16 results, f32 results.
    Plain([Kernel; 2]),
    Library {
        gpu: Gpu,
        library: CublasLt,
        prepared: HashMap<LtShape, LtProduct>,
        /// Algorithms that were chosen before, by a product's name.
        kept: BTreeMap<String, LtAlgorithm>,
    },
}

/// The algorithm of each kind of product, and where they were chosen. A clock has chosen them, so the next start may choose others, whose sums
/// have other last bits: who wants the same bits keeps this as text, and gives it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenAlgorithms {
    /// The GPU's name.
    pub gpu: String,
    /// cuBLASLt's version.
    pub version: usize,
    chosen: BTreeMap<String, LtAlgorithm>,
}

/// GPU, version, then a line for each product: its name, and the algorithm as eight numbers.
impl fmt::Display for ChosenAlgorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.gpu, self.version)?;
        for (name, LtAlgorithm(numbers)) in &self.chosen {
            write!(f, "{name}")?;
            numbers.iter().try_for_each(|number| write!(f, " {number:x}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl FromStr for ChosenAlgorithms {
    type Err = Error;

    fn from_str(text: &str) -> Result<ChosenAlgorithms> {
        let wrong = || {
            let what = "the text is no list of cuBLASLt's algorithms".to_string();
            Error::invalid(what, "leave it out: the algorithms are then timed again")
        };
        let mut lines = text.lines();
        let gpu = lines.next().ok_or_else(wrong)?.to_string();
        let version = lines.next().and_then(|line| line.parse().ok()).ok_or_else(wrong)?;
        let product = |line: &str| {
            let mut words = line.split(' ');
            let name = words.next()?.to_string();
            let numbers = words.map(|word| u64::from_str_radix(word, 16).ok()).collect::<Option<Vec<u64>>>()?;
            Some((name, LtAlgorithm(numbers.try_into().ok()?)))
        };
        let chosen = lines.map(|line| product(line).ok_or_else(wrong)).collect::<Result<_>>()?;
        Ok(ChosenAlgorithms { gpu, version, chosen })
    }
}

/// What tells a kind of product from others, in one word.
fn name_of(shape: &LtShape) -> String {
    let LtShape { rows, columns, terms, a_transposed, b_transposed, f32_result, adds, epilogue, strides } = shape;
    let [a, b] = [a_transposed, b_transposed].map(|turned| if *turned { "t" } else { "n" });
    let to = if *f32_result { "f32" } else { "bf16" };
    let (adds, [x, y, z]) = (if *adds { "+" } else { "" }, strides);
    format!("{rows}x{columns}x{terms}-{a}{b}-{adds}{to}-{epilogue:?}-{x},{y},{z}")
}

/// A part of a flat buffer.
pub(crate) type At<'a> = (&'a Buffer<u16>, usize);

/// What a product is written to.
pub(crate) enum Into<'a> {
    Bf16(&'a mut Buffer<u16>, usize),
    F32 { to: &'a mut Buffer<f32>, at: usize, adds: bool },
}

/// Rows, columns and terms; which of the matrices lie transposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sides {
    pub rows: usize,
    pub columns: usize,
    pub terms: usize,
    pub a_transposed: bool,
    pub b_transposed: bool,
}

impl Sides {
    /// The kind of product that is written there.
    fn shape(self, into: &Into<'_>, epilogue: LtEpilogue, strides: [usize; 3]) -> LtShape {
        let Sides { rows, columns, terms, a_transposed, b_transposed } = self;
        let (f32_result, adds) = match into {
            Into::Bf16(..) => (false, false),
            Into::F32 { adds, .. } => (true, *adds),
        };
        LtShape { rows, columns, terms, a_transposed, b_transposed, f32_result, adds, epilogue, strides }
    }
}

impl Products {
    pub(crate) fn new(gpu: &Gpu, plain: bool) -> Result<Products> {
        if plain {
            let module = gpu.compile(operator("gpt_step/product")?.source()?)?;
            return Ok(Products::Plain([module.kernel("product_bf16")?, module.kernel("product_f32")?]));
        }
        let library = CublasLt::new(gpu)?;
        Ok(Products::Library { gpu: gpu.clone(), library, prepared: HashMap::new(), kept: BTreeMap::new() })
    }

    /// Whether a product to bf16 can have that epilogue.
    pub(crate) fn takes(&self, sides: Sides, epilogue: LtEpilogue) -> bool {
        let Sides { rows, columns, terms, a_transposed, b_transposed } = sides;
        let (f32_result, adds, strides) = (false, false, [0; 3]);
        let shape = LtShape { rows, columns, terms, a_transposed, b_transposed, f32_result, adds, epilogue, strides };
        match self {
            Products::Plain(_) => false,
            Products::Library { library, .. } => library.product(shape, 1).is_ok(),
        }
    }

    /// Queues one; a shape that is new is prepared first: by the algorithm that was kept for it, or else they are timed.
    pub(crate) fn multiply(
        &mut self,
        sides: Sides,
        a: At<'_>,
        b: At<'_>,
        into: Into<'_>,
        epilogue: LtEpilogue,
        extra: LtExtra<'_>,
    ) -> Result<()> {
        self.multiply_by(sides.shape(&into, epilogue, [0; 3]), a, b, into, extra)
    }

    /// The same of matrices that are parts of wider ones: so far are their rows apart, 0 where there are no gaps.
    pub(crate) fn multiply_within(
        &mut self,
        sides: Sides,
        strides: [usize; 3],
        a: At<'_>,
        b: At<'_>,
        into: Into<'_>,
    ) -> Result<()> {
        self.multiply_by(sides.shape(&into, LtEpilogue::None, strides), a, b, into, LtExtra::default())
    }

    fn multiply_by(
        &mut self,
        shape: LtShape,
        a: At<'_>,
        b: At<'_>,
        mut into: Into<'_>,
        mut extra: LtExtra<'_>,
    ) -> Result<()> {
        match self {
            Products::Plain([bf16, f32]) => {
                let config = LaunchConfig {
                    grid: (shape.columns.div_ceil(128) as u32, shape.rows as u32, 1),
                    block: (128, 1, 1),
                    shared_bytes: 0,
                };
                let [columns, terms, a_at, b_at] = [shape.columns, shape.terms, a.1, b.1].map(|number| number as i32);
                let [turned_a, turned_b, adds] = [shape.a_transposed, shape.b_transposed, shape.adds].map(i32::from);
                let [a_row, b_row, c_row] = shape.row_strides().map(|stride| stride as i32);
                let (a, b) = (a.0, b.0);
                match into {
                    Into::Bf16(to, at) => {
                        let at = at as i32;
                        bf16.launch(
                            config,
                            (a, b, to, a_at, b_at, at, columns, terms, turned_a, turned_b, a_row, b_row, c_row),
                        )
                    }
                    Into::F32 { to, at, .. } => {
                        let at = at as i32;
                        f32.launch(
                            config,
                            (a, b, to, a_at, b_at, at, columns, terms, turned_a, turned_b, a_row, b_row, c_row, adds),
                        )
                    }
                }
            }
            Products::Library { gpu, library, prepared, kept } => {
                let product = match prepared.entry(shape) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let mut product = library.product(shape, TRIED)?;
                        match kept.get(&name_of(&shape)) {
                            Some(algorithm) => product.adopt(*algorithm)?,
                            None => fastest(gpu, &mut product, a, &[b], &mut into, &mut extra)?,
                        }
                        new.insert(product)
                    }
                };
                queue(product, a, b, &mut into, &mut extra)
            }
        }
    }

    /// The algorithms that are in use; nothing where there is no choice.
    pub(crate) fn chosen(&self) -> Option<ChosenAlgorithms> {
        let Products::Library { gpu, library, prepared, kept } = self else { return None };
        let mut chosen = kept.clone();
        chosen.extend(prepared.iter().map(|(shape, product)| (name_of(shape), product.algorithm())));
        Some(ChosenAlgorithms { gpu: gpu.name().to_string(), version: library.version(), chosen })
    }

    /// Takes algorithms that were chosen before in place of timing them.
    pub(crate) fn keep(&mut self, given: &ChosenAlgorithms) -> Result<()> {
        let Products::Library { gpu, library, prepared, kept } = self else { return Ok(()) };
        let (name, version) = (gpu.name(), library.version());
        if given.gpu != name || given.version != version {
            return Err(Error::invalid(
                format!(
                    "the products' algorithms were chosen on {} with cuBLASLt {}, and this is {name} with {version}",
                    given.gpu, given.version
                ),
                "go on there for the same bits; here they are timed anew, and sums may differ in their last bits",
            ));
        }
        prepared.clear();
        kept.clone_from(&given.chosen);
        Ok(())
    }

    /// Chooses a shape's algorithm with the weights of several layers, one after the other, so that they come from device memory as they do in a
    /// step. The result holds anything afterwards.
    pub(crate) fn choose(&mut self, sides: Sides, a: At<'_>, layers: &[At<'_>], mut into: Into<'_>) -> Result<()> {
        let Products::Library { gpu, library, prepared, .. } = self else { return Ok(()) };
        let shape = sides.shape(&into, LtEpilogue::None, [0; 3]);
        if let Entry::Vacant(new) = prepared.entry(shape) {
            let mut product = library.product(shape, TRIED)?;
            fastest(gpu, &mut product, a, layers, &mut into, &mut LtExtra::default())?;
            new.insert(product);
        }
        Ok(())
    }

    /// What was chosen for each shape, in words.
    pub(crate) fn choices(&self) -> Vec<String> {
        match self {
            Products::Plain(_) => Vec::new(),
            Products::Library { prepared, .. } => prepared.values().map(|product| format!("{product:?}")).collect(),
        }
    }
}

fn queue(product: &mut LtProduct, a: At<'_>, b: At<'_>, into: &mut Into<'_>, extra: &mut LtExtra<'_>) -> Result<()> {
    let extra = LtExtra { bias: extra.bias, before_gelu: extra.before_gelu.as_deref_mut(), gelu_of: extra.gelu_of };
    match into {
        Into::Bf16(to, at) => product.queue(a, b, (&mut **to, *at), extra),
        Into::F32 { to, at, .. } => product.queue(a, b, (&mut **to, *at), extra),
    }
}

/// Times each algorithm on the very arrays, and chooses the fastest. Some that the library proposes fail: they are passed over.
fn fastest(
    gpu: &Gpu,
    product: &mut LtProduct,
    a: At<'_>,
    layers: &[At<'_>],
    into: &mut Into<'_>,
    extra: &mut LtExtra<'_>,
) -> Result<()> {
    let mut best = (f64::INFINITY, 0);
    for algorithm in 0..product.algorithms() {
        product.choose(algorithm);
        let mut calls =
            |count: usize| (0..count).try_for_each(|call| queue(product, a, layers[call % layers.len()], into, extra));
        if calls(1).is_err() {
            continue;
        }
        let start = gpu.event()?;
        calls(layers.len().max(TIMED))?;
        let ms = gpu.event()?.ms_since(&start)?;
        if ms < best.0 {
            best = (ms, algorithm);
        }
    }
    product.choose(best.1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_algorithms_are_the_same_behind_their_text() {
        let numbers = [0, 1, u64::MAX, 3, 4, 0x0102_0304_0506_0708, 6, 7];
        let shape = LtShape {
            rows: 3,
            columns: 8,
            terms: 16,
            a_transposed: true,
            b_transposed: false,
            f32_result: true,
            adds: true,
            epilogue: LtEpilogue::None,
            strides: [0, 24, 8],
        };
        let chosen = BTreeMap::from([
            (name_of(&shape), LtAlgorithm(numbers)),
            (name_of(&LtShape { adds: false, ..shape }), LtAlgorithm([9; 8])),
        ]);
        assert_eq!(chosen.len(), 2);
        let all = ChosenAlgorithms { gpu: "NVIDIA H200".to_string(), version: 130_100, chosen };
        assert_eq!(all.to_string().parse::<ChosenAlgorithms>().unwrap(), all);
        for damaged in
            ["", "NVIDIA H200\nx\n", "NVIDIA H200\n1\nname 1 2 3\n", "NVIDIA H200\n1\nname 1 2 3 4 5 6 7 x\n"]
        {
            assert!(damaged.parse::<ChosenAlgorithms>().unwrap_err().to_string().contains("\nnext: "), "{damaged}");
        }
    }
}
