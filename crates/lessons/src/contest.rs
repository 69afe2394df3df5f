//! The contest of a class: kernels for one task, checked on inputs that nobody knows beforehand, and ranked by what the simulator
//! counts.
//!
//! A kernel's code reaches neither inputs of other launches, nor the counters, nor a timer: the simulator counts outside of it, and on a
//! GPU the host times with events of the driver. What it leaves in its own memory helps nothing, since each launch has new numbers.

use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::measurement::Summary;
use gpulab::prelude::Bench;
use gpulab::warpsim::Counters;
use gpulab::{cpu, launch::Source};
use serde_json::{Value, json};
use std::hash::{BuildHasher, Hasher};

/// What a kernel is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// `transpose(const float *in, float *out, int rows, int columns)`
    Transpose,
    /// `row_sums(const float *in, float *out, int rows, int columns)`
    RowSums,
}

/// Shapes at which results are checked: awkward ones, and one whole number of tiles.
const CHECKED: [(usize, usize); 7] = [(1, 1), (1, 70), (70, 1), (31, 33), (33, 31), (127, 65), (64, 32)];
/// The shape at which a kernel is counted; one of its own, so that everybody is counted alike.
const COUNTED: (usize, usize) = (160, 96);
/// The longest side of a shape that is drawn anew for each entry.
const DRAWN: u64 = 150;
/// The shape that is timed on a GPU, and how often, each time with new numbers.
const TIMED: (usize, usize) = (2048, 2000);
const TIMES: usize = 21;

impl Task {
    /// All of them.
    pub const ALL: [Task; 2] = [Task::Transpose, Task::RowSums];

    /// The task of that name.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the names that there are.
    pub fn named(name: &str) -> Result<Task> {
        Task::ALL.into_iter().find(|task| task.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Task::ALL.iter().map(|task| task.name()).collect();
            Error::invalid(format!("`{name}` is no task of the contest"), format!("name one of {}", names.join(", ")))
        })
    }

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Task::Transpose => "transpose",
            Task::RowSums => "row_sums",
        }
    }

    /// One thread an element in blocks of 32 × 8, or one block of 256 threads for each row.
    fn config(self, (rows, columns): (usize, usize)) -> LaunchConfig {
        match self {
            Task::Transpose => LaunchConfig::for_table(rows, columns, (32, 8)),
            Task::RowSums => LaunchConfig::new(rows as u32, 256),
        }
    }

    /// Numbers of which each place has its own, or whose sums are exact in any order.
    fn input(self, (rows, columns): (usize, usize), seed: u64) -> Vec<f32> {
        let numbers = cpu::random_f32(rows * columns, seed);
        match self {
            Task::Transpose => numbers,
            Task::RowSums => numbers.into_iter().map(|x| (x * 1000.0).round()).collect(),
        }
    }

    fn expected(self, (rows, columns): (usize, usize), input: &[f32]) -> Vec<f32> {
        match self {
            Task::Transpose => (0..rows * columns).map(|at| input[at % rows * columns + at / rows]).collect(),
            Task::RowSums => input.chunks(columns).map(|row| row.iter().sum()).collect(),
        }
    }
}

/// What an entry is ranked by: less is better, and of two that are equal in the first number the second decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContestScore {
    /// Sectors of global and local memory, passes through shared memory, and atomics on global memory, of one launch.
    pub traffic: u64,
    /// Instructions, once a warp.
    pub instructions: u64,
}

impl ContestScore {
    fn of(c: &Counters) -> ContestScore {
        let sectors = c.global_load_sectors + c.global_store_sectors + c.local_load_sectors + c.local_store_sectors;
        let passes = c.shared_load_wavefronts + c.shared_store_wavefronts + c.shared_atomic_wavefronts;
        ContestScore { traffic: sectors + passes + c.global_atomics, instructions: c.warp_instructions }
    }
}

/// An entry that passed.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Its place follows from it.
    pub score: ContestScore,
    /// What was counted.
    pub counters: Counters,
    /// Microseconds a launch on the GPU, where there is one to time it.
    pub gpu_us: Option<f64>,
}

/// A number that is in nobody's source: std's hash maps get theirs from the operating system.
fn secret() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// Runs an entry in the simulator, at all shapes, twice each with other numbers; the outputs are poisoned before.
///
/// # Errors
/// [`Error::Invalid`] with what is wrong, and what a launch reports: mistakes with line, block and thread.
pub fn judge(task: Task, source: &str) -> Result<Judged> {
    allowed(source)?;
    let gpu = Gpu::simulated()?;
    let kernel = gpu.compile(Source::from(source))?.kernel(task.name())?;
    let side = || (secret() % DRAWN) as usize + 1;
    for shape in CHECKED.into_iter().chain([(side(), side())]) {
        let _ = run(task, &gpu, &kernel, shape)?;
    }
    let seen = run(task, &gpu, &kernel, COUNTED)?;
    Ok(Judged { score: ContestScore::of(&seen.counters), counters: seen.counters, gpu_us: None })
}

/// One launch as any other, and one that is counted and checked itself.
fn run(task: Task, gpu: &Gpu, kernel: &Kernel, shape: (usize, usize)) -> Result<Inspection> {
    let (rows, columns) = shape;
    let config = task.config(shape);
    let mut seen = None;
    for counted in [false, true] {
        let input = task.input(shape, secret());
        let expected = task.expected(shape, &input);
        let (on_input, mut output) = (gpu.to_device(&input)?, gpu.poison::<f32>(expected.len())?);
        let arguments = (&on_input, &mut output, rows as i32, columns as i32);
        match counted {
            false => kernel.launch(config, arguments)?,
            true => seen = Some(kernel.inspect(config, arguments)?),
        }
        right(shape, &output.to_host()?, &expected)?;
        same(shape, &on_input.to_host()?, &input)?;
    }
    let seen = seen.expect("the second launch is counted");
    match seen.findings.first() {
        None => Ok(seen),
        Some(finding) => Err(Error::invalid(
            format!("with {rows} × {columns}, the second launch: {}", finding.kind.words()),
            "let each launch do the same, whatever the one before has left",
        )),
    }
}

/// NaN is no right answer: it is unequal to everything.
fn right((rows, columns): (usize, usize), given: &[f32], expected: &[f32]) -> Result<()> {
    let wrong = |at: &usize| given[*at] != expected[*at];
    let Some(at) = (0..expected.len()).find(wrong) else { return Ok(()) };
    let is = match given[at].to_bits() {
        u32::MAX => "was never written".to_string(),
        _ => format!("is {}", given[at]),
    };
    let count = (0..expected.len()).filter(wrong).count();
    Err(Error::invalid(
        format!(
            "with {rows} rows and {columns} columns: element {at} of the output {is}, and it should be {}; {count} of {} \
             are wrong",
            expected[at],
            expected.len()
        ),
        "run the kernel at that shape yourself: the numbers are new in each launch, so no stored result helps",
    ))
}

fn same((rows, columns): (usize, usize), after: &[f32], before: &[f32]) -> Result<()> {
    match after.iter().zip(before).position(|(after, before)| after != before) {
        None => Ok(()),
        Some(at) => Err(Error::invalid(
            format!("with {rows} rows and {columns} columns: the kernel has changed element {at} of its input"),
            "write to the output alone",
        )),
    }
}

/// Times an entry that [`judge`] has passed, on the first NVIDIA GPU: the median of launches, each with new numbers, a poisoned output,
/// and a check of what that very launch wrote.
///
/// # Errors
/// As [`judge`]; [`Error::NoGpu`] without a GPU.
pub fn time(task: Task, source: &str) -> Result<f64> {
    let gpu = Gpu::open_index(0)?;
    let kernel = gpu.compile(Source::from(source))?.kernel(task.name())?;
    let ((rows, columns), config) = (TIMED, task.config(TIMED));
    let mut samples = Vec::new();
    for _ in 0..TIMES {
        let input = task.input(TIMED, secret());
        let expected = task.expected(TIMED, &input);
        let (on_input, mut output) = (gpu.to_device(&input)?, gpu.poison::<f32>(expected.len())?);
        let ms =
            gpu.time(&Bench::once(), |_| kernel.launch(config, (&on_input, &mut output, rows as i32, columns as i32)))?;
        samples.push(1e3 * ms.median);
        right(TIMED, &output.to_host()?, &expected)?;
    }
    // The first launch loads the kernel.
    Ok(Summary::of(&samples[1..]).median)
}

/// An entry is one kernel in CUDA C. What reads other files while it is compiled would show them in the compiler's messages, and
/// inline PTX reaches memory past the counters.
fn allowed(source: &str) -> Result<()> {
    let joined = ["\\\r\n", "\\\n", "??/\n"].iter().fold(source.to_string(), |text, splice| text.replace(splice, ""));
    let plain = without_comments(&joined);
    let directive = |line: &str| {
        let line = line.trim_start();
        let word = line.strip_prefix('#').or_else(|| line.strip_prefix("%:")).or_else(|| line.strip_prefix("??="));
        word.is_some_and(|word| ["include", "import", "embed"].iter().any(|one| word.trim_start().starts_with(one)))
    };
    // A string may hold what looks like a comment's beginning: so also with comments in.
    let words = || joined.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let asm = words().find(|word| matches!(*word, "asm" | "__asm__" | "__asm" | "__has_include" | "__has_embed"));
    if plain.lines().chain(joined.lines()).any(directive) {
        return Err(Error::invalid("an entry includes no files", "write what it needs into the kernel's own source"));
    }
    asm.map_or(Ok(()), |word| {
        Err(Error::invalid(format!("an entry uses no `{word}`"), "write that part of the kernel in CUDA C"))
    })
}

/// Comments as one blank each, as the preprocessor has them.
fn without_comments(source: &str) -> String {
    let (mut plain, mut rest) = (String::new(), source);
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        plain += &rest[..at];
        plain.push(' ');
        let (end, skip) = if rest[at..].starts_with("/*") { ("*/", 2) } else { ("\n", 0) };
        rest = rest[at + 2..].find(end).map_or("", |found| &rest[at + 2 + found + skip..]);
    }
    plain + rest
}

/// The outcome as JSON, for the class's server: `passed`, then the score and the counters, or what is wrong.
pub fn answer(task: Task, source: &str, timed: bool) -> Value {
    let outcome = judge(task, source).and_then(|judged| {
        let gpu_us = timed.then(|| time(task, source)).transpose()?;
        Ok(Judged { gpu_us, ..judged })
    });
    match outcome {
        Ok(judged) => json!({
            "passed": true,
            "traffic": judged.score.traffic,
            "instructions": judged.score.instructions,
            "counters": judged.counters.rows().into_iter().map(|(name, count)| (name.to_string(), json!(count))).collect::<serde_json::Map<_, _>>(),
            "gpu_us": judged.gpu_us,
        }),
        Err(error) => json!({"passed": false, "what": error.to_string()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAIVE: &str = "extern \"C\" __global__ void transpose(const float *in, float *out, int rows, int columns) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    if (x < columns && y < rows) out[x * rows + y] = in[y * columns + x];
}";
    const SUMS: &str = "extern \"C\" __global__ void row_sums(const float *in, float *out, int rows, int columns) {
    __shared__ float part[256];
    float sum = 0;
    for (int x = threadIdx.x; x < columns; x += 256) sum += in[blockIdx.x * columns + x];
    part[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}";
    const SHUFFLES: &str = "extern \"C\" __global__ void row_sums(const float *in, float *out, int rows, int columns) {
    if (threadIdx.x >= 32) return;
    float sum = 0;
    for (int x = threadIdx.x; x < columns; x += 32) sum += in[blockIdx.x * columns + x];
    for (int far = 16; far > 0; far /= 2) sum += __shfl_down_sync(0xffffffff, sum, far);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}";

    #[test]
    fn entries_are_ranked_by_what_they_ask_of_memory() {
        let naive = judge(Task::Transpose, NAIVE).unwrap();
        // 160 × 96 floats: each warp loads 4 sectors, and stores to 32 places.
        let warps = 160 * 96 / 32;
        assert_eq!(naive.score.traffic, warps * (4 + 32));
        let (sums, shuffles) =
            (judge(Task::RowSums, SUMS).unwrap().score, judge(Task::RowSums, SHUFFLES).unwrap().score);
        assert!(shuffles < sums, "{shuffles:?} {sums:?}");
        // Nobody is lucky: the numbers differ, the counts do not.
        assert_eq!(judge(Task::Transpose, NAIVE).unwrap().score, naive.score);
    }

    /// What others have tried in contests of kernels.
    #[test]
    fn the_known_cheats_fail() {
        let transpose = |before: &str, body: &str| {
            format!(
                "{before}\nextern \"C\" __global__ void transpose(const float *in, float *out, int rows, int columns) {{\n\
                 int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;\n\
                 if (x >= columns || y >= rows) return;\n{body}\n}}"
            )
        };
        let right = "out[x * rows + y] = in[y * columns + x];";
        let cheats = [
            (
                "a cached result: the first launch of a shape is kept, the next ones copy it",
                transpose(
                    "__device__ float kept[40000]; __device__ int known;",
                    "int at = x * rows + y;\nif (known == rows * 1000 + columns) { out[at] = kept[at]; return; }\n\
                     float v = in[y * columns + x]; out[at] = v; kept[at] = v;\n\
                     if (x == columns - 1 && y == rows - 1) known = rows * 1000 + columns;",
                ),
                "it should be",
            ),
            ("a constant", transpose("", "out[x * rows + y] = 0.5f;"), "is 0.5, and it should be"),
            ("a stale buffer: nothing is written", transpose("", ""), "was never written"),
            (
                "work in the first launch alone",
                transpose(
                    "__device__ int launches[9];",
                    &format!(
                        "if (launches[0] > 0) return;\n{right}\nif (x == columns - 1 && y == rows - 1) launches[0] = 1;"
                    ),
                ),
                "",
            ),
            (
                "NaN, which compares with nothing",
                transpose("", "out[x * rows + y] = __int_as_float(0x7fc00000);"),
                "is NaN",
            ),
            (
                "the input changed, so that less is to be moved",
                transpose("", &format!("{right}\n((float *)in)[y * columns + x] = 0;")),
                "",
            ),
            (
                "another file read by the compiler",
                transpose("#inc\\\nlude \"/etc/passwd\"", right),
                "includes no files",
            ),
            ("memory past the counters", transpose("", "asm(\"trap;\");"), "uses no `asm`"),
            (
                "reading past the array, for what others left",
                transpose("", "out[x * rows + y] = in[y * columns + x + 100000];"),
                "",
            ),
        ];
        for (what, source, said) in cheats {
            let told = answer(Task::Transpose, &source, false);
            assert_eq!(told["passed"], false, "{what}: {told}");
            let text = told["what"].as_str().unwrap();
            assert!(text.contains(said) && text.contains("next: "), "{what}: {text}");
        }
    }

    /// There is no timer in a kernel's reach: it may read clocks or define some, and is counted as without.
    #[test]
    fn a_patched_timer_changes_nothing() {
        let patched = NAIVE.replace("extern", "#define clock64() 0LL\n#define clock() 0\nextern");
        let plain = judge(Task::Transpose, NAIVE).unwrap().score;
        assert_eq!(judge(Task::Transpose, &patched).unwrap().score, plain);
    }

    #[test]
    fn comments_hide_no_directive() {
        assert!(allowed("// #include <x>\n/* #include <y> */ int a;").is_ok());
        for hidden in [
            "/* a */ #include <x>",
            "#/* a */include <x>",
            "%: include <x>",
            "# \\\ninclude <x>",
            "??=include <x>",
            "char *s = \"/*\";\n#include <x>\n//*/",
        ] {
            assert!(allowed(hidden).is_err(), "{hidden}");
        }
    }

    #[test]
    fn a_task_that_is_not_there_names_those_that_are() {
        let error = Task::named("sort").unwrap_err().to_string();
        assert!(error.contains("transpose, row_sums"), "{error}");
    }
}
