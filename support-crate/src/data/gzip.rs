//! Unpacking gzip (RFC 1952) and deflate (RFC 1951): MNIST's files come so. A crate for it would be built with every
//! notebook.

/// More than any file of images here unpacks to: a damaged length must not fill the memory.
const LARGEST: usize = 1 << 30;

/// The file within a gzip file, its length and checksum compared.
///
/// # Errors
/// A text that says what is wrong.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let short = || "it is cut short".to_string();
    let header = bytes.get(..10).ok_or_else(short)?;
    if header[..3] != [0x1f, 0x8b, 8] {
        return Err("it is no gzip file".to_string());
    }
    let (flags, mut rest) = (header[3], &bytes[10..]);
    if flags & 4 != 0 {
        let length = rest.first_chunk::<2>().map(|length| usize::from(u16::from_le_bytes(*length)));
        rest = length.and_then(|length| rest.get(2 + length..)).ok_or_else(short)?;
    }
    // A name and a remark, each up to a zero.
    for _ in 0..(flags >> 3 & 1) + (flags >> 4 & 1) {
        let end = rest.iter().position(|&byte| byte == 0).ok_or_else(short)?;
        rest = &rest[end + 1..];
    }
    rest = rest.get(usize::from(flags & 2)..).ok_or_else(short)?;
    let (out, used) = inflate(rest)?;
    let end = rest.get(used..used + 8).ok_or_else(short)?;
    let word = |at: usize| u32::from_le_bytes([end[at], end[at + 1], end[at + 2], end[at + 3]]);
    if word(4) != out.len() as u32 || word(0) != crc32(&out) {
        return Err("its checksum does not fit its content".to_string());
    }
    Ok(out)
}

fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|at| {
        (0..8).fold(at as u32, |crc, _| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 })
    });
    !bytes.iter().fold(!0, |crc, &byte| table[((crc ^ u32::from(byte)) & 255) as usize] ^ (crc >> 8))
}

struct Bits<'a> {
    bytes: &'a [u8],
    next: usize,
    kept: u64,
    count: u32,
}

impl Bits<'_> {
    /// The next `count` bits (at most 16) as a number, the first one lowest.
    fn take(&mut self, count: u32) -> Result<u32, String> {
        while self.count < count {
            let byte = *self.bytes.get(self.next).ok_or("it is cut short")?;
            self.kept |= u64::from(byte) << self.count;
            (self.next, self.count) = (self.next + 1, self.count + 8);
        }
        let value = self.kept & ((1 << count) - 1);
        (self.kept, self.count) = (self.kept >> count, self.count - count);
        Ok(value as u32)
    }

    /// Drops the rest of a byte, and gives back bytes that were read too early.
    fn drop_to_byte(&mut self) {
        self.next -= (self.count / 8) as usize;
        (self.kept, self.count) = (0, 0);
    }
}

/// A Huffman code: how many codes there are of each length, and the symbols in the order of their codes.
struct Code {
    counts: [u16; 16],
    symbols: Vec<u16>,
}

impl Code {
    fn new(lengths: &[u8]) -> Result<Code, String> {
        let mut counts = [0u16; 16];
        lengths.iter().for_each(|&length| counts[usize::from(length)] += 1);
        counts[0] = 0;
        let mut left = 1i32;
        for count in &counts[1..] {
            left = left * 2 - i32::from(*count);
            if left < 0 {
                return Err("its codes do not fit together".to_string());
            }
        }
        let mut symbols: Vec<u16> = (0..lengths.len() as u16).filter(|&s| lengths[usize::from(s)] > 0).collect();
        symbols.sort_by_key(|&symbol| lengths[usize::from(symbol)]);
        Ok(Code { counts, symbols })
    }

    fn next(&self, bits: &mut Bits) -> Result<usize, String> {
        // Codes of one length are neighbours, and follow those of the length before.
        let (mut code, mut first, mut index) = (0i32, 0i32, 0i32);
        for count in &self.counts[1..] {
            code |= bits.take(1)? as i32;
            let count = i32::from(*count);
            if code - first < count {
                return Ok(usize::from(self.symbols[(index + code - first) as usize]));
            }
            (index, first, code) = (index + count, (first + count) << 1, code << 1);
        }
        Err("it holds a code that stands for nothing".to_string())
    }
}

/// What a deflate stream holds, and how many bytes of `bytes` it takes.
fn inflate(bytes: &[u8]) -> Result<(Vec<u8>, usize), String> {
    let mut bits = Bits { bytes, next: 0, kept: 0, count: 0 };
    let mut out = Vec::new();
    loop {
        let last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => {
                bits.drop_to_byte();
                let (length, check) = (bits.take(16)?, bits.take(16)?);
                if length != !check & 0xffff {
                    return Err("the length of a stored block does not fit".to_string());
                }
                let end = bits.next + length as usize;
                out.extend(bytes.get(bits.next..end).ok_or("it is cut short")?);
                bits.next = end;
            }
            1 => {
                let lengths: Vec<u8> = [(144, 8), (112, 9), (24, 7), (8, 8)]
                    .iter()
                    .flat_map(|&(count, length)| std::iter::repeat_n(length, count))
                    .collect();
                block(&mut bits, &mut out, &Code::new(&lengths)?, &Code::new(&[5; 30])?)?;
            }
            2 => {
                let (literals, distances) = codes(&mut bits)?;
                block(&mut bits, &mut out, &literals, &distances)?;
            }
            _ => return Err("it has a block of a kind that does not exist".to_string()),
        }
        if last {
            bits.drop_to_byte();
            return Ok((out, bits.next));
        }
    }
}

/// The two codes that a block brings along, themselves packed by a third.
fn codes(bits: &mut Bits) -> Result<(Code, Code), String> {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let (literals, distances) = (bits.take(5)? as usize + 257, bits.take(5)? as usize + 1);
    let count = bits.take(4)? as usize + 4;
    let mut lengths = [0u8; 19];
    for &at in &ORDER[..count] {
        lengths[at] = bits.take(3)? as u8;
    }
    let code = Code::new(&lengths)?;
    let mut lengths: Vec<u8> = Vec::new();
    while lengths.len() < literals + distances {
        let (length, times) = match code.next(bits)? {
            16 => (*lengths.last().ok_or("it repeats a length before the first")?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length as u8, 1),
        };
        lengths.extend(std::iter::repeat_n(length, times as usize));
    }
    if lengths.len() > literals + distances {
        return Err("it has more lengths than codes".to_string());
    }
    Ok((Code::new(&lengths[..literals])?, Code::new(&lengths[literals..])?))
}

fn block(bits: &mut Bits, out: &mut Vec<u8>, literals: &Code, distances: &Code) -> Result<(), String> {
    loop {
        let symbol = literals.next(bits)?;
        if symbol < 256 {
            out.push(symbol as u8);
            continue;
        }
        if symbol == 256 {
            return Ok(());
        }
        // Ranges of lengths and distances grow: four (two) to each number of extra bits.
        let length = match symbol - 257 {
            n @ 0..8 => n + 3,
            n @ 8..28 => {
                let extra = (n / 4 - 1) as u32;
                ((4 + n % 4) << extra) + 3 + bits.take(extra)? as usize
            }
            28 => 258,
            _ => return Err("it holds a length that does not exist".to_string()),
        };
        let distance = match distances.next(bits)? {
            n @ 0..4 => n + 1,
            n @ 4..30 => {
                let extra = (n / 2 - 1) as u32;
                ((2 + n % 2) << extra) + 1 + bits.take(extra)? as usize
            }
            _ => return Err("it holds a distance that does not exist".to_string()),
        };
        if distance > out.len() || out.len() + length > LARGEST {
            return Err("it copies from before its beginning, or without end".to_string());
        }
        for _ in 0..length {
            out.push(out[out.len() - distance]);
        }
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
        let noise: Vec<u8> = crate::cpu::random_f32(100_000, 1).iter().flat_map(|x| x.to_le_bytes()).collect();
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
        assert!(unpack(b"plain text here").unwrap_err().contains("no gzip file"));
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
