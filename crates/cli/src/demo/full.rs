//! A training step's forward pass in a process that may only take so much memory: how an allocation that fails looks.

use gpulab::cpu::{ConvAlgorithm, ConvShape, matmul_shape, random_f32};
use gpulab::error::{Error, Result, bytes};

/// Runs the forward pass of the course's CNN on `batch` random images, and keeps the result of each operation, as training
/// does for the backward pass. The process may take `mib` MiB more than it has before; a line for each layer goes to the
/// standard output, as a failing allocation leaves no time for a report: Rust then ends the process.
///
/// # Errors
/// [`Error::Unsupported`] where the system keeps no such limit.
pub fn out_of_memory(batch: usize, mib: u64) -> Result<String> {
    // Threads, and the room that they set aside for themselves, are there before the limit is.
    forward(1, false)?;
    limit(mib << 20)?;
    crate::print(format_args!("{batch} images, and {mib} MiB for what their forward pass keeps"));
    let kept = forward(batch, true)?;
    Ok(format!("done: {} are kept, and the backward pass could begin", bytes(kept)))
}

/// One layer: its name, and the results that it keeps of such a batch.
type Step = (&'static str, fn(&[f32], usize) -> Result<Vec<Vec<f32>>>);

const STEPS: [Step; 5] = [
    ("conv 1, bias, ReLU", |x, batch| conv(x, &ConvShape { batch, inputs: 1, outputs: 32, side: 28 })),
    ("conv 2, bias, ReLU", |x, batch| conv(x, &ConvShape { batch, inputs: 32, outputs: 64, side: 26 })),
    ("max-pool", |x, _| Ok(vec![pool(x, 24)])),
    ("linear 9216→128, ReLU", |x, batch| linear(x, batch, 9216, 128, true)),
    ("linear 128→10", |x, batch| linear(x, batch, 128, 10, false)),
];

/// Gives the bytes that are kept when it has ended.
fn forward(batch: usize, tell: bool) -> Result<u64> {
    let mut kept = vec![random_f32(batch * 28 * 28, 1)];
    let held = |kept: &[Vec<f32>]| kept.iter().map(|result| 4 * result.len() as u64).sum::<u64>();
    for (name, step) in STEPS {
        let before = held(&kept);
        let results = step(&kept[kept.len() - 1], batch)?;
        kept.extend(results);
        if tell {
            let (more, all) = (bytes(held(&kept) - before), bytes(held(&kept)));
            crate::print(format_args!("  {name:<22} {more:>9} more, {all:>9} in all"));
        }
    }
    Ok(held(&kept))
}

/// Product, with bias, and above zero.
fn conv(x: &[f32], shape: &ConvShape) -> Result<Vec<Vec<f32>>> {
    let [_, of_weights, of_out] = shape.lengths();
    let mut product = vec![0f32; of_out];
    ConvAlgorithm::ColumnsOfAnImage.run(shape, x, &random_f32(of_weights, 2), &mut product)?;
    let plane = shape.out_side() * shape.out_side();
    let bias = random_f32(shape.outputs, 3);
    let biased: Vec<f32> = product.iter().enumerate().map(|(at, x)| x + bias[at / plane % shape.outputs]).collect();
    let above: Vec<f32> = biased.iter().map(|x| x.max(0.0)).collect();
    Ok(vec![product, biased, above])
}

/// The largest of each 2 × 2 numbers of planes of that side.
fn pool(x: &[f32], side: usize) -> Vec<f32> {
    let pairs = x.chunks_exact(2 * side).flat_map(|rows| {
        let (upper, lower) = rows.split_at(side);
        upper.chunks_exact(2).zip(lower.chunks_exact(2)).map(|(a, b)| a[0].max(a[1]).max(b[0]).max(b[1]))
    });
    pairs.collect()
}

/// Product, with bias, and above zero where `relu`.
fn linear(x: &[f32], batch: usize, inputs: usize, outputs: usize, relu: bool) -> Result<Vec<Vec<f32>>> {
    let mut product = vec![0f32; batch * outputs];
    matmul_shape(x, &random_f32(inputs * outputs, 4), &mut product, batch, inputs, outputs)?;
    let bias = random_f32(outputs, 5);
    let biased: Vec<f32> = product.iter().enumerate().map(|(at, x)| x + bias[at % outputs]).collect();
    let above: Option<Vec<f32>> = relu.then(|| biased.iter().map(|x| x.max(0.0)).collect());
    Ok([product, biased].into_iter().chain(above).collect())
}

/// Lets this process take `more` bytes of addresses beyond those that it has.
#[cfg(target_os = "linux")]
fn limit(more: u64) -> Result<()> {
    let taken = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    let unsupported = |what: &str| {
        Error::unsupported(what.to_string(), "run this on a Linux of your own; the notebook shows what it prints")
    };
    let taken = taken.ok_or_else(|| unsupported("how many addresses this process has: /proc does not tell"))?;
    let all = (taken * 1024).saturating_add(more) as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: all, rlim_max: all };
    // SAFETY: the struct outlives the call, which only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) } {
        0 => Ok(()),
        _ => Err(unsupported("a limit on this process's memory: the system refuses it")),
    }
}

#[cfg(not(target_os = "linux"))]
fn limit(_: u64) -> Result<()> {
    Err(Error::unsupported(
        "a limit on this process's memory: macOS takes one, and does not keep it",
        "run this on Linux; the notebook says what it prints there",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `gpulab demo out-of-memory` does under its limit is in the test `training_memory`; here is what it computes.
    #[test]
    fn the_forward_pass_keeps_what_the_layers_say() {
        let (conv_1, conv_2, pool) = (32 * 26 * 26, 64 * 24 * 24, 64 * 12 * 12);
        let each = 784 + 3 * conv_1 + 3 * conv_2 + pool + 3 * 128 + 2 * 10;
        assert_eq!(forward(3, false).unwrap(), 3 * 4 * each);
    }

    #[test]
    fn the_pool_takes_the_largest_of_four() {
        let plane: Vec<f32> = (0..16).map(|x| x as f32).collect();
        assert_eq!(super::pool(&plane, 4), [5.0, 7.0, 13.0, 15.0]);
    }
}
