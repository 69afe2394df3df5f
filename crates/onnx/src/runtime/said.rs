//! ONNX Runtime's errors as ours: its own words, and what to do.

use gpulab::error::Error;
use ort::ErrorCode;
use std::path::Path;

/// The loader's own words: libloading keeps them one level down.
pub(super) fn loader(error: &libloading::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |source| source.to_string())
}

/// ONNX Runtime's message without the C++ around it: what CUDA reported, or what follows `[ONNXRuntimeError] : 1 : FAIL : `.
pub(super) fn words(message: &str) -> String {
    if let Some((_, rest)) = message.split_once("CUDA failure ") {
        return format!("CUDA failure {}", rest.split(" ;").next().unwrap_or(rest).trim());
    }
    let inner = message.rsplit_once("[ONNXRuntimeError] : ").and_then(|(_, rest)| rest.splitn(3, " : ").nth(2));
    inner.unwrap_or(message).trim().to_string()
}

/// What was being done, ONNX Runtime's message, the next step.
pub(super) fn said<R>(during: &str, error: &ort::Error<R>, fix: &str) -> Error {
    Error::Unsupported {
        what: format!("{during}. ONNX Runtime says: {}", error.message().trim()),
        fix: fix.to_string(),
    }
}

/// Why a file was not opened.
pub(super) fn not_opened<R>(path: &Path, version: &str, error: &ort::Error<R>) -> Error {
    let text = error.message().to_lowercase();
    let about = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let (why, fix) = match error.code() {
        ErrorCode::InvalidProtobuf => damaged(),
        _ if about(&["protobuf parsing failed", "modelproto does not have a graph", "parse model"]) => damaged(),
        // Both go up with ONNX's releases; a file may be ahead of the library.
        _ if about(&["unsupported model ir version", "under development", "current official support for domain"]) => (
            format!("is of a newer ONNX than this ONNX Runtime ({version}) knows"),
            "export it with an older opset, or use a newer ONNX Runtime: let ORT_DYLIB_PATH name its libonnxruntime",
        ),
        ErrorCode::NoSuchFile => {
            ("could not be read".to_string(), "look at the path, and at the files of weights that belong beside it")
        }
        _ if about(&["external data", "external initializer", "getfilelength", "out of bounds or can not be read"]) => {
            (
                "has weights in a second file, which was not found or is too short".to_string(),
                "keep the .onnx file and its file of weights in one folder, under their own names; else export again",
            )
        }
        ErrorCode::NotImplemented => (
            "has an operator that the provider does not compute, or not for this type".to_string(),
            "see the operator's name above; on Provider::Cpu most work, or export the model in f32",
        ),
        ErrorCode::InvalidGraph => (
            "is no valid graph".to_string(),
            "see the node's name above; `python -m onnx.checker` shows more. Export it again",
        ),
        _ => {
            ("was not opened".to_string(), "read ONNX Runtime's words above; export the model again if it is not whole")
        }
    };
    Error::Unsupported {
        what: format!("{} {why}. ONNX Runtime says: {}", path.display(), words(error.message())),
        fix: fix.to_string(),
    }
}

fn damaged() -> (String, &'static str) {
    ("is damaged, or no ONNX file".to_string(), "export it again; a download that was cut off must be fetched again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_message_what_cuda_said_is_left() {
        let long = "/src/cuda_call.cc:154 std::conditional_t<THRW, void> CudaCall(ERRTYPE) CUDA failure 35: CUDA driver \
                    version is insufficient for CUDA runtime version ; GPU=-1 ; hostname=vm ; expr=cudaSetDevice(id);";
        assert_eq!(words(long), "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version");
        assert_eq!(words(" Protobuf parsing failed.\n"), "Protobuf parsing failed.");
        let loader = "/src/provider_bridge_ort.cc:2043 Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load x.so: y.so : no file";
        assert_eq!(words(loader), "Failed to load x.so: y.so : no file");
    }
}
