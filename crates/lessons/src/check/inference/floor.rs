//! The exercise `token_floor`.

use crate::check::Verdict;
use crate::check::panics::{PANIC_HINT, run};
use gpulab::measurement::figures;

/// One step of decoding: a token more for each text of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decode {
    /// Numbers in the model.
    pub parameters: usize,
    /// Its blocks, each with keys and values of its own.
    pub layers: usize,
    /// Numbers in a key, and in a value, over all heads.
    pub width: usize,
    /// Texts in the batch.
    pub texts: usize,
    /// Tokens of each text that are in the cache.
    pub context: usize,
    /// Bytes that a number takes.
    pub bytes: usize,
    /// What memory delivers, in 10⁹ bytes a second.
    pub gb_per_s: f64,
}

/// Checks a function that gives the least time of a step, in milliseconds: each parameter and the whole cache must come from memory once.
pub fn token_floor(answer: fn(Decode) -> f64) -> Verdict {
    const NAME: &str = "token_floor";
    let gpt2 =
        Decode { parameters: 124_439_808, layers: 12, width: 768, texts: 1, context: 512, bytes: 2, gb_per_s: 4200.0 };
    let cases = [
        gpt2,
        Decode { context: 0, bytes: 4, gb_per_s: 20.0, ..gpt2 },
        Decode { texts: 64, context: 1024, ..gpt2 },
        Decode { parameters: 851_968, layers: 4, width: 128, context: 256, bytes: 4, gb_per_s: 10.0, texts: 16 },
    ];
    for case in cases {
        let given = match run(|| answer(case)) {
            Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
            Ok(given) => given,
        };
        let wanted = floor(case);
        let right = (given / wanted - 1.0).abs() <= 1e-6;
        if !right {
            let what = format!("{case:?}\nyou give {} ms, and {} ms is right", figures(given), figures(wanted));
            return Verdict::not_yet(NAME, what, hint(case, given, wanted));
        }
    }
    Verdict::pass(NAME)
}

/// Numbers of the cache: a key and a value for each token, layer and text.
fn cache(case: Decode) -> f64 {
    (2 * case.layers * case.width * case.context * case.texts) as f64
}

fn time(case: Decode, numbers: f64) -> f64 {
    numbers * case.bytes as f64 / (case.gb_per_s * 1e6)
}

fn floor(case: Decode) -> f64 {
    time(case, case.parameters as f64 + cache(case))
}

/// Which mistake gives such a time.
fn hint(case: Decode, given: f64, wanted: f64) -> &'static str {
    let (parameters, cache, texts) = (case.parameters as f64, cache(case), case.texts as f64);
    let is = |numbers: f64| (given / time(case, numbers) - 1.0).abs() < 1e-6;
    let off = |factor: f64| (given / wanted / factor - 1.0).abs() < 1e-6;
    if !given.is_finite() || given <= 0.0 {
        "return a positive time: bytes ÷ bytes a second"
    } else if off(1e-3) || off(1e3) || off(1e6) || off(1e-6) {
        "the number of bytes is right, the unit is not: GB/s are 10⁹ bytes a second, and the answer is in milliseconds"
    } else if off(1.0 / case.bytes as f64) {
        "memory moves bytes, and you count numbers: each takes `bytes` of them"
    } else if is(parameters) {
        "the cache is read as well: a key and a value, of `width` numbers each, for each token of the context, in each layer"
    } else if is(parameters + cache / 2.0) {
        "the cache holds a key and a value for each token: twice `width` numbers"
    } else if is(parameters + cache / case.layers as f64) {
        "each layer has keys and values of its own"
    } else if is(parameters + cache / texts) {
        "each text of the batch has a cache of its own; only the parameters are shared"
    } else if is((parameters + cache / texts) * texts) {
        "the parameters are read once for the whole batch: that is why a batch pays. Only the cache grows with the texts"
    } else {
        "add what must be read, in bytes: all parameters once, and 2 · layers · width · context numbers for each text"
    }
}
