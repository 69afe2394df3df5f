//! The PTX of the course's kernels by the names that the tables use, `course/matmul/02_tiled`. `gpulab::sim::shipped` says
//! how the file is laid out.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

pub static COURSE: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../support-crate/ptx.pack");
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let end = bytes.windows(2).position(|two| two == b"\n\n").expect("an empty line");
    let (index, packed) = (std::str::from_utf8(&bytes[..end]).expect("text"), &bytes[end + 2..]);
    let mut text = String::new();
    let reader = lzma_rust2::LzmaReader::new_mem_limit(packed, u32::MAX, None);
    reader.and_then(|mut reader| reader.read_to_string(&mut text)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (mut found, mut rest) = (BTreeMap::new(), text.as_str());
    for line in index.lines().skip(1) {
        let [_, length, users] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().expect("a key, a length, users");
        let (ptx, after) = rest.split_at(length.parse().expect("a length"));
        let names = users.split(',').filter(|user| user.starts_with("course/"));
        found.extend(names.map(|name| (name.to_string(), ptx.to_string())));
        rest = after;
    }
    found
});
