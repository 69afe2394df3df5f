//! What several notebooks do with the course's own kernels, topic by topic: compiled, checked, ready to time.

mod matmul;

pub use matmul::Matmul;
