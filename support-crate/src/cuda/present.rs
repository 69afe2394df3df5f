//! Whether CUDA's libraries are there: cudarc panics at the first call into one that is missing, so every way in asks.

/// A library that cudarc calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// `libcuda`, which comes with the driver.
    Driver,
    /// `libnvrtc`, the compiler.
    Nvrtc,
    /// `libcublas`.
    Cublas,
}

impl Library {
    /// Whether it can be called.
    pub(crate) fn is_present(self) -> bool {
        !self.is_hidden() && self.loads()
    }

    /// `GPULAB_NVRTC=none` hides the compiler: a machine that has it then does what one without (a Mac) does.
    pub(crate) fn is_hidden(self) -> bool {
        self == Library::Nvrtc && std::env::var_os("GPULAB_NVRTC").is_some_and(|value| value == "none")
    }

    /// Tries to load it.
    #[cfg(not(feature = "cuda-linked"))]
    fn loads(self) -> bool {
        // SAFETY: these only try to load a library.
        unsafe {
            match self {
                Library::Driver => cudarc::driver::sys::is_culib_present(),
                Library::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Library::Cublas => cudarc::cublas::sys::is_culib_present(),
            }
        }
    }

    /// candle's `cuda` feature has cudarc link to all of them: this program would not have started without.
    #[cfg(feature = "cuda-linked")]
    fn loads(self) -> bool {
        true
    }
}
