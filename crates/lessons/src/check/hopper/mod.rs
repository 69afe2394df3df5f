//! Exercises of lesson 31b on Hopper's TMA and barriers: a ring of tiles from a blank page, and a flash attention kernel that
//! is right and fetches too much.

mod traffic;
mod weigh;

pub use traffic::{Traffic, TrafficReport, diagnose_traffic, revealed_traffic, traffic_report};
pub use weigh::weigh;
