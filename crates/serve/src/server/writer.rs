//! From tokens to text that may be sent: whole letters, and nothing that may still turn out to be a stop sequence.

use super::model::TextCodec;

/// A letter has at most four bytes, so at most four tokens.
const LONGEST: usize = 4;

/// The text of one answer, as it comes.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Tokens that are no whole letter yet.
    pending: Vec<u32>,
    /// Text that may be the beginning of a stop sequence.
    held: String,
    stops: Vec<String>,
}

impl Writer {
    pub fn new(stops: Vec<String>) -> Writer {
        Writer { stops, ..Writer::default() }
    }

    /// One more token: what may be sent by now, and whether a stop sequence was met. It is no part of the text.
    pub fn push(&mut self, text: &dyn TextCodec, token: u32) -> (String, bool) {
        self.pending.push(token);
        let piece = text.decode(&self.pending);
        if !piece.ends_with('\u{FFFD}') {
            self.pending.clear();
            return self.release(&piece);
        }
        match self.pending.len() {
            0..LONGEST => (String::new(), false),
            // The first of them belongs to no letter; those behind it still may.
            _ => {
                let first = self.pending.remove(0);
                self.release(&text.decode(&[first]))
            }
        }
    }

    /// What is left when no token follows.
    pub fn finish(&mut self, text: &dyn TextCodec) -> String {
        let piece = text.decode(&std::mem::take(&mut self.pending));
        let (mut sent, stopped) = self.release(&piece);
        if !stopped {
            sent.push_str(&std::mem::take(&mut self.held));
        }
        sent
    }

    fn release(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let may_begin = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let keep = self.held.char_indices().map(|(at, _)| at).find(may_begin).unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, rest), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Babble;

    fn written(stops: &[&str], text: &str) -> (Vec<String>, bool) {
        let (tokens, babble) = (text.bytes().map(u32::from), Babble::text());
        let mut writer = Writer::new(stops.iter().map(|stop| (*stop).to_string()).collect());
        let mut pieces = Vec::new();
        for token in tokens {
            let (piece, stopped) = writer.push(&*babble, token);
            pieces.push(piece);
            if stopped {
                return (pieces, true);
            }
        }
        pieces.push(writer.finish(&*babble));
        (pieces, false)
    }

    #[test]
    fn letters_are_sent_whole() {
        assert_eq!(written(&[], "a→b").0, ["a", "", "", "→", "b", ""]);
        assert_eq!(written(&[], "😀").0.concat(), "😀");
    }

    #[test]
    fn bytes_that_are_no_letter_cost_no_letter_beside_them() {
        let (mut writer, babble) = (Writer::new(Vec::new()), Babble::text());
        let bytes = [0xFF, 0xFF, 0xFF, 0xE2, 0x86, 0x92, 0xFF];
        let mut sent: String = bytes.iter().map(|byte| writer.push(&*babble, *byte).0).collect();
        sent.push_str(&writer.finish(&*babble));
        assert_eq!(sent, "���→�");
    }

    #[test]
    fn a_stop_sequence_is_not_sent_and_what_only_begins_like_one_is() {
        assert_eq!(written(&["END"], "a ENEND b"), (["a", " ", "", "", "EN", "", ""].map(String::from).to_vec(), true));
        assert_eq!(written(&["END"], "a EN").0.concat(), "a EN");
        let (pieces, stopped) = written(&["→", "z"], "ab→c");
        assert_eq!((pieces.concat().as_str(), stopped), ("ab", true));
    }
}
