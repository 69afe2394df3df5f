//! CUDA C to PTX through NVIDIA's run-time compiler, when the machine has it.

#[cfg(not(target_os = "linux"))]
pub fn compile(_: &str, _: &str, _: &str, _: &[String]) -> Result<String, String> {
    Err("CUDA C is compiled on Linux alone\nnext: compile to PTX elsewhere and pass the .ptx file".into())
}

#[cfg(target_os = "linux")]
pub use linux::compile;

#[cfg(target_os = "linux")]
mod linux {
    use std::env;
    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::mem::transmute;
    use std::path::{Path, PathBuf};

    unsafe extern "C" {
        fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    const RTLD_NOW: c_int = 2;
    const NAMES: [&CStr; 3] = [c"libnvrtc.so", c"libnvrtc.so.13", c"libnvrtc.so.12"];

    type Program = *mut c_void;
    type Create = unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int;
    type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
    type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
    type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

    /// The C library's headers as far as kernels need them: NVRTC brings none, and many files include some.
    const C_LIBRARY: [(&CStr, &str); 16] = [
        (c"assert.h", include_str!("../../include/assert.h")),
        (c"float.h", include_str!("../../include/float.h")),
        (c"limits.h", include_str!("../../include/limits.h")),
        (c"math.h", include_str!("../../include/math.h")),
        (c"stdint.h", include_str!("../../include/stdint.h")),
        (c"stdio.h", include_str!("../../include/stdio.h")),
        (c"stdlib.h", include_str!("../../include/stdlib.h")),
        (c"string.h", include_str!("../../include/string.h")),
        (c"cassert", include_str!("../../include/cassert")),
        (c"cfloat", include_str!("../../include/cfloat")),
        (c"climits", include_str!("../../include/climits")),
        (c"cmath", include_str!("../../include/cmath")),
        (c"cstdint", include_str!("../../include/cstdint")),
        (c"cstdio", include_str!("../../include/cstdio")),
        (c"cstdlib", include_str!("../../include/cstdlib")),
        (c"cstring", include_str!("../../include/cstring")),
    ];

    /// Folders with headers: the file's own, those that were named, and CUDA's.
    fn folders(path: &str, named: &[String]) -> Vec<String> {
        let own = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty());
        let mut folders = vec![own.map_or(".".into(), |p| p.to_string_lossy().into_owned())];
        folders.extend_from_slice(named);
        folders.extend(cuda().into_iter().map(|folder| folder.to_string_lossy().into_owned()));
        folders.retain(|folder| Path::new(folder).is_dir());
        folders
    }

    /// CUDA's own headers: beside the libraries that are loaded, else a toolkit's. Those of two versions do not mix. A
    /// toolkit from version 13 on keeps its C++ library one folder deeper.
    fn cuda() -> Vec<PathBuf> {
        let libraries = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let beside = env::split_paths(&libraries).filter_map(|folder| Some(folder.parent()?.to_owned()));
        let toolkits = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(env::var_os).map(PathBuf::from);
        let places = beside.chain(toolkits).chain(["/usr/local/cuda".into()]);
        let found = places.map(|place| place.join("include")).find(|folder| folder.join("cuda_fp16.h").is_file());
        found.map_or(vec![], |folder| vec![folder.join("cccl"), folder])
    }

    /// NVRTC puts the folder that it runs in before the name of the source; messages are about the file as it was given.
    fn named_as_given(ptx: &str, path: &str, name: &str) -> String {
        let here = env::current_dir().map_or(String::new(), |p| p.display().to_string());
        ptx.replace(&format!("\"{here}/{name}\""), &format!("\"{path}\""))
    }

    /// Compiles for an architecture such as `sm_90`, with line numbers.
    pub fn compile(path: &str, source: &str, arch: &str, includes: &[String]) -> Result<String, String> {
        // SAFETY: the names are C strings; loading NVIDIA's library runs its initialisers, as any program using it does.
        let library = NAMES.iter().map(|name| unsafe { dlopen(name.as_ptr(), RTLD_NOW) }).find(|l| !l.is_null());
        let missing = "NVRTC (libnvrtc.so) is not found\nnext: put its folder on LD_LIBRARY_PATH, or pass a .ptx file";
        let library = library.ok_or(missing)?;
        let symbol = |name: &CStr| {
            // SAFETY: the library is open and the name is a C string.
            let found = unsafe { dlsym(library, name.as_ptr()) };
            if found.is_null() { Err(format!("NVRTC lacks {name:?}\nnext: use NVRTC 12 or 13")) } else { Ok(found) }
        };
        let name = Path::new(path).file_name().map_or(path.into(), |n| n.to_string_lossy());
        let name = CString::new(name.as_bytes()).map_err(|e| e.to_string())?;
        let source = CString::new(source).map_err(|_| format!("{path} has a zero byte\nnext: remove it"))?;
        let arch = CString::new(format!("--gpu-architecture={}", arch.replace("sm_", "compute_")));
        let mut options = vec![arch.map_err(|e| e.to_string())?, c"-lineinfo".to_owned()];
        for folder in folders(path, includes) {
            options.push(CString::new(format!("--include-path={folder}")).map_err(|e| e.to_string())?);
        }
        let options: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
        let texts: Result<Vec<_>, _> = C_LIBRARY.iter().map(|(_, text)| CString::new(*text)).collect();
        let texts = texts.map_err(|e| e.to_string())?;
        let header_texts: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        let header_names = C_LIBRARY.map(|(name, _)| name.as_ptr());
        let (count, texts, names) = (C_LIBRARY.len() as c_int, header_texts.as_ptr(), header_names.as_ptr());
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the signatures are those of nvrtc.h (12 and 13); all pointers outlive the calls.
        unsafe {
            let create: Create = transmute(symbol(c"nvrtcCreateProgram")?);
            let compile: Compile = transmute(symbol(c"nvrtcCompileProgram")?);
            if create(&mut program, source.as_ptr(), name.as_ptr(), count, texts, names) != 0 {
                return Err("NVRTC could not start\nnext: check that its built-ins lie beside it".into());
            }
            if compile(program, options.len() as c_int, options.as_ptr()) != 0 {
                let log = text(program, symbol(c"nvrtcGetProgramLogSize")?, symbol(c"nvrtcGetProgramLog")?)?;
                let next = match log.contains("open source file") {
                    true => "name the header's folder with -I; CUDA's own lie in its toolkit: set CUDA_PATH to that",
                    false => "fix the first error above",
                };
                return Err(format!("{path} does not compile:\n{log}\nnext: {next}"));
            }
            let ptx = text(program, symbol(c"nvrtcGetPTXSize")?, symbol(c"nvrtcGetPTX")?)?;
            Ok(named_as_given(&ptx, path, &name.to_string_lossy()))
        }
    }

    /// A text of a program.
    ///
    /// # Safety
    /// The pointers are functions of NVRTC for the size and the text.
    unsafe fn text(program: Program, size: *mut c_void, get: *mut c_void) -> Result<String, String> {
        let failed = || "NVRTC gave no text\nnext: use NVRTC 12 or 13".to_owned();
        let mut length = 0;
        // SAFETY: as the caller promises; the buffer has the length that NVRTC asked for.
        unsafe {
            let (size, get): (Size, Text) = (transmute::<*mut c_void, Size>(size), transmute::<*mut c_void, Text>(get));
            if size(program, &mut length) != 0 {
                return Err(failed());
            }
            let mut bytes = vec![0u8; length.max(1)];
            if get(program, bytes.as_mut_ptr().cast()) != 0 {
                return Err(failed());
            }
            bytes.truncate(bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len()));
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}
