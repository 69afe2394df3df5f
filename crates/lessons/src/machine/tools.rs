//! The operating system, and the libraries and programs that lessons use: found or not, and the command that adds each.

use super::gpus::Nvidia;
use gpulab::command::output_of;
use gpulab::places::entries;
use gpulab::{cuda, places};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A library or a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tool {
    /// `NVRTC`, `cuDNN` …
    pub name: String,
    /// What the course uses it for.
    pub used_for: String,
    /// Its version, if it was found and tells.
    pub version: Option<String>,
    /// Where it was found.
    pub place: Option<String>,
    /// The one command that adds it, run in the project's folder; `None` when it is there or cannot be had here.
    pub add: Option<String>,
    /// Why it is not needed here, or cannot be had.
    pub note: Option<String>,
}

impl Tool {
    /// True when it was found.
    pub fn found(&self) -> bool {
        self.version.is_some() || self.place.is_some()
    }

    fn new(name: &str, used_for: &str, version: Option<String>, place: Option<&Path>, add: &str) -> Tool {
        let found = version.is_some() || place.is_some();
        Tool {
            name: name.to_string(),
            used_for: used_for.to_string(),
            version,
            place: place.map(|path| path.display().to_string()),
            add: (!found && !add.is_empty()).then(|| add.to_string()),
            note: None,
        }
    }

    fn note(mut self, note: &str) -> Tool {
        if !self.found() {
            self.note = Some(note.to_string());
        }
        self
    }
}

pub(super) fn detect(nvidia: &Nvidia) -> Vec<Tool> {
    let packages = places::site_packages();
    if cfg!(target_os = "macos") {
        let absent = Tool::new("NVRTC", "compiling CUDA C", None, None, "");
        let note = "NVIDIA makes none for macOS; lessons show the recorded run, and Metal kernels run";
        return vec![absent.note(note), onnx_runtime(&packages)];
    }
    let mut tools = vec![driver(nvidia), nvrtc(&packages), nvcc(), cudnn(nvidia, &packages), onnx_runtime(&packages)];
    tools.push(without_gpu(tensorrt(&packages), nvidia));
    tools.extend(profilers(nvidia, &packages));
    tools
}

/// What lesson 16 profiles with; it does without, too.
fn profilers(nvidia: &Nvidia, packages: &[PathBuf]) -> Vec<Tool> {
    let mut folders: Vec<PathBuf> =
        places::toolkit_folders().into_iter().map(|toolkit| toolkit.join("extras/CUPTI/lib64")).collect();
    folders.extend(nvidia_wheel_folders(packages));
    folders.extend(places::loader_folders());
    let library = places::library_in(&folders, "libcupti.so");
    let version = library.as_deref().and_then(|path| version_of(path, "nvidia_cuda_cupti"));
    let used_for = "timelines of what runs on an NVIDIA GPU";
    let cupti = Tool::new("CUPTI", used_for, version, library.as_deref(), "make setup");
    let programs = [
        ("ncu", "reading the hardware's counters (Nsight Compute)", "https://developer.nvidia.com/nsight-compute"),
        ("nsys", "timelines of whole programs (Nsight Systems)", "https://developer.nvidia.com/nsight-systems"),
        ("compute-sanitizer", "finding mistakes of kernels on the GPU", "https://developer.nvidia.com/cuda-downloads"),
    ];
    let program = |(name, used_for, page): (&str, &str, &str)| {
        Tool::new(name, used_for, None, places::program(name).as_deref(), &format!("see {page}"))
    };
    std::iter::once(cupti).chain(programs.map(program)).map(|tool| without_gpu(tool, nvidia)).collect()
}

fn driver(nvidia: &Nvidia) -> Tool {
    // A GPU makes the driver complete, whether or not it tells its release.
    let version = nvidia.driver.clone().or_else(|| nvidia.cuda.as_ref().map(|cuda| format!("for CUDA {cuda}")));
    let used_for = "running kernels on an NVIDIA GPU";
    if nvidia.gpus.is_empty() && version.is_some() {
        let tool = Tool::new("NVIDIA driver", used_for, version, None, "");
        // The driver is loaded but shows no GPU to this process.
        return Tool { note: nvidia.why_none.clone(), ..tool };
    }
    if version.is_none() && !has_nvidia_hardware(Path::new("/")) {
        return Tool::new("NVIDIA driver", used_for, None, None, "")
            .note("not needed: this machine shows no NVIDIA GPU");
    }
    let tool = Tool::new("NVIDIA driver", used_for, version, None, add_driver(family(), in_container()));
    debian_note(tool)
}

/// An NVIDIA display or compute device on the PCI bus, or the window that WSL has to one.
fn has_nvidia_hardware(root: &Path) -> bool {
    let line = |device: &Path, file: &str| std::fs::read_to_string(device.join(file)).unwrap_or_default();
    let is_gpu =
        |device: &PathBuf| line(device, "vendor").trim() == "0x10de" && line(device, "class").starts_with("0x03");
    entries(&root.join("sys/bus/pci/devices")).iter().any(is_gpu) || root.join("dev/dxg").exists()
}

fn in_container() -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists())
}

fn add_driver(family: Family, in_container: bool) -> &'static str {
    match family {
        // A container uses its host's driver; nothing installed inside can replace it.
        _ if in_container => "docker run --gpus all …   (start the container with this option)",
        Family::Ubuntu => "sudo ubuntu-drivers install",
        Family::Debian => "sudo apt-get install -y nvidia-driver",
        Family::Fedora => "sudo dnf install -y akmod-nvidia",
        Family::Arch => "sudo pacman -S nvidia",
        Family::Other => "see https://www.nvidia.com/drivers",
    }
}

fn nvrtc(packages: &[PathBuf]) -> Tool {
    let used_for = "compiling CUDA C in the notebooks";
    if let Ok((major, minor)) = cuda::nvrtc_version() {
        return Tool::new("NVRTC", used_for, Some(format!("{major}.{minor}")), None, "");
    }
    // Not on this process's search path; the notebooks' kernel adds these folders to its own.
    let mut folders = vec![places::made().join(".gpulab/lib")];
    folders.extend(nvidia_wheel_folders(packages));
    let library = places::library_in(&folders, "libnvrtc.so");
    let version = library.as_ref().and(packages.iter().find_map(|p| places::wheel_version(p, "nvidia_cuda_nvrtc")));
    Tool::new("NVRTC", used_for, version, library.as_deref(), "make setup")
}

fn nvidia_wheel_folders(packages: &[PathBuf]) -> Vec<PathBuf> {
    packages.iter().flat_map(|p| entries(&p.join("nvidia"))).map(|package| package.join("lib")).collect()
}

fn nvcc() -> Tool {
    let in_toolkits = places::toolkit_folders().into_iter().map(|folder| folder.join("bin/nvcc"));
    let asked = std::iter::once(PathBuf::from("nvcc")).chain(in_toolkits).find_map(|program| {
        let text = output_of(program.to_str()?, &["--version"], Duration::from_secs(10)).ok()?;
        Some((program, parse_nvcc(&text)?))
    });
    let (place, version) = asked.unzip();
    let place = place.filter(|path| path.is_absolute());
    let used_for = "building candle with CUDA; no kernel of the notebooks needs it";
    debian_note(Tool::new("nvcc (CUDA toolkit)", used_for, version, place.as_deref(), add_nvcc(family())))
}

/// Debian's own packages of NVIDIA's software are in a section that is off at first.
fn debian_note(tool: Tool) -> Tool {
    let from_apt = tool.add.as_deref().is_some_and(|command| command.contains("apt-get"));
    if from_apt && family() == Family::Debian {
        return tool.note("Debian has it in `contrib non-free`, which /etc/apt/sources.list must name");
    }
    tool
}

fn add_nvcc(family: Family) -> &'static str {
    match family {
        Family::Ubuntu | Family::Debian => "sudo apt-get install -y nvidia-cuda-toolkit",
        Family::Fedora => "sudo dnf install -y cuda-toolkit",
        Family::Arch => "sudo pacman -S cuda",
        Family::Other => "see https://developer.nvidia.com/cuda-downloads",
    }
}

/// `Cuda compilation tools, release 13.0, V13.0.88` → `13.0.88`.
fn parse_nvcc(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("release ")?;
    let mut parts = rest.lines().next()?.split(',').map(str::trim);
    let release = parts.next()?;
    let full = parts.next().and_then(|part| part.strip_prefix('V'));
    Some(full.unwrap_or(release).to_string())
}

fn cudnn(nvidia: &Nvidia, packages: &[PathBuf]) -> Tool {
    let mut folders = nvidia_wheel_folders(packages);
    folders.extend(places::loader_folders());
    let library = places::library_in(&folders, "libcudnn.so").or_else(|| places::from_ldconfig("libcudnn.so"));
    let version = library.as_deref().and_then(|path| version_of(path, "nvidia_cudnn"));
    // cuDNN is built for one CUDA generation, and must be the driver's or an older one.
    let generation = if nvidia.cuda.as_deref().is_some_and(|cuda| cuda.starts_with("12.")) { 12 } else { 13 };
    let add = format!(".venv/bin/python -m pip install nvidia-cudnn-cu{generation}");
    let tool = Tool::new("cuDNN", "faster convolutions on an NVIDIA GPU", version, library.as_deref(), &add);
    without_gpu(tool, nvidia)
}

/// What serves only an NVIDIA GPU is not worth a command where there is none.
fn without_gpu(mut tool: Tool, nvidia: &Nvidia) -> Tool {
    if nvidia.gpus.is_empty() && !tool.found() {
        tool.add = None;
        tool.note = Some("not needed without an NVIDIA GPU".to_string());
    }
    tool
}

fn onnx_runtime(packages: &[PathBuf]) -> Tool {
    let stem = if cfg!(target_os = "macos") { "libonnxruntime" } else { "libonnxruntime.so" };
    let named = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from).filter(|path| path.is_file());
    let mut folders = vec![places::made().join(".gpulab/lib/onnxruntime")];
    folders.extend(packages.iter().map(|path| path.join("onnxruntime/capi")));
    folders.extend(places::loader_folders());
    let library =
        named.or_else(|| places::library_in(&folders, stem)).or_else(|| places::from_ldconfig("libonnxruntime.so"));
    let version = library.as_deref().and_then(|path| version_of(path, "onnxruntime"));
    Tool::new("ONNX Runtime", "running exported models", version, library.as_deref(), "make setup LESSONS=42")
}

fn tensorrt(packages: &[PathBuf]) -> Tool {
    let mut folders: Vec<PathBuf> = packages.iter().map(|path| path.join("tensorrt_libs")).collect();
    folders.extend(places::loader_folders());
    let library = places::library_in(&folders, "libnvinfer.so").or_else(|| places::from_ldconfig("libnvinfer.so"));
    let version = library.as_deref().and_then(|path| version_of(path, "tensorrt"));
    Tool::new(
        "TensorRT",
        "engines for exported models",
        version,
        library.as_deref(),
        "make setup LESSONS=42 TENSORRT=1",
    )
}

/// The version of the wheel that a library belongs to, else the one in its name.
fn version_of(library: &Path, package: &str) -> Option<String> {
    let wheel = library.ancestors().find(|folder| folder.ends_with("site-packages"));
    wheel.and_then(|folder| places::wheel_version(folder, package)).or_else(|| places::version_in_name(library))
}

/// `Debian GNU/Linux 12 (bookworm), Linux 6.1.0`.
pub(super) fn describe() -> String {
    if cfg!(target_os = "macos") {
        let version = output_of("sw_vers", &["-productVersion"], Duration::from_secs(2)).unwrap_or_default();
        return format!("macOS {}", version.trim()).trim_end().to_string();
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match (release_value(&os_release(), "PRETTY_NAME"), kernel.trim()) {
        (Some(name), "") => name,
        (Some(name), kernel) => format!("{name}, Linux {kernel}"),
        (None, kernel) => format!("{} {kernel}", std::env::consts::OS).trim_end().to_string(),
    }
}

/// The family of Linux that decides how packages are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Ubuntu,
    Debian,
    Fedora,
    Arch,
    Other,
}

pub(super) fn family() -> Family {
    family_of(&os_release())
}

fn os_release() -> String {
    std::fs::read_to_string("/etc/os-release").unwrap_or_default()
}

fn family_of(release: &str) -> Family {
    let words = [release_value(release, "ID"), release_value(release, "ID_LIKE")].into_iter().flatten();
    for word in words.flat_map(|value| value.split(' ').map(str::to_string).collect::<Vec<_>>()) {
        match word.as_str() {
            "ubuntu" => return Family::Ubuntu,
            "debian" => return Family::Debian,
            "fedora" | "rhel" => return Family::Fedora,
            "arch" => return Family::Arch,
            _ => {}
        }
    }
    Family::Other
}

/// The value of `KEY="value"` or `KEY=value`.
fn release_value(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_string()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvcc_names_its_release() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\nBuild x\n";
        assert_eq!(parse_nvcc(text).as_deref(), Some("13.0.88"));
        assert_eq!(parse_nvcc("release 12.4\n").as_deref(), Some("12.4"));
        assert_eq!(parse_nvcc("command not found"), None);
    }

    #[test]
    fn hardware_is_a_display_device_of_nvidia() {
        let root = std::env::temp_dir().join(format!("gpulab-pci-{}", std::process::id()));
        let device = |name: &str, vendor: &str, class: &str| {
            let folder = root.join("sys/bus/pci/devices").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("vendor"), vendor).unwrap();
            std::fs::write(folder.join("class"), class).unwrap();
        };
        device("0000:00:02.0", "0x8086\n", "0x030000\n");
        device("0000:01:00.1", "0x10de\n", "0x040300\n"); // the GPU's sound
        let before = has_nvidia_hardware(&root);
        device("0000:01:00.0", "0x10de\n", "0x030200\n");
        let after = has_nvidia_hardware(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!((before, after), (false, true));
    }

    #[test]
    fn what_is_missing_has_a_command_or_a_reason() {
        let gpu = Nvidia { gpus: vec![Default::default()], cuda: Some("12.8".into()), ..Nvidia::default() };
        for nvidia in [Nvidia::default(), gpu.clone()] {
            for tool in detect(&nvidia) {
                assert!(tool.found() || tool.add.is_some() || tool.note.is_some(), "{tool:?}");
                assert!(!(tool.found() && tool.add.is_some()), "{tool:?}");
            }
        }
        let cudnn = cudnn(&gpu, &[]);
        assert!(cudnn.found() || cudnn.add.unwrap().ends_with("nvidia-cudnn-cu12"));
        for family in [Family::Ubuntu, Family::Debian, Family::Fedora, Family::Arch, Family::Other] {
            assert!(!add_nvcc(family).is_empty() && add_driver(family, true).contains("--gpus all"));
        }
    }

    #[test]
    fn families_follow_what_they_are_like() {
        for (release, family) in [
            ("PRETTY_NAME=\"Ubuntu 24.04\"\nID=ubuntu\nID_LIKE=debian\n", Family::Ubuntu),
            ("ID=debian\n", Family::Debian),
            ("ID=pop\nID_LIKE=\"ubuntu debian\"\n", Family::Ubuntu),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Family::Fedora),
            ("ID=manjaro\nID_LIKE=arch\n", Family::Arch),
            ("", Family::Other),
        ] {
            assert_eq!(family_of(release), family, "{release}");
        }
        assert_eq!(release_value("ID_LIKE=debian\nID=\"x y\"\n", "ID").as_deref(), Some("x y"));
    }

    #[test]
    fn this_system_has_a_name() {
        assert!(!describe().is_empty());
    }
}
