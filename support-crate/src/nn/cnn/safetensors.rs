//! Reading and writing safetensors files of f32 arrays: eight bytes that count the header, a header in JSON, the numbers.
//!
//! The format is Hugging Face's (github.com/huggingface/safetensors, "Format").

use crate::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// A longer header is no header: the format's own limit.
const LONGEST_HEADER: u64 = 100_000_000;

/// One array.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Array {
    pub shape: Vec<usize>,
    pub numbers: Vec<f32>,
}

/// What a file holds: arrays by name, and texts by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Contents {
    pub arrays: BTreeMap<String, Array>,
    pub metadata: BTreeMap<String, String>,
}

/// Writes a file whole or not at all: into a file beside it, which then takes its name.
pub(super) fn write(path: &Path, contents: &Contents) -> Result<()> {
    let mut header = Map::new();
    header.insert("__metadata__".to_string(), json!(contents.metadata));
    let mut end = 0;
    for (name, array) in &contents.arrays {
        let begin = end;
        end += array.numbers.len() * 4;
        header.insert(name.clone(), json!({"dtype": "F32", "shape": array.shape, "data_offsets": [begin, end]}));
    }
    let mut header = Value::Object(header).to_string();
    // Numbers begin at a multiple of 8 bytes, so that a reader can map them.
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let mut bytes = Vec::with_capacity(8 + header.len() + end);
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(header.as_bytes());
    for array in contents.arrays.values() {
        array.numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = std::path::PathBuf::from(beside);
    let written = std::fs::File::create(&beside).and_then(|mut file| {
        file.write_all(&bytes)?;
        // On the disk before the name moves: after a power cut the name stands for the old file or for the new one.
        file.sync_all()?;
        std::fs::rename(&beside, path)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Error::File {
            path: path.to_path_buf(),
            during: "write the checkpoint".to_string(),
            text: error.to_string(),
            fix: "make the folder writable, with room on its disk; a checkpoint that was there before is still whole"
                .to_string(),
        }
    })
}

/// Reads a file of f32 arrays.
///
/// # Errors
/// [`Error::File`], which names what is wrong: not there, cut short, no header, an array that lies outside the file.
pub(super) fn read(path: &Path) -> Result<Contents> {
    let fail = |text: String, fix: &str| Error::File {
        path: path.to_path_buf(),
        during: "read the checkpoint".to_string(),
        text,
        fix: fix.to_string(),
    };
    let bytes = std::fs::read(path).map_err(|error| {
        fail(error.to_string(), "name the file that an earlier run wrote, or train without --resume")
    })?;
    parse(&bytes).map_err(|text| {
        fail(text, "it is damaged or no safetensors file: take an older copy of it, or train without --resume")
    })
}

fn parse(bytes: &[u8]) -> Result<Contents, String> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(format!(
            "{} bytes are too few for a safetensors file, which begins with 8 for a length",
            bytes.len()
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > LONGEST_HEADER {
        return Err("its first 8 bytes are no length of a header".to_string());
    }
    let Some((header, numbers)) = rest.split_at_checked(length as usize) else {
        return Err(format!("it is cut short: its header has {length} bytes, and {} are there", rest.len()));
    };
    let header: Value = serde_json::from_slice(header).map_err(|error| format!("its header is no JSON: {error}"))?;
    let Value::Object(header) = header else { return Err("its header is no JSON object".to_string()) };
    let (mut contents, mut used) = (Contents::default(), 0);
    for (name, entry) in header {
        if name == "__metadata__" {
            let texts = entry.as_object().into_iter().flatten();
            contents.metadata = texts.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect();
            continue;
        }
        let array = array(&entry, numbers).map_err(|text| format!("`{name}` {text}"))?;
        used += array.numbers.len() * 4;
        contents.arrays.insert(name, array);
    }
    match used == numbers.len() {
        true => Ok(contents),
        false => Err(format!("its arrays take {used} bytes, and {} are there", numbers.len())),
    }
}

fn array(entry: &Value, numbers: &[u8]) -> Result<Array, String> {
    let whole = |value: &Value| -> Option<Vec<usize>> {
        value.as_array()?.iter().map(|n| n.as_u64().and_then(|n| usize::try_from(n).ok())).collect()
    };
    let dtype = entry["dtype"].as_str().unwrap_or("nothing");
    if dtype != "F32" {
        return Err(format!("is of {dtype}, and F32 is asked for"));
    }
    let shape = whole(&entry["shape"]).ok_or("has no shape")?;
    let Some([begin, end]) = whole(&entry["data_offsets"]).and_then(|at| <[usize; 2]>::try_from(at).ok()) else {
        return Err("does not say where its numbers lie".to_string());
    };
    let bytes = numbers.get(begin..end).ok_or_else(|| {
        format!("is cut short: its numbers are bytes {begin} to {end}, and {} are there", numbers.len())
    })?;
    let needed = shape.iter().try_fold(4usize, |bytes, &side| bytes.checked_mul(side));
    if needed != Some(bytes.len()) {
        return Err(format!("has {} bytes, which are not those of its shape {shape:?}", bytes.len()));
    }
    let numbers = bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
    Ok(Array { shape, numbers })
}
