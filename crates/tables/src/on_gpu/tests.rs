//! The kernels in the simulator, against the plain loops.

use super::*;
use crate::{Zone, drivers, plain, rides};
use gpulab::error::Error;
use gpulab::sim::BlockOrder;

/// All stages in the simulator, which finds races and reads of what nobody wrote, against the plain loops: row by row.
fn check(rides: &Rides, drivers: &Drivers) {
    check_in(BlockOrder::Forward, rides, drivers);
}

fn check_in(order: BlockOrder, rides: &Rides, drivers: &Drivers) {
    let gpu = Gpu::simulated_in(order).unwrap();
    let mut on_gpu = OnGpu::new(&gpu, rides, drivers).unwrap();
    let right = plain(rides, drivers).unwrap();
    // Twice: what one run leaves behind must not disturb the next.
    for _ in 0..2 {
        on_gpu.run_all().unwrap_or_else(|error| panic!("{} rides: {error}", rides.len()));
        let outcome = on_gpu.outcome().unwrap();
        assert_eq!(right.differs(&outcome), None, "{} rides", rides.len());
        // Here the order is that of the rides.
        assert_eq!(right.joined.zone, outcome.joined.zone);
        assert_eq!(right.joined.year, outcome.joined.year);
        for (right, given) in right.joined.features.iter().zip(&outcome.joined.features) {
            assert!(right.iter().zip(given).all(|(right, given)| (right - given).abs() < 1e-5));
        }
    }
}

#[test]
fn the_pipeline_is_right_at_awkward_sizes() {
    for rows in [0, 1, 31, 33, 1023, 1024, 1025, 20_001] {
        check(&rides(rows, 50, rows as u64), &drivers(50, 1));
    }
}

#[test]
fn the_pipeline_is_right_in_every_order_of_blocks() {
    for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
        check_in(order, &rides(10_001, 50, 3), &drivers(50, 1));
    }
}

#[test]
fn no_driver_one_driver_and_as_many_as_slots_allow() {
    for count in [0, 1, 31, 32, 1000] {
        check(&rides(2000, count, 5), &drivers(count, 5));
    }
}

#[test]
fn all_rows_alike_and_all_rows_wrong() {
    let alike = |metres: u32| Rides {
        zone: vec![265; 3000],
        licence: vec![9; 3000],
        metres: vec![metres; 3000],
        seconds: vec![10_800; 3000],
        cents: vec![25_000; 3000],
    };
    // The licence 0 and the largest one are keys as any other.
    let drivers = Drivers { licence: vec![0, 9, u32::MAX], year: vec![2000, 2001, 2002] };
    check(&alike(100_000), &drivers);
    check(&alike(0), &drivers);
    let mut edges = alike(100_000);
    edges.licence.iter_mut().step_by(2).for_each(|licence| *licence = u32::MAX);
    edges.licence.iter_mut().step_by(3).for_each(|licence| *licence = 0);
    check(&edges, &drivers);
}

#[test]
fn a_block_hands_its_sums_over_before_they_overflow() {
    // Of 100 km each, 43,000 rides of one zone overflow 32 bits; eight blocks have that many each.
    let n = 8 * 43_000 + 1;
    let rides = Rides {
        zone: vec![1; n],
        licence: vec![9; n],
        metres: vec![100_000; n],
        seconds: vec![10_800; n],
        cents: vec![25_000; n],
    };
    let mut on_gpu = OnGpu::new(&Gpu::simulated().unwrap(), &rides, &Drivers::default()).unwrap();
    on_gpu.filter().unwrap();
    on_gpu.group().unwrap();
    let n = n as u64;
    let right = Zone { zone: 1, rides: n, cents: 25_000 * n, metres: 100_000 * n };
    assert_eq!(on_gpu.outcome().unwrap().zones, [right]);
}

#[test]
fn what_does_not_fit_is_named() {
    let gpu = Gpu::simulated().unwrap();
    let twice = Drivers { licence: vec![4, 4], year: vec![2000, 2001] };
    let text = OnGpu::new(&gpu, &rides(10, 2, 1), &twice).err().unwrap().to_string();
    assert!(text.contains("licence 4 stands twice"), "{text}");
    let mut on_gpu = OnGpu::new(&gpu, &rides(10, 2, 1), &drivers(2, 1)).unwrap();
    assert!(matches!(on_gpu.load(&rides(9, 2, 1), &drivers(2, 1)), Err(Error::LengthMismatch { .. })));
}
