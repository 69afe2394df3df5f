//! The tokenizer that a GGUF file carries: its tokens and merges, read by candle into the crate `tokenizers`.

use super::GgufFile;
use crate::gpt::Tokenizer;
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use gpulab::error::{Error, Result};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;

/// Tokens that end an answer, beside the one that the metadata names.
const ENDS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// The file's tokenizer, and the tokens after which a text is over.
pub(super) fn load(file: &GgufFile) -> Result<(Tokenizer, Vec<u32>)> {
    let fail = |text: String| {
        Error::file(file.path(), "read the tokenizer of", text, "fetch the file again; for SmolLM2: `make model`")
    };
    let kind = file.text("tokenizer.ggml.model")?;
    if kind != "gpt2" {
        return Err(Error::unsupported(
            format!("the tokenizer `{kind}` of {}", file.path().display()),
            "use a model whose tokenizer is byte-level BPE (tokenizer.ggml.model is gpt2), such as SmolLM2",
        ));
    }
    let mut pieces = tokenizers::Tokenizer::from_gguf(file.content()).map_err(|error| fail(error.to_string()))?;
    let before = match file.knows("tokenizer.ggml.pre") {
        true => file.text("tokenizer.ggml.pre")?,
        false => "default",
    };
    pieces.with_pre_tokenizer(Some(pre_tokenizer(before)?));
    let mut ends: Vec<u32> = ENDS.iter().filter_map(|end| pieces.token_to_id(end)).collect();
    if file.knows("tokenizer.ggml.eos_token_id") {
        ends.push(file.number("tokenizer.ggml.eos_token_id")? as u32);
    }
    Ok((Tokenizer::Pieces(Box::new(pieces)), ends))
}

/// How text is cut before the merges. candle takes GPT-2's way with a space in front for whatever it does not know, which
/// would give a model other tokens than it was trained with.
fn pre_tokenizer(name: &str) -> Result<PreTokenizerWrapper> {
    let bytes = ByteLevel::new(false, true, true);
    match name {
        "default" | "gpt-2" | "gpt2" => Ok(bytes.into()),
        // Each digit alone, then as GPT-2: the `tokenizer.json` of SmolLM2, and llama.cpp's table for `smollm`.
        "smollm" => Ok(Sequence::new(vec![Digits::new(true).into(), bytes.into()]).into()),
        _ => Err(Error::unsupported(
            format!("a tokenizer that cuts text as `{name}` does"),
            "use a model whose tokenizer.ggml.pre is smollm or gpt-2",
        )),
    }
}
