//! Makes Rust types of ONNX's schema. Arguments: the schema, and the file to write.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [schema, out] = arguments.as_slice() else {
        return Err("next: call it as `make onnx-types` does: SCHEMA OUT".into());
    };
    let folder = Path::new(schema).parent().ok_or("the schema lies in no folder")?;
    let descriptors = protox::compile([schema], [folder])?;
    let mut config = prost_build::Config::new();
    // The schema's comments are pages of prose; whoever wants them reads the schema.
    config.disable_comments(["."]);
    // A weight's bytes may be somebody else's memory: half a gigabyte need not be copied to be written.
    config.bytes([".onnx.TensorProto.raw_data"]);
    let modules = descriptors.file.into_iter().map(|file| (prost_build::Module::from_protobuf_package_name(file.package()), file));
    for text in config.generate(modules.collect())?.into_values() {
        std::fs::write(out, without_names(&text))?;
    }
    Ok(())
}

/// The types without the names of the enums' values, which nobody asks for: prost writes them as the only `impl` blocks.
fn without_names(text: &str) -> String {
    let mut end = None;
    let mut kept = String::new();
    for line in text.lines() {
        let code = line.trim_start();
        if code.starts_with("impl ") {
            end = Some(format!("{}}}", &line[..line.len() - code.len()]));
        }
        match &end {
            Some(last) if last == line => end = None,
            Some(_) => {}
            None => kept += &format!("{line}\n"),
        }
    }
    kept
}
