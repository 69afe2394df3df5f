//! Gradients across a notebook's cells.
//!
//! candle tells tensors apart by a [`TensorId`](candle_core::TensorId) that it counts up in a static, and looks gradients up
//! by it. evcxr compiles every cell into a shared object with its own copy of each static, so every cell counts from the
//! start: a tensor that one cell makes may have the id of a parameter that another made, and its gradient goes to the wrong
//! one, often silently.

use candle_core::{DType, Device, Tensor};
use gpulab::error::Result;

/// Raises this cell's counter past the ids of these tensors, which may come from other cells: those that are made from now
/// on have other ids. To be called before a forward pass whose gradients are asked for; [`super::cnn`],
/// [`super::memory`] and [`super::gpt::train`] do.
///
/// # Errors
/// candle's error when there is no memory for a number.
pub fn reserve_tensor_ids<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    let last = tensors.into_iter().map(id_number).max().unwrap_or(0);
    let make = || Tensor::zeros((), DType::U8, &Device::Cpu);
    for _ in id_number(&make()?)..last {
        make()?;
    }
    Ok(())
}

/// The same tensor under an id that this cell gives now: for inputs, which may have that of a parameter. Call it after
/// [`reserve_tensor_ids`].
///
/// # Errors
/// candle's error when a copy fails; a contiguous tensor is not copied.
pub fn with_new_id(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.reshape(tensor.shape())?)
}

/// The number in a [`TensorId`](candle_core::TensorId). candle 0.11.1 gives it out nowhere but in the text of its `Debug`,
/// `TensorId(7)`; the test below fails when a later candle writes it in another way, or counts in another.
pub(crate) fn id_number(tensor: &Tensor) -> usize {
    let text = format!("{:?}", tensor.id());
    text.bytes().filter(u8::is_ascii_digit).fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_tensors_have_later_ids() {
        let make = || Tensor::zeros(3, DType::F32, &Device::Cpu).unwrap();
        let (first, second) = (make(), make());
        assert_eq!(format!("{:?}", first.id()), format!("TensorId({})", id_number(&first)));
        assert!(id_number(&second) > id_number(&first) && id_number(&first) > 0);
        reserve_tensor_ids([&first, &second]).unwrap();
        assert!(id_number(&make()) > id_number(&second));
        reserve_tensor_ids([]).unwrap();
        let again = with_new_id(&first).unwrap();
        assert!(id_number(&again) > id_number(&second) && again.to_vec1::<f32>().unwrap() == [0.0; 3]);
    }
}
