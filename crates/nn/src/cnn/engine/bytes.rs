//! How much of the GPU's memory a batch takes, before any of it is taken.

use super::kernels::{OF_CONVOLUTIONS, image_blocks};
use super::launches::{FEATURES, HIDDEN, STRETCHES};
use super::{EngineSettings, WORDS};
use gpulab::error::{Result, bytes};
use gpulab::gpu::Gpu;
use crate::cnn::Parameters;
use crate::cnn::memory::too_large;

/// Left for what is not counted here: a step's graph, and the driver's pool, which allocates in blocks.
const SPARE: u64 = 64 << 20;

/// Bytes for each image of a step: pooled map, its gradient and the places of its windows' largest; partial sums of the
/// first linear layer; two rows of hidden units; logits; loss and hit.
const EACH: usize = FEATURES * (4 + 4 + 1) + STRETCHES * HIDDEN * 4 + 2 * HIDDEN * 4 + 10 * 4 + 4 + 4;

/// Parameters, both moments and gradients; the second convolution's weight as tensor cores read it; a few words.
fn fixed() -> usize {
    4 * (4 * Parameters::count() + 2 * Parameters::len_of(2) + WORDS + 9 + 2)
}

/// What a [`super::Room`] takes: for that many images at a time, of a set of `images`.
fn of_room(gpu: &Gpu, batch: usize, images: usize) -> u64 {
    let blocks = image_blocks(gpu, batch) as usize;
    (fixed() + batch * EACH + blocks * OF_CONVOLUTIONS * 4 + images.div_ceil(batch) * 8) as u64
}

/// Refuses a batch that the GPU's free memory cannot hold, and names the largest that it can.
pub(super) fn check(gpu: &Gpu, settings: &EngineSettings, images: usize) -> Result<()> {
    let memory = gpu.memory()?;
    // What the pool has and nobody holds is free, too.
    check_free(gpu, settings.batch, images, memory.free + memory.reserved.saturating_sub(memory.used))
}

fn check_free(gpu: &Gpu, batch: usize, images: usize, free: u64) -> Result<()> {
    let (needed, free) = (of_room(gpu, batch, images), free.saturating_sub(SPARE));
    if needed <= free {
        return Ok(());
    }
    // As if each of them had a block: the largest that surely fits.
    let rest = free.saturating_sub((fixed() + images * 8) as u64);
    let blocks = u64::from(image_blocks(gpu, batch)) * OF_CONVOLUTIONS as u64 * 4;
    let many = rest.saturating_sub(blocks) / EACH as u64;
    let few = (rest / (EACH + OF_CONVOLUTIONS * 4) as u64).min(image_blocks(gpu, batch).into());
    Err(too_large(batch as u64, many.max(few), &format!("it needs {}, and {} are free", bytes(needed), bytes(free))))
}

#[cfg(test)]
mod tests {
    use super::super::launches::Room;
    use super::*;
    use crate::cnn::Checkpoint;

    #[test]
    fn a_room_takes_what_was_counted_and_a_batch_that_is_named_fits() {
        let gpu = Gpu::simulated().unwrap();
        let start = Checkpoint::new(1, "none");
        for batch in [1, 3, 50] {
            let settings = EngineSettings { batch, ..EngineSettings::default() };
            let before = gpu.memory().unwrap().used;
            let room = Room::new(&gpu, &start, &settings, 100).unwrap();
            assert_eq!(gpu.memory().unwrap().used - before, of_room(&gpu, batch, 100), "batch {batch}");
            drop(room);
        }
        for free_mib in [84, 90, 200, 1000] {
            let text = check_free(&gpu, 60_000, 60_000, free_mib << 20).unwrap_err().to_string();
            let named = text.split("next: use a batch of ").nth(1).unwrap_or_else(|| panic!("{text}"));
            let named: usize = named.split_whitespace().next().unwrap().parse().unwrap();
            check_free(&gpu, named, 60_000, free_mib << 20).unwrap();
            // A tenth more does not fit: it is the largest, but for what a block more takes.
            assert!(
                check_free(&gpu, named + named / 10 + 6, 60_000, free_mib << 20).is_err(),
                "{named} of {free_mib} MiB"
            );
        }
        let none = check_free(&gpu, 1, 60_000, 70 << 20).unwrap_err().to_string();
        assert!(none.contains("it needs 19.1 MiB") && none.contains("next: not even one image fits"), "{none}");
        check(&gpu, &EngineSettings::default(), 60_000).unwrap();
    }
}
