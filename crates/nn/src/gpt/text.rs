//! Text: the course's own to learn from, tokens of it, and letters as they are generated.

use super::Config;
use gpulab::error::{Error, Result};
use rayon::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tokenizers::AddedToken;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Paragraphs are kept or held out in blocks of about this many bytes, so that a held-out place has a whole context of
/// words that were never trained on.
const BLOCK: usize = 2048;
/// Every tenth block is held out.
const EVERY: usize = 10;

/// A text as bytes, in two parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    /// Nine tenths, to learn from.
    pub train: Vec<u8>,
    /// Every tenth block: never trained on.
    pub held_out: Vec<u8>,
    /// FNV-1a of the whole file, in hexadecimal: which text a loss was measured on.
    pub fingerprint: String,
}

impl Text {
    /// Where the course keeps its text and the model that learned it.
    pub fn folder() -> PathBuf {
        gpulab::repository().join("models/course")
    }

    /// The course's own text: `models/course/text.txt`.
    ///
    /// # Errors
    /// As [`Text::read`].
    pub fn course() -> Result<Text> {
        Text::read(&Text::folder().join("text.txt"))
    }

    /// The corpus that `make corpus` gathers from this system's documentation, `data/corpus/text.txt`; where there is none, the
    /// course's own text.
    pub fn corpus_path() -> PathBuf {
        let gathered = gpulab::repository().join("data/corpus/text.txt");
        if gathered.exists() { gathered } else { Text::folder().join("text.txt") }
    }

    /// Reads a file of UTF-8 and cuts it between paragraphs.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, is empty or no UTF-8 (it names the first line that is not), or is too short to
    /// hold a block out.
    pub fn read(path: &Path) -> Result<Text> {
        Text::read_first(path, usize::MAX)
    }

    /// As [`Text::read`], of a file's first `most` bytes, up to the end of a paragraph.
    ///
    /// # Errors
    /// As [`Text::read`].
    pub fn read_first(path: &Path, most: usize) -> Result<Text> {
        let fix = "name a text file of at least 40 KB, paragraphs apart by empty lines";
        let fail = |text: String| Error::file(path, "learn from", text, fix);
        let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        if bytes.is_empty() {
            return Err(fail("it is empty".to_string()));
        }
        if let Err(error) = std::str::from_utf8(&bytes) {
            let at = error.valid_up_to();
            let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
            let fix = "write it as UTF-8, for instance: iconv -f ISO-8859-1 -t UTF-8 FILE > NEW";
            let text = format!("it is not UTF-8: byte {at}, in line {line}, is {:#04x}", bytes[at]);
            return Err(Error::file(path, "learn from", text, fix));
        }
        let whole = bytes[..bytes.len().min(most)].windows(2).rposition(|pair| pair == b"\n\n").map_or(0, |at| at + 2);
        let text = Text::split(if bytes.len() > most { &bytes[..whole] } else { &bytes });
        match text.held_out.len() {
            0..BLOCK => Err(fail(format!("its {} bytes are too few", bytes.len()))),
            _ => Ok(text),
        }
    }

    fn split(bytes: &[u8]) -> Text {
        let mut text = Text { train: Vec::new(), held_out: Vec::new(), fingerprint: fingerprint(bytes) };
        let (mut start, mut block) = (0, 0);
        for end in 0..=bytes.len() {
            let paragraph = bytes[..end].ends_with(b"\n\n") && end - start >= BLOCK;
            if paragraph || end == bytes.len() {
                let part = if block % EVERY == EVERY - 1 { &mut text.held_out } else { &mut text.train };
                part.extend_from_slice(&bytes[start..end]);
                (start, block) = (end, block + 1);
            }
        }
        text
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo): it tells texts apart, and guards against nobody.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3));
    format!("{hash:016x}")
}

// ----------------------------------------------------------------------
// Between text and tokens.

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
        let fix = "fetch the checkpoint's tokenizer.json again; it must lie beside model.safetensors";
        let fail = |text: String| Error::file(&path, "read", text, fix);
        let bytes = std::fs::read(&path).map_err(|error| fail(error.to_string()))?;
        let pieces = tokenizers::Tokenizer::from_bytes(&bytes)
            .map_err(|error| fail(format!("it is damaged, or of a kind that this version does not know: {error}")))?;
        let known = pieces.get_vocab_size(true);
        match known > config.vocab_size {
            true => Err(Error::invalid(
                format!("{} knows {known} tokens, and the model {}", path.display(), config.vocab_size),
                "take tokenizer.json and model.safetensors from the same checkpoint",
            )),
            false => Ok(Tokenizer::Pieces(Box::new(pieces))),
        }
    }

    /// Learns a byte-level BPE tokenizer: it begins with the 256 bytes, and joins the most frequent pair of neighbours within a word again
    /// and again, until there are `vocab_size` tokens, the end of a text included, or no pair occurs twice.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `vocab_size` is below 257, or what the crate `tokenizers` says.
    pub fn train_bpe(text: &str, vocab_size: usize) -> Result<Tokenizer> {
        let refuse =
            |what: String| Error::invalid(what, "ask for at least 257 tokens: 256 bytes, and the end of a text");
        if vocab_size <= 256 {
            return Err(refuse(format!("a byte-level BPE tokenizer cannot have {vocab_size} tokens")));
        }
        let mut pieces = tokenizers::Tokenizer::new(BPE::default());
        // As GPT-2: no space in front, and words are cut by its pattern.
        let bytes = ByteLevel::new(false, true, true);
        pieces.with_pre_tokenizer(Some(bytes)).with_decoder(Some(bytes));
        let mut trainer: TrainerWrapper = BpeTrainer::builder()
            .vocab_size(vocab_size)
            .min_frequency(2)
            .show_progress(false)
            .special_tokens(vec![AddedToken::from(END, true)])
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .build()
            .into();
        // A text in parts: its words are counted by all cores.
        pieces.train(&mut trainer, text.split_inclusive("\n\n")).map_err(|error| refuse(error.to_string()))?;
        Ok(Tokenizer::Pieces(Box::new(pieces)))
    }

    /// How many tokens it knows.
    pub fn vocab_size(&self) -> usize {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Pieces(pieces) => pieces.get_vocab_size(true),
        }
    }

    /// As `tokenizer.json`, which [`Tokenizer::load`] and Hugging Face's programs read; nothing for bytes.
    pub fn to_json(&self) -> Option<String> {
        match self {
            Tokenizer::Bytes => None,
            Tokenizer::Pieces(pieces) => {
                Some(pieces.to_string(true).expect("a tokenizer is made of numbers and strings"))
            }
        }
    }

    /// From what [`Tokenizer::to_json`] gives.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is damaged.
    pub fn from_json(json: &str) -> Result<Tokenizer> {
        let pieces = tokenizers::Tokenizer::from_bytes(json).map_err(|error| {
            Error::invalid(format!("the tokenizer is damaged: {error}"), "take the file that training has written")
        })?;
        Ok(Tokenizer::Pieces(Box::new(pieces)))
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
                Err(error) => Err(Error::invalid(
                    format!("the tokenizer cannot read this text: {error}"),
                    "give other text, or the tokenizer.json of another checkpoint",
                )),
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

// ----------------------------------------------------------------------
// Text as it is generated: whole letters from tokens that may be halves of one, whole lines for a page that shows no others.

/// A letter has at most four bytes, so at most four tokens.
const LONGEST: usize = 4;

/// Turns tokens into text, holding back those that are not a whole letter yet.
#[derive(Debug, Default)]
pub struct TextStream {
    pending: Vec<u32>,
}

impl TextStream {
    /// One more token: gives the text that is whole by now, perhaps none.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        self.pending.push(token);
        let text = tokenizer.decode(&self.pending);
        // A model may also write bytes that never become a letter: after four of them nothing is waited for.
        if text.ends_with('\u{FFFD}') && self.pending.len() < LONGEST {
            return String::new();
        }
        self.pending.clear();
        text
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> String {
        let pending = std::mem::take(&mut self.pending);
        tokenizer.decode(&pending)
    }
}

/// Gathers text into lines of at most `width` letters, broken between words.
#[derive(Debug)]
pub struct LineWrapper {
    width: usize,
    line: String,
}

impl LineWrapper {
    /// Lines of at most `width` letters.
    pub fn new(width: usize) -> LineWrapper {
        LineWrapper { width: width.max(1), line: String::new() }
    }

    /// More text: gives the lines that are full by now.
    pub fn push(&mut self, text: &str) -> Vec<String> {
        let mut full = Vec::new();
        for letter in text.chars() {
            if letter == '\n' {
                full.push(std::mem::take(&mut self.line));
                continue;
            }
            self.line.push(letter);
            if self.line.chars().count() > self.width {
                // A word longer than a line is cut.
                let cut = self.line.rfind(' ').filter(|place| *place > 0);
                let at = cut.unwrap_or(self.line.len() - letter.len_utf8());
                let rest = self.line.split_off(at);
                full.push(std::mem::replace(&mut self.line, rest.trim_start().to_string()));
            }
        }
        full
    }

    /// The last line, where one is begun.
    pub fn finish(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.line)).filter(|line| !line.is_empty())
    }
}

// ----------------------------------------------------------------------
// A text as a model reads it, and what that model has to beat: counting tokens, and counting pairs of them.

/// A text in tokens, with the tokenizer that made them.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// To learn from.
    pub train: Vec<u32>,
    /// Never trained on.
    pub held_out: Vec<u32>,
    /// How the text became tokens.
    pub tokenizer: Tokenizer,
    /// Bytes of a token in the held-out part, in the mean: a loss in nats a token, divided by it, is in nats a byte, which
    /// compares models with different tokenizers.
    pub bytes_a_token: f64,
    /// Of text and tokenizer, by [`Text::fingerprint`]'s function.
    pub fingerprint: String,
}

impl Tokens {
    /// Cuts both parts into tokens, paragraph by paragraph on all cores.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`]; [`Error::Invalid`] when a part is no UTF-8, which [`Text::read`] has looked at.
    pub fn new(text: &Text, tokenizer: Tokenizer) -> Result<Tokens> {
        let encode = |part: &[u8]| -> Result<Vec<u32>> {
            let Tokenizer::Pieces(_) = tokenizer else { return Ok(part.iter().copied().map(u32::from).collect()) };
            let part = std::str::from_utf8(part).map_err(|error| {
                Error::invalid(format!("a part of the text is no UTF-8: {error}"), "use `Text::read`")
            })?;
            let paragraphs: Vec<&str> = part.split_inclusive("\n\n").collect();
            Ok(paragraphs.par_iter().map(|text| tokenizer.encode(text)).collect::<Result<Vec<_>>>()?.concat())
        };
        let (train, held_out) = (encode(&text.train)?, encode(&text.held_out)?);
        let fingerprint = match tokenizer.to_json() {
            None => text.fingerprint.clone(),
            Some(json) => fingerprint((text.fingerprint.clone() + &json).as_bytes()),
        };
        let bytes_a_token = text.held_out.len() as f64 / held_out.len().max(1) as f64;
        Ok(Tokens { train, held_out, tokenizer, bytes_a_token, fingerprint })
    }

    /// Nats a token of the held-out part, of a model that knows how often each token occurs.
    pub fn unigram_loss(&self) -> f64 {
        let (counts, total) = self.singles();
        let cost = |token: &u32| -(counts[*token as usize] / total).ln();
        self.held_out.iter().map(cost).sum::<f64>() / self.held_out.len() as f64
    }

    /// Nats a token of a model that counts pairs of tokens, mixed with single ones in the proportion that suits the held-out part
    /// best: more than such a model could know.
    pub fn bigram_loss(&self) -> f64 {
        let (singles, total) = self.singles();
        let mut pairs: HashMap<[u32; 2], f64> = HashMap::new();
        let mut firsts = vec![0.0; singles.len()];
        for pair in self.train.windows(2) {
            *pairs.entry([pair[0], pair[1]]).or_default() += 1.0;
            firsts[pair[0] as usize] += 1.0;
        }
        // Of each pair of the held-out part: how often it was seen, how often its first token was, how likely its second is alone.
        let seen = |pair: &[u32]| {
            let count = pairs.get(&[pair[0], pair[1]]).copied().unwrap_or(0.0);
            (count, firsts[pair[0] as usize], singles[pair[1] as usize] / total)
        };
        let seen: Vec<(f64, f64, f64)> = self.held_out.windows(2).map(seen).collect();
        // `strength` is how many pairs the second part counts as much as.
        let loss = |strength: f64| {
            let cost = |(pair, first, alone): &(f64, f64, f64)| -((pair + strength * alone) / (first + strength)).ln();
            seen.iter().map(cost).sum::<f64>() / seen.len() as f64
        };
        (0..10).map(|power| loss(f64::from(1 << power))).fold(f64::INFINITY, f64::min)
    }

    /// How often each token occurs, one more than counted (a token that never occurred would cost infinitely much), and their sum.
    fn singles(&self) -> (Vec<f64>, f64) {
        let mut counts = vec![1.0; self.tokenizer.vocab_size()];
        self.train.iter().for_each(|token| counts[*token as usize] += 1.0);
        let total = counts.iter().sum();
        (counts, total)
    }
}

/// [`Tokens::unigram_loss`] in nats a byte, of a model that reads bytes.
pub fn unigram_loss(text: &Text) -> f64 {
    Tokens::new(text, Tokenizer::Bytes).expect("bytes need no UTF-8").unigram_loss()
}

/// [`Tokens::bigram_loss`] in nats a byte, of a model that reads bytes.
pub fn best_bigram_loss(text: &Text) -> f64 {
    Tokens::new(text, Tokenizer::Bytes).expect("bytes need no UTF-8").bigram_loss()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_part_and_every_tenth_block_is_held_out() {
        let paragraph = |i: usize| format!("<{i}> {}\n\n", "word ".repeat(100));
        let whole: String = (0..200).map(paragraph).collect();
        let text = Text::split(whole.as_bytes());
        assert_eq!(text.train.len() + text.held_out.len(), whole.len());
        let share = text.held_out.len() as f64 / whole.len() as f64;
        assert!((0.08..0.12).contains(&share), "{share}");
        // A paragraph lies in one of them, whole.
        for i in 0..200 {
            let found = [&text.train, &text.held_out]
                .map(|part| part.windows(paragraph(i).len()).any(|window| window == paragraph(i).as_bytes()));
            assert!(found[0] != found[1], "{i}");
        }
    }

    #[test]
    fn the_fingerprint_is_fnv_1a() {
        assert_eq!(fingerprint(b""), "cbf29ce484222325");
        assert_eq!(fingerprint(b"foobar"), "85944171f73967e8");
    }

    #[test]
    fn the_courses_text_is_there_and_a_short_one_is_refused() {
        let text = Text::course().unwrap();
        assert!(text.train.len() > 200_000 && text.held_out.len() > 20_000);
        let part = Text::read_first(&Text::folder().join("text.txt"), 100_000).unwrap();
        let (kept, size) = (part.train.len() + part.held_out.len(), 100_000);
        assert!(kept <= size && kept > size - 5000 && part.held_out.ends_with(b"\n\n"), "{kept}");
        assert!(text.train.starts_with(&part.train) && part.fingerprint != text.fingerprint);
        let error = Text::read(Path::new("none.txt")).unwrap_err().to_string();
        assert!(error.contains("none.txt") && error.contains("\nnext: "), "{error}");
    }

    #[test]
    fn a_file_that_no_model_can_learn_from_is_told_why() {
        let path = std::env::temp_dir().join(format!("gpulab-corpus-{}.txt", std::process::id()));
        let mut latin = "line\n".repeat(3).into_bytes();
        latin.extend(b"caf\xe9 au lait");
        for (bytes, said) in [
            (Vec::new(), "it is empty"),
            (latin, "byte 18, in line 4, is 0xe9"),
            ("too short".as_bytes().to_vec(), "its 9 bytes are too few"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = Text::read(&path).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("\nnext: "), "{error}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_tokenizer_learns_pairs_and_takes_every_text_apart_and_together() {
        let text = Text::course().unwrap();
        let train = std::str::from_utf8(&text.train).unwrap();
        let tokenizer = Tokenizer::train_bpe(train, 400).unwrap();
        assert_eq!(tokenizer.vocab_size(), 400);
        assert_eq!(tokenizer.to_json(), Tokenizer::train_bpe(train, 400).unwrap().to_json());
        let sample = "the kernel → née 😀\n\nthe";
        let tokens = tokenizer.encode(sample).unwrap();
        assert!(tokens.len() < sample.len() && tokenizer.decode(&tokens) == sample);
        let again = Tokenizer::from_json(&tokenizer.to_json().unwrap()).unwrap();
        assert_eq!(again.encode(sample).unwrap(), tokens);
        assert!(Tokenizer::train_bpe(train, 256).unwrap_err().to_string().contains("256 tokens"));
        assert!(Tokenizer::from_json("{").unwrap_err().to_string().contains("damaged"));
        let tokens = Tokens::new(&text, tokenizer).unwrap();
        let bytes = tokens.tokenizer.decode(&tokens.held_out);
        assert_eq!(bytes.as_bytes(), text.held_out);
        assert!(tokens.bytes_a_token > 1.5 && tokens.fingerprint != text.fingerprint);
        assert!(tokens.bigram_loss() < tokens.unigram_loss() && tokens.unigram_loss() < 400_f64.ln());
    }

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

    #[test]
    fn a_letter_comes_when_its_last_byte_does() {
        let mut stream = TextStream::default();
        let pieces: Vec<String> = "a×→😀".bytes().map(|byte| stream.push(&Tokenizer::Bytes, u32::from(byte))).collect();
        assert_eq!(pieces, ["a", "", "×", "", "", "→", "", "", "", "😀"]);
        assert_eq!(stream.finish(&Tokenizer::Bytes), "");
    }

    #[test]
    fn bytes_that_never_become_a_letter_are_not_waited_for() {
        let mut stream = TextStream::default();
        let pieces: String = [0xFF, 0xFF, 0xFF, 0xFF, 0x61].map(|byte| stream.push(&Tokenizer::Bytes, byte)).concat();
        assert_eq!(pieces, "����a");
        assert_eq!(stream.push(&Tokenizer::Bytes, 0xC3), "");
        assert_eq!(stream.finish(&Tokenizer::Bytes), "�");
    }

    #[test]
    fn lines_break_between_words_and_lose_no_letter() {
        let mut lines = LineWrapper::new(10);
        let mut all = Vec::new();
        for letter in "the warp waits\nfor ×××××××××××× memory".chars() {
            all.extend(lines.push(&letter.to_string()));
        }
        all.extend(lines.finish());
        assert_eq!(all, ["the warp", "waits", "for", "××××××××××", "×× memory"]);
        assert_eq!(lines.finish(), None);
    }

    #[test]
    fn counts_give_the_entropy_of_what_they_counted() {
        // a and b in turn: one bit alone, nothing once the letter before is known.
        let part = b"ab".repeat(5000);
        let text = Text { train: part.clone(), held_out: part, fingerprint: String::new() };
        assert!((unigram_loss(&text) - 2.0f64.ln()).abs() < 0.03);
        assert!(best_bigram_loss(&text) < 0.001);
    }

    #[test]
    fn a_byte_never_seen_costs_much_and_not_infinitely() {
        let text = Text { train: b"aaaa".to_vec(), held_out: b"az".to_vec(), fingerprint: String::new() };
        assert!(unigram_loss(&text).is_finite() && best_bigram_loss(&text).is_finite());
    }
}
