//! Nsight Systems: where a whole program's time goes.

use gpulab_kernels::topics::Size;

/// The two commands as they are typed: the first records these rungs at that size, the second prints where the time went.
pub fn nsys_command(size: impl Into<Size>, rungs: &[&str]) -> String {
    format!(
        "nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true -o trace \
         gpulab demo ladder {} {}\n\
         nsys stats --report cuda_gpu_kern_sum --report cuda_gpu_mem_time_sum --format csv trace.nsys-rep",
        size.into().name(),
        rungs.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_they_are_typed() {
        let text = nsys_command(1024, &["reduction/02_tree"]);
        assert!(
            text.starts_with("nsys profile --trace=cuda,nvtx")
                && text.contains("gpulab demo ladder 1024 reduction/02_tree")
        );
        assert!(text.ends_with("--format csv trace.nsys-rep"), "{text}");
    }
}
