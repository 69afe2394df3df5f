//! How wide a text will be, and where to break it.
//!
//! The reader's browser picks the font, so no exact widths exist here. The estimate follows a wide sans-serif
//! (DejaVu Sans); with a narrower one, labels only gain room.

#![allow(missing_docs)] // a vocabulary for drawing: the names say what each is

/// The estimated width of `text` in pixels, at a font size in pixels.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.33,
        ' ' | 'I' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
        'm' | 'M' | 'w' | 'W' | '@' | '%' => 0.98,
        'A'..='Z' | '+' | '=' | '<' | '>' | '&' | '~' => 0.76,
        // Scripts such as Chinese fill a square.
        '\u{1100}'.. => 1.0,
        _ => 0.64,
    }
}

/// Breaks `text` at spaces into lines of at most `room` pixels. A word wider than that is cut.
/// At least one line comes back, which may be empty.
pub fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        let joined = if line.is_empty() { word.to_string() } else { format!("{line} {word}") };
        if width(&joined, size) <= room {
            *line = joined;
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for c in word.chars() {
            let line = lines.last_mut().expect("there is always a line");
            if !line.is_empty() && width(line, size) + em(c) * size > room {
                lines.push(String::new());
            }
            lines.last_mut().expect("there is always a line").push(c);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_within_the_room_and_lose_no_letter() {
        let text = "matmul, result copied back (Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz (2 cores), recorded)";
        for room in [60.0, 150.0, 400.0, 5000.0] {
            let lines = wrap(text, 12.0, room);
            assert!(lines.iter().all(|line| width(line, 12.0) <= room), "{lines:?}");
            let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&lines.concat()), letters(text));
        }
        assert_eq!(wrap(text, 12.0, 5000.0).len(), 1);
        assert_eq!(wrap("", 12.0, 10.0), [""]);
    }

    #[test]
    fn a_word_wider_than_the_room_is_cut() {
        assert!(wrap("cudaMemcpyHostToDevice", 12.0, 50.0).len() > 2);
    }
}
