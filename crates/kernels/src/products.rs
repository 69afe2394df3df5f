//! Matrix products: cuBLASLt's on a GPU, each shape by the algorithm that was fastest there, the plain kernel in the simulator.

use crate::ladder::operator;
use gpulab::error::Result;
use gpulab::gpu::{Buffer, CublasLt, Gpu, Kernel, LtEpilogue, LtExtra, LtProduct, LtShape};
use gpulab::launch::LaunchConfig;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

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
    },
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
    fn shape(self, into: &Into<'_>, epilogue: LtEpilogue) -> LtShape {
        let Sides { rows, columns, terms, a_transposed, b_transposed } = self;
        let (f32_result, adds) = match into {
            Into::Bf16(..) => (false, false),
            Into::F32 { adds, .. } => (true, *adds),
        };
        LtShape { rows, columns, terms, a_transposed, b_transposed, f32_result, adds, epilogue }
    }
}

impl Products {
    pub(crate) fn new(gpu: &Gpu, plain: bool) -> Result<Products> {
        if plain {
            let module = gpu.compile(operator("gpt_step/product")?.source()?)?;
            return Ok(Products::Plain([module.kernel("product_bf16")?, module.kernel("product_f32")?]));
        }
        let library = CublasLt::new(gpu)?;
        Ok(Products::Library { gpu: gpu.clone(), library, prepared: HashMap::new() })
    }

    /// Whether a product to bf16 can have that epilogue.
    pub(crate) fn takes(&self, sides: Sides, epilogue: LtEpilogue) -> bool {
        let Sides { rows, columns, terms, a_transposed, b_transposed } = sides;
        let shape =
            LtShape { rows, columns, terms, a_transposed, b_transposed, f32_result: false, adds: false, epilogue };
        match self {
            Products::Plain(_) => false,
            Products::Library { library, .. } => library.product(shape, 1).is_ok(),
        }
    }

    /// Queues one; a shape that is new is prepared first, and its algorithms are timed.
    pub(crate) fn multiply(
        &mut self,
        sides: Sides,
        a: At<'_>,
        b: At<'_>,
        into: Into<'_>,
        epilogue: LtEpilogue,
        extra: LtExtra<'_>,
    ) -> Result<()> {
        let Sides { rows, columns, terms, a_transposed, b_transposed } = sides;
        match self {
            Products::Plain([bf16, f32]) => {
                let config = LaunchConfig {
                    grid: (columns.div_ceil(128) as u32, rows as u32, 1),
                    block: (128, 1, 1),
                    shared_bytes: 0,
                };
                let [rows, columns, terms] = [rows, columns, terms].map(|side| side as i32);
                let (turned_a, turned_b) = (i32::from(a_transposed), i32::from(b_transposed));
                let (a_at, b_at) = (a.1 as i32, b.1 as i32);
                match into {
                    Into::Bf16(to, at) => {
                        let places = (a_at, b_at, at as i32);
                        bf16.launch(
                            config,
                            (a.0, b.0, to, places.0, places.1, places.2, rows, columns, terms, turned_a, turned_b),
                        )
                    }
                    Into::F32 { to, at, adds } => f32.launch(
                        config,
                        (
                            a.0,
                            b.0,
                            to,
                            a_at,
                            b_at,
                            at as i32,
                            rows,
                            columns,
                            terms,
                            turned_a,
                            turned_b,
                            i32::from(adds),
                        ),
                    ),
                }
            }
            Products::Library { gpu, library, prepared } => {
                let shape = sides.shape(&into, epilogue);
                let mut extra = extra;
                let mut into = into;
                let product = match prepared.entry(shape) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let mut product = library.product(shape, TRIED)?;
                        fastest(gpu, &mut product, a, &[b], &mut into, &mut extra)?;
                        new.insert(product)
                    }
                };
                queue(product, a, b, &mut into, &mut extra)
            }
        }
    }

    /// Chooses a shape's algorithm with the weights of several layers, one after the other, so that they come from device memory as they do in a
    /// step. The result holds anything afterwards.
    pub(crate) fn choose(&mut self, sides: Sides, a: At<'_>, layers: &[At<'_>], mut into: Into<'_>) -> Result<()> {
        let Products::Library { gpu, library, prepared } = self else { return Ok(()) };
        let shape = sides.shape(&into, LtEpilogue::None);
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
