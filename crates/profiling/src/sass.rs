//! A rung's machine instructions (SASS), as `ptxas` assembles and `cuobjdump` prints them.

use super::programs::started;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The opcodes of a rung, and its text where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it shows itself as the last expression of a cell, without a semicolon"]
pub struct Sass {
    /// The rung, such as `matmul/02_tiled`.
    pub rung: String,
    /// How often each opcode stands in the text; `FFMA.reuse` are those of the `FFMA` that keep an operand.
    pub opcodes: BTreeMap<String, u64>,
    /// An instruction a line; empty where only the opcodes were recorded.
    pub text: Vec<String>,
    /// Empty where it was assembled here, else how it was recorded.
    pub recorded: String,
}

/// How the recorded ones came about; `results/sass/README.md` says it at length.
const RECORDED: &str = "NVRTC 13.0 for sm_90a, cuobjdump 13.1";

impl Sass {
    /// Assembles a rung for this machine's GPU (without one, for the GPU that the simulator stands for) and takes it apart
    /// again. Where CUDA's tools are not found: what was recorded.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rung that is none, or has no record; [`Error::File`].
    pub fn of(rung: &str) -> Result<Sass> {
        gpulab_kernels::ladder::rung(rung)?;
        match assembled(rung) {
            Ok(text) => Ok(Sass { rung: rung.to_string(), opcodes: opcodes(&text), text, recorded: String::new() }),
            Err(_) => Sass::recorded(rung),
        }
    }

    /// What was recorded of a rung: its opcodes, and of some its text.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rung without a record, [`Error::File`].
    pub fn recorded(rung: &str) -> Result<Sass> {
        let folder = gpulab::repository().join("results/sass");
        let table = read(&folder.join("opcodes.csv"))?;
        let row = |line: &str| {
            let mut cells = line.split(',');
            let (name, opcode, count) = (cells.next()?, cells.next()?, cells.next()?.parse().ok()?);
            (name == rung).then(|| (opcode.to_string(), count))
        };
        let opcodes: BTreeMap<String, u64> = table.lines().filter_map(row).collect();
        if opcodes.is_empty() {
            return Err(Error::invalid(
                format!("no SASS of `{rung}` was recorded"),
                "install the CUDA toolkit (`ptxas`, `cuobjdump`), and it is assembled here",
            ));
        }
        let file = folder.join(format!("{}.txt", rung.replace('/', "_")));
        let text = if file.exists() { instructions(&read(&file)?) } else { Vec::new() };
        Ok(Sass { rung: rung.to_string(), opcodes, text, recorded: RECORDED.to_string() })
    }

    /// How often an opcode stands in the text, such as `LDS.128`.
    pub fn count(&self, opcode: &str) -> u64 {
        self.opcodes.get(opcode).copied().unwrap_or(0)
    }

    /// For each load of shared memory that feeds multiply-adds, in the order of the text: how many `FFMA` stand between it and the first
    /// that reads a register it has filled. Where none stands there the warp waits for the load. Empty where there is no text.
    ///
    /// # Examples
    /// ```
    /// use gpulab_profiling::Sass;
    /// let ahead = Sass::recorded("matmul/02_tiled")?.multiply_adds_ahead();
    /// assert!(!ahead.is_empty());
    /// # Ok::<(), gpulab::error::Error>(())
    /// ```
    #[must_use]
    pub fn multiply_adds_ahead(&self) -> Vec<usize> {
        let ahead = |at: usize| {
            let filled = filled_by_load(&self.text[at])?;
            let later = self.text[at + 1..].iter().filter(|line| opcode_of(line) == "FFMA");
            later.map(|line| line.split_once(',').map_or("", |(_, operands)| operands)).position(|operands| {
                operands
                    .split(|c: char| !c.is_ascii_alphanumeric())
                    .any(|word| register(word).is_some_and(|r| filled.contains(&r)))
            })
        };
        (0..self.text.len()).filter_map(ahead).collect()
    }

    /// The first `most` lines with one of those opcodes, such as `["LDS", "FFMA"]`; empty where there is no text.
    pub fn lines(&self, opcodes: &[&str], most: usize) -> Vec<&str> {
        let wanted = |line: &&String| opcodes.iter().any(|opcode| opcode_of(line).starts_with(opcode));
        self.text.iter().filter(wanted).take(most).map(String::as_str).collect()
    }
}

impl fmt::Display for Sass {
    /// The opcodes that move numbers and multiply them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.recorded.is_empty() {
            "assembled here".to_string()
        } else {
            format!("recorded: {}", self.recorded)
        };
        writeln!(f, "{} ({from})", self.rung)?;
        const SHOWN: [&str; 8] = ["FFMA", "HMMA", "HGMMA", "LDS", "LDG", "STS", "LDGSTS", "BAR"];
        for (opcode, count) in self.opcodes.iter().filter(|one| SHOWN.contains(&one.0.split('.').next().unwrap_or("")))
        {
            writeln!(f, "{count:>8}  {opcode}")?;
        }
        writeln!(
            f,
            "{:>8}  instructions",
            self.opcodes.iter().filter(|one| one.0 != REUSE).map(|one| one.1).sum::<u64>()
        )
    }
}

const REUSE: &str = "FFMA.reuse";

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| Error::File {
        path: path.to_path_buf(),
        during: "read recorded SASS".to_string(),
        text: error.to_string(),
        fix: "restore it with git".to_string(),
    })
}

/// PTX from NVRTC, then the two programs of CUDA's toolkit.
fn assembled(rung: &str) -> Result<Vec<String>> {
    let gpu = Gpu::open()?;
    let module = gpu.compile(gpulab_kernels::ladder::rung(rung)?.source()?)?;
    let (major, minor) = gpu.compute_capability()?;
    let folder = std::env::temp_dir().join(format!("gpulab-sass-{}", std::process::id()));
    let file = |error: std::io::Error| Error::File {
        path: folder.clone(),
        during: "assemble a kernel there".to_string(),
        text: error.to_string(),
        fix: "make room there".to_string(),
    };
    std::fs::create_dir_all(&folder).map_err(file)?;
    let [ptx, cubin] = ["kernel.ptx", "kernel.cubin"].map(|name| folder.join(name).to_string_lossy().into_owned());
    let run = || -> Result<String> {
        std::fs::write(&ptx, module.ptx()?).map_err(file)?;
        // Instructions of one generation alone have an `a` behind the number.
        let target = if module.ptx()?.contains(&format!(".target sm_{major}{minor}a")) { "a" } else { "" };
        let arch = format!("-arch=sm_{major}{minor}{target}");
        let limit = Duration::from_secs(60);
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        started(&words(&["ptxas", &arch, "-o", &cubin, &ptx]), limit)?;
        Ok(started(&words(&["cuobjdump", "-sass", &cubin]), limit)?.out)
    };
    let text = run();
    let _ = std::fs::remove_dir_all(&folder);
    let found = instructions(&text?);
    match found.is_empty() {
        true => Err(Error::invalid("`cuobjdump` printed no instructions", "use the tools of one CUDA version")),
        false => Ok(found),
    }
}

/// The instructions of `cuobjdump -sass`, without addresses and encodings.
fn instructions(text: &str) -> Vec<String> {
    let instruction = |line: &str| {
        let (address, rest) = line.trim().strip_prefix("/*")?.split_once("*/")?;
        let code = rest.split(';').next()?.trim();
        (address.len() <= 6 && !code.is_empty() && !code.starts_with("/*")).then(|| code.to_string())
    };
    text.lines().filter_map(instruction).collect()
}

/// `LDS.128` of `@!P0 LDS.128 R12, [R18]`.
fn opcode_of(instruction: &str) -> &str {
    instruction.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or("")
}

/// 12 of `R12`.
fn register(word: &str) -> Option<u32> {
    word.strip_prefix('R')?.parse().ok()
}

/// The registers that a load of shared memory fills: 12 to 15 for `LDS.128 R12, [R18]`.
fn filled_by_load(instruction: &str) -> Option<std::ops::Range<u32>> {
    let count = match opcode_of(instruction) {
        "LDS" => 1,
        "LDS.64" => 2,
        "LDS.128" => 4,
        _ => return None,
    };
    let (before, _) = instruction.split_once(',')?;
    let first = register(before.rsplit(' ').next()?)?;
    Some(first..first + count)
}

fn opcodes(text: &[String]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in text {
        *found.entry(opcode_of(line).to_string()).or_insert(0) += 1;
        if opcode_of(line) == "FFMA" && line.contains(".reuse") {
            *found.entry(REUSE.to_string()).or_insert(0) += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_found_among_encodings() {
        let text = "\tFunction : matmul\n\
            \t/*0390*/                   LDS.128 R12, [R18] ;   /* 0x00000000120c7984 */\n\
                                                               /* 0x000ff00000000800 */\n\
            \t/*03f0*/              @!P0 FFMA R12, R26.reuse, R12, R21 ;   /* 0x0 */\n";
        let found = instructions(text);
        assert_eq!(found, ["LDS.128 R12, [R18]", "@!P0 FFMA R12, R26.reuse, R12, R21"]);
        let counts = opcodes(&found);
        assert_eq!((counts["LDS.128"], counts["FFMA"], counts["FFMA.reuse"]), (1, 1, 1));
    }

    #[test]
    fn what_stands_between_a_load_and_its_first_use_is_counted() {
        let lines = [
            "LDS.128 R12, [R18]",
            "@!P0 LDS R4, [R18+0x10]",
            "FFMA R1, R2, R3, R1",
            "FFMA R12, R2, R4.reuse, R1",
            "FFMA R1, R2, R15, R1",
            "LDS.64 R20, [R18]",
        ];
        let text = lines.map(str::to_string).to_vec();
        let sass = Sass { rung: String::new(), opcodes: BTreeMap::new(), text, recorded: String::new() };
        // R15 belongs to the first load, what an FFMA writes is no use, and nobody reads R20.
        assert_eq!(sass.multiply_adds_ahead(), [2, 1]);
    }

    #[test]
    fn the_same_instructions_in_another_order() {
        let [as_it_stands, one_block] =
            ["matmul/07_async_copies", "matmul/07_one_block"].map(|it| Sass::recorded(it).unwrap());
        for it in [&as_it_stands, &one_block] {
            assert_eq!(opcodes(&it.text), it.opcodes);
        }
        assert_eq!(
            [as_it_stands.count("FFMA"), as_it_stands.count("LDS.128")],
            [one_block.count("FFMA"), one_block.count("LDS.128")]
        );
        let median = |sass: &Sass| {
            let mut ahead = sass.multiply_adds_ahead();
            ahead.sort_unstable();
            ahead[ahead.len() / 2]
        };
        assert!(median(&as_it_stands) < 4 && median(&one_block) > 20);
    }

    #[test]
    fn recorded_rungs_have_opcodes_and_one_its_text() {
        let tiled = Sass::recorded("matmul/02_tiled").unwrap();
        assert!(tiled.count("LDS.128") > 0 && tiled.count("FFMA") > 0 && !tiled.lines(&["LDS"], 5).is_empty());
        assert_eq!(opcodes(&tiled.text), tiled.opcodes);
        assert!(tiled.to_string().contains("LDS.128"));
        let reuse = |rung: &str| Sass::recorded(rung).unwrap().count("FFMA.reuse");
        assert!(reuse("matmul/09_operand_reuse") > reuse("matmul/08_wide_tile"));
        assert!(matches!(Sass::recorded("reduction/02_tree"), Err(Error::Invalid { .. })));
    }
}
