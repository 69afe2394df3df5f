//! The first fields of the records: kernels, copies, fills.

use std::ffi::{CStr, c_char};

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawKind {
    Kernel,
    /// CUPTI's number for from where to where.
    Copy(u8),
    Fill,
}

/// One record. Times are ns of CUPTI's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raw {
    pub kind: RawKind,
    pub start: u64,
    pub end: u64,
    pub stream: u32,
    /// Moved or filled; 0 of kernels.
    pub bytes: u64,
    /// Of kernels, as CUPTI has it: mangled where the source is C++.
    pub name: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub registers: u32,
    pub shared_bytes: u32,
}

const KERNEL: u32 = 3;
const CONCURRENT_KERNEL: u32 = 10;
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;

impl Raw {
    /// Reads the record at that address; `None` for other kinds.
    ///
    /// # Safety
    /// A record of CUPTI 12 or 13 lies there, in whole.
    pub(super) unsafe fn read(record: *const u8) -> Option<Raw> {
        // SAFETY: the offsets are those of NVIDIA's `cupti_activity.h`, within the shortest of these records; CUPTI
        // aligns records to 8 bytes only, so nothing is assumed.
        unsafe {
            let word = |at: usize| record.add(at).cast::<u32>().read_unaligned();
            let long = |at: usize| record.add(at).cast::<u64>().read_unaligned();
            let three = |at: usize| [word(at), word(at + 4), word(at + 8)];
            let (start, end) = (long(16), long(24));
            let none = Raw {
                kind: RawKind::Fill,
                start,
                end,
                stream: 0,
                bytes: 0,
                name: String::new(),
                grid: [0; 3],
                block: [0; 3],
                registers: 0,
                shared_bytes: 0,
            };
            match word(0) {
                KERNEL | CONCURRENT_KERNEL => {
                    let name = record.add(104).cast::<*const c_char>().read_unaligned();
                    let name = if name.is_null() { c"kernel" } else { CStr::from_ptr(name) };
                    Some(Raw {
                        kind: RawKind::Kernel,
                        stream: word(48),
                        name: name.to_string_lossy().into_owned(),
                        grid: three(52),
                        block: three(64),
                        registers: record.add(6).cast::<u16>().read_unaligned().into(),
                        shared_bytes: word(76).saturating_add(word(80)),
                        ..none
                    })
                }
                MEMCPY => {
                    let kind = RawKind::Copy(record.add(4).read());
                    Some(Raw { kind, stream: word(40), bytes: long(8), ..none })
                }
                MEMSET => Some(Raw { stream: word(40), bytes: long(8), ..none }),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with these words at these offsets, laid out by hand after `cupti_activity.h` of CUDA 13.0.
    fn record(kind: u32, fields: &[(usize, u64, usize)]) -> Vec<u8> {
        let mut bytes = vec![0; 208];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        for &(at, value, length) in fields {
            bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        }
        bytes
    }

    #[test]
    fn fields_are_where_the_header_has_them() {
        let name = c"reduce";
        let kernel = record(
            10,
            &[
                (6, 32, 2),
                (16, 1000, 8),
                (24, 3000, 8),
                (48, 7, 4),
                (52, 512, 4),
                (56, 1, 4),
                (60, 1, 4),
                (64, 256, 4),
                (68, 1, 4),
                (72, 1, 4),
                (76, 1024, 4),
                (80, 64, 4),
                (104, name.as_ptr() as u64, 8),
            ],
        );
        // SAFETY: long enough for each kind, and the name lives on.
        let read = |bytes: &[u8]| unsafe { Raw::read(bytes.as_ptr()) };
        let found = read(&kernel).unwrap();
        assert_eq!((found.kind, found.name.as_str(), found.stream), (RawKind::Kernel, "reduce", 7));
        assert_eq!((found.grid, found.block, found.registers), ([512, 1, 1], [256, 1, 1], 32));
        assert_eq!((found.start, found.end, found.shared_bytes), (1000, 3000, 1088));
        let copy = read(&record(1, &[(4, 2, 1), (8, 4096, 8), (16, 5, 8), (24, 9, 8), (40, 13, 4)])).unwrap();
        assert_eq!((copy.kind, copy.bytes, copy.stream, copy.end), (RawKind::Copy(2), 4096, 13, 9));
        let fill = read(&record(2, &[(8, 64, 8), (40, 7, 4)])).unwrap();
        assert_eq!((fill.kind, fill.bytes, fill.stream), (RawKind::Fill, 64, 7));
        assert_eq!(read(&record(5, &[])), None);
    }
}
