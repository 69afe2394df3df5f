//! Debugging case of lesson 40: texts of a server that are right at first, and later are not. The source stays hidden until it is
//! known which texts.

use super::Verdict;
use super::on_paper::diagnosed;
use super::verdict::{Check, told};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::LaunchConfig;
use std::fmt;

/// Tokens that a slot of the hidden server's cache has room for.
const CAPACITY: usize = 64;
/// Head dimension: a block of one warp has a text.
const WIDTH: usize = 32;
/// What the values of each text are: so a result says whose values it mixes.
const OWN: f32 = 1.0;
const EARLIER: f32 = 5.0;
const NEIGHBOUR: f32 = 100.0;
/// The question: tokens of the earlier and of the present text of a slot.
const ASKED: (f64, f64) = (1200.0, 300.0);

const SOURCE: &str = "extern \"C\" __global__ void decode(const float *q, const float *k, const float *v, const int *length, int *last, float *o, int capacity) {
    // A warp a text. `last`: up to which key the slot is filled, for the loop below.
    int text = blockIdx.x, lane = threadIdx.x;
    int end = max(last[text], length[text]); // a shorter text in the same slot does not lower it
    __syncwarp();
    if (lane == 0) { last[text] = end; }
    float most = __int_as_float(0xff800000), sum = 0.0f, out = 0.0f;
    for (int key = 0; key < end; ++key) {
        int at = (text * capacity + key) * 32 + lane;
        float s = q[text * 32 + lane] * k[at];
        for (int i = 16; i > 0; i /= 2) { s += __shfl_xor_sync(~0u, s, i); }
        float larger = fmaxf(most, s), factor = expf(most - larger), p = expf(s - larger);
        sum = sum * factor + p, out = out * factor + p * v[at], most = larger;
    }
    o[text * 32 + lane] = out / sum;
}";

/// What may be wrong with a server's decoding step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    /// A text attends to keys of another text of the batch.
    NeighboursKeys,
    /// Texts are padded to the longest of the batch, and padding is attended to.
    Padding,
    /// A text attends to keys that an earlier text left in its slot.
    EarlierKeys,
    /// The newest key is appended after attention, in place of before.
    LateAppend,
    /// Sums of many weights lose digits.
    Rounding,
}

/// The result of a step of the hidden server for one text, all of whose values are 1, and for its neighbour, whose values
/// are 100. The text before it in the same slot had values of 5. All keys are alike, so a result is a plain mean.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct ServedText {
    /// Tokens of the text that had the slot before; 0: nobody had it.
    pub earlier: usize,
    /// Tokens of the text.
    pub tokens: usize,
    /// Tokens of the other text of the batch.
    pub neighbour: usize,
    /// Its result.
    pub out: f32,
    /// The neighbour's.
    pub neighbour_out: f32,
}

/// Lets the hidden server serve a text of `earlier` tokens (0: none) in slot 0, then there a text of `tokens`, beside one of
/// `neighbour` tokens in slot 1. In the simulator, which finds no mistake in it.
///
/// # Errors
/// [`Error::Invalid`] for texts of no or more than 64 tokens.
pub fn served_text(earlier: usize, tokens: usize, neighbour: usize) -> Result<ServedText> {
    let fits = |tokens: usize| (1..=CAPACITY).contains(&tokens);
    if earlier > CAPACITY || !fits(tokens) || !fits(neighbour) {
        return Err(Error::invalid(
            format!("texts of {earlier}, {tokens} and {neighbour} tokens"),
            format!("ask for texts of 1 to {CAPACITY} tokens; the earlier one may have 0, so that the slot is new"),
        ));
    }
    let gpu = Gpu::simulated()?;
    let kernel = gpu.compile(SOURCE)?.kernel("decode")?;
    let (q, k) = (gpu.to_device(&[1.0f32; 2 * WIDTH])?, gpu.to_device(&vec![0.0f32; 2 * CAPACITY * WIDTH])?);
    // A new cache holds NaN: whoever attends to a place that no text has filled would show it.
    let mut values = vec![f32::NAN; 2 * CAPACITY * WIDTH];
    let (mut last, mut o) = (gpu.zeros::<i32>(2)?, gpu.poison::<f32>(2 * WIDTH)?);
    values[CAPACITY * WIDTH..(CAPACITY + neighbour) * WIDTH].fill(NEIGHBOUR);
    for (length, value) in [(earlier, EARLIER), (tokens, OWN)] {
        if length == 0 {
            continue;
        }
        values[..length * WIDTH].fill(value);
        let (v, lengths) = (gpu.to_device(&values)?, gpu.to_device(&[length as i32, neighbour as i32])?);
        kernel
            .launch(LaunchConfig::new(2, WIDTH as u32), (&q, &k, &v, &lengths, &mut last, &mut o, CAPACITY as i32))?;
    }
    let o = o.to_host()?;
    Ok(ServedText { earlier, tokens, neighbour, out: o[0], neighbour_out: o[WIDTH] })
}

/// Checks a diagnosis: what is wrong, and how many percent of the attention of a text of 300 tokens go to keys that are not its own
/// where the slot had a text of 1,200 tokens before, and all keys are alike.
pub fn diagnose_serving(diagnosis: Option<(Serving, f64)>) -> Verdict {
    let (earlier, own) = ASKED;
    let right = 100.0 * (earlier - own) / earlier;
    let slips = [
        (100.0 - right, "that is the share of its own keys"),
        (100.0 * earlier / (earlier + own), "where in the slot do the new text's keys go?"),
        (right / 100.0, "in percent, please"),
        (100.0, "some of the keys are its own"),
        (100.0 * earlier / own, "a share is not above 100 %"),
    ];
    let start = "draw the slot: its first 1,200 places after the earlier text, and after 300 tokens of the new one. Which of them are attended to?";
    let none = "ask for texts that differ in one length at a time. On which of the three does the result depend, and from where on?";
    diagnosed("diagnose_serving", diagnosis, none, against, right * 0.995..=right * 1.005, &slips, start)
}

/// The evidence that speaks for an innocent suspect.
fn against(named: Serving) -> Check {
    let what = match named {
        Serving::EarlierKeys => return Ok(()),
        Serving::NeighboursKeys => {
            let [short, long] = [served_text(24, 8, 1)?, served_text(24, 8, 64)?];
            format!(
                "beside a neighbour of 1 token the result is {}, beside one of 64 it is {}: a neighbour's 100s would show",
                short.out, long.out
            )
        }
        Serving::Padding => {
            let alone = served_text(0, 8, 64)?;
            format!("in a new slot, beside a text of 64 tokens, the result of a text of 8 is {}", alone.out)
        }
        Serving::LateAppend => {
            let one = served_text(0, 1, 1)?;
            format!("a text of one token in a new slot gives {}: it has seen its own value", one.out)
        }
        Serving::Rounding => {
            let [new, used] = [served_text(0, 8, 1)?, served_text(64, 8, 1)?];
            format!(
                "8 equal values of 1 give {} in one slot and {} in another: digits are lost by millionths",
                new.out, used.out
            )
        }
    };
    told(
        what,
        "vary one of the three lengths at a time: with which of them does the result change, and from where on?",
        "the result mixes values: whose value, of the three texts', gives a mean like that?",
    )
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_serving(diagnosis: Option<(Serving, f64)>) -> &'static str {
    diagnose_serving(diagnosis).reveals(SOURCE)
}

impl ServedText {
    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        print!("EVCXR_BEGIN_CONTENT text/plain\n{self}\nEVCXR_END_CONTENT\n");
    }
}

impl fmt::Display for ServedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |tokens: usize| if tokens == 1 { "1 token".to_string() } else { format!("{tokens} tokens") };
        let slot = match self.earlier {
            0 => "in a new slot".to_string(),
            tokens => format!("in the slot of a text of {} that has ended", text(tokens)),
        };
        write!(
            f,
            "{} {slot}, beside {}: result {:.3} (its values: {OWN}), the neighbour's {:.3} ({NEIGHBOUR})",
            text(self.tokens),
            text(self.neighbour),
            self.out,
            self.neighbour_out
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_text_leaves_its_keys() {
        for (earlier, tokens, out) in [(0, 8, 1.0), (8, 8, 1.0), (5, 64, 1.0), (24, 8, (8.0 + 16.0 * 5.0) / 24.0)] {
            let seen = served_text(earlier, tokens, 3).unwrap();
            assert!((seen.out - out).abs() < 1e-5 && (seen.neighbour_out - 100.0).abs() < 1e-3, "{seen}");
        }
        assert!(served_text(65, 1, 1).is_err() && served_text(0, 0, 1).is_err() && served_text(0, 1, 65).is_err());
    }

    #[test]
    fn only_the_right_diagnosis_reveals() {
        let right = Some((Serving::EarlierKeys, 75.0));
        assert!(diagnose_serving(right).passed(), "{}", diagnose_serving(right).text());
        assert_eq!(revealed_serving(right), SOURCE);
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((Serving::NeighboursKeys, 75.0)), "100s would show"),
            (Some((Serving::Padding, 75.0)), "the result of a text of 8 is 1"),
            (Some((Serving::LateAppend, 75.0)), "has seen its own value"),
            (Some((Serving::Rounding, 75.0)), "by millionths"),
            (Some((Serving::EarlierKeys, 25.0)), "its own keys"),
            (Some((Serving::EarlierKeys, 80.0)), "where in the slot"),
            (Some((Serving::EarlierKeys, 0.75)), "in percent"),
            (Some((Serving::EarlierKeys, 400.0)), "not above 100"),
            (Some((Serving::EarlierKeys, 100.0)), "some of the keys"),
            (Some((Serving::EarlierKeys, 50.0)), "draw the slot"),
            (Some((Serving::EarlierKeys, f64::NAN)), "is no answer"),
            (Some((Serving::EarlierKeys, f64::INFINITY)), "is no answer"),
        ] {
            let text = diagnose_serving(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(revealed_serving(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
