//! The course's own words, cut into a part to learn from and a part to be tested on.

use gpulab::error::{Error, Result};
use std::path::{Path, PathBuf};

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

    /// Reads a file and cuts it between paragraphs.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, or is too short to hold a block out.
    pub fn read(path: &Path) -> Result<Text> {
        let fail = |text: String| Error::File {
            path: path.to_path_buf(),
            during: "learn from".to_string(),
            text,
            fix: "name a text file of at least 40 KB, paragraphs apart by empty lines".to_string(),
        };
        let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        let text = Text::split(&bytes);
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
        let error = Text::read(Path::new("none.txt")).unwrap_err().to_string();
        assert!(error.contains("none.txt") && error.contains("\nnext: "), "{error}");
    }
}
