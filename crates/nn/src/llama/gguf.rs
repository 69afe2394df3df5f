//! GGUF files (ggml's format: metadata and tensors in one file), read by candle, with each damage named.

use candle_core::Device;
use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{Content, Value};
use gpulab::error::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The newest version of the format that candle reads.
const NEWEST: u32 = 3;

/// An open GGUF file: its metadata and the list of its tensors are read, the tensors are not.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    content: Content,
}

impl GgufFile {
    /// Reads a file's metadata and the list of its tensors.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing, no GGUF, of a later version, damaged, or cut off anywhere: the last byte of the last
    /// tensor has to be there.
    pub fn open(path: &Path) -> Result<GgufFile> {
        let fail = |text: String| unreadable(path, text);
        let io = |error: std::io::Error| unreadable(path, error.to_string());
        let mut file = BufReader::new(File::open(path).map_err(io)?);
        let length = file.get_ref().metadata().map_err(io)?.len();
        let mut head = [0; 8];
        file.read_exact(&mut head)
            .map_err(|_| fail(format!("it is cut off: a GGUF file is longer than {length} bytes")))?;
        let version = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if &head[..4] != b"GGUF" {
            return Err(fail("it does not begin with `GGUF`: it is no such file".to_string()));
        }
        if !(1..=NEWEST).contains(&version) {
            let fix = format!("take a file of version 1 to {NEWEST}: llama.cpp's converter writes version 3");
            return Err(Error::file(path, "read", format!("it is GGUF of version {version}"), fix));
        }
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        let content = Content::read(&mut file).map_err(|error| {
            // candle's first line says what it met; where it is a short file, that is the cause of all else.
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default().to_string();
            match first.contains("remaining") || first.contains("failed to fill") {
                true => fail(format!("it is cut off in the list of its tensors, after {length} bytes ({first})")),
                false => fail(format!("its metadata is damaged, or of a kind that candle does not know ({first})")),
            }
        })?;
        for (name, info) in &content.tensor_infos {
            let numbers = info.shape.elem_count();
            let bytes = numbers.div_ceil(info.ggml_dtype.block_size()) * info.ggml_dtype.type_size();
            let end = content.tensor_data_offset.saturating_add(info.offset).saturating_add(bytes as u64);
            if end > length {
                return Err(fail(format!("it is cut off: `{name}` ends at byte {end}, and the file at {length}")));
            }
        }
        Ok(GgufFile { path: path.to_path_buf(), content })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// candle's view of it: all metadata, and the tensors' shapes and kinds.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Whether it holds a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// One tensor, as it is stored.
    ///
    /// # Errors
    /// [`Error::File`] when the file lacks it, its shape is not `shape`, or one of its numbers is NaN or infinite.
    pub fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<QTensor> {
        let fail = |text: String| unreadable(&self.path, text);
        let info = self.content.tensor_infos.get(name).ok_or_else(|| fail(format!("it has no tensor `{name}`")))?;
        if info.shape.dims() != shape {
            return Err(fail(format!(
                "its tensor `{name}` is {:?}, and its metadata asks for {shape:?}",
                info.shape.dims()
            )));
        }
        let read = |device: &Device| -> Result<QTensor> {
            let mut file = BufReader::new(File::open(&self.path).map_err(|error| fail(error.to_string()))?);
            Ok(self.content.tensor(&mut file, name, device)?)
        };
        let tensor = read(&Device::Cpu)?;
        // A sum is NaN or infinite when one of its numbers is; no sum of sound weights comes near the largest f32.
        let sum = tensor.dequantize(&Device::Cpu)?.abs()?.sum_all()?.to_scalar::<f32>()?;
        if !sum.is_finite() {
            return Err(fail(format!("its tensor `{name}` holds NaN or infinity: the weights are damaged")));
        }
        if device.is_cpu() { Ok(tensor) } else { read(device) }
    }

    /// A text of the metadata.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing, or no text.
    pub fn text(&self, key: &str) -> Result<&str> {
        self.value(key)?.to_string().map(String::as_str).map_err(|_| self.wrong(key))
    }

    /// A whole number of the metadata.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing, or no whole number.
    pub fn number(&self, key: &str) -> Result<usize> {
        let value = self.value(key)?;
        let number = value.to_u64().ok().or_else(|| value.to_i32().ok().and_then(|number| u64::try_from(number).ok()));
        Ok(number.ok_or_else(|| self.wrong(key))? as usize)
    }

    /// A floating-point number of the metadata.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing, or of another kind.
    pub fn float(&self, key: &str) -> Result<f64> {
        let value = self.value(key)?;
        let number = value.to_f64().ok().or_else(|| value.to_f32().ok().map(f64::from));
        number.filter(|number| number.is_finite()).ok_or_else(|| self.wrong(key))
    }

    /// A list of the metadata.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing, or no list.
    pub fn list(&self, key: &str) -> Result<&[Value]> {
        self.value(key)?.to_vec().map(Vec::as_slice).map_err(|_| self.wrong(key))
    }

    /// Whether the metadata has that key.
    pub fn knows(&self, key: &str) -> bool {
        self.content.metadata.contains_key(key)
    }

    fn value(&self, key: &str) -> Result<&Value> {
        let missing = || unreadable(&self.path, format!("its metadata lacks `{key}`"));
        self.content.metadata.get(key).ok_or_else(missing)
    }

    fn wrong(&self, key: &str) -> Error {
        unreadable(&self.path, format!("`{key}` in its metadata is of another kind than the format says"))
    }
}

fn unreadable(path: &Path, text: String) -> Error {
    let fix = "give the path of a whole GGUF file; `make model` fetches SmolLM2 again where it is not whole";
    Error::file(path, "read", text, fix)
}
