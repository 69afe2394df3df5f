//! Text to tokens.

use crate::error::{Result, SimulatorError};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// Name, opcode with its modifiers, or directive with its leading dot.
    Word(String),
    /// Integer.
    Int(u64),
    /// Bits of a 32-bit float.
    F32(u32),
    /// Bits of a 64-bit float.
    F64(u64),
    /// Text in quotes.
    Text(String),
    /// One character of punctuation.
    Mark(u8),
}

/// Splits PTX into tokens, each with its line.
///
/// # Errors
/// A character or number that PTX does not have.
pub fn tokens(text: &str) -> Result<Vec<(Token, u32)>> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len() / 4);
    let (mut at, mut line) = (0, 1u32);
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'\n' {
            line += 1;
            at += 1;
        } else if byte.is_ascii_whitespace() {
            at += 1;
        } else if bytes[at..].starts_with(b"//") {
            at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at);
        } else if bytes[at..].starts_with(b"/*") {
            let end = find(&bytes[at + 2..], b"*/").ok_or_else(|| syntax(line, "a comment without its end"))?;
            line += bytes[at..at + 2 + end].iter().filter(|&&b| b == b'\n').count() as u32;
            at += end + 4;
        } else if byte == b'"' {
            let end = bytes[at + 1..].iter().position(|&b| b == b'"');
            let end = end.ok_or_else(|| syntax(line, "text without its closing quote"))?;
            out.push((Token::Text(text[at + 1..at + 1 + end].to_owned()), line));
            at += end + 2;
        } else if byte.is_ascii_digit() {
            let end = at + bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'.').count();
            // An exponent's sign belongs to the number.
            let end = match bytes.get(end) {
                Some(b'+' | b'-') if decimal_exponent(&bytes[at..end]) => {
                    end + 1 + bytes[end + 1..].iter().take_while(|b| b.is_ascii_digit()).count()
                }
                _ => end,
            };
            let word = &text[at..end];
            out.push((number(word).ok_or_else(|| syntax(line, &format!("`{word}` is not a number")))?, line));
            at = end;
        } else if starts_word(byte) {
            let end = at + word_length(&bytes[at..]);
            out.push((Token::Word(text[at..end].to_owned()), line));
            at = end;
        } else if byte.is_ascii_punctuation() {
            out.push((Token::Mark(byte), line));
            at += 1;
        } else {
            return Err(syntax(line, &format!("the byte {byte:#04x} is no part of PTX")));
        }
    }
    Ok(out)
}

/// A syntax error at a line.
pub(super) fn syntax(line: u32, message: &str) -> SimulatorError {
    SimulatorError::Syntax { line, message: message.to_owned() }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// Names run on over `.modifier` and `::qualifier`; a directive ends before the next one (`.reg.b32`).
fn word_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    let directive = bytes[0] == b'.';
    while at < bytes.len() {
        let next = bytes.get(at + 1).copied().unwrap_or(0);
        if bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'_' | b'$') {
            at += 1;
        } else if (bytes[at] == b'.' && !directive && (next.is_ascii_alphanumeric() || next == b'_'))
            || (bytes[at] == b':' && next == b':')
        {
            at += 2;
        } else {
            break;
        }
    }
    at
}

fn decimal_exponent(word: &[u8]) -> bool {
    word.contains(&b'.') && matches!(word.last(), Some(b'e' | b'E'))
}

fn number(word: &str) -> Option<Token> {
    let lower = word.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0f").filter(|h| h.len() == 8) {
        return u32::from_str_radix(hex, 16).ok().map(Token::F32);
    }
    if let Some(hex) = lower.strip_prefix("0d").filter(|h| h.len() == 16) {
        return u64::from_str_radix(hex, 16).ok().map(Token::F64);
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    if let Some(hex) = digits.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(Token::Int);
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return u64::from_str_radix(binary, 2).ok().map(Token::Int);
    }
    if digits.contains('.') {
        return digits.parse::<f64>().ok().map(|f| Token::F64(f.to_bits()));
    }
    let octal = digits.len() > 1 && digits.starts_with('0');
    u64::from_str_radix(digits, if octal { 8 } else { 10 }).ok().map(Token::Int)
}
