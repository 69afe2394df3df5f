//! Lists cuDNN's algorithms for the CNN's second convolution: time and workspace of each, for all three passes.
//!
//! `cargo run --release -p gpulab-profiling --example conv_algorithms`

mod cudnn;

use cudnn::{ConvElement, ConvPass, Convolution, Cudnn};
use gpulab::prelude::*;

fn main() -> Result<()> {
    let gpu = Gpu::open_index(0)?;
    let cudnn = Cudnn::new(&gpu)?;
    for element in [ConvElement::F32, ConvElement::Tf32, ConvElement::Bf16, ConvElement::F16] {
        for channels_last in [false, true] {
            for pass in ConvPass::ALL {
                let convolution = Convolution { element, channels_last, ..Convolution::SECOND_OF_CNN };
                match cudnn.algorithms(&convolution, pass) {
                    Ok(found) => println!("{found}"),
                    Err(error) => println!("{} of {convolution}: {error}\n", pass.name()),
                }
            }
        }
    }
    Ok(())
}
