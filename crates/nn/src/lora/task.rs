//! A task whose result can be checked: a request in words becomes one line of JSON with four fields, all of them right.

use crate::gpt::{Sampling, SplitMix64};
use crate::llama::{ChatMessage, ChatModel};
use gpulab::error::{Error, Result};
use serde_json::Value;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booking {
    /// In whose name.
    pub name: String,
    /// How many come.
    pub guests: u64,
    /// A day of the week.
    pub day: String,
    /// On a clock of 24 hours, such as 19:30.
    pub time: String,
}

/// A request, and what is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// In words.
    pub request: String,
    /// What a model should make of it.
    pub booking: Booking,
}

/// Which half of the data: requests that are learned from, or those that are held out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Names and sentences to learn from.
    Training,
    /// Other names, which no training example has; a third of the sentences are built in ways that none has, too.
    HeldOut,
}

/// How well a model did.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// What it answered, in the order of the cases.
    pub answers: Vec<String>,
    /// Answers that are JSON with the four fields and nothing else.
    pub parsed: usize,
    /// Answers of which all four are right as well.
    pub right: usize,
}

/// What the model is told before each request.
pub const SYSTEM: &str = "Answer with one line of JSON: name, guests, day, time (24 hours).";

const FIRST: [[&str; 12]; 2] = [
    ["Anna", "Bruno", "Carla", "David", "Elif", "Frank", "Grace", "Hugo", "Ines", "Jonas", "Keiko", "Luca"],
    ["Maria", "Noah", "Olga", "Pedro", "Rosa", "Samir", "Tara", "Viktor", "Wanda", "Yusuf", "Zoe", "Emil"],
];
const LAST: [[&str; 12]; 2] = [
    ["Adler", "Brandt", "Costa", "Dubois", "Evans", "Fischer", "Garcia", "Hansen", "Ito", "Jensen", "Keller", "Lopez"],
    ["Moreau", "Novak", "Olsen", "Park", "Quinn", "Rossi", "Singh", "Torres", "Unger", "Vogel", "Weber", "Young"],
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const NUMBERS: [&str; 9] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
/// The last three are held out.
const SENTENCES: [&str; 9] = [
    "A table for {guests} on {day} at {time}, please. The name is {name}.",
    "Hello, {name} here. Could we come on {day} at {time}? We are {guests}.",
    "Please book {day}, {time}, for {guests} people. {name}.",
    "{name} would like to reserve for {guests} guests on {day} at {time}.",
    "On {day} we need a table for {guests}, at {time}. My name is {name}.",
    "This is {name}: {guests} of us, {time} on {day}.",
    "Is there room for {guests} at {time} this {day}? You can put it under {name}.",
    "Reservation: {day} {time}, party of {guests}, under {name}.",
    "We'll be {guests} and would come at {time} on {day}, if that works. {name}",
];
const HELD_OUT_SENTENCES: usize = 3;

/// So many examples, which follow from the seed.
pub fn bookings(part: Split, count: usize, seed: u64) -> Vec<Example> {
    let (whose, sentences) = match part {
        Split::Training => (0, &SENTENCES[..SENTENCES.len() - HELD_OUT_SENTENCES]),
        Split::HeldOut => (1, &SENTENCES[..]),
    };
    let mut random = SplitMix64::new(seed ^ whose as u64);
    let mut below = |end: usize| (random.unit() * end as f64) as usize;
    let mut one = |at: usize| {
        let name = format!("{} {}", FIRST[whose][below(12)], LAST[whose][below(12)]);
        let (guests, day) = (1 + below(9), DAYS[below(7)]);
        let (hour, half) = (11 + below(12), below(2) == 1);
        let minutes = if half { "30" } else { "00" };
        let time = match below(3) {
            0 => format!("{hour}:{minutes}"),
            _ => {
                let (twelve, of) = (if hour > 12 { hour - 12 } else { hour }, if hour < 12 { "am" } else { "pm" });
                if half { format!("{twelve}:30 {of}") } else { format!("{twelve} {of}") }
            }
        };
        let said = if below(2) == 1 { NUMBERS[guests - 1].to_string() } else { guests.to_string() };
        let request = sentences[at % sentences.len()]
            .replace("{name}", &name)
            .replace("{guests}", &said)
            .replace("{day}", day)
            .replace("{time}", &time);
        let booking = Booking { name, guests: guests as u64, day: day.to_string(), time: format!("{hour}:{minutes}") };
        Example { request, booking }
    };
    (0..count).map(&mut one).collect()
}

impl Booking {
    /// The one line that is right.
    pub fn json(&self) -> String {
        let Booking { name, guests, day, time } = self;
        format!(r#"{{"name": "{name}", "guests": {guests}, "day": "{day}", "time": "{time}"}}"#)
    }

    /// Reads an answer: JSON and nothing else, with these four fields, of these kinds, and no other.
    ///
    /// # Errors
    /// [`Error::Invalid`] with what is wrong, by `serde_json` where it is no JSON.
    ///
    /// ```
    /// # use gpulab_nn::lora::Booking;
    /// let booking = Booking::read(r#"{"name": "Ada", "guests": 2, "day": "Monday", "time": "19:00"}"#)?;
    /// assert_eq!(Booking::read(&booking.json())?, booking);
    /// assert!(Booking::read("Sure! {}").is_err());
    /// # Ok::<(), gpulab::Error>(())
    /// ```
    pub fn read(answer: &str) -> Result<Booking> {
        let wrong = |what: String| Error::invalid(what, "the answer is to be one JSON object: name, guests, day, time");
        let value: Value = serde_json::from_str(answer.trim()).map_err(|error| wrong(format!("no JSON: {error}")))?;
        let Some(object) = value.as_object() else { return Err(wrong("JSON, but no object".to_string())) };
        let known = ["name", "guests", "day", "time"];
        if let Some(other) = object.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(wrong(format!("a field `{other}` that nobody asked for")));
        }
        let text = |key: &str| {
            let text = object.get(key).and_then(Value::as_str);
            text.map(str::to_string).ok_or_else(|| wrong(format!("no text in the field `{key}`")))
        };
        let guests = object.get("guests").and_then(Value::as_u64);
        let guests = guests.ok_or_else(|| wrong("no whole number in the field `guests`".to_string()))?;
        Ok(Booking { name: text("name")?, guests, day: text("day")?, time: text("time")? })
    }
}

impl Example {
    /// What a model reads up to where its answer begins, by its own chat template.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the model has none.
    pub fn prompt(&self, model: &ChatModel) -> Result<String> {
        let Some(template) = &model.template else {
            return Err(Error::unsupported(
                "a request to a model whose file has no chat template",
                "take a model that was tuned to answer (Instruct), such as the one of `make model`",
            ));
        };
        template.render(&[ChatMessage::new("system", SYSTEM), ChatMessage::new("user", &self.request)])
    }

    /// The tokens of prompt and right answer, with the mark that ends an answer, and how many of them are the prompt.
    ///
    /// # Errors
    /// As [`Example::prompt`].
    pub fn tokens(&self, model: &ChatModel) -> Result<(Vec<u32>, usize)> {
        let mut tokens = model.tokenizer.encode(&self.prompt(model)?)?;
        let prompt = tokens.len();
        tokens.extend(model.tokenizer.encode(&format!("{}<|im_end|>", self.booking.json()))?);
        Ok((tokens, prompt))
    }
}

/// Prompts that are answered at once.
const AT_ONCE: usize = 16;

/// Lets a model answer each request, always with its likeliest token, and judges each answer.
///
/// # Errors
/// As [`Example::prompt`] and [`ChatModel::generate`].
pub fn score(model: &ChatModel, cases: &[Example]) -> Result<Score> {
    let mut score = Score { answers: Vec::new(), parsed: 0, right: 0 };
    for some in cases.chunks(AT_ONCE) {
        let prompts = some.iter().map(|case| case.prompt(model)).collect::<Result<Vec<_>>>()?;
        let prompts: Vec<&str> = prompts.iter().map(String::as_str).collect();
        let longest = some.iter().map(|case| case.tokens(model)).collect::<Result<Vec<_>>>()?;
        // Room for the right answer, and a little more for wrong ones.
        let new = longest.iter().map(|(tokens, prompt)| tokens.len() - prompt).max().unwrap_or(0) + 8;
        for (case, answer) in some.iter().zip(model.generate(&prompts, new, Sampling::Greedy, &mut |_, _| ())?) {
            let read = Booking::read(&answer.text);
            score.parsed += usize::from(read.is_ok());
            score.right += usize::from(read.is_ok_and(|read| read == case.booking));
            score.answers.push(answer.text);
        }
    }
    Ok(score)
}
