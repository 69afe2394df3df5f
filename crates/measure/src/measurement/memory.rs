//! A memory pool's figures, and how they change from step to step.

use super::{Backend, Measurement, Summary};
use crate::error::bytes;
use std::fmt;

/// The pool's figures and the device's, in bytes.
///
/// Buffers come from a pool that sits between them and the driver. `used` is what buffers hold. `reserved` is what the
/// pool has taken from the driver, used or not. `free` is what the driver could still give, to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// Held by buffers.
    pub used: u64,
    /// Held by the pool: what buffers hold, and what freed buffers left behind.
    pub reserved: u64,
    /// The highest `used` since `Gpu::reset_high_water`.
    pub used_high: u64,
    /// The highest `reserved` since `Gpu::reset_high_water`.
    pub reserved_high: u64,
    /// What the driver still has, for this and every other program.
    pub free: u64,
    /// All memory of the device.
    pub total: u64,
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "used {} (highest {}), reserved {} (highest {}), free {} of {}",
            bytes(self.used),
            bytes(self.used_high),
            bytes(self.reserved),
            bytes(self.reserved_high),
            bytes(self.free),
            bytes(self.total)
        )
    }
}

/// A memory pool after one step, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPoint {
    /// What was just done, such as `drop the buffer`.
    pub step: String,
    /// Bytes that live buffers hold.
    pub used: u64,
    /// Bytes that the pool holds, used or not.
    pub reserved: u64,
    /// Bytes of the whole device that nobody holds.
    pub free: u64,
}

impl MemoryPoint {
    /// A point after `step`; all three numbers are bytes.
    pub fn new(step: &str, used: u64, reserved: u64, free: u64) -> MemoryPoint {
        MemoryPoint { step: step.to_string(), used, reserved, free }
    }

    /// The point that the pool's statistics make.
    pub fn of(step: &str, stats: MemoryStats) -> MemoryPoint {
        MemoryPoint::new(step, stats.used, stats.reserved, stats.free)
    }

    /// Three rows a point, in bytes; `size` is the step's number, so that the order is kept.
    pub fn to_rows(points: &[MemoryPoint], backend: Backend) -> Vec<Measurement> {
        let row = |(at, point): (usize, &MemoryPoint)| {
            [("used", point.used), ("reserved", point.reserved), ("free", point.free)].map(|(metric, bytes)| {
                let once = Summary::of(&[bytes as f64]);
                Measurement::new(&point.step, backend, at, metric, "bytes", once).dtype("")
            })
        };
        points.iter().enumerate().flat_map(row).collect()
    }

    /// The points of such rows; other rows are passed over.
    pub fn from_rows(rows: &[Measurement]) -> Vec<MemoryPoint> {
        let mut points: Vec<(u64, MemoryPoint)> = Vec::new();
        for row in rows {
            if !matches!(row.metric.as_str(), "used" | "reserved" | "free") {
                continue;
            }
            let at = points.iter().position(|(size, point)| *size == row.size && point.step == row.experiment);
            let at = at.unwrap_or_else(|| {
                points.push((row.size, MemoryPoint::new(&row.experiment, 0, 0, 0)));
                points.len() - 1
            });
            let bytes = row.summary.median as u64;
            match row.metric.as_str() {
                "used" => points[at].1.used = bytes,
                "reserved" => points[at].1.reserved = bytes,
                _ => points[at].1.free = bytes,
            }
        }
        points.sort_by_key(|(size, _)| *size);
        points.into_iter().map(|(_, point)| point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_survive_the_way_through_rows() {
        let points = vec![MemoryPoint::new("begin", 0, 32, 900), MemoryPoint::new("drop, then wait", 7, 64, 868)];
        let mut rows = MemoryPoint::to_rows(&points, Backend::Cuda);
        assert_eq!(rows.len(), 6);
        rows.reverse();
        assert_eq!(MemoryPoint::from_rows(&rows), points);
    }
}
