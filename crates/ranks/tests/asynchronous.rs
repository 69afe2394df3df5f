//! Direct messages and asynchronous calls: results, one order of sums, bf16, overlap in the replay, and worlds without a log.

use gpulab_ranks::{Algorithm, BFloat16, Collectives, Communicator, FailureCause, Link, Op, Rank, World};
use std::time::Duration;

const WORLDS: [usize; 5] = [1, 2, 3, 4, 8];

/// Numbers whose sum depends on the order.
fn numbers(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|at| ((at * 31 + rank * 17) as f32 * 0.37).sin() * 10_f32.powi(rank as i32 % 5)).collect()
}

#[test]
fn direct_messages_add_in_the_order_of_ranks() {
    for n in WORLDS {
        for world in [World::new(n), World::new(n).rendezvous(), World::new(n).unrecorded()] {
            let run = world.run(|rank| {
                let (rank, data) = (rank.by(Algorithm::Direct), numbers(rank.rank(), 5 * n));
                let (mut own, mut started, mut all, mut reduced) =
                    (vec![0.0; 5], vec![0.0; 5], vec![0.0; 5 * n], data.clone());
                rank.reduce_scatter(&data, &mut own, Op::Avg)?;
                rank.start_reduce_scatter(&data, Op::Avg)?.wait(&mut started)?;
                rank.all_gather(&own, &mut all)?;
                rank.all_reduce(&mut reduced, Op::Avg)?;
                let mut gathered = vec![0.0; 5 * n];
                rank.start_all_gather(&own)?.wait(&mut gathered)?;
                assert!(started == own && gathered == all);
                Ok((all, reduced))
            });
            let mut sums = numbers(0, 5 * n);
            for rank in 1..n {
                sums.iter_mut().zip(numbers(rank, 5 * n)).for_each(|(sum, x)| *sum += x);
            }
            let expected: Vec<f32> = sums.iter().map(|sum| sum / n as f32).collect();
            for (all, reduced) in run.unwrap().results {
                assert!(all == expected && reduced == expected, "{n} ranks");
            }
        }
    }
}

#[test]
fn lengths_that_the_ranks_do_not_divide_are_reduced_and_refused_as_before() {
    let run = World::new(3).run(|rank| {
        let mut x = vec![rank.rank() as f32; 10];
        rank.by(Algorithm::Direct).all_reduce(&mut x, Op::Sum)?;
        Ok(x)
    });
    assert!(run.unwrap().results.iter().all(|x| *x == [3.0; 10]));
    let short = World::new(3).run(|rank| rank.start_reduce_scatter(&[1.0_f32; 10], Op::Sum)?.wait(&mut [0.0; 3]));
    assert!(short.unwrap_err().to_string().contains("expected"));
    let room = World::new(2).run(|rank| rank.start_all_gather(&[1.0_f32; 3])?.wait(&mut [0.0; 5]));
    assert!(room.unwrap_err().to_string().contains("expected"));
}

#[test]
fn bf16_is_half_the_bytes_and_rounded_after_each_addition() {
    for n in WORLDS {
        let run = World::new(n).run(|rank| {
            let mut x = BFloat16::round(&numbers(rank.rank(), 8 * n));
            rank.by(Algorithm::Direct).all_reduce(&mut x, Op::Sum)?;
            let (mut most, mut own) =
                (vec![BFloat16::from_f32(rank.rank() as f32); 2 * n], vec![BFloat16::default(); 2]);
            rank.all_reduce(&mut most, Op::Max)?;
            rank.reduce_scatter(&most, &mut own, Op::Avg)?;
            Ok((x, own[0].to_f32()))
        });
        let run = run.unwrap();
        let mut sums = BFloat16::round(&numbers(0, 8 * n));
        for rank in 1..n {
            let theirs = BFloat16::round(&numbers(rank, 8 * n));
            sums.iter_mut().zip(theirs).for_each(|(sum, x)| *sum = BFloat16::from_f32(sum.to_f32() + x.to_f32()));
        }
        assert!(run.results.iter().all(|(x, most)| *x == sums && *most == n as f32 - 1.0), "{n} ranks");
        // 8 n + 2 n numbers in two all-reduces, 2 n in a reduce-scatter, of 2 bytes each.
        assert_eq!(run.log.bytes_sent(0), (2 * 10 + 2) * 2 * (n - 1));
        assert_eq!(run.log.bytes_sent_in(0, "reduce_scatter"), 4 * (n - 1));
    }
}

#[test]
fn other_calls_may_come_before_an_asynchronous_one_ends() {
    let run = World::new(4).run(|rank| {
        let first = rank.start_all_gather(&[rank.rank() as u32; 2])?;
        let second = rank.start_all_gather(&[10 + rank.rank() as u32; 2])?;
        let mut sum = [1.0_f32];
        rank.all_reduce(&mut sum[..], Op::Sum)?;
        let (mut a, mut b) = ([0; 8], [0; 8]);
        second.wait(&mut b)?;
        first.wait(&mut a)?;
        Ok((a, b, sum[0]))
    });
    let expected = ([0, 0, 1, 1, 2, 2, 3, 3], [10, 10, 11, 11, 12, 12, 13, 13], 4.0);
    assert!(run.unwrap().results.iter().all(|one| *one == expected));
}

/// Layers whose weights are gathered one after the other: each when it is needed, or while the one before is computed.
fn layers(rank: &Rank, count: usize, ahead: bool) -> gpulab_measure::Result<()> {
    let own = vec![0.0_f32; 1000];
    let mut all = vec![0.0; 1000 * rank.size()];
    let mut next = Some(rank.start_all_gather(&own)?);
    for layer in 0..count {
        next.take().expect("it was begun").wait(&mut all)?;
        if ahead && layer + 1 < count {
            next = Some(rank.start_all_gather(&own)?);
        }
        rank.compute(&format!("layer {layer}"), 30.0);
        if !ahead && layer + 1 < count {
            next = Some(rank.start_all_gather(&own)?);
        }
    }
    Ok(())
}

#[test]
fn what_is_gathered_while_a_rank_computes_costs_no_time() {
    for n in [2, 4, 8] {
        // 4 µs for a message: (n − 1) · 4 µs for a gather, less than a layer's 30 µs.
        let link = Link { latency_us: 2.0, gb_per_s: 2.0 };
        let gather = 4.0 * (n - 1) as f64;
        for (ahead, expected) in [(false, 5.0 * (gather + 30.0)), (true, gather + 5.0 * 30.0)] {
            let run = World::new(n).run(|rank| layers(rank, 5, ahead)).unwrap();
            let predicted = link.replay(&run.log);
            assert!((predicted.total_us() - expected).abs() < 1e-9, "{n} ranks, {ahead}: {}", predicted.total_us());
            let spans = predicted.timeline(&run.log, n - 1);
            let of = |lane: &str| spans.iter().filter(|span| span.lane == lane).count();
            assert_eq!((of("compute"), of("network")), (5, 5));
            // Steps are those of messages, whatever is computed.
            assert_eq!(run.log.steps(), 5 * (n - 1));
        }
    }
}

#[test]
fn an_asynchronous_call_that_a_rank_skips_or_never_ends_is_named() {
    let skipped = World::new(3).run(|rank| {
        if rank.rank() == 1 {
            return Ok(());
        }
        rank.start_all_gather(&[1.0_f32; 4])?.wait(&mut [0.0; 12])
    });
    let failure = skipped.unwrap_err();
    assert_eq!((failure.cause, failure.ranks.as_slice()), (FailureCause::Deadlock, &[0, 2][..]));
    assert!(failure.what.contains("waits in `all_gather`"), "{failure}");
    let mixed = World::new(2).run(|rank| match rank.rank() {
        0 => rank.start_all_gather(&[1.0_f32; 4])?.wait(&mut [0.0; 8]),
        _ => rank.all_gather(&[1.0_f32; 4][..], &mut [0.0; 8][..]),
    });
    let failure = mixed.unwrap_err();
    assert!(failure.cause == FailureCause::Mismatch && failure.what.contains("by direct messages"), "{failure}");
}

#[test]
fn a_world_without_a_log_still_finds_what_is_wrong() {
    let quiet = || World::new(3).unrecorded().time_limit(Duration::from_secs(20));
    let run = quiet().rendezvous().run(|rank| {
        rank.compute("nothing", 1.0);
        (0..50).try_for_each(|_| rank.all_reduce(&mut [1.0_f32; 9][..], Op::Sum))
    });
    let log = run.unwrap().log;
    assert!(log.messages.is_empty() && log.calls.is_empty() && log.computed.is_empty() && log.ranks() == 3);
    let failure = quiet().run(|rank| if rank.rank() == 2 { Ok(()) } else { rank.barrier() }).unwrap_err();
    assert!(failure.cause == FailureCause::Deadlock && failure.what.contains("rank 2 has ended"), "{failure}");
    let failure = quiet().kill(1, 3).run(|rank| (0..9).try_for_each(|_| rank.barrier())).unwrap_err();
    assert_eq!((failure.cause, failure.ranks.as_slice()), (FailureCause::Died, &[1][..]));
}
