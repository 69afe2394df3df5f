//! Two codes of four bits in a byte.

use gpulab::error::{Error, Result};

/// Packs codes from −8 to 7, the first of each two in the lower half of its byte, as two's complement.
///
/// # Errors
/// [`Error::Invalid`] for an odd number of codes, or one that has no room in four bits.
pub fn pack_int4(codes: &[i32]) -> Result<Vec<u8>> {
    if !codes.len().is_multiple_of(2) {
        return Err(Error::invalid(
            format!("{} codes of 4 bits are no whole bytes", codes.len()),
            "add a 0 at the end",
        ));
    }
    if let Some(at) = codes.iter().position(|code| !(-8..=7).contains(code)) {
        return Err(Error::invalid(
            format!("code {at} is {}, and 4 bits hold −8 to 7", codes[at]),
            "clamp it, or choose a larger scale",
        ));
    }
    Ok(codes.chunks(2).map(|two| (two[0] & 15) as u8 | ((two[1] & 15) as u8) << 4).collect())
}

/// The codes of such bytes.
pub fn unpack_int4(bytes: &[u8]) -> Vec<i32> {
    // Shifted to the top and back: the sign comes along.
    let signed = |half: u8| i32::from(((half << 4) as i8) >> 4);
    bytes.iter().flat_map(|byte| [signed(byte & 15), signed(byte >> 4)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_comes_back_and_the_bytes_are_as_written() {
        assert_eq!(pack_int4(&[1, -1, 7, -8]).unwrap(), [0xF1, 0x87]);
        for one in -8..=7 {
            for two in -8..=7 {
                assert_eq!(unpack_int4(&pack_int4(&[one, two]).unwrap()), [one, two]);
            }
        }
        assert!(pack_int4(&[1]).unwrap_err().to_string().contains("no whole bytes"));
        assert!(pack_int4(&[0, 8]).unwrap_err().to_string().contains("code 1 is 8"));
    }
}
