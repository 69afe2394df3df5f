use super::*;
use std::path::PathBuf;

fn file() -> TensorFile {
    let mut file = TensorFile::default();
    file.tensors.insert("a".to_string(), HostTensor::new(&[2, 3], vec![0.0, -1.5, 3.25, 1e-7, 1e7, -0.0]));
    file.tensors.insert("b.bias".to_string(), HostTensor::new(&[1], vec![0.1]));
    file.metadata.insert("step".to_string(), "7".to_string());
    file
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("gpulab-tensors-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let folder = Folder::new("back");
    let path = folder.0.join("new/folder/x.safetensors");
    file().write(&path, DType::F32).unwrap();
    assert_eq!(TensorFile::read(&path).unwrap(), file());
    file().write(&path, DType::BF16).unwrap();
    let half = TensorFile::read(&path).unwrap();
    assert_eq!(half.tensors["a"].values[..3], [0.0, -1.5, 3.25]);
    assert!((half.tensors["b.bias"].values[0] - 0.1).abs() < 0.1 / 256.0);
    // Nothing but the file is left behind.
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let some = TensorFile::read_some(&path, |name| name == "a").unwrap();
    assert_eq!(some.tensors.len(), 1);
}

#[test]
fn every_kind_of_number_is_read() {
    assert_eq!(numbers(safetensors::Dtype::F64, &1.5f64.to_le_bytes()), Some(vec![1.5]));
    assert_eq!(numbers(safetensors::Dtype::I64, &[0; 8]), None);
    let f16 = |bits: u16| numbers(safetensors::Dtype::F16, &bits.to_le_bytes()).unwrap()[0];
    // One, minus two, the largest, the smallest, and the smallest with a leading one.
    for (bits, number) in
        [(0x3C00, 1.0), (0xC000, -2.0), (0x7BFF, 65504.0), (0x0001, 2.0f32.powi(-24)), (0x0400, 2.0f32.powi(-14))]
    {
        assert_eq!(f16(bits), number, "{bits:#x}");
    }
    assert!(f16(0x7C00) == f32::INFINITY && f16(0xFC00) == f32::NEG_INFINITY && f16(0x7E00).is_nan());
}

#[test]
fn a_file_cut_off_anywhere_or_no_safetensors_at_all_is_an_error() {
    let folder = Folder::new("cut");
    let path = folder.0.join("x.safetensors");
    file().write(&path, DType::F32).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let text = TensorFile::read(&path).unwrap_err().to_string();
        assert!(text.contains("x.safetensors") && text.contains("\nnext: "), "{length}: {text}");
    }
    for other in [&b"\x89PNG\r\n\x1a\nhello, this is a picture"[..], &[0; 64], &[255; 64]] {
        std::fs::write(&path, other).unwrap();
        assert!(TensorFile::read(&path).is_err());
    }
    let missing = TensorFile::read(&folder.0.join("none")).unwrap_err().to_string();
    assert!(missing.contains("none") && missing.contains("next: "), "{missing}");
}

#[test]
fn flipped_bytes_in_the_header_never_panic() {
    let folder = Folder::new("flip");
    let path = folder.0.join("x.safetensors");
    file().write(&path, DType::F32).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for place in 0..header {
        for flip in [1, 16, 128] {
            let mut bytes = whole.clone();
            bytes[place] ^= flip;
            // A flipped letter of a name is still a file; all that counts is that nothing breaks.
            let _ = TensorFile::from_bytes(&bytes, &path, |_| true);
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_old_one() {
    let folder = Folder::new("full");
    let path = folder.0.join("x.safetensors");
    std::fs::create_dir(&path).unwrap();
    let text = file().write(&path, DType::F32).unwrap_err().to_string();
    assert!(text.contains("cannot write") && text.contains("still there"), "{text}");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn a_write_that_ends_in_the_middle_leaves_the_old_file_and_nothing_else() {
    let folder = Folder::new("middle");
    let path = folder.0.join("x.bin");
    write_whole(&path, b"old").unwrap();
    // Some of it is on the disk by then.
    for megabytes in [0, 1, 30] {
        let outcome = write_whole_by(&path, |out| {
            (0..megabytes).try_for_each(|_| out.write_all(&[7; 1 << 20]))?;
            Err(std::io::ErrorKind::StorageFull.into())
        });
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("cannot write") && text.contains("no storage space"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
    }
    write_whole_by(&path, |out| out.write_all(b"new")).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
}
