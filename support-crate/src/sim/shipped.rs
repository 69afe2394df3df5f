//! PTX for machines without NVRTC: `ptx.pack` holds that of the course's kernels, and of those that the lessons compile.
//! Where NVRTC is there, the simulator takes what is packed all the same: it is what the compiler would make
//! (`the_packed_ptx_is_what_the_compiler_makes` in gpulab-kernels), and there at once.
//!
//! A kernel is found by what it says. The key is a hash of the words of the source and of the headers beside it, of the
//! constants, the options and the architecture; comments, blank space and names of files are not in it. So in the pack a
//! `.loc` does not name a line but a word, and becomes a line and a column again in the text that the reader has.
//!
//! `make ptx` writes the file: with `GPULAB_PTX_LOG=DIR` each compilation for the simulator is kept as `DIR/KEY`, and the
//! example `pack_ptx` packs such folders.

use super::ARCHITECTURE;
use crate::cuda::{COMPILER_OPTIONS, compile_to_ptx};
use crate::error::{Error, Result};
use crate::launch::{Source, Word, without_comments, words};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What the file begins with; another layout gets another number.
const HEAD: &str = "gpulab PTX 1";
/// The source's name in the pack, whatever its file is called.
const NAME: &str = "kernel.cu";
/// Compilations until one gives what is packed: NVRTC 13.0 does not always give the same. Of 400 calls for
/// `cnn/fc_backward` 10 had other branches; 100 calls for `gpt_step/norm` gave six results, the most frequent one 30 times.
const TRIES: usize = 40;

/// The packed kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pack(pub BTreeMap<String, Packed>);

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packed {
    /// What compiles it: `course/matmul/02_tiled`, the name of a lesson.
    pub users: BTreeSet<String>,
    /// The PTX, with words in the place of lines.
    pub text: String,
}

impl Pack {
    /// Where it lies.
    pub fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx.pack")
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, or is damaged.
    pub fn read(path: &Path) -> Result<Pack> {
        let wrong = |text: String| Error::File {
            path: path.to_path_buf(),
            during: "read the kernels' PTX".to_string(),
            text,
            fix: "run `git restore support-crate/ptx.pack`".to_string(),
        };
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        Pack::unpack(&bytes).ok_or_else(|| wrong("the file is damaged".to_string()))
    }

    /// The file's text: a line `KEY BYTES USERS` for each kernel, an empty one, then the PTX of all, compressed (LZMA).
    fn unpack(bytes: &[u8]) -> Option<Pack> {
        let end = bytes.windows(2).position(|two| two == b"\n\n")?;
        let (index, mut packed) = (std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 2..]);
        let mut text = String::new();
        let mut reader = lzma_rust2::LzmaReader::new_mem_limit(&mut packed, u32::MAX, None).ok()?;
        reader.read_to_string(&mut text).ok()?;
        let mut rest = text.as_str();
        let kernels = index.strip_prefix(HEAD)?.lines().skip(1).map(|line| {
            let [key, length, users] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().ok()?;
            let text = rest.get(..length.parse().ok()?)?;
            rest = &rest[text.len()..];
            Some((key.to_string(), Packed { users: users.split(',').map(str::to_string).collect(), text: text.into() }))
        });
        let pack = Pack(kernels.collect::<Option<_>>()?);
        rest.is_empty().then_some(pack)
    }

    /// The file's bytes, the same for the same kernels. `compress` makes an LZMA stream: only who writes a pack needs one.
    pub fn bytes(&self, compress: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
        // Kernels of one folder are alike: side by side they take less.
        let mut order: Vec<_> = self.0.iter().collect();
        order.sort_by_key(|(key, kernel)| (&kernel.users, *key));
        let users = |kernel: &Packed| kernel.users.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        let lines = order.iter().map(|(key, kernel)| format!("{key} {} {}\n", kernel.text.len(), users(kernel)));
        let text: String = order.iter().map(|(_, kernel)| kernel.text.as_str()).collect();
        [format!("{HEAD}\n{}\n", lines.collect::<String>()).into_bytes(), compress(text.as_bytes())].concat()
    }

    /// The PTX of a source, with the source's own lines; nothing where the pack does not have it.
    pub fn ptx(&self, source: &Source) -> Option<String> {
        self.0.get(&key(source)).map(|kernel| Files::of(source).with_lines(&kernel.text))
    }
}

/// The packed PTX of a source, for a machine that cannot compile.
///
/// # Errors
/// [`Error::File`] when the pack cannot be read.
pub fn ptx(source: &Source) -> Result<Option<String>> {
    Ok(pack()?.ptx(source))
}

/// The course's own pack, read once.
fn pack() -> Result<&'static Pack> {
    static PACK: OnceLock<Result<Pack>> = OnceLock::new();
    PACK.get_or_init(|| Pack::read(&Pack::path())).as_ref().map_err(Clone::clone)
}

/// What the pack should hold for a source: what it holds, if `compile` gives that in one of a few tries.
///
/// # Errors
/// Those of `compile`; [`Error::File`] when the pack is damaged.
pub fn wanted(source: &Source, mut compile: impl FnMut() -> Result<String>) -> Result<String> {
    let files = Files::of(source);
    let packed = match Pack::path().exists() {
        true => pack()?.0.get(&key(source)).map(|kernel| kernel.text.as_str()),
        // The first pack of all is being made.
        false => None,
    };
    until(packed, || compile().map(|ptx| files.with_words(&ptx)))
}

/// What `make` gives: `packed`, if that comes in a few tries.
fn until(packed: Option<&str>, mut make: impl FnMut() -> Result<String>) -> Result<String> {
    let mut made = make()?;
    for _ in 1..TRIES {
        if packed.is_none_or(|packed| packed == made) {
            break;
        }
        made = make()?;
    }
    Ok(made)
}

/// Keeps a compilation in `GPULAB_PTX_LOG`'s folder, where it is set.
///
/// # Errors
/// As [`wanted`]; [`Error::File`] when the folder is not writable.
pub(super) fn log(source: &Source, compile: impl FnMut() -> Result<String>) -> Result<()> {
    match log_folder() {
        Some(folder) => log_in(&folder, source, compile),
        None => Ok(()),
    }
}

/// The folder that `GPULAB_PTX_LOG` names.
fn log_folder() -> Option<PathBuf> {
    std::env::var_os("GPULAB_PTX_LOG").map(PathBuf::from)
}

/// Keeps a compilation in a folder.
///
/// # Errors
/// As [`wanted`]; [`Error::File`] when the folder is not writable.
pub fn log_in(folder: &Path, source: &Source, compile: impl FnMut() -> Result<String>) -> Result<()> {
    let path = folder.join(key(source));
    if path.exists() {
        return Ok(());
    }
    let text = wanted(source, compile)?;
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text)).map_err(|error| Error::File {
        path,
        during: "keep a kernel's PTX (GPULAB_PTX_LOG)".to_string(),
        text: error.to_string(),
        fix: "name a folder that is writable".to_string(),
    })
}

/// The key of a source: 32 hexadecimal digits.
pub fn key(source: &Source) -> String {
    let Files(files) = Files::of(source);
    let mut text = format!("compute_{} {COMPILER_OPTIONS:?} {:?}", ARCHITECTURE, source.defines);
    if !source.options.is_empty() {
        text += &format!(" {:?}", source.options);
    }
    for (number, (name, code)) in files.iter().enumerate() {
        // How the source itself is called changes nothing; a header is included by its name.
        text += &format!("\n{}\n{}", if number == 0 { NAME } else { name }, meaning(code));
    }
    // FNV-1a of 128 bits: the same everywhere and for ever, which std's hashes do not promise.
    let hash = text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("{hash:032x}")
}

/// The words, one space between two; a line ends where it does for the preprocessor: with a directive.
fn meaning(code: &str) -> String {
    let words = words(code);
    let mut text = String::with_capacity(code.len());
    let (mut line, mut directive) = (0, false);
    for (at, word) in words.iter().enumerate() {
        let joined = at > 0 && words[at - 1].text.ends_with('\\');
        let begins = word.line != line && !joined;
        let was = directive;
        directive = if begins { word.text.starts_with('#') } else { directive };
        text.push(if begins && (was || directive) { '\n' } else { ' ' });
        text.push_str(word.text);
        line = word.line;
    }
    text
}

/// A source and the headers beside it that it includes, by name, without their comments. The source is the first.
struct Files(Vec<(String, String)>);

impl Files {
    fn of(source: &Source) -> Files {
        let name = source.name.rsplit('/').next().unwrap_or_default().to_string();
        let mut files = vec![(name, without_comments(&source.text))];
        let mut next = 0;
        while let (Some((_, code)), Some(folder)) = (files.get(next), &source.folder) {
            let names = code.lines().filter_map(|line| {
                line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.split('"').nth(1)
            });
            for name in names.map(str::to_string).collect::<Vec<_>>() {
                // A header that is not there is the compiler's to tell.
                if let Some(text) = std::fs::read_to_string(folder.join(&name)).ok()
                    && files.iter().all(|(known, _)| *known != name)
                {
                    files.push((name, without_comments(&text)));
                }
            }
            next += 1;
        }
        Files(files)
    }

    /// The words of a file that PTX calls so; it knows the last part of the name alone.
    fn words(&self, name: &str, own: &str) -> Option<Vec<Word<'_>>> {
        let mut files = self.0.iter().enumerate();
        let of_that_name = |(number, (known, _)): &(usize, &(String, String))| match number {
            0 => name == own,
            _ => known.rsplit('/').next() == Some(name),
        };
        files.find(of_that_name).map(|(_, (_, code))| words(code))
    }

    /// PTX for the pack: `.loc file word offset`, no comments, and the source has one name.
    fn with_words(&self, ptx: &str) -> String {
        let place = |words: &[Word], line: usize, column: usize| {
            let after = words.partition_point(|word| (word.line, word.column) <= (line, column));
            // What stands before a line's first word, such as the beginning of a function, belongs to that word.
            let word = if after > 0 && words[after - 1].line == line { after - 1 } else { after.min(words.len() - 1) };
            (word + 1, column.saturating_sub(words[word].column - 1))
        };
        let lines = ptx.split_inclusive('\n').filter(|line| !line.starts_with("//"));
        self.relocated(&lines.collect::<String>(), &self.0[0].0, NAME, place)
    }

    /// The same with the lines and columns of this source.
    fn with_lines(&self, packed: &str) -> String {
        let place = |words: &[Word], word: usize, offset: usize| {
            let word = words[word.clamp(1, words.len()) - 1];
            (word.line, word.column - 1 + offset)
        };
        self.relocated(packed, NAME, &self.0[0].0, place)
    }

    /// Replaces each place of `.loc` in one of these files, and the source's name.
    fn relocated(
        &self,
        ptx: &str,
        own: &str,
        called: &str,
        place: impl Fn(&[Word], usize, usize) -> (usize, usize),
    ) -> String {
        let named = |line: &str| {
            let (number, name) = line.trim_start().strip_prefix(".file")?.split_once('"')?;
            Some((number.trim().to_string(), name.split_once('"')?.0.to_string()))
        };
        let known: BTreeMap<String, Vec<Word>> = ptx
            .lines()
            .filter_map(named)
            .filter_map(|(number, name)| Some((number, self.words(&name, own)?)))
            .filter(|(_, words)| !words.is_empty())
            .collect();
        // `1 14 9, function_name $L__info_string0, inlined_at 1 30 5`: a place, and the place that it is called from.
        let moved = |text: &str| {
            let mut parts = text.splitn(3, ' ');
            let (file, line, rest) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let column = rest[..digits].parse().ok()?;
            // Line 0 is that of code that belongs to none.
            let (line, column) = if line == 0 { (line, column) } else { place(known.get(file)?, line, column) };
            Some(format!("{file} {line} {column}{}", &rest[digits..]))
        };
        let or_same = |text: &str| moved(text).unwrap_or_else(|| text.to_string());
        let one = |line: &str| {
            if let Some((start, places)) = line.split_once(".loc\t") {
                let places: Vec<String> = places.split("inlined_at ").map(or_same).collect();
                return format!("{start}.loc\t{}", places.join("inlined_at "));
            }
            match named(line) {
                Some((_, name)) if name == own => line.replacen(&format!("\"{own}\""), &format!("\"{called}\""), 1),
                _ => line.to_string(),
            }
        };
        ptx.split_inclusive('\n').map(one).collect()
    }
}

/// The PTX that the simulator runs: what is packed, which costs nothing, else what NVRTC makes.
pub(crate) fn compile_or_ship(source: &Source) -> Result<String> {
    // What is kept in `GPULAB_PTX_LOG` is the compiler's own.
    if log_folder().is_none()
        && let Ok(Some(packed)) = ptx(source)
    {
        return Ok(packed);
    }
    match compile(source) {
        Err(missing @ Error::NoCompiler { .. }) => ptx(source)?.ok_or(missing),
        compiled => compiled,
    }
}

/// The PTX that NVRTC makes for the simulator.
///
/// # Errors
/// [`Error::NoCompiler`] without NVRTC, [`Error::Compile`] with the compiler's log.
pub fn compile(source: &Source) -> Result<String> {
    let make = || compile_to_ptx(source, &format!("compute_{ARCHITECTURE}")).map(|ptx| plain_names(&ptx));
    let ptx = make()?;
    let mut first = Some(ptx.clone());
    log(source, || first.take().map_or_else(make, Ok))?;
    Ok(ptx)
}

/// NVRTC puts folders of this machine before the names of the source and its headers: `.file 1 "/any/folder/kernel.cu"`.
/// Messages are about names, and shipped PTX is the same wherever it was made.
fn plain_names(ptx: &str) -> String {
    let plain = |line: &str| {
        let (start, path) = line.split_once('"').filter(|_| line.trim_start().starts_with(".file"))?;
        let (path, rest) = path.split_once('"')?;
        Some(format!("{start}\"{}\"{rest}", path.rsplit('/').next()?))
    };
    ptx.split_inclusive('\n').map(|line| plain(line).unwrap_or_else(|| line.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lzma_rust2::{LzmaOptions, LzmaWriter};
    use std::io::Write;

    const KERNEL: &str = "// adds one\n#define N 1\nextern \"C\" __global__ void k(float *x) {\n    x[0] += N;\n}\n";
    /// The same to a compiler, with other lines.
    const OWN: &str = "#define N   1\n\nextern \"C\"\n__global__ void k(float *x) { /* here: */\n\n  x[0] += N; }";

    #[test]
    fn the_key_is_of_what_the_compiler_reads() {
        let source = Source::text(KERNEL).define("M", 2);
        let named = |name: &str| Source { name: name.to_string(), ..source.clone() };
        for same in [Source::text(OWN).define("M", 2), named("02_other.cu"), named("any/folder/k.cu")] {
            assert_eq!(key(&same), key(&source), "{same:?}");
        }
        let changed = |from: &str, to: &str| Source::text(&KERNEL.replace(from, to)).define("M", 2);
        let others = [
            changed("+= N", "-= N"),
            changed("float", "int"),
            // The directive ends elsewhere; a word is in two; a literal has another space.
            changed("N 1\n", "N 1 "),
            changed("N 1\n", "N\n1 "),
            changed("x[0]", "x [0]"),
            changed("\"C\"", "\"C \""),
            source.clone().define("K", 3),
            Source::text(KERNEL).define("M", 3),
            Source::text(KERNEL),
        ];
        let keys: BTreeSet<String> = others.iter().chain([&source]).map(key).collect();
        assert_eq!(keys.len(), others.len() + 1);
        // Packs are found by it from one version of this crate to the next.
        assert_eq!(meaning(&without_comments(KERNEL)), meaning(&without_comments(OWN)));
        assert_eq!(meaning("#if A \\\n  && B\nint a;\n  int b;\n#endif"), "\n#if A \\ && B\nint a; int b;\n#endif");
    }

    #[test]
    fn headers_beside_the_source_are_in_the_key() {
        let folder = std::env::temp_dir().join(format!("gpulab-shipped-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        let source = Source { folder: Some(folder.clone()), ..Source::text("#include \"a.cuh\"\n#include <b.cuh>\n") };
        // They include each other, which their guards end.
        let texts = ["#include \"c.cuh\"\nint a;", "#include \"a.cuh\"\nint c;", "#include \"a.cuh\"\nint d; // no"];
        let keys: Vec<String> = texts[1..]
            .iter()
            .map(|c| {
                for (name, text) in [("a.cuh", texts[0]), ("b.cuh", c), ("c.cuh", c)] {
                    write(name, text);
                }
                key(&source)
            })
            .collect();
        write("c.cuh", &format!("/* other words */\n{}", texts[1]));
        let commented = key(&source);
        let files: Vec<String> = Files::of(&source).0.into_iter().map(|(name, _)| name).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(keys[0] != keys[1] && keys[0] == commented);
        assert_eq!(files, ["kernel.cu", "a.cuh", "c.cuh"]);
    }

    #[test]
    fn lines_are_those_of_the_source_that_asks() {
        let of_nvrtc = "// by NVRTC\n\t.loc\t1 3 0\n\tadd;\n\t.loc\t1 4 10, function_name $L__info_string0, inlined_at \
                        1 3 12\n\t.loc\t2 7 5, function_name $L__info_string0+3, inlined_at 1 4 7\n\t.loc\t1 0 5\n\
                        \t.file\t1 \"adds.cu\"\n\t.file\t2 \"cuda_fp16.h\"\n";
        // Of the words `extern` is number 4, `__global__` 6, `x[0]` 11, `+=` 12.
        let packed = "\t.loc\t1 4 0\n\tadd;\n\t.loc\t1 12 1, function_name $L__info_string0, inlined_at \
                      1 6 1\n\t.loc\t2 7 5, function_name $L__info_string0+3, inlined_at 1 11 3\n\t.loc\t1 0 5\n\
                      \t.file\t1 \"kernel.cu\"\n\t.file\t2 \"cuda_fp16.h\"\n";
        let own = "\t.loc\t1 3 0\n\tadd;\n\t.loc\t1 6 8, function_name $L__info_string0, inlined_at \
                   1 4 1\n\t.loc\t2 7 5, function_name $L__info_string0+3, inlined_at 1 6 5\n\t.loc\t1 0 5\n\
                   \t.file\t1 \"mine.cu\"\n\t.file\t2 \"cuda_fp16.h\"\n";
        let files = |name: &str, text: &str| Files::of(&Source { name: name.into(), ..Source::text(text) });
        assert_eq!(files("adds.cu", KERNEL).with_words(of_nvrtc), packed);
        assert_eq!(files("mine.cu", OWN).with_lines(packed), own);
    }

    fn compress(text: &[u8]) -> Vec<u8> {
        let size = Some(text.len() as u64);
        let mut writer = LzmaWriter::new_use_header(Vec::new(), &LzmaOptions::with_preset(1), size).unwrap();
        writer.write_all(text).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn a_pack_is_read_as_it_was_written_and_a_damaged_one_is_told() {
        let kernel = |users: &[&str], text: &str| Packed {
            users: users.iter().map(|user| user.to_string()).collect(),
            text: text.to_string(),
        };
        let pack = Pack(BTreeMap::from([
            (
                key(&Source::text(KERNEL)),
                kernel(&["10_add", "course/add/01"], "\t.loc\t1 11 1\n\t.file\t1 \"kernel.cu\"\n"),
            ),
            ("0".repeat(32), kernel(&["00_first"], "é\n")),
        ]));
        let bytes = pack.bytes(compress);
        assert_eq!(Pack::unpack(&bytes), Some(pack.clone()));
        assert_eq!(pack.ptx(&Source::text(OWN)).unwrap(), "\t.loc\t1 6 3\n\t.file\t1 \"kernel.cu\"\n");
        assert_eq!(pack.ptx(&Source::text("int a;")), None);
        let path = std::env::temp_dir().join(format!("gpulab-pack-{}", std::process::id()));
        let text = String::from_utf8_lossy(&bytes).replace(HEAD, "gpulab PTX 0").into_bytes();
        for damaged in [&bytes[..bytes.len() - 3], &bytes[..40], b"", &text] {
            std::fs::write(&path, damaged).unwrap();
            let error = Pack::read(&path).unwrap_err();
            assert!(
                matches!(error, Error::File { .. }) && error.to_string().contains("\nnext: run `git restore"),
                "{error}"
            );
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Pack::read(&path).unwrap_err(), Error::File { .. }));
    }

    #[test]
    fn a_compiler_that_varies_is_asked_again_a_few_times() {
        let counted = |packed: Option<&str>| {
            let mut calls = 0;
            let made = until(packed, || {
                calls += 1;
                Ok(format!("{calls}"))
            });
            (made.unwrap(), calls)
        };
        assert_eq!(counted(None), ("1".to_string(), 1));
        assert_eq!(counted(Some("3")), ("3".to_string(), 3));
        assert_eq!(counted(Some("other")), (TRIES.to_string(), TRIES));
    }

    #[test]
    fn names_without_folders_stand_in_the_ptx() {
        let ptx = "\t.file\t1 \"/any/folder/kernel.cu\"\n\t.file\t2 \"/usr/other.h\"\n// kernel.cu\n";
        assert_eq!(plain_names(ptx), ptx.replace("/any/folder/", "").replace("/usr/", ""));
    }
}
