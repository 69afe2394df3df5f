//! Exercises of lesson 20.

mod adamw;
mod loss_scale;
#[cfg(test)]
mod tests;

pub use adamw::adamw;
pub use loss_scale::loss_scale;
