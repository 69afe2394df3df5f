//! Why an instruction is refused.

/// Why an instruction is refused.
#[derive(Debug)]
pub struct Fail(pub String);

impl Fail {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
