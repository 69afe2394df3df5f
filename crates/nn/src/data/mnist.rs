//! MNIST's four files: found, unpacked, their checksums compared.

use super::{ImageSet, Images};
use flate2::read::GzDecoder;
use gpulab::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// One of MNIST's four files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MnistFile {
    /// Its published name, without `.gz`.
    pub name: &'static str,
    /// SHA-256 of the unpacked file. Packed ones differ with the program that packed them.
    pub sha256: &'static str,
    dimensions: usize,
}

impl MnistFile {
    /// Images and labels to train on, images and labels to test.
    pub const ALL: [MnistFile; 4] = [
        MnistFile {
            name: "train-images-idx3-ubyte",
            sha256: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            dimensions: 3,
        },
        MnistFile {
            name: "train-labels-idx1-ubyte",
            sha256: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            dimensions: 1,
        },
        MnistFile {
            name: "t10k-images-idx3-ubyte",
            sha256: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            dimensions: 3,
        },
        MnistFile {
            name: "t10k-labels-idx1-ubyte",
            sha256: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            dimensions: 1,
        },
    ];

    /// The file in that folder, plain or packed; some copies have a dot before `idx`.
    pub(super) fn find(&self, folder: &Path) -> Option<PathBuf> {
        let dotted = self.name.replace("-idx", ".idx");
        let names = [self.name.to_string(), format!("{}.gz", self.name), dotted.clone(), format!("{dotted}.gz")];
        names.into_iter().map(|name| folder.join(name)).find(|path| path.is_file())
    }

    /// The content of such a file, unpacked where it is packed, once its checksum is the published one.
    ///
    /// # Errors
    /// A text that says what is wrong.
    pub(super) fn unpack(&self, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let bytes = if bytes.starts_with(&[0x1f, 0x8b]) { unpack(&bytes)? } else { bytes };
        // What the file itself says comes first: it tells more than a checksum does.
        parse(&bytes, self.dimensions)?;
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        match sum == self.sha256 {
            true => Ok(bytes),
            false => Err(format!("its SHA-256 is {sum}, and MNIST's is {}", self.sha256)),
        }
    }
}

/// `data/mnist/` of this repository.
pub(super) fn usual_folder() -> PathBuf {
    gpulab::repository().join("data/mnist")
}

impl Images {
    /// MNIST's four IDX files of a folder, plain or with `.gz`, their checksums compared with the published ones.
    ///
    /// # Errors
    /// [`gpulab::Error::File`] when one is missing or damaged.
    pub fn mnist(folder: &Path) -> Result<Images> {
        let [train_images, train_labels, test_images, test_labels] =
            MnistFile::ALL.map(|file| read_one(folder, &file, MnistFile::unpack));
        put_together(folder, [train_images?, train_labels?, test_images?, test_labels?])
    }
}

type Unpack = fn(&MnistFile, Vec<u8>) -> Result<Vec<u8>, String>;

fn read_one(folder: &Path, file: &MnistFile, unpack: Unpack) -> Result<Idx> {
    let fail = |path: &Path, text: String, fix: &str| Error::file(path, "read MNIST from", text, fix);
    let Some(path) = file.find(folder) else {
        return Err(fail(
            folder,
            format!("{} is not there, neither plain nor as .gz", file.name),
            "put MNIST's four files into that folder (`make mnist` fetches them), or leave --data away: \
             then digits are generated",
        ));
    };
    let bytes = std::fs::read(&path)
        .map_err(|error| fail(&path, error.to_string(), "make the file readable, or fetch it again"))?;
    let content = unpack(file, bytes).and_then(|bytes| parse(&bytes, file.dimensions));
    content.map_err(|text| fail(&path, text, "the file is damaged: fetch it again with `make mnist`"))
}

fn put_together(folder: &Path, [a, b, c, d]: [Idx; 4]) -> Result<Images> {
    let fix = "the files are of different sets: fetch all four again with `make mnist`";
    let fail = |text: String| Error::file(folder, "use the files of", text, fix);
    let set = |images: Idx, labels: Idx, which: usize| {
        let (name, with) = (MnistFile::ALL[which].name, MnistFile::ALL[which + 1].name);
        if images.sizes[0] != labels.sizes[0] {
            return Err(fail(format!(
                "{name} has {} images, and {with} has {} labels",
                images.sizes[0], labels.sizes[0]
            )));
        }
        if let Some(at) = labels.bytes.iter().position(|&label| label > 9) {
            return Err(fail(format!("label {at} of {with} is {}, which is no digit", labels.bytes[at])));
        }
        Ok(ImageSet { pixels: images.bytes, labels: labels.bytes })
    };
    let (height, width) = (a.sizes[1], a.sizes[2]);
    if c.sizes[1..] != [height, width] {
        return Err(fail(format!("images to train on are {height} × {width}, those to test {:?}", &c.sizes[1..])));
    }
    Ok(Images { name: "MNIST".to_string(), width, height, train: set(a, b, 0)?, test: set(c, d, 2)? })
}

// ----------------------------------------------------------------------
// Unpacking gzip: MNIST's files come so.

/// More than any file of images here unpacks to: a damaged length must not fill the memory.
const LARGEST: u64 = 1 << 30;

/// The file within a gzip file, its length and checksum compared.
///
/// # Errors
/// A text that says what is wrong.
fn unpack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let read = GzDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut out);
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err("it is cut short".to_string()),
        Err(error) => Err(format!("it is damaged: {error}")),
        Ok(length) if length as u64 > LARGEST => Err(format!("it unpacks to more than {LARGEST} bytes")),
        Ok(_) => Ok(out),
    }
}

// ----------------------------------------------------------------------
// IDX, the form of MNIST's files: a magic number that names the kind, the sizes, then bytes. All numbers are big-endian.

/// The content of an IDX file of bytes.
#[derive(Debug, PartialEq, Eq)]
struct Idx {
    /// Images, rows, pixels of a row; labels have one size.
    pub sizes: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Reads a file of bytes with so many sizes: 3 for images, 1 for labels.
///
/// # Errors
/// A text that says what is wrong.
fn parse(file: &[u8], dimensions: usize) -> Result<Idx, String> {
    let word = |at: usize| file.get(at * 4..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word));
    let magic = word(0).ok_or("it is cut short: it has not even a magic number")?;
    let expected = 0x800 + dimensions as u32;
    if magic != expected {
        return Err(format!("it begins with the magic number {magic:#x}, and {expected:#x} is that of such a file"));
    }
    let sizes: Option<Vec<usize>> = (1..=dimensions).map(|at| word(at).map(|size| size as usize)).collect();
    let sizes = sizes.ok_or("it is cut short within its sizes")?;
    let needed = sizes.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    let bytes = &file[4 * (dimensions + 1)..];
    match needed {
        Some(needed) if bytes.len() == needed => Ok(Idx { sizes, bytes: bytes.to_vec() }),
        Some(needed) if bytes.len() < needed => {
            Err(format!("it is cut short: it announces {needed} bytes for {sizes:?}, and {} are there", bytes.len()))
        }
        _ => Err(format!("it announces {sizes:?}, and {} bytes are there", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gpulab-mnist-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn images(count: u8, side: u8) -> Vec<u8> {
        let mut file = vec![0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, side, 0, 0, 0, side];
        file.extend(std::iter::repeat_n(9, usize::from(count) * usize::from(side) * usize::from(side)));
        file
    }

    fn labels(all: &[u8]) -> Vec<u8> {
        [&[0, 0, 8, 1, 0, 0, 0, all.len() as u8][..], all].concat()
    }

    /// As `read`, for small files: these have other checksums.
    fn read_small(folder: &Path) -> Result<Images> {
        let plain: Unpack = |_, bytes| Ok(bytes);
        let [a, b, c, d] = MnistFile::ALL.map(|file| read_one(folder, &file, plain));
        put_together(folder, [a?, b?, c?, d?])
    }

    fn fill(folder: &Path, files: [Vec<u8>; 4]) {
        for (file, bytes) in MnistFile::ALL.iter().zip(files) {
            std::fs::write(folder.join(file.name), bytes).unwrap();
        }
    }

    #[test]
    fn four_files_become_images() {
        let folder = folder("good");
        fill(&folder, [images(3, 2), labels(&[1, 2, 3]), images(1, 2), labels(&[9])]);
        let read = read_small(&folder).unwrap();
        read.check().unwrap();
        assert_eq!((read.name.as_str(), read.width, read.train.len(), read.test.labels[0]), ("MNIST", 2, 3, 9));
        // The real ones have other checksums.
        let text = Images::mnist(&folder).unwrap_err().to_string();
        assert!(text.contains("its SHA-256 is") && text.contains("ba891046"), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn each_damage_names_its_file() {
        let folder = folder("bad");
        let good = || [images(3, 2), labels(&[1, 2, 3]), images(1, 2), labels(&[9])];
        let message = |change: fn(&mut [Vec<u8>; 4])| {
            let mut files = good();
            change(&mut files);
            fill(&folder, files);
            let text = read_small(&folder).unwrap_err().to_string();
            assert!(text.contains("\nnext: "), "{text}");
            text
        };
        assert!(message(|f| f[0][3] = 1).contains("train-images-idx3-ubyte: it begins with the magic number 0x801"));
        assert!(message(|f| f[2].truncate(17)).contains("t10k-images-idx3-ubyte: it is cut short"));
        assert!(message(|f| f[1] = labels(&[1, 2])).contains("has 3 images, and train-labels-idx1-ubyte has 2 labels"));
        assert!(message(|f| f[3] = labels(&[10])).contains("label 0 of t10k-labels-idx1-ubyte is 10"));
        assert!(message(|f| f[2] = images(1, 3)).contains("are 2 × 2, those to test [3, 3]"));
        std::fs::remove_file(folder.join("t10k-labels-idx1-ubyte")).unwrap();
        let text = Images::mnist(&folder).unwrap_err().to_string();
        assert!(text.contains("cannot read MNIST from"), "{text}");
        let text = read_small(&folder.join("none")).unwrap_err().to_string();
        assert!(text.contains("train-images-idx3-ubyte is not there") && text.contains("make mnist"), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// `None` where the program is missing.
    fn gzip(bytes: &[u8], level: &str) -> Option<Vec<u8>> {
        let mut child =
            Command::new("gzip").args([level, "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (mut stdin, bytes) = (child.stdin.take()?, bytes.to_vec());
        let writer = std::thread::spawn(move || stdin.write_all(&bytes));
        let out = child.wait_with_output().ok()?.stdout;
        writer.join().ok()?.ok()?;
        Some(out)
    }

    #[test]
    fn what_gzip_packs_comes_back() {
        let noise: Vec<u8> = gpulab::cpu::random_f32(100_000, 1).iter().flat_map(|x| x.to_le_bytes()).collect();
        let text = "the quick brown fox, and again the quick brown fox; ".repeat(2000).into_bytes();
        let digits = crate::data::Images::generated(1, 300, 1).train.pixels;
        for bytes in [&b""[..], b"a", &noise, &text, &digits, &[0; 70_000]] {
            for level in ["-1", "-6", "-9"] {
                let Some(packed) = gzip(bytes, level) else { return };
                assert_eq!(unpack(&packed).unwrap(), bytes);
            }
        }
    }

    /// `printf 'gpulab gpulab gpulab' | gzip -n`
    const SMALL: [u8; 29] = [
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x2f, 0x28, 0xcd, 0x49, 0x4c, 0x52, 0x48, 0x47, 0xa6, 0, 0x2c, 0x9d,
        0x9b, 0xe9, 0x14, 0, 0, 0,
    ];

    #[test]
    fn damage_is_an_error_and_no_panic() {
        assert!(unpack(b"plain").unwrap_err().contains("cut short"));
        assert!(unpack(b"plain text here").unwrap_err().contains("damaged"));
        for end in 0..SMALL.len() {
            assert!(unpack(&SMALL[..end]).is_err(), "{end}");
        }
        let mut wrong = 0;
        for at in 10..SMALL.len() {
            for bit in 0..8 {
                let mut bytes = SMALL;
                bytes[at] ^= 1 << bit;
                wrong += usize::from(unpack(&bytes).is_ok());
            }
        }
        assert_eq!(wrong, 0);
        assert_eq!(unpack(&SMALL).unwrap(), b"gpulab gpulab gpulab");
    }

    #[test]
    fn images_and_labels_are_read() {
        let labels = [&[0, 0, 8, 1, 0, 0, 0, 3][..], &[7, 2, 1]].concat();
        assert_eq!(parse(&labels, 1), Ok(Idx { sizes: vec![3], bytes: vec![7, 2, 1] }));
        let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1, 2, 3, 4]].concat();
        assert_eq!(parse(&images, 3), Ok(Idx { sizes: vec![2, 1, 2], bytes: vec![1, 2, 3, 4] }));
    }

    #[test]
    fn each_damage_is_named() {
        let good = [&[0, 0, 8, 1, 0, 0, 0, 3][..], &[7, 2, 1]].concat();
        assert!(parse(&good, 3).unwrap_err().contains("magic number 0x801, and 0x803"));
        assert!(parse(&good[..3], 1).unwrap_err().contains("not even a magic number"));
        assert!(parse(&good[..6], 1).unwrap_err().contains("within its sizes"));
        assert!(parse(&good[..9], 1).unwrap_err().contains("announces 3 bytes for [3], and 1 are there"));
        assert!(parse(&[&good[..], b"x"].concat(), 1).unwrap_err().contains("and 4 bytes are there"));
        let huge = [0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(parse(&huge, 3).is_err());
    }
}
