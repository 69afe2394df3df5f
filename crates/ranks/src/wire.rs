//! Messages between processes: frames on TCP connections.

use crate::failure::FailureCause;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

/// Longer texts and messages than this are no frames of ours.
const MOST_BYTES: u64 = 1 << 40;

/// A message, as it travels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame {
    pub group: u64,
    pub tag: usize,
    pub elements: usize,
    pub dtype: String,
    /// The collective that it belongs to; empty for a message from rank to rank.
    pub signature: String,
    /// File and line of the call.
    pub line: String,
    pub bytes: Vec<u8>,
}

/// What a process tells another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
    Message(Frame),
    /// It has ended well, and sends nothing more.
    Goodbye,
    /// The world has failed.
    Failed {
        cause: FailureCause,
        ranks: Vec<usize>,
        what: String,
        fix: String,
    },
}

const CAUSES: [FailureCause; 6] = [
    FailureCause::Mismatch,
    FailureCause::Deadlock,
    FailureCause::Panicked,
    FailureCause::Died,
    FailureCause::Failed,
    FailureCause::Late,
];

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn take_number(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn take(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let length = take_number(from)?;
    if length > MOST_BYTES {
        return Err(io::Error::other("no frame of a rank"));
    }
    let mut bytes = Vec::new();
    // Grows with what comes, and not with what is announced.
    from.take(length).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == length {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn take_text(from: &mut impl Read) -> io::Result<String> {
    String::from_utf8(take(from)?).map_err(io::Error::other)
}

impl Said {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Said::Message(frame) => encode_message(&mut out, frame),
            Said::Goodbye => out.push(1),
            Said::Failed { cause, ranks, what, fix } => {
                let cause = CAUSES.iter().position(|one| one == cause).expect("all causes are listed");
                out.extend([2, cause as u8]);
                put(&mut out, &ranks.iter().flat_map(|rank| (*rank as u64).to_le_bytes()).collect::<Vec<u8>>());
                put(&mut out, what.as_bytes());
                put(&mut out, fix.as_bytes());
            }
        }
        out
    }

    pub fn decode(from: &mut impl Read) -> io::Result<Said> {
        let mut kind = [0];
        from.read_exact(&mut kind)?;
        match kind[0] {
            0 => Ok(Said::Message(Frame {
                group: take_number(from)?,
                tag: take_number(from)? as usize,
                elements: take_number(from)? as usize,
                dtype: take_text(from)?,
                signature: take_text(from)?,
                line: take_text(from)?,
                bytes: take(from)?,
            })),
            1 => Ok(Said::Goodbye),
            2 => {
                from.read_exact(&mut kind)?;
                let cause = *CAUSES.get(usize::from(kind[0])).ok_or_else(|| io::Error::other("no cause of ours"))?;
                let numbers = take(from)?;
                let ranks = numbers.as_chunks::<8>().0.iter().map(|rank| u64::from_le_bytes(*rank) as usize).collect();
                Ok(Said::Failed { cause, ranks, what: take_text(from)?, fix: take_text(from)? })
            }
            _ => Err(io::Error::other("no frame of a rank")),
        }
    }
}

fn encode_message(out: &mut Vec<u8>, frame: &Frame) {
    out.push(0);
    [frame.group, frame.tag as u64, frame.elements as u64].iter().for_each(|number| out.extend(number.to_le_bytes()));
    [&frame.dtype, &frame.signature, &frame.line].iter().for_each(|text| put(out, text.as_bytes()));
    put(out, &frame.bytes);
}

/// Connections to all other ranks; none to this one.
#[derive(Debug)]
pub(crate) struct Links(pub Vec<Option<Mutex<TcpStream>>>);

impl Links {
    /// Sends a message to that rank.
    pub fn send(&self, to: usize, frame: &Frame) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(frame.bytes.len() + 256);
        encode_message(&mut bytes, frame);
        self.write(to, &bytes)
    }

    fn write(&self, to: usize, bytes: &[u8]) -> io::Result<()> {
        let link = self.0[to].as_ref().ok_or(io::ErrorKind::NotConnected)?;
        link.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
    }

    /// Tells all others. Who is gone is passed over.
    pub fn tell_all(&self, said: &Said) {
        let bytes = said.encode();
        (0..self.0.len()).for_each(|to| drop(self.write(to, &bytes)));
    }

    /// Ends all connections, so that whoever reads from them is done.
    pub fn close(&self) {
        for link in self.0.iter().flatten() {
            // One that is closed already stays so.
            let _ = link.lock().unwrap_or_else(PoisonError::into_inner).shutdown(std::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_back_and_what_is_cut_off_is_an_error() {
        let frame = Frame {
            group: 7,
            tag: 3,
            elements: 2,
            dtype: "f32".to_string(),
            signature: "`all_reduce` of 2 f32, sum".to_string(),
            line: "src/main.rs:12".to_string(),
            bytes: vec![1, 2, 3, 4, 5, 6, 7, 8],
        };
        let failed = Said::Failed {
            cause: FailureCause::Late,
            ranks: vec![2, 70_000],
            what: "a ≠ b".to_string(),
            fix: String::new(),
        };
        for said in [Said::Message(frame), Said::Goodbye, failed] {
            let bytes = said.encode();
            assert_eq!(Said::decode(&mut &bytes[..]).unwrap(), said);
            assert!((0..bytes.len()).all(|end| Said::decode(&mut &bytes[..end]).is_err()));
        }
        // An HTTP request, and a length that nobody has.
        assert!(Said::decode(&mut &b"GET / HTTP/1.1"[..]).is_err());
        assert!(Said::decode(&mut &[[2; 2].to_vec(), vec![0xFF; 8]].concat()[..]).is_err());
    }
}
