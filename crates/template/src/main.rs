//! Launches the kernel once, and compares its result with the CPU's.

use my_kernels::{Saxpy, reference};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let x: Vec<f32> = (0..1_000_003).map(|i| (i % 1000) as f32).collect();
    let mut y = vec![1.0; x.len()];
    let expected = reference(2.0, &x, &y);
    Saxpy::new(0)?.run(2.0, &x, &mut y)?;
    let wrong = y.iter().zip(&expected).filter(|(ours, known)| ours != known).count();
    println!("{} elements, {wrong} wrong", y.len());
    Ok(())
}
