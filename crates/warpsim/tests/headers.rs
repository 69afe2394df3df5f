//! CUDA C with headers on the command line. Needs NVRTC, and CUDA's headers beside it or in a toolkit.
#![cfg(target_os = "linux")] // CUDA C is compiled on Linux alone

use std::path::PathBuf;

const HALVES: &str = "#include <cstdio>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include \"twice.h\"
extern \"C\" __global__ void halves(const float *x, float *y) {
    int i = cooperative_groups::this_grid().thread_rank();
    y[i] = twice(__half2float(__float2half(x[i])));
}
";

/// Exit status and errors of a run of this source, with `twice.h` beside it.
fn run(name: &str, source: &str) -> (u8, String) {
    let folder: PathBuf = std::env::temp_dir().join(format!("warpsim-headers-{}-{name}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("twice.h"), "__device__ float twice(float x) { return 2 * x; }\n").expect("a header");
    let file = folder.join("halves.cu");
    std::fs::write(&file, source).expect("a source");
    let file = file.display().to_string();
    let out = format!("1={}", folder.join("y.bin").display());
    let launch = ["run", &file, "--kernel", "halves", "--grid", "2", "--block", "32", "--out", &out];
    let args = [&launch[..], &["--arg", "f32[64]=iota", "--arg", "f32[64]=zeros"]].concat();
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let (mut text, mut errors) = (Vec::new(), Vec::new());
    let status = warpsim::cli::main(&args, &mut text, &mut errors);
    if status == 0 {
        let bytes = std::fs::read(folder.join("y.bin")).expect("the buffer");
        let y: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect();
        assert!(y.iter().zip(0..).all(|(&y, i)| y == 2.0 * i as f32), "{y:?}");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
    (status, String::from_utf8(errors).expect("text"))
}

#[test]
fn cudas_headers_and_those_beside_the_file_are_found() {
    let (status, errors) = run("found", HALVES);
    if errors.contains("NVRTC (libnvrtc.so) is not found") {
        return eprintln!("skipped: needs NVRTC");
    }
    assert_eq!((status, errors.as_str()), (0, ""));
    let (status, errors) = run("missing", &HALVES.replace("twice.h", "thrice.h"));
    assert_eq!(status, 2);
    assert!(errors.contains("thrice.h") && errors.contains("\nnext: name the header's folder with -I"), "{errors}");
}
