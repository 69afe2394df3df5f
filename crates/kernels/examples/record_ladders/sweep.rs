//! `--sweep`: the quantized products with other constants than the table's, beside the device copy and cuBLAS: what the
//! table's constants are chosen from. The best of each size stand in a short table at the end.

use gpulab::gpu::{Buffer, Cublas, TimedWork};
use gpulab::prelude::*;
use gpulab_kernels::topics::{Array, Launches, Topic};
use gpulab_kernels::*;
use std::time::Instant;

/// Short samples, taken in turn: differences of a few percent show.
const PLAN: Bench = Bench { warm_ups: 1, samples: 7, min_sample_ms: 0.5, budget_ms: 400.0 };
/// So many of the fastest stand in the table.
const BEST: usize = 6;

const DENSE: &str = "cuBLAS bf16";

/// A rung and what its constants are, as (name, value).
type Variant = (&'static str, Vec<(&'static str, u32)>);

fn gemv_variants() -> Vec<Variant> {
    let tensor = |path, (warps, depth, tiles)| (path, vec![("WARPS", warps), ("DEPTH", depth), ("TILES", tiles)]);
    let mut all: Vec<Variant> = ["02_warp_a_row", "03_several_rows"]
        .map(|name| (Ladder::QuantizedGemv.rung(name).expect("a rung").path, Vec::new()))
        .into();
    for rows in [2, 8] {
        all.push(("quantized_gemv/03_several_rows", vec![("ROWS", rows)]));
    }
    for shape in [(16, 1, 4), (8, 1, 4), (8, 2, 2)] {
        all.push(tensor("quantized_gemv/04_tensor_cores", shape));
    }
    for (warps, depth, tiles, blocks) in [
        (16, 1, 4, 1),
        (16, 2, 4, 1),
        (16, 2, 2, 1),
        (16, 1, 2, 2),
        (8, 1, 4, 2),
        (8, 2, 4, 2),
        (8, 4, 2, 2),
        (8, 2, 2, 3),
        (8, 2, 8, 1),
        (16, 4, 2, 1),
    ] {
        for path in ["quantized_gemv/05_whole_numbers", "quantized_gemv/06_early_start"] {
            all.push((path, vec![("WARPS", warps), ("DEPTH", depth), ("TILES", tiles), ("BLOCKS", blocks)]));
        }
    }
    all
}

fn matmul_variants(batch: usize) -> Vec<Variant> {
    let shared = |path, warps, tiles, stages, cluster, blocks| {
        let constants =
            vec![("WARPS", warps), ("TILES", tiles), ("STAGES", stages), ("CLUSTER", cluster), ("BLOCKS", blocks)];
        (path, constants)
    };
    let (ring, split) = ("quantized_matmul/02_ring", "quantized_matmul/03_split_k");
    let (wgmma, early) = ("quantized_matmul/04_wgmma", "quantized_matmul/05_early_start");
    let mut all: Vec<Variant> = vec![("quantized_matmul/01_fragments", Vec::new()), shared(ring, 4, 1, 4, 1, 1)];
    let (narrow, wide) = (
        [(8, 1, 6, 2, 1), (8, 1, 4, 4, 2), (4, 1, 6, 4, 4), (8, 2, 4, 4, 1), (4, 2, 4, 4, 2), (8, 2, 4, 8, 2)],
        [(8, 1, 4, 2, 1), (8, 1, 4, 4, 2), (8, 2, 4, 4, 1), (4, 2, 4, 4, 2), (4, 1, 3, 2, 3), (16, 1, 4, 4, 1)],
    );
    for (w, t, s, c, b) in if batch <= 16 { narrow } else { wide } {
        all.extend([split, wgmma, early].map(|path| shared(path, w, t, s, c, b)));
    }
    // As much of x as fits beside what another block needs, in whole rounds of a warp's registers.
    let slice = |blocks: u32| (224 * 1024 / blocks / (batch.next_power_of_two().max(8) as u32 * 264)).min(32) / 8 * 8;
    for (warps, tiles, depth, split, cluster, blocks) in [
        (16, 2, 2, 4, 2, 1),
        (16, 2, 1, 4, 2, 1),
        (16, 2, 1, 8, 2, 1),
        (8, 2, 2, 4, 2, 2),
        (16, 1, 4, 2, 2, 1),
        (16, 4, 1, 8, 2, 1),
    ] {
        let chunks = slice(blocks) / 8;
        let constants = vec![
            ("WARPS", warps),
            ("TILES", tiles),
            ("DEPTH", depth),
            ("SPLIT", split),
            ("CLUSTER", cluster),
            ("BLOCKS", blocks),
            ("CHUNKS", chunks),
            ("SLICE", slice(blocks)),
        ];
        all.push(("quantized_matmul/06_registers", constants));
    }
    // WARPS, TILES, STEPS, SPLIT, STAGES, TURN.
    let (narrow, wide) = (
        [[8, 2, 4, 2, 3, 4], [8, 2, 4, 2, 4, 2], [8, 1, 4, 1, 4, 2], [8, 2, 2, 2, 8, 4], [16, 1, 4, 2, 4, 2]],
        [[8, 1, 2, 1, 4, 4], [8, 1, 2, 1, 4, 2], [8, 1, 4, 1, 2, 2], [8, 1, 4, 1, 2, 4], [8, 1, 1, 1, 8, 4]],
    );
    let names = ["WARPS", "TILES", "STEPS", "SPLIT", "STAGES", "TURN"];
    for constants in if batch <= 16 { narrow } else { wide } {
        all.push(("quantized_matmul/07_warp_specialised", names.into_iter().zip(constants).collect()));
    }
    all
}

/// One line of the final table.
struct Line {
    name: String,
    ms: f64,
}

/// Runs it all, a size after the other, until `seconds` are over; or what `only` asks for: a topic, and behind a colon a
/// part of a variant's name, such as `quantized_gemv:04_tensor_cores w16`.
pub fn sweep(gpu: &Gpu, seconds: f64, only: &str) -> Result<()> {
    let begin = Instant::now();
    let late = || begin.elapsed().as_secs_f64() > seconds;
    let mut tables = String::new();
    for part in 0..7 {
        if late() {
            break;
        }
        tables += &match part {
            0 => gemv(gpu, "quantized_gemv", Codes::INT4, only, &late)?,
            1 => matmul(gpu, 16, only, &late)?,
            2 => matmul(gpu, 64, only, &late)?,
            3 => gemv(gpu, "quantized_gemv_int8", Codes::INT8, only, &late)?,
            4 => matmul(gpu, 1, only, &late)?,
            5 => matmul(gpu, 32, only, &late)?,
            _ => matmul(gpu, 8, only, &late)?,
        };
    }
    println!("{tables}{:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

fn gemv(gpu: &Gpu, name: &str, codes: Codes, only: &str, late: &dyn Fn() -> bool) -> Result<String> {
    let mut tables = String::new();
    if !name.contains(topic(only)) {
        return Ok(tables);
    }
    let open = |path: &'static str, constants: &[(&'static str, u32)]| -> Result<Box<dyn Topic>> {
        Ok(Box::new(QuantizedGemv::with(gpu, path, codes, constants)?))
    };
    let opened = open_all(chosen(gemv_variants(), only), late, &open);
    for size in [Size::Two(8192, 8192), Size::Two(8192, 81_920), Size::Two(81_920, 8192)] {
        if !late() {
            tables += &compare(gpu, name, size, &opened)?;
        }
    }
    Ok(tables)
}

fn matmul(gpu: &Gpu, batch: usize, only: &str, late: &dyn Fn() -> bool) -> Result<String> {
    if !"quantized_matmul".contains(topic(only)) {
        return Ok(String::new());
    }
    let padded = (batch as u32).next_power_of_two().max(8);
    let open = |path: &'static str, constants: &[(&'static str, u32)]| -> Result<Box<dyn Topic>> {
        Ok(Box::new(QuantizedMatmul::with(gpu, path, Codes::INT4, &[padded], &|_| constants.to_vec())?))
    };
    let opened = open_all(chosen(matmul_variants(batch), only), late, &open);
    compare(gpu, "quantized_matmul", Size::Three(batch, 8192, 8192), &opened)
}

fn topic(only: &str) -> &str {
    only.split(':').next().unwrap_or_default()
}

fn chosen(mut variants: Vec<Variant>, only: &str) -> Vec<Variant> {
    let part = only.split_once(':').map_or("", |(_, part)| part);
    variants.retain(|(path, constants)| named(path, constants).contains(part));
    variants
}

/// A rung with some of its constants changed.
type Open<'a> = dyn Fn(&'static str, &[(&'static str, u32)]) -> Result<Box<dyn Topic>> + 'a;
type Opened = Vec<(String, Box<dyn Topic>)>;

/// Compiled and checked; what does not run here is named.
fn open_all(variants: Vec<Variant>, late: &dyn Fn() -> bool, open: &Open<'_>) -> Opened {
    let mut opened = Opened::new();
    for (path, constants) in variants {
        match open(path, &constants) {
            _ if late() => break,
            Ok(topic) => opened.push((named(path, &constants), topic)),
            Err(error) => eprintln!("left out: {}: {}", named(path, &constants), first_line(&error)),
        }
    }
    opened
}

fn first_line(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

/// `05_ring w8 s6 t1 b3`.
fn named(path: &str, constants: &[(&str, u32)]) -> String {
    let letters = constants.iter().map(|(name, value)| format!(" {}{value}", name[..1].to_lowercase()));
    path.rsplit('/').next().unwrap_or(path).to_string() + &letters.collect::<String>()
}

/// All of them at one size, on the same arrays, beside a copy of as many bytes and cuBLAS in bf16.
fn compare(gpu: &Gpu, topic: &str, size: Size, opened: &Opened) -> Result<String> {
    let Some((_, first)) = opened.first() else { return Ok(String::new()) };
    let work = first.work(size)?;
    let count = gpu.sets_past_cache(work.bytes);
    // The same numbers in other memory: what counts is that no set is in the cache from its last turn.
    let (inputs, outputs) = first.arrays(size, 1)?;
    let mut sets = vec![(inputs, outputs)];
    while sets.len() < count {
        let copied = |array: &Array| {
            let mut copy = Array::like(gpu, array)?;
            copy.copy_from(array).map(|()| copy)
        };
        let inputs = sets[0].0.iter().map(copied).collect::<Result<Vec<_>>>()?;
        let outputs = sets[0].1.iter().map(|array| Array::like(gpu, array)).collect::<Result<Vec<_>>>()?;
        sets.push((inputs, outputs));
    }
    let sets = std::cell::RefCell::new(sets);
    let half = work.bytes / 2 / 16 * 8;
    let mut copies = (0..count)
        .map(|_| Ok((gpu.zeros::<u16>(half)?, gpu.zeros::<u16>(half)?)))
        .collect::<Result<Vec<(Buffer<u16>, Buffer<u16>)>>>()?;
    let (m, n, k) = match size.numbers()[..] {
        [rows, columns] => (1, rows, columns),
        [batch, rows, columns] => (batch, rows, columns),
        _ => unreachable!("two or three numbers"),
    };
    let dense = match Cublas::new(gpu) {
        // Its bf16 weights are made on the host: where it is no peer that counts, that is not worth the time.
        Ok(_) if m * k + k * n > 1 << 28 => None,
        Ok(blas) => {
            let (a, b) = (cpu::random_bf16(m * k, 1), cpu::random_bf16(k * n, 2));
            let set =
                |_| Ok((gpu.to_device(&a)?, gpu.to_device(&b)?, std::cell::RefCell::new(gpu.zeros::<u16>(m * n)?)));
            let sets = (0..gpu.sets_past_cache(2 * (m * k + k * n))).map(set).collect::<Result<Vec<_>>>()?;
            Some((blas, sets))
        }
        Err(error) => {
            eprintln!("left out: {}", first_line(&error));
            None
        }
    };
    let mut names = Vec::new();
    let mut timed: Vec<TimedWork<'_>> = Vec::new();
    for (name, topic) in opened {
        names.push(name.clone());
        timed.push(TimedWork::Calls(Box::new(|call| {
            let (inputs, outputs) = &mut sets.borrow_mut()[call % count];
            topic.call(inputs, outputs, size, &mut Launches::queue())
        })));
    }
    names.push("device copy".to_string());
    timed.push(TimedWork::Calls(Box::new(|call| {
        let (from, to) = &mut copies[call % count];
        to.copy_from_buffer(from)
    })));
    if let Some((blas, sets)) = &dense {
        for transposed in [true, false] {
            names.push(format!("{DENSE} {}", if transposed { "T" } else { "N" }));
            timed.push(TimedWork::Calls(Box::new(move |call| {
                let (a, b, c) = &sets[call % sets.len()];
                let (sides, mut c) = ((m, n, k), c.borrow_mut());
                if transposed {
                    blas.multiply_transposed(a, b, &mut c, sides)
                } else {
                    blas.multiply(a, b, &mut c, sides)
                }
            })));
        }
    }
    let samples = gpu.time_interleaved(&PLAN, &mut timed)?;
    drop(timed);
    let mut lines: Vec<Line> =
        names.into_iter().zip(samples).map(|(name, ms)| Line { name, ms: Summary::of(&ms).median }).collect();
    let of = |lines: &[Line], name: &str| lines.iter().find(|line| line.name == name).map(|line| line.ms);
    let copy = of(&lines, "device copy").unwrap_or(f64::NAN);
    // The faster of the two orders of its weights is the peer.
    let dense = ["T", "N"].into_iter().filter_map(|order| of(&lines, &format!("{DENSE} {order}"))).reduce(f64::min);
    lines.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    let own_copied = 4.0 * half as f64;
    let row = |line: &Line| {
        let moved = if line.name == "device copy" { own_copied } else { work.bytes as f64 };
        let rate = moved / line.ms / 1e6;
        let share = rate / (own_copied / copy / 1e6);
        let against = dense.map_or(String::new(), |ms| format!(" {:6.2} x cuBLAS", ms / line.ms));
        format!("{:36} {:8.2} us {rate:6.0} GB/s {share:5.3} of copy{against}\n", line.name, line.ms * 1e3)
    };
    let head = format!("{topic} {}: {} bytes\n", size.name(), work.bytes);
    let all: String = lines.iter().map(&row).collect();
    eprintln!("{head}{all}");
    // The fastest, the best of each rung, and the peers.
    let mut seen: Vec<&str> = Vec::new();
    let mut short = head;
    for (at, line) in lines.iter().enumerate() {
        let rung = line.name.split(' ').next().unwrap_or_default();
        if at < BEST || !seen.contains(&rung) {
            short += &row(line);
        }
        seen.push(rung);
    }
    Ok(short + "\n")
}
