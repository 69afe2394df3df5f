//! Exercise of lesson 13: an embedding's backward pass whose sums have one order, from a blank page.

use super::Verdict;
use super::judged::{lanes_work, unchanged, warp_shares};
use super::kernels;
use super::verdict::{Check, ask_timed, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::{BlockOrder, Kind};

/// Rows of the table.
const ROWS: usize = 50;
/// Entries and width: one, odd ones, several warps per row; the last is whole sectors, and is judged.
const SHAPES: [(usize, usize); 6] = [(1, 1), (31, 33), (40, 64), (100, 5), (200, 31), JUDGED];
const JUDGED: (usize, usize) = (300, 64);
/// So many times the sectors of the gradients and the named rows: the lists of rows and positions, read for each warp, stay below.
const MOST: f64 = 2.6;

/// A batch whose positions the host has sorted by the row of the table that they name.
struct Sorted {
    /// Ascending; entry e is for this row.
    row: Vec<i32>,
    /// The row of `grad_out` of entry e; ascending among equal rows.
    position: Vec<i32>,
    grad_out: Vec<f32>,
    table: Vec<f32>,
    width: usize,
}

impl Sorted {
    /// Row 7 has a third of all positions, as a frequent word has; some rows have one, some none.
    fn new((count, width): (usize, usize), number: fn(usize, u64) -> Vec<f32>) -> Sorted {
        let named = |p: usize| if p.is_multiple_of(3) { 7 } else { (p * 37 % ROWS) as i32 };
        let mut position: Vec<i32> = (0..count as i32).collect();
        position.sort_by_key(|&p| (named(p as usize), p));
        let row = position.iter().map(|&p| named(p as usize)).collect();
        Sorted { row, position, grad_out: number(count * width, 1), table: number(ROWS * width, 2), width }
    }

    fn expected(&self) -> Vec<f32> {
        let mut table = self.table.clone();
        for (&row, &position) in self.row.iter().zip(&self.position) {
            for column in 0..self.width {
                table[row as usize * self.width + column] += self.grad_out[position as usize * self.width + column];
            }
        }
        table
    }

    fn rows(&self) -> usize {
        let mut rows = self.row.clone();
        rows.dedup();
        rows.len()
    }

    /// What the kernel leaves in the table, and what the launch did when its first warp or that of another block was watched.
    fn run(
        &self,
        gpu: &Gpu,
        kernel: &Kernel,
        config: LaunchConfig,
        block: Option<u32>,
    ) -> Check<(Vec<f32>, Option<Inspection>)> {
        let (on_row, on_position) = (gpu.to_device(&self.row)?, gpu.to_device(&self.position)?);
        let (on_grad, mut on_table) = (gpu.to_device(&self.grad_out)?, gpu.to_device(&self.table)?);
        let (count, width) = (self.row.len() as i32, self.width as i32);
        kernel.launch(config, (&on_row, &on_position, &on_grad, &mut on_table, count, width))?;
        let given = on_table.to_host()?;
        unchanged("grad_out", &on_grad, &self.grad_out)?;
        if on_row.to_host()? != self.row || on_position.to_host()? != self.position {
            return wrong(
                "`row` or `position` has changed",
                "the caller may need its inputs again: write to the table alone",
            );
        }
        let seen = match block {
            Some(block) => {
                let args = (&on_row, &on_position, &on_grad, &mut on_table, count, width);
                Some(kernel.inspect_warp(config, args, (block, 0, 0), 0)?)
            }
            None => None,
        };
        Ok((given, seen))
    }
}

/// Checks a kernel `scatter_add(const int *row, const int *position, const float *grad_out, float *grad_table, int count, int
/// width)`, and its launch: entry e adds row `position[e]` of `grad_out` to row `row[e]` of `grad_table`; `row` ascends. The
/// same bits must come out in whatever order the blocks start.
pub fn scatter_add(source: &str, launch: fn(usize, usize) -> LaunchConfig) -> Verdict {
    kernels::verdict("scatter_add", source, "scatter_add", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            let config =
                ask_timed(&format!("{} entries of width {}", shape.0, shape.1), move || launch(shape.0, shape.1))?;
            // Whole numbers: their sums are exact in any order.
            let whole = Sorted::new(shape, kernels::whole);
            compared(&whole, &whole.run(gpu, kernel, config, None)?.0)?;
            if shape == JUDGED {
                cost(&whole, gpu, kernel, config)?;
                same_bits(source, config)?;
            }
        }
        Ok(())
    })
}

fn compared(work: &Sorted, given: &[f32]) -> Check {
    let (expected, width) = (work.expected(), work.width);
    let Some(at) = (0..given.len()).find(|&at| given[at] != expected[at]) else { return Ok(()) };
    let (row, column) = (at / width, at % width);
    let entries = work.row.iter().filter(|&&named| named as usize == row).count();
    let kept = if given[at] == work.table[at] { ", as it was before the launch" } else { "" };
    let what = format!(
        "{} entries of width {width}: element {column} of row {row}, which has {entries} of the entries, is {}{kept}, and it \
         should be {}",
        work.row.len(),
        given[at],
        expected[at]
    );
    let hint = match entries {
        0 => "no entry names that row: who wrote there?",
        1 => "one entry names that row: what was there before the launch, and which number does the entry add?",
        _ => "several entries name that row: who adds them up, and with what does it begin?",
    };
    wrong(what, hint)
}

/// Random numbers, whose sums differ in the last bits from order to order.
fn same_bits(source: &str, config: LaunchConfig) -> Check {
    let work = Sorted::new(JUDGED, cpu::random_f32);
    let mut first: Option<Vec<f32>> = None;
    for order in [BlockOrder::Forward, BlockOrder::Reverse, BlockOrder::Random(1), BlockOrder::Random(2)] {
        let gpu = Gpu::simulated_in(order)?;
        let given = work.run(&gpu, &gpu.compile(source)?.kernel("scatter_add")?, config, None)?.0;
        let before = first.get_or_insert_with(|| given.clone());
        let other = given.iter().zip(before.iter()).position(|(a, b)| a.to_bits() != b.to_bits());
        if let Some(at) = other {
            let (row, column) = (at / work.width, at % work.width);
            return wrong(
                format!(
                    "right but for rounding; yet element {column} of row {row} is {:.8} when the blocks start in one order, and \
                     {:.8} in another",
                    before[at], given[at]
                ),
                "floats round at each addition: who decides in which order the entries of that row are added?",
            );
        }
    }
    Ok(())
}

fn cost(work: &Sorted, gpu: &Gpu, kernel: &Kernel, config: LaunchConfig) -> Check {
    let seen = work.run(gpu, kernel, config, Some(0))?.1.expect("it was asked for");
    let c = &seen.counters;
    lanes_work(&seen, 16.0)?;
    let a_row = work.width * 4 / 32;
    let (gradients, table) = (work.row.len() * a_row, work.rows() * a_row);
    let loads = c.global_load_sectors as f64 / (gradients + table) as f64;
    if loads > MOST {
        return wrong(
            format!(
                "right, but its loads ask for {} sectors; the gradients and the rows that are named lie in {}: {loads:.1} times \
                 as many",
                c.global_load_sectors,
                gradients + table
            ),
            "which loads ask for the most? Look at what the lanes of one warp read at a time, and how often a warp reads the lists",
        );
    }
    let stores = c.global_store_sectors as usize;
    if stores > table {
        let what = format!(
            "right, but its stores touch {stores} sectors, and the {} rows that are named lie in {table}",
            work.rows()
        );
        return wrong(what, "how often is one element of the table written, and where is the sum kept meanwhile?");
    }
    // Every third position names row 7: its entries are one chain, so the shares are not equal. No warp has all rows.
    let most = work.rows() * work.width / 32 / 2;
    for block in 0..config.grid.0 {
        let seen = work.run(gpu, kernel, config, Some(block))?.1.expect("it was asked for");
        if seen.accesses.iter().any(|access| access.kind != gpulab::inspect::AccessKind::Load) {
            return warp_shares(&seen, most);
        }
    }
    Ok(())
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::GlobalRace]) {
        "two threads read and write one element of the table: which entries do these two work for, and which row do both name?"
    } else if is(&[Kind::OutOfBounds]) {
        "compute the index by hand for that block and thread. The lists have `count` entries: look at both ends of them"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block, or every lane of the mask, must come by"
    } else {
        "follow that thread by hand: for which entry and which column does it work?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A warp an entry; the first of each row goes on to the last.
    const SCATTER: &str = "extern \"C\" __global__ void scatter_add(const int *row, const int *position, const float *grad_out, float *grad_table, int count, int width) {
    int e = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (e >= count || (e > 0 && row[e - 1] == row[e])) { return; }
    for (int column = lane; column < width; column += 32) {
        float sum = grad_table[row[e] * width + column];
        for (int k = e; k < count && row[k] == row[e]; ++k) { sum += grad_out[position[k] * width + column]; }
        grad_table[row[e] * width + column] = sum;
    }
}";

    fn a_warp_each(count: usize, _width: usize) -> LaunchConfig {
        LaunchConfig::for_elements(32 * count, 128)
    }

    fn a_thread_each(count: usize, width: usize) -> LaunchConfig {
        LaunchConfig::for_elements(count * width, 256)
    }

    fn told(source: &str, launch: fn(usize, usize) -> LaunchConfig, said: &str) {
        let text = scatter_add(source, launch).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    fn change(old: &str, new: &str) -> String {
        let source = SCATTER.replacen(old, new, 1);
        assert_ne!(source, SCATTER, "`{old}` is not there");
        source
    }

    #[test]
    fn right_ones_pass() {
        let verdict = scatter_add(SCATTER, a_warp_each);
        assert!(verdict.passed(), "{}", verdict.text());
        // A thread an element of an entry.
        let threads = "extern \"C\" __global__ void scatter_add(const int *row, const int *position, const float *grad_out, float *grad_table, int count, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, e = i / width, column = i % width;
    if (e >= count) { return; }
    int own = row[e];
    if (e > 0 && row[e - 1] == own) { return; }
    float sum = 0.0f;
    for (int k = e; k < count && row[k] == own; ++k) { sum += grad_out[position[k] * width + column]; }
    grad_table[own * width + column] += sum;
}";
        let verdict = scatter_add(threads, a_thread_each);
        assert!(verdict.passed(), "{}", verdict.text());
    }

    #[test]
    fn wrong_ones_are_told_so() {
        told(
            &change("e >= count || (e > 0 && row[e - 1] == row[e])", "e >= count"),
            a_warp_each,
            "which row do both name",
        );
        told(&change("(e > 0 && row[e - 1] == row[e])", "(row[e - 1] == row[e])"), a_warp_each, "both ends");
        told(&change("k < count && ", ""), a_warp_each, "both ends");
        told(
            &change("float sum = grad_table[row[e] * width + column]", "float sum = 0.0f"),
            a_warp_each,
            "what was there before the launch",
        );
        told(&change("++k", "k += 2"), a_warp_each, "several entries name that row");
        told(&change("position[k] * width", "k * width"), a_warp_each, "which number does the entry add");
        told(&change("column += 32", "column += 64"), a_warp_each, "as it was before the launch");
        // Atomics: right, in an order that is nobody's.
        let atomics = "extern \"C\" __global__ void scatter_add(const int *row, const int *position, const float *grad_out, float *grad_table, int count, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * width) { atomicAdd(&grad_table[row[i / width] * width + i % width], grad_out[position[i / width] * width + i % width]); }
}";
        told(atomics, a_thread_each, "when the blocks start in one order");
        // Volatile in place of an atomic; an atomic read, and an exchange.
        let element = "grad_table[row[i / width] * width + i % width]";
        let gradient = "grad_out[position[i / width] * width + i % width]";
        let add = format!("atomicAdd(&{element}, {gradient});");
        for two_steps in [
            format!("*(volatile float *)&{element} += {gradient};"),
            format!("atomicExch(&{element}, atomicAdd(&{element}, 0.0f) + {gradient});"),
        ] {
            assert!(atomics.contains(&add));
            told(&atomics.replace(&add, &two_steps), a_thread_each, "lost update");
        }
        // A thread an entry: lanes lie a row apart.
        let rows = SCATTER.replace("/ 32, lane = threadIdx.x % 32", ", lane = 0").replace("column += 32", "++column");
        told(&rows, a_warp_each, "lanes are active");
        // The sum goes to memory at each step.
        let through = change(
            "sum += grad_out[position[k] * width + column]; }",
            "sum += grad_out[position[k] * width + column]; ((volatile float *)grad_table)[row[e] * width + column] = sum; }",
        );
        told(&through, a_warp_each, "where is the sum kept");
    }

    #[test]
    fn cheats_are_told_so() {
        let start = "/ 32, lane = threadIdx.x % 32;\n    if (e >= count";
        let body = &SCATTER[SCATTER.find("    if (e >= count").unwrap()..];
        let serial = |who: &str, step: &str| {
            let loops = format!(
                "    if (!({who})) {{ return; }}
    for (int k = 0; k < count; ++k) {{ for (int c = {step}; c < width; c += {by}) {{ grad_table[row[k] * width + c] += grad_out[position[k] * width + c]; }} }}
}}",
                by = if step == "0" { "1" } else { "32" }
            );
            SCATTER.replace(body, &loops)
        };
        assert!(SCATTER.contains(start));
        // One thread for everything; one warp for everything.
        told(&serial("e == 0 && lane == 0", "0"), a_warp_each, "lanes are active");
        told(&serial("e == 0", "lane"), a_warp_each, "where is the sum kept");
        let one_warp = change(
            "    if (e >= count || (e > 0 && row[e - 1] == row[e])) { return; }\n",
            "    if (e > 0) { return; }\n    for (; e < count; ++e) if (e == 0 || row[e - 1] != row[e])\n",
        );
        told(&one_warp, a_warp_each, "a fair share is at most");
        told(&change("= sum;", "= 1.0f;"), a_warp_each, "and it should be");
        told(&change("= sum;", "= 0.0f / 0.0f;"), a_warp_each, "is NaN");
        told(
            &change("position[k] * width + column", "(position[k] + count) * width + column"),
            a_warp_each,
            "both ends",
        );
    }
}
