//! Requests as they come: Poisson arrivals, and lengths drawn at random.

use super::random::Random;

/// How many tokens a text has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lengths {
    /// Always as many.
    Fixed(usize),
    /// Each number from the first to the second equally often.
    Uniform(usize, usize),
    /// Exponential with that mean, rounded up: many short ones, few long ones; none longer than the second number.
    Exponential(usize, usize),
}

impl Lengths {
    fn draw(self, random: &mut Random) -> usize {
        match self {
            Lengths::Fixed(length) => length,
            Lengths::Uniform(least, most) => least + (random.unit() * (most - least + 1) as f64) as usize,
            Lengths::Exponential(mean, most) => (random.exponential(mean as f64).ceil() as usize).clamp(1, most),
        }
    }
}

/// Requests of independent clients: the time from one to the next is exponential, so that their number in a second is Poisson's.
///
/// ```
/// use gpulab_serve::{Lengths, Load};
/// let load = Load { rate: 5.0, requests: 1000, ..Load::default() };
/// let arrivals = load.arrivals();
/// let mean = arrivals.last().expect("a thousand").at_s / 1000.0;
/// assert!((mean - 0.2).abs() < 0.02, "{mean}");
/// assert_eq!(arrivals, load.arrivals()); // the same seed, the same requests
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Requests a second.
    pub rate: f64,
    /// How many come.
    pub requests: usize,
    /// Tokens of a prompt.
    pub prompt: Lengths,
    /// Tokens of an answer, which only the model knows.
    pub answer: Lengths,
    /// Tokens at the beginning that all prompts have in common, as from one system prompt.
    pub shared: usize,
    /// What all of it follows from.
    pub seed: u64,
}

impl Default for Load {
    fn default() -> Load {
        let (prompt, answer) = (Lengths::Fixed(128), Lengths::Fixed(64));
        Load { rate: 1.0, requests: 100, prompt, answer, shared: 0, seed: 1 }
    }
}

/// One request of a [`Load`].
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// Seconds from the beginning.
    pub at_s: f64,
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// Tokens after which the model ends its answer.
    pub answer: usize,
}

impl Load {
    /// The requests, in the order in which they come.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let mut random = Random::new(self.seed);
        let mut at_s = 0.0;
        let mut arrival = |_| {
            at_s += random.exponential(1.0 / self.rate);
            let length = self.prompt.draw(&mut random).max(1);
            let own = |at: usize, random: &mut Random| match at < self.shared {
                true => at as u32,
                false => (random.bits() >> 33) as u32,
            };
            let prompt = (0..length).map(|at| own(at, &mut random)).collect();
            Arrival { at_s, prompt, answer: self.answer.draw(&mut random).max(1) }
        };
        (0..self.requests).map(&mut arrival).collect()
    }
}
