//! Gradients across a notebook's cells.
//!
//! candle tells tensors apart by a number that it counts up in a static, and looks gradients up by it. evcxr compiles every
//! cell into a shared object with its own copy of each static, so every cell counts from the start: a tensor that one cell
//! makes may have the number of a parameter that another made, and its gradient goes to the wrong one, often silently.

use candle_core::{DType, Device, Tensor};
use gpulab::error::Result;

/// Has this cell count on behind these tensors, which may come from other cells: those that are made from now on have
/// other numbers. To be called before a forward pass whose way back is asked for; [`super::cnn`] does.
///
/// # Errors
/// candle's error when there is no memory for a number.
pub fn count_on_behind<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let last = tensors.into_iter().map(number).max().unwrap_or(0);
    let make = || Tensor::zeros((), DType::U8, &Device::Cpu);
    for _ in number(&make()?)..last {
        make()?;
    }
    Ok(())
}

/// The same numbers under a number that this cell gives now: for inputs, which may have that of a parameter. Call it after
/// [`count_on_behind`].
///
/// # Errors
/// candle's error when a copy fails; a contiguous tensor is not copied.
pub fn renumbered(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.reshape(tensor.shape())?)
}

/// candle shows the number only in the text of its type: `TensorId(7)`.
fn number(tensor: &Tensor) -> usize {
    let text = format!("{:?}", tensor.id());
    text.bytes().filter(u8::is_ascii_digit).fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_tensors_have_later_numbers() {
        let make = || Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        let (first, second) = (make(), make());
        assert!(number(&second) > number(&first) && number(&first) > 0);
        count_on_behind([&first, &second]).unwrap();
        assert!(number(&make()) > number(&second));
        count_on_behind([]).unwrap();
        let again = renumbered(&first).unwrap();
        assert!(number(&again) > number(&second) && again.to_vec1::<f32>().unwrap() == [0.0; 3]);
    }
}
