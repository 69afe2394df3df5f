//! MNIST's four files: found, unpacked, their checksums compared.

use super::{Images, Set, gzip, idx};
use gpulab::error::{Error, Result};
use sha2::{Digest, Sha256};
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
        let bytes = if bytes.starts_with(&[0x1f, 0x8b]) { gzip::unpack(&bytes)? } else { bytes };
        // What the file itself says comes first: it tells more than a checksum does.
        idx::parse(&bytes, self.dimensions)?;
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

pub(super) fn read(folder: &Path) -> Result<Images> {
    let [train_images, train_labels, test_images, test_labels] =
        MnistFile::ALL.map(|file| read_one(folder, &file, MnistFile::unpack));
    put_together(folder, [train_images?, train_labels?, test_images?, test_labels?])
}

type Unpack = fn(&MnistFile, Vec<u8>) -> Result<Vec<u8>, String>;

fn read_one(folder: &Path, file: &MnistFile, unpack: Unpack) -> Result<idx::Idx> {
    let fail = |path: PathBuf, text: String, fix: &str| Error::File {
        path,
        during: "read MNIST from".to_string(),
        text,
        fix: fix.to_string(),
    };
    let Some(path) = file.find(folder) else {
        return Err(fail(
            folder.to_path_buf(),
            format!("{} is not there, neither plain nor as .gz", file.name),
            "put MNIST's four files into that folder (`make mnist` fetches them), or leave --data away: \
             then digits are generated",
        ));
    };
    let bytes = std::fs::read(&path)
        .map_err(|error| fail(path.clone(), error.to_string(), "make the file readable, or fetch it again"))?;
    let content = unpack(file, bytes).and_then(|bytes| idx::parse(&bytes, file.dimensions));
    content.map_err(|text| fail(path, text, "the file is damaged: fetch it again with `make mnist`"))
}

fn put_together(folder: &Path, [a, b, c, d]: [idx::Idx; 4]) -> Result<Images> {
    let set = |images: idx::Idx, labels: idx::Idx, which: usize| {
        let (name, with) = (MnistFile::ALL[which].name, MnistFile::ALL[which + 1].name);
        let fail = |text: String| Error::File {
            path: folder.to_path_buf(),
            during: "use the files of".to_string(),
            text,
            fix: "the files are of different sets: fetch all four again with `make mnist`".to_string(),
        };
        if images.sizes[0] != labels.sizes[0] {
            return Err(fail(format!(
                "{name} has {} images, and {with} has {} labels",
                images.sizes[0], labels.sizes[0]
            )));
        }
        if let Some(at) = labels.bytes.iter().position(|&label| label > 9) {
            return Err(fail(format!("label {at} of {with} is {}, which is no digit", labels.bytes[at])));
        }
        Ok(Set { pixels: images.bytes, labels: labels.bytes })
    };
    let (height, width) = (a.sizes[1], a.sizes[2]);
    if c.sizes[1..] != [height, width] {
        return Err(Error::File {
            path: folder.to_path_buf(),
            during: "use the files of".to_string(),
            text: format!("images to train on are {height} × {width}, those to test {:?}", &c.sizes[1..]),
            fix: "the files are of different sets: fetch all four again with `make mnist`".to_string(),
        });
    }
    Ok(Images { name: "MNIST".to_string(), width, height, train: set(a, b, 0)?, test: set(c, d, 2)? })
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
