//! Metal source to kernels, by the compiler that comes with macOS.

use super::{MetalGpu, metal_error, to_u32};
use crate::error::{Error, Result};
use crate::launch::Source;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{MTLCompileOptions, MTLComputePipelineState, MTLDevice, MTLLibrary};

/// What Metal calls source that comes from a string, in its messages.
const FILE: &str = "program_source:";

/// Compiled Metal functions.
#[derive(Debug, Clone)]
pub(crate) struct MetalLibrary(Retained<ProtocolObject<dyn MTLLibrary>>);

/// One kernel, compiled down to this GPU.
#[derive(Debug, Clone)]
pub(crate) struct MetalKernel {
    pub(super) pipeline: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
}

impl MetalGpu {
    pub(crate) fn compile(&self, source: &Source) -> Result<MetalLibrary> {
        autoreleasepool(|_| {
            let options = MTLCompileOptions::new();
            // Metal's default assumes that there is no NaN: poisoned buffers would prove nothing, and figures would
            // not compare with CUDA's. The newer `mathMode` needs macOS 15.
            #[allow(deprecated)]
            options.setFastMathEnabled(false);
            let text = NSString::from_str(&with_defines(source));
            let library = self.0.device.newLibraryWithSource_options_error(&text, Some(&options));
            library.map(MetalLibrary).map_err(|error| {
                let log = error.localizedDescription().to_string();
                Error::Compile { excerpt: excerpt(&log, source), log }
            })
        })
    }
}

impl MetalLibrary {
    pub(crate) fn names(&self) -> Vec<String> {
        autoreleasepool(|_| self.0.functionNames().iter().map(|name| name.to_string()).collect())
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<MetalKernel> {
        autoreleasepool(|_| {
            let function = self.0.newFunctionWithName(&NSString::from_str(name));
            let function =
                function.ok_or_else(|| Error::NoSuchKernel { asked: name.to_string(), found: self.names() })?;
            let pipeline = self.0.device().newComputePipelineStateWithFunction_error(&function);
            let pipeline = pipeline.map_err(|error| {
                let fix = "check that it is declared `kernel void` and that its threadgroup memory fits the GPU";
                metal_error(&format!("finishing the kernel `{name}`"), &error, fix)
            })?;
            Ok(MetalKernel { pipeline })
        })
    }
}

impl MetalKernel {
    pub(crate) fn max_threads_per_block(&self) -> u32 {
        to_u32(self.pipeline.maxTotalThreadsPerThreadgroup())
    }
}

/// The source after its constants; the compiler still counts the source's own lines from 1.
fn with_defines(source: &Source) -> String {
    let defines = source.defines.iter().map(|(name, value)| format!("#define {name} {value}\n"));
    match source.defines.is_empty() {
        true => source.text.clone(),
        false => format!("{}#line 1\n{}", defines.collect::<String>(), source.text),
    }
}

/// The source lines that the log complains about, each with its message.
fn excerpt(log: &str, source: &Source) -> String {
    source.excerpt(log.lines().filter_map(|message| {
        // `program_source:3:9: error: use of undeclared identifier 'd'`
        let mut parts = message.split_once(FILE)?.1.splitn(3, ':');
        let number = parts.next()?.parse().ok()?;
        let complaint = parts.nth(1)?.trim();
        complaint.contains("error:").then_some((number, complaint))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_mapped_to_lines() {
        let source = Source::text("a\nb\nint c = d;\n");
        let log = "program_source:3:9: error: use of undeclared identifier 'd'\nint c = d;\n        ^\n";
        assert_eq!(excerpt(log, &source), "    3 | int c = d;\n      ^ error: use of undeclared identifier 'd'\n");
        assert_eq!(excerpt("program_source:3:9: warning: unused", &source), "");
        assert_eq!(excerpt("program_source:30:9: error: past the end", &source), "");
    }

    #[test]
    fn constants_come_first_and_move_no_line() {
        let source = Source::text("int c = N;\n");
        assert_eq!(with_defines(&source), "int c = N;\n");
        assert_eq!(with_defines(&source.define("N", 3)), "#define N 3\n#line 1\nint c = N;\n");
    }
}
