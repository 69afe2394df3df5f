//! candle's errors as [`Error`]: `?` works on both, in the crates and in a notebook's cell. Rust wants such a conversion in
//! the crate that has one of the two types.

use crate::error::Error;

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Error {
        let whole = error.to_string();
        // Below the first line candle may print where in its own code it was.
        let text = whole.lines().next().unwrap_or_default().to_string();
        let full = ["OUT_OF_MEMORY", "out of memory"].iter().any(|part| whole.contains(part));
        let fix = match full {
            true => {
                "the device's memory is full: use a smaller batch or a shorter context, and drop tensors that are no longer needed"
            }
            false => "compare the shapes, kinds of numbers and devices of the tensors that the call takes",
        };
        Error::Invalid { what: format!("candle says: {text}"), fix: fix.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Result;
    use candle_core::{Device, Tensor};

    #[test]
    fn a_shape_that_does_not_fit_is_told_with_the_next_step() {
        let add = || -> Result<Tensor> {
            let (two, three) =
                (Tensor::new(&[1f32, 2.0], &Device::Cpu)?, Tensor::new(&[1f32, 2.0, 3.0], &Device::Cpu)?);
            Ok((two + three)?)
        };
        let text = add().unwrap_err().to_string();
        assert!(text.contains("shape mismatch") && text.contains("\nnext: compare the shapes"), "{text}");
    }
}
