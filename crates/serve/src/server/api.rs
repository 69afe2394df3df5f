//! Bodies of OpenAI's requests and answers: what is asked for, and what is wrong with it.

use super::model::{SamplingParams, Turn};
use crate::scheduler::Finish;
use serde_json::{Map, Value, json};

/// What is wrong with a request: an answer in OpenAI's form. The message ends with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub status: u16,
    pub kind: &'static str,
    pub parameter: Option<String>,
    pub message: String,
    /// Seconds after which it may be tried again.
    pub retry_after: Option<u64>,
}

impl Problem {
    pub fn new(status: u16, what: impl Into<String>, next: &str) -> Problem {
        Problem::told(status, format!("{}\nnext: {next}", what.into()))
    }

    /// Of a message that says what to do already.
    pub fn told(status: u16, message: String) -> Problem {
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        Problem { status, kind, parameter: None, message, retry_after: None }
    }

    pub fn of(mut self, parameter: &str) -> Problem {
        self.parameter = Some(parameter.to_string());
        self
    }

    pub fn json(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.parameter, "code": null}})
    }
}

type Result<T> = std::result::Result<T, Problem>;

/// Which of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Chat,
    Completions,
}

/// What is to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prompt {
    Turns(Vec<Turn>),
    Text(String),
    Tokens(Vec<u32>),
}

/// A request that makes sense.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ask {
    pub prompt: Prompt,
    pub sampling: SamplingParams,
    pub most_new: Option<usize>,
    pub stops: Vec<String>,
    pub stream: bool,
    pub usage: bool,
}

/// Fields that both know and that are followed.
const FOLLOWED: [&str; 9] =
    ["model", "temperature", "top_p", "seed", "stop", "stream", "stream_options", "max_tokens", "user"];
/// Fields that would change the answer in a way that this server cannot; with these values they change nothing.
const NEUTRAL: [(&str, &str); 12] = [
    ("n", "1"),
    ("best_of", "1"),
    ("echo", "false"),
    ("logprobs", "false"),
    ("top_logprobs", "0"),
    ("frequency_penalty", "0"),
    ("presence_penalty", "0"),
    ("suffix", "null"),
    ("logit_bias", "{}"),
    ("tools", "[]"),
    ("tool_choice", "\"none\""),
    ("response_format", "{\"type\":\"text\"}"),
];

impl Ask {
    /// Reads a body. `model` is the one that is served.
    pub fn read(body: &[u8], interface: Interface, model: &str) -> Result<Ask> {
        let text = std::str::from_utf8(body).map_err(|error| {
            Problem::new(
                400,
                format!("the body is not UTF-8: byte {} is {:#04x}", error.valid_up_to(), body[error.valid_up_to()]),
                "send JSON in UTF-8",
            )
        })?;
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Problem::new(400, format!("the body is no JSON: {error}"), "send one JSON object"))?;
        let Value::Object(fields) = value else {
            let what = format!("the body is {}, and an object is expected", kind(&value));
            return Err(Problem::new(400, what, "send one JSON object, such as {\"messages\": […]}"));
        };
        let fields = Fields(&fields);
        fields.check_names(interface)?;
        if let Some(asked) = fields.text("model")?
            && asked != model
        {
            let what = format!("there is no model `{asked}` here");
            return Err(Problem::new(404, what, &format!("ask for `{model}`; GET /v1/models lists it")).of("model"));
        }
        let prompt = match interface {
            Interface::Chat => Prompt::Turns(fields.turns()?),
            Interface::Completions => fields.prompt()?,
        };
        let most_new = match (interface, fields.whole("max_completion_tokens")?) {
            (Interface::Chat, Some(most)) => Some(most),
            _ => fields.whole("max_tokens")?,
        };
        Ok(Ask {
            prompt,
            sampling: SamplingParams {
                temperature: fields.number("temperature", 0.0, 2.0)?.unwrap_or(1.0),
                top_p: fields.number("top_p", 0.0, 1.0)?.unwrap_or(1.0),
                seed: fields.seed()?,
            },
            // As OpenAI's: a completion without a limit has 16 tokens.
            most_new: most_new.or((interface == Interface::Completions).then_some(16)),
            stops: fields.stops()?,
            stream: fields.flag("stream")?,
            usage: fields.usage()?,
        })
    }
}

/// A body's fields.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// Nothing for a field that is missing or null.
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn check_names(&self, interface: Interface) -> Result<()> {
        let own = match interface {
            Interface::Chat => ["messages", "max_completion_tokens"].as_slice(),
            Interface::Completions => ["prompt"].as_slice(),
        };
        for (name, value) in self.0 {
            if own.contains(&name.as_str()) || FOLLOWED.contains(&name.as_str()) || value.is_null() {
                continue;
            }
            let Some((_, neutral)) = NEUTRAL.iter().find(|(known, _)| known == name) else {
                let known: Vec<&str> = own.iter().chain(&FOLLOWED).copied().collect();
                let next = format!("use {}", known.join(", "));
                return Err(Problem::new(400, format!("there is no field `{}`", short(name)), &next).of(&short(name)));
            };
            let same: Value = serde_json::from_str(neutral).expect("the table holds JSON");
            if *value != same && value.as_f64().is_none_or(|number| Some(number) != same.as_f64()) {
                let what = format!("`{name}` other than {neutral} is not supported here");
                return Err(Problem::new(400, what, &format!("leave `{name}` out")).of(name));
            }
        }
        Ok(())
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>> {
        self.get(name).map(|value| value.as_str().ok_or_else(|| wrong(name, value, "a string"))).transpose()
    }

    fn flag(&self, name: &str) -> Result<bool> {
        self.get(name).map_or(Ok(false), |value| value.as_bool().ok_or_else(|| wrong(name, value, "true or false")))
    }

    fn whole(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        number.map(|number| Some(number as usize)).ok_or_else(|| wrong(name, value, "a whole number from 1"))
    }

    fn number(&self, name: &str, least: f64, most: f64) -> Result<Option<f64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| (least..=most).contains(number));
        number.map(Some).ok_or_else(|| wrong(name, value, &format!("a number from {least} to {most}")))
    }

    fn seed(&self) -> Result<u64> {
        let Some(value) = self.get("seed") else { return Ok(0) };
        let number = value.as_u64().or_else(|| value.as_i64().map(|number| number as u64));
        number.ok_or_else(|| wrong("seed", value, "a whole number"))
    }

    fn stops(&self) -> Result<Vec<String>> {
        const WANTED: &str = "a string, or a list of at most four that are not empty";
        let Some(value) = self.get("stop") else { return Ok(Vec::new()) };
        let list = match value {
            Value::String(one) => vec![one.clone()],
            Value::Array(all) => {
                let texts = all.iter().map(|one| one.as_str().map(String::from)).collect::<Option<Vec<String>>>();
                texts.ok_or_else(|| wrong("stop", value, WANTED))?
            }
            _ => return Err(wrong("stop", value, WANTED)),
        };
        match list.len() > 4 || list.iter().any(String::is_empty) {
            true => Err(wrong("stop", value, WANTED)),
            false => Ok(list),
        }
    }

    fn usage(&self) -> Result<bool> {
        let Some(value) = self.get("stream_options") else { return Ok(false) };
        let Value::Object(options) = value else { return Err(wrong("stream_options", value, "an object")) };
        Fields(options).flag("include_usage")
    }

    fn prompt(&self) -> Result<Prompt> {
        const WANTED: &str = "a string, or a list of token numbers";
        let Some(value) = self.get("prompt") else { return Err(missing("prompt", "\"prompt\": \"The warp\"")) };
        match value {
            Value::String(text) => Ok(Prompt::Text(text.clone())),
            Value::Array(all) => match all.as_slice() {
                [Value::String(text)] => Ok(Prompt::Text(text.clone())),
                _ => {
                    let token = |one: &Value| one.as_u64().and_then(|token| u32::try_from(token).ok());
                    let tokens = all.iter().map(token).collect::<Option<Vec<u32>>>();
                    tokens.map(Prompt::Tokens).ok_or_else(|| wrong("prompt", value, WANTED))
                }
            },
            _ => Err(wrong("prompt", value, WANTED)),
        }
    }

    fn turns(&self) -> Result<Vec<Turn>> {
        const EXAMPLE: &str = "\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]";
        let Some(value) = self.get("messages") else { return Err(missing("messages", EXAMPLE)) };
        let turns = value.as_array().filter(|turns| !turns.is_empty());
        let turns = turns.ok_or_else(|| wrong("messages", value, "a list of at least one message"))?;
        turns.iter().enumerate().map(|(at, turn)| read_turn(at, turn)).collect()
    }
}

fn read_turn(at: usize, turn: &Value) -> Result<Turn> {
    let name = |field: &str| format!("messages[{at}].{field}");
    let Value::Object(fields) = turn else { return Err(wrong(&format!("messages[{at}]"), turn, "an object")) };
    let fields = Fields(fields);
    let role = fields.get("role").unwrap_or(&Value::Null);
    let role = match role.as_str() {
        // What newer clients call it.
        Some("developer") => "system",
        Some(known @ ("system" | "user" | "assistant")) => known,
        _ => return Err(wrong(&name("role"), role, "system, user or assistant")),
    };
    let content = fields.get("content").unwrap_or(&Value::Null);
    let bad = || wrong(&name("content"), content, "a string, or a list of parts of type `text`");
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let part = |part: &Value| {
                let is_text = part.get("type").and_then(Value::as_str) == Some("text");
                part.get("text").and_then(Value::as_str).filter(|_| is_text).map(String::from)
            };
            parts.iter().map(part).collect::<Option<Vec<String>>>().ok_or_else(bad)?.concat()
        }
        _ => return Err(bad()),
    };
    Ok(Turn { role: role.to_string(), content: text })
}

fn missing(name: &str, example: &str) -> Problem {
    Problem::new(400, format!("`{name}` is missing"), &format!("send {example}")).of(name)
}

fn wrong(name: &str, value: &Value, wanted: &str) -> Problem {
    let what = format!("`{name}` is {}", kind(value));
    Problem::new(400, what, &format!("send {wanted}")).of(name)
}

/// A value in a few words.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string \"{}\"", short(text)),
        Value::Array(all) => format!("a list of {}", all.len()),
        Value::Object(_) => "an object".to_string(),
    }
}

/// What a client sent is not repeated at any length.
fn short(text: &str) -> String {
    const MOST: usize = 40;
    let cut: String = text.chars().take(MOST).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

// ----------------------------------------------------------------------
// Answers.

/// How many tokens a request took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub prompt: usize,
    pub answer: usize,
}

impl Usage {
    fn json(self) -> Value {
        json!({"prompt_tokens": self.prompt, "completion_tokens": self.answer,
            "total_tokens": self.prompt + self.answer})
    }
}

/// As OpenAI calls it.
pub(super) fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

/// What all answers to one request have in common.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub interface: Interface,
    pub id: String,
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
}

impl Shape {
    fn answer(&self, object: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }

    /// The answer as a whole.
    pub fn whole(&self, text: &str, reason: &str, usage: Usage) -> Value {
        let (object, choice) = match self.interface {
            Interface::Chat => (
                "chat.completion",
                json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}),
            ),
            Interface::Completions => {
                ("text_completion", json!({"index": 0, "text": text, "logprobs": null, "finish_reason": reason}))
            }
        };
        let mut answer = self.answer(object, json!([choice]));
        answer["usage"] = usage.json();
        answer
    }

    /// What a stream begins with.
    pub fn begin(&self) -> Option<Value> {
        (self.interface == Interface::Chat).then(|| self.delta(json!({"role": "assistant", "content": ""}), None))
    }

    /// More text.
    pub fn more(&self, text: &str) -> Value {
        match self.interface {
            Interface::Chat => self.delta(json!({"content": text}), None),
            Interface::Completions => self.part(text, None),
        }
    }

    /// The end of the text.
    pub fn end(&self, reason: &str) -> Value {
        match self.interface {
            Interface::Chat => self.delta(json!({}), Some(reason)),
            Interface::Completions => self.part("", Some(reason)),
        }
    }

    /// The usage, behind the end of the text.
    pub fn usage(&self, usage: Usage) -> Value {
        let object = match self.interface {
            Interface::Chat => "chat.completion.chunk",
            Interface::Completions => "text_completion",
        };
        let mut answer = self.answer(object, json!([]));
        answer["usage"] = usage.json();
        answer
    }

    fn delta(&self, delta: Value, reason: Option<&str>) -> Value {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason});
        self.answer("chat.completion.chunk", json!([choice]))
    }

    fn part(&self, text: &str, reason: Option<&str>) -> Value {
        let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": reason});
        self.answer("text_completion", json!([choice]))
    }
}
