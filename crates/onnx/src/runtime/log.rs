//! What ONNX Runtime logs, kept for the error that it explains: the reason why a provider did not load stands only there.

use ort::logging::{LogLevel, LoggerFunction};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const KEPT: usize = 64;
static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Keeps warnings and errors.
pub(super) fn logger() -> LoggerFunction {
    Arc::new(|level: LogLevel, _: &str, _: &str, _: &str, text: &str| {
        if matches!(level, LogLevel::Warning | LogLevel::Error | LogLevel::Fatal) {
            let mut lines = LINES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            lines.push_back(text.trim().to_string());
            if lines.len() > KEPT {
                lines.pop_front();
            }
        }
    })
}

/// Forgets what was logged so far.
pub(super) fn clear() {
    LINES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
}

/// What was logged since, oldest first.
pub(super) fn lines() -> Vec<String> {
    LINES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().cloned().collect()
}
