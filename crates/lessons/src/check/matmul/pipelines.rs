//! Lesson 12b: a double-buffered loop from a blank page, waves on paper, and a product of shared steps with a fault to find.

use super::{Fault, Shape, mistake_hint, named, on_paper, reference, right_product};
use crate::check::Verdict;
use crate::check::kernels::{self, whole};
use crate::check::verdict::{Check, verdict, wrong};
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;
use std::collections::VecDeque;

/// What stands behind the answer of [`product_loop`]: the class that it is given, and the kernel that calls it.
pub const LOOP_TOOLS: &str = include_str!("pipelines_tools.cu");

const SHAPES: [Shape; 6] = [(32, 32, 64), (1, 1, 1), (17, 33, 16), (16, 16, 17), (33, 17, 40), (50, 20, 100)];
/// Numbers of the log: how many, then one for each call.
const LOG: usize = 512;

/// Checks a function `template <class Tiles> __device__ void product_loop(Tiles &tiles, int steps)` that fetches each step's
/// tiles once into one of two stages, and multiplies them, with the next step's copies in flight meanwhile.
pub fn product_loop(source: &str) -> Verdict {
    let whole_source = format!("{source}\n{LOOP_TOOLS}");
    kernels::verdict("product_loop", &whole_source, "product", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            let (m, n, k) = shape;
            let (a, b) = (whole(m * k, 1), whole(k * n, 2));
            let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(m * n)?);
            let (mut log, sides) = (gpu.zeros::<i32>(LOG)?, (m as i32, n as i32, k as i32));
            let config = LaunchConfig { block: (16, 16, 1), ..LaunchConfig::for_table(m, n, (16, 16)) };
            let launched = kernel.launch(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2, &mut log));
            let launched = match launched {
                Err(error) if !kernels::first_is(&error, &[Kind::Unfinished]) => return Err(error.into()),
                launched => launched,
            };
            // The order first: it says why a result is wrong, or a tile is read while copies are in flight.
            let calls = log.to_host()?;
            in_order(&calls[1..=calls[0] as usize], k.div_ceil(16), &named(shape))?;
            launched?;
            let hint = "which step's tiles are in a stage when it is multiplied, and is each step multiplied once?";
            right_product(&c.to_host()?, &a, &b, shape, hint)?;
            let seen = kernel.inspect(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2, &mut log))?;
            let most = (config.blocks() as usize * 8 * (2 * k.div_ceil(16) + 1)) as u64;
            if seen.counters.barriers > most {
                let what = format!(
                    "with {}: warps arrive at barriers {} times, where {most} are enough",
                    named(shape),
                    seen.counters.barriers
                );
                return wrong(what, "two barriers per step: who must wait for whom there?");
            }
        }
        Ok(())
    })
}

/// Whether the calls of a thread, as they were noted, make a pipeline of two stages.
fn in_order(calls: &[i32], steps: usize, with: &str) -> Check {
    let mut under_way: VecDeque<(usize, usize)> = VecDeque::new();
    let (mut arrived, mut fetched, mut multiplied) = ([None; 2], vec![0; steps], 0);
    for &call in calls {
        match call {
            1000.. => {
                let (step, stage) = ((call as usize - 1000) / 2, call as usize % 2);
                arrived[stage] = None;
                under_way.push_back((step, stage));
                if let Some(count) = fetched.get_mut(step) {
                    *count += 1;
                }
            }
            500.. => {
                let stage = call as usize - 500;
                let at = format!("with {with}, multiplication {multiplied} (of stage {stage})");
                if under_way.iter().any(|one| one.1 == stage) {
                    return wrong(
                        format!("{at}: copies into that stage are still in flight"),
                        "what has this thread waited for by then?",
                    );
                }
                if stage > 1 || arrived[stage] != Some(multiplied) {
                    let holds = arrived.get(stage).copied().flatten();
                    let what = holds.map_or("holds no step's tiles".to_string(), |step: usize| {
                        format!("holds the tiles of step {step}")
                    });
                    return wrong(
                        format!("{at}: the stage {what}"),
                        "follow one stage over three steps: fetched, arrived, multiplied, fetched again",
                    );
                }
                if multiplied + 1 < steps && !under_way.iter().any(|one| one.0 == multiplied + 1) {
                    let what = format!(
                        "{at}: it is right so far, and no copies of step {} are in flight meanwhile",
                        multiplied + 1
                    );
                    return wrong(what, "what could the memory do while this thread multiplies?");
                }
                multiplied += 1;
            }
            _ => {
                while under_way.len() > call as usize - 100 {
                    if let Some((step, stage)) = under_way.pop_front() {
                        arrived[stage] = Some(step);
                    }
                }
            }
        }
    }
    if let Some(step) = fetched.iter().position(|&count| count != 1) {
        let what = format!("with {with}: step {step} is fetched {} times", fetched[step]);
        return wrong(what, "each step's tiles are fetched once, the first before the loop");
    }
    if multiplied != steps {
        return wrong(
            format!("with {with}: {multiplied} multiplications for {steps} steps"),
            "each step is multiplied once, the last one too",
        );
    }
    Ok(())
}

/// Checks the answer to: a product of 5000 × 3000 in tiles of 128 × 256, on 132 multiprocessors with room for one block each. What
/// percent of the room in all waves has a tile to work on?
pub fn wave_share(answer: Option<f64>) -> Verdict {
    let tiles = f64::from(5000_u32.div_ceil(128) * 3000_u32.div_ceil(256));
    let waves = (tiles / 132.0).ceil();
    let known = [
        (100.0, "the last wave is as long as the others, and not as full"),
        (100.0 * (tiles / 132.0).fract(), "that is the last wave alone"),
        (tiles / 132.0, "that is how many waves of work there are, not a percentage"),
        (
            100.0 * f64::from((5000_u32 / 128) * (3000_u32 / 256)) / (waves * 132.0),
            "tiles that hang over an edge are blocks, too",
        ),
        (
            100.0 * tiles / (waves * 132.0) * (5000.0 * 3000.0) / (tiles * 128.0 * 256.0),
            "a block that hangs over an edge works as long as any other",
        ),
    ];
    verdict("wave_share", || {
        on_paper(
            answer,
            100.0 * tiles / (waves * 132.0),
            &known,
            "percent",
            "how many tiles are there, those at the edges too, and how many blocks would full waves hold?",
        )
    })
}

/// A product whose steps are shared out evenly over the blocks, with a fault. Its source is hidden until it is named.
#[derive(Debug, Clone, Copy)]
pub struct ShareSuspect;

const SUSPECT: &str = include_str!("pipelines_suspect.cu");
/// Three blocks for 16 tiles of 4 steps.
const ASKED: (Shape, u32) = ((64, 64, 64), 3);

impl ShareSuspect {
    /// How many tiles of 16 × 16 have a wrong element, with so many blocks.
    ///
    /// # Errors
    /// Those of a launch in the simulator.
    pub fn wrong_tiles(self, m: usize, n: usize, k: usize, blocks: u32) -> Result<usize> {
        let gpu = Gpu::simulated()?;
        let (a, b) = (whole(m * k, 1), whole(k * n, 2));
        let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.zeros::<f32>(m * n)?);
        let config = LaunchConfig { grid: (blocks, 1, 1), block: (16, 16, 1), shared_bytes: 0 };
        gpu.compile(SUSPECT)?.kernel("shares")?.launch(config, (&on_a, &on_b, &mut c, m as i32, n as i32, k as i32))?;
        let (given, right) = (c.to_host()?, reference(&a, &b, (m, n, k)));
        let tile = |at: usize| (at / n / 16, at % n / 16);
        let wrong: std::collections::BTreeSet<_> = (0..m * n).filter(|&at| given[at] != right[at]).map(tile).collect();
        Ok(wrong.len())
    }

    /// The source, for who has found the fault; else nothing.
    pub fn source(self, fault: Fault) -> Option<&'static str> {
        (fault == Fault::LongShares).then_some(SUSPECT)
    }
}

/// Checks the diagnosis of [`ShareSuspect`]: its fault, and how many tiles are wrong at 64 × 64 × 64 with 3 blocks.
pub fn share_suspect(fault: Fault, tiles: Option<usize>) -> Verdict {
    kernels::verdict("share_suspect", SUSPECT, "shares", mistake_hint, |_, _| {
        let count = |(m, n, k): Shape, blocks| ShareSuspect.wrong_tiles(m, n, k, blocks);
        let against = match fault {
            Fault::LongShares => {
                let right = count(ASKED.0, ASKED.1)?;
                return match tiles {
                    None => wrong(
                        "the fault is right; how many tiles are wrong?",
                        "`wrong_tiles(64, 64, 64, 3)` counts them",
                    ),
                    Some(given) if given == right => Ok(()),
                    Some(given) => wrong(
                        format!("the fault is right, and {given} tiles are not what that size has"),
                        "`wrong_tiles(64, 64, 64, 3)` counts them",
                    ),
                };
            }
            Fault::Unknown => {
                return wrong(
                    "no fault is named yet",
                    "vary one thing at a time: m and n, then k, then the number of blocks",
                );
            }
            Fault::Edges => format!("at 17 × 33 × 40 with 18 blocks {} tiles are wrong", count((17, 33, 40), 18)?),
            Fault::CutTiles => format!(
                "at 32 × 32 × 64 with 16 blocks each tile is cut into four shares, and {} are wrong",
                count((32, 32, 64), 16)?
            ),
            Fault::Race => "the simulator finds no race: the parts are added by atomics".to_string(),
            other => format!(
                "{other:?} would make it slow, or wrong everywhere; at 16 × 16 × 64 with 1 block {} tiles are wrong",
                count((16, 16, 64), 1)?
            ),
        };
        wrong(
            format!("the evidence speaks against it: {against}"),
            "find the least change of the launch that makes a right result wrong",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;
    use crate::check::matmul::red;

    const LOOP: &str = "template <class Tiles> __device__ void product_loop(Tiles &tiles, int steps) {
    tiles.fetch(0, 0);
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) {
            tiles.fetch(step + 1, (step + 1) % 2);
            tiles.wait_all_but_one();
        } else {
            tiles.wait_all();
        }
        __syncthreads(); // here
        tiles.multiply(step % 2);
        __syncthreads(); // used
    }
}";

    #[test]
    fn product_loop_knows_wrong_answers_and_cheats() {
        expect(
            product_loop,
            LOOP,
            &[
                ("__syncthreads(); // here", "", "perhaps not written yet"),
                ("__syncthreads(); // used", "", "perhaps still reads"),
                ("tiles.wait_all_but_one();", "", "still in flight"),
                ("tiles.wait_all_but_one();", "tiles.wait_all();", "in flight meanwhile"),
                ("tiles.wait_all();", "tiles.wait_all_but_one();", "still in flight"),
                ("tiles.multiply(step % 2);", "tiles.multiply(0);", "multiplication 1 (of stage 0)"),
                (
                    "tiles.fetch(step + 1, (step + 1) % 2);",
                    "tiles.fetch(step, (step + 1) % 2);",
                    "no copies of step 1 are in flight",
                ),
                ("step = 0; step < steps", "step = 0; step < steps - 1", "for 4 steps"),
                ("tiles.multiply(step % 2);", "tiles.multiply(step % 2); __syncthreads();", "where"),
                ("__syncthreads(); // used", "if (threadIdx.x) __syncthreads();", "every thread of the block"),
                // Constants; one thread that does all.
                ("tiles.multiply(step % 2);", "tiles.multiply(step % 2); tiles.sum = 1.0f;", "it should be"),
                (
                    "tiles.multiply(step % 2);",
                    "if (threadIdx.x + threadIdx.y == 0) tiles.multiply(step % 2);",
                    "it should be",
                ),
                (
                    "tiles.multiply(step % 2);",
                    "tiles.multiply(step % 2); tiles.sum = __int_as_float(0x7fffffff);",
                    "is NaN, which no number should give",
                ),
            ],
        );
    }

    #[test]
    fn a_loop_with_one_barrier_passes_and_a_single_stage_does_not() {
        let one = "template <class Tiles> __device__ void product_loop(Tiles &tiles, int steps) {
    tiles.fetch(0, 0);
    for (int step = 0; step < steps; ++step) {
        tiles.wait_all();
        __syncthreads();
        if (step + 1 < steps) tiles.fetch(step + 1, (step + 1) % 2);
        tiles.multiply(step % 2);
    }
}";
        assert!(product_loop(one).passed(), "{}", product_loop(one).text());
        // Copies beyond the last step bring zeros that nobody uses.
        let beyond = LOOP.replace("if (step + 1 < steps) {", "if (true) {");
        assert!(product_loop(&beyond).passed(), "{}", product_loop(&beyond).text());
        let single = "template <class Tiles> __device__ void product_loop(Tiles &tiles, int steps) {
    for (int step = 0; step < steps; ++step) {
        tiles.fetch(step, 0);
        tiles.wait_all();
        __syncthreads();
        tiles.multiply(0);
        __syncthreads();
    }
}";
        red(&product_loop(single), "no copies of step 1 are in flight meanwhile");
    }

    #[test]
    fn waves_on_paper_have_one_answer() {
        assert!(wave_share(Some(90.9)).passed() && wave_share(Some(91.0)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(100.0), "not as full"),
            (Some(63.6), "the last wave alone"),
            (Some(3.64), "how many waves"),
            (Some(81.25), "hang over an edge are blocks"),
            (Some(0.909), "is not it"),
        ] {
            red(&wave_share(answer), said);
        }
    }

    #[test]
    fn the_suspect_is_named_by_varying_its_launch() {
        let right = ShareSuspect.wrong_tiles(64, 64, 64, 3).unwrap();
        assert_eq!(right, 12);
        assert!(share_suspect(Fault::LongShares, Some(right)).passed());
        assert!(ShareSuspect.source(Fault::Edges).is_none() && ShareSuspect.source(Fault::LongShares).is_some());
        for (fault, tiles, said) in [
            (Fault::Unknown, None, "no fault is named"),
            (Fault::Edges, Some(right), "18 blocks 0 tiles are wrong"),
            (Fault::CutTiles, Some(right), "four shares, and 0 are wrong"),
            (Fault::Race, Some(right), "no race"),
            (Fault::Spills, Some(right), "with 1 block 0 tiles are wrong"),
            (Fault::LongShares, None, "how many tiles"),
            (Fault::LongShares, Some(16), "16 tiles are not"),
        ] {
            red(&share_suspect(fault, tiles), said);
        }
    }
}
