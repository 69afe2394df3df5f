//! Text as it is generated: whole letters from tokens that may be halves of one, whole lines for a page that shows no others.

use super::Tokenizer;

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
pub struct Lines {
    width: usize,
    line: String,
}

impl Lines {
    /// Lines of at most `width` letters.
    pub fn new(width: usize) -> Lines {
        Lines { width: width.max(1), line: String::new() }
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut lines = Lines::new(10);
        let mut all = Vec::new();
        for letter in "the warp waits\nfor ×××××××××××× memory".chars() {
            all.extend(lines.push(&letter.to_string()));
        }
        all.extend(lines.finish());
        assert_eq!(all, ["the warp", "waits", "for", "××××××××××", "×× memory"]);
        assert_eq!(lines.finish(), None);
    }
}
