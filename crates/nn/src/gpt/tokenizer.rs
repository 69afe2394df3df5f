//! Between text and tokens.

use super::Config;
use gpulab::error::{Error, Result};
use std::path::Path;

/// How text becomes numbers, and numbers text.
#[derive(Debug, Clone)]
pub enum Tokenizer {
    /// A token is a byte of UTF-8: the course's own model.
    Bytes,
    /// What a real checkpoint's `tokenizer.json` says: pieces of words.
    Pieces(Box<tokenizers::Tokenizer>),
}

/// Where GPT-2's texts end.
const END: &str = "<|endoftext|>";

impl Tokenizer {
    /// Reads `tokenizer.json` from a checkpoint's folder. A model of 256 tokens needs none: it reads bytes.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing or damaged, [`Error::Invalid`] when it knows more tokens than the model.
    pub fn load(folder: &Path, config: Config) -> Result<Tokenizer> {
        let path = folder.join("tokenizer.json");
        if !path.exists() && config.vocab_size == 256 {
            return Ok(Tokenizer::Bytes);
        }
        let fail = |text: String| Error::File {
            path: path.clone(),
            during: "read".to_string(),
            text,
            fix: "fetch the checkpoint's tokenizer.json again; it must lie beside model.safetensors".to_string(),
        };
        let bytes = std::fs::read(&path).map_err(|error| fail(error.to_string()))?;
        let pieces = tokenizers::Tokenizer::from_bytes(&bytes)
            .map_err(|error| fail(format!("it is damaged, or of a kind that this version does not know: {error}")))?;
        let known = pieces.get_vocab_size(true);
        match known > config.vocab_size {
            true => Err(Error::Invalid {
                what: format!("{} knows {known} tokens, and the model {}", path.display(), config.vocab_size),
                fix: "take tokenizer.json and model.safetensors from the same checkpoint".to_string(),
            }),
            false => Ok(Tokenizer::Pieces(Box::new(pieces))),
        }
    }

    /// The text's tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the tokenizer cannot read it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Tokenizer::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Tokenizer::Pieces(pieces) => match pieces.encode(text, false) {
                Ok(encoding) => Ok(encoding.get_ids().to_vec()),
                Err(error) => Err(Error::Invalid {
                    what: format!("the tokenizer cannot read this text: {error}"),
                    fix: "give other text, or the tokenizer.json of another checkpoint".to_string(),
                }),
            },
        }
    }

    /// The tokens' text. A letter of several bytes of which some are missing becomes `�`.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match self {
            Tokenizer::Bytes => {
                let bytes: Vec<u8> = tokens.iter().map(|token| u8::try_from(*token).unwrap_or(b'?')).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            // It fails for tokens alone that it does not know, and those are no text.
            Tokenizer::Pieces(pieces) => pieces.decode(tokens, true).unwrap_or_default(),
        }
    }

    /// The token after which a text is over, where there is one.
    pub fn end(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => None,
            Tokenizer::Pieces(pieces) => pieces.token_to_id(END),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte-level pairs, as GPT-2's file has them: letters, `Ġ` for a space, and one pair joined.
    const SMALL: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [
        {"id": 6, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": false, "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ã": 4, "©": 5, "<|endoftext|>": 6}, "merges": ["a b"]}}"#;

    fn folder(name: &str, json: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("gpulab-tokenizer-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("tokenizer.json"), json).unwrap();
        folder
    }

    #[test]
    fn bytes_come_back_and_half_a_letter_is_marked() {
        let tokens = Tokenizer::Bytes.encode("é → 2×").unwrap();
        assert_eq!(tokens.len(), 10);
        assert_eq!(Tokenizer::Bytes.decode(&tokens), "é → 2×");
        assert_eq!(Tokenizer::Bytes.decode(&tokens[..1]), "�");
        assert_eq!(Tokenizer::Bytes.end(), None);
    }

    #[test]
    fn a_file_as_gpt_2_has_it_is_read() {
        let folder = folder("real", SMALL);
        let tokenizer = Tokenizer::load(&folder, Config { vocab_size: 7, ..Config::COURSE }).unwrap();
        assert_eq!(tokenizer.encode("ab aé").unwrap(), [3, 2, 0, 4, 5]);
        assert_eq!(tokenizer.decode(&[3, 2, 0, 4, 5]), "ab aé");
        assert_eq!(tokenizer.end(), Some(6));
        let error = Tokenizer::load(&folder, Config { vocab_size: 5, ..Config::COURSE }).unwrap_err().to_string();
        assert!(error.contains("7 tokens, and the model 5"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_missing_or_damaged_file_is_named() {
        let folder = folder("cut", &SMALL[..300]);
        let error = Tokenizer::load(&folder, Config::GPT2).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json") && error.contains("damaged") && error.contains("\nnext: "), "{error}");
        std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
        assert!(Tokenizer::load(&folder, Config::GPT2).is_err());
        assert!(matches!(Tokenizer::load(&folder, Config::COURSE), Ok(Tokenizer::Bytes)));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
