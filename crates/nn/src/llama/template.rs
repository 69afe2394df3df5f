//! The chat template that a model carries: a program in Jinja, which turns messages into the text that the model was tuned on.

use gpulab::error::{Error, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, context};

/// Who says what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// What somebody says.
    pub fn new(role: &str, content: &str) -> ChatMessage {
        ChatMessage { role: role.to_string(), content: content.to_string() }
    }
}

/// A model's template, `tokenizer.chat_template` in a GGUF file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTemplate {
    source: String,
}

impl ChatTemplate {
    /// A template in Jinja; it is tried with one message.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what is wrong, and where, when it is none or asks for what is not there.
    pub fn new(source: &str) -> Result<ChatTemplate> {
        let template = ChatTemplate { source: source.to_string() };
        template.render(&[ChatMessage::new("user", "hello")]).map(|_| template)
    }

    /// The template's own text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The conversation as the model reads it, up to where its answer begins.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the template does not allow these messages.
    pub fn render(&self, messages: &[ChatMessage]) -> Result<String> {
        let mut jinja = Environment::new();
        // As Hugging Face renders it.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        jinja.set_syntax(syntax.expect("these are Jinja's own delimiters"));
        jinja.add_function("raise_exception", |text: String| -> std::result::Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, text))
        });
        let turns: Vec<Value> =
            messages.iter().map(|turn| context! { role => &turn.role, content => &turn.content }).collect();
        let rendered = jinja.render_str(&self.source, context! { messages => turns, add_generation_prompt => true });
        rendered.map_err(|error| {
            Error::unsupported(
                format!("this model's chat template: {error}"),
                "give the model plain text with `write`, or take another GGUF file of it",
            )
        })
    }
}
