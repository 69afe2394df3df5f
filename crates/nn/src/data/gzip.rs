//! Unpacking gzip: MNIST's files come so.

use flate2::read::GzDecoder;
use std::io::{ErrorKind, Read};

/// More than any file of images here unpacks to: a damaged length must not fill the memory.
const LARGEST: u64 = 1 << 30;

/// The file within a gzip file, its length and checksum compared.
///
/// # Errors
/// A text that says what is wrong.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let read = GzDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut out);
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err("it is cut short".to_string()),
        Err(error) => Err(format!("it is damaged: {error}")),
        Ok(length) if length as u64 > LARGEST => Err(format!("it unpacks to more than {LARGEST} bytes")),
        Ok(_) => Ok(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// `None` where the program is missing.
    fn gzip(bytes: &[u8], level: &str) -> Option<Vec<u8>> {
        let mut child =
            Command::new("gzip").args([level, "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (mut stdin, bytes) = (child.stdin.take()?, bytes.to_vec());
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let out = child.wait_with_output().ok()?.stdout;
        writer.join().ok()?.ok()?;
        Some(out)
    }

    #[test]
    fn what_gzip_packs_comes_back() {
        let noise: Vec<u8> = gpulab::cpu::random_f32(100_000, 1).iter().flat_map(|x| x.to_le_bytes()).collect();
        let text = "the quick brown fox, and again the quick brown fox; ".repeat(2000).into_bytes();
        let digits = crate::data::Images::generated(1, 300, 1).train.pixels;
        for bytes in [&b""[..], b"a", &noise, &text, &digits, &[0; 70_000]] {
            for level in ["-1", "-6", "-9"] {
                let Some(packed) = gzip(bytes, level) else { return };
                assert_eq!(unpack(&packed).unwrap(), bytes);
            }
        }
    }

    /// `printf 'gpulab gpulab gpulab' | gzip -n`
    const SMALL: [u8; 29] = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x2f, 0x28, 0xcd, 0x49, 0x4c, 0x52, 0x48, 0x47, 0xa6, 0, 0x2c, 0x9d,
        0x9b, 0xe9, 0x14, 0, 0, 0,
    ];

    #[test]
    fn damage_is_an_error_and_no_panic() {
        assert!(unpack(b"plain").unwrap_err().contains("cut short"));
        assert!(unpack(b"plain text here").unwrap_err().contains("damaged"));
        for end in 0..SMALL.len() {
            assert!(unpack(&SMALL[..end]).is_err(), "{end}");
        }
        let mut wrong = 0;
        for at in 10..SMALL.len() {
            for bit in 0..8 {
                let mut bytes = SMALL;
                bytes[at] ^= 1 << bit;
                wrong += usize::from(unpack(&bytes).is_ok());
            }
        }
        assert_eq!(wrong, 0);
        assert_eq!(unpack(&SMALL).unwrap(), b"gpulab gpulab gpulab");
    }
}
