//! What the driver's error codes mean to a reader, and what to do next.

use super::present::Library;
use crate::error::{Error, next_step};
use cudarc::driver::DriverError;

/// Turns a driver's code into an error that says what was going on and what to do.
pub fn driver_error(during: &str, error: DriverError) -> Error {
    let text = |bytes: Result<&std::ffi::CStr, DriverError>| {
        bytes.map_or_else(|_| "unknown".to_string(), |text| text.to_string_lossy().into_owned())
    };
    // Only the driver knows the words, and cudarc panics where there is none.
    let (code, text) = match Library::Driver.is_present() {
        true => (text(error.error_name()), text(error.error_string())),
        false => (format!("{:?}", error.0), "no driver is here to explain it".to_string()),
    };
    Error::Driver { during: during.to_string(), code, text, fix: next_step(error.0).to_string() }
}
