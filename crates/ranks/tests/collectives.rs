//! Collectives of threads: results at awkward sizes, messages and bytes as the textbooks count them, and named mistakes.

use gpulab_measure::{Error, Result};
use gpulab_ranks::algorithms::part;
use gpulab_ranks::{
    Algorithm, Collectives, Communicator, Failure, FailureCause, Link, Op, Rank, World, bus_factor, steps,
};
use std::time::{Duration, Instant};

const WORLDS: [usize; 7] = [1, 2, 3, 4, 5, 7, 8];
const LENGTHS: [usize; 5] = [0, 1, 5, 24, 1001];

/// Whole numbers, which every order of sums gives exactly.
fn numbers(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|at| ((at * 7 + rank * 13) % 101) as f32).collect()
}

#[test]
fn all_reduce_is_right_at_all_sizes_by_every_algorithm() {
    for (n, len, by) in combinations() {
        let run = World::new(n).run(|rank| {
            let rank = rank.by(by);
            let mut sum = numbers(rank.rank(), len);
            rank.all_reduce(&mut sum, Op::Sum)?;
            let mut most: Vec<i64> = (0..len).map(|at| ((at + rank.rank()) % n) as i64).collect();
            rank.all_reduce(&mut most, Op::Max)?;
            let mut mean = vec![rank.rank() as f64; len];
            rank.all_reduce(&mut mean, Op::Avg)?;
            Ok((sum, most, mean))
        });
        let expected: Vec<f32> = (0..len).map(|at| (0..n).map(|rank| numbers(rank, len)[at]).sum()).collect();
        for (sum, most, mean) in run.unwrap().results {
            assert_eq!(sum, expected, "{n} ranks, {len} numbers, {}", by.name());
            assert!(most.iter().all(|x| *x == n as i64 - 1));
            assert!(mean.iter().all(|x| *x == (n - 1) as f64 / 2.0));
        }
    }
}

fn combinations() -> impl Iterator<Item = (usize, usize, Algorithm)> {
    WORLDS.into_iter().flat_map(|n| LENGTHS.into_iter().flat_map(move |len| Algorithm::ALL.map(|by| (n, len, by))))
}

#[test]
fn the_other_collectives_are_right_also_with_rendezvous() {
    for n in WORLDS {
        for world in [World::new(n), World::new(n).rendezvous()] {
            let run = world.run(|rank| {
                let me = rank.rank();
                let mut own = vec![0.0_f32; 3];
                rank.reduce_scatter(&numbers(me, 3 * n)[..], &mut own, Op::Sum)?;
                let mut all = vec![0_u32; 2 * n];
                rank.all_gather(&[me as u32, 7][..], &mut all)?;
                let mut from_last = vec![me as i32; 5];
                rank.broadcast(&mut from_last, n - 1)?;
                rank.barrier()?;
                Ok((own, all, from_last))
            });
            for (me, (own, all, from_last)) in run.unwrap().results.into_iter().enumerate() {
                let sum = |at: usize| (0..n).map(|rank| numbers(rank, 3 * n)[at]).sum::<f32>();
                assert_eq!(own, [0, 1, 2].map(|at| sum(3 * me + at)));
                assert_eq!(all, (0..n as u32).flat_map(|rank| [rank, 7]).collect::<Vec<u32>>());
                assert_eq!(from_last, [n as i32 - 1; 5]);
            }
        }
    }
}

#[test]
fn every_rank_gets_the_same_bits() {
    for (n, _, by) in combinations().filter(|one| one.1 == 24) {
        let run = World::new(n).run(|rank| {
            let mut x: Vec<f32> = (0..1001).map(|at| ((at * (rank.rank() + 3)) as f32 * 0.37).sin()).collect();
            rank.by(by).all_reduce(&mut x, Op::Avg)?;
            Ok(x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>())
        });
        let results = run.unwrap().results;
        assert!(results.iter().all(|bits| *bits == results[0]), "{n} ranks, {}", by.name());
    }
}

#[test]
fn messages_bytes_and_steps_are_those_of_the_textbook() {
    let len = 840; // divisible by all worlds
    for n in [2, 3, 4, 5, 7, 8] {
        let log = |by: Algorithm| {
            let run = World::new(n).run(|rank| rank.by(by).all_reduce(&mut vec![1.0_f32; len][..], Op::Sum));
            run.unwrap().log
        };
        let ring = log(Algorithm::Ring);
        assert_eq!(ring.steps(), 2 * (n - 1));
        for rank in 0..n {
            assert_eq!(ring.messages_sent(rank), 2 * (n - 1));
            assert_eq!(ring.bytes_sent(rank), 2 * (n - 1) * 4 * len / n);
            assert_eq!(ring.bytes_received(rank), ring.bytes_sent(rank));
        }
        let tree = log(Algorithm::Tree);
        assert_eq!(tree.messages.len(), 2 * (n - 1));
        assert_eq!(tree.steps(), 2 * n.next_power_of_two().ilog2() as usize, "{n}");
        let doubling = log(Algorithm::RecursiveDoubling);
        let extra = if n.is_power_of_two() { 0 } else { 2 };
        assert_eq!(doubling.steps(), n.ilog2() as usize + extra, "{n}");
        // The replay of what was sent takes what the formula says.
        for link in [Link { latency_us: 5.0, gb_per_s: 100.0 }, Link { latency_us: 0.5, gb_per_s: 1.0 }] {
            for (by, log) in
                [(Algorithm::Ring, &ring), (Algorithm::Tree, &tree), (Algorithm::RecursiveDoubling, &doubling)]
            {
                let (replayed, formula) = (link.replay(log).total_us(), link.all_reduce_us(by, n, 4 * len));
                assert!((replayed / formula - 1.0).abs() < 1e-9, "{n} ranks, {}: {replayed} {formula}", by.name());
            }
        }
    }
}

#[test]
fn a_ring_of_uneven_parts_sends_no_more_than_it_must() {
    for (n, len) in [(3, 10), (5, 1001), (8, 9), (8, 3)] {
        let run = World::new(n).run(|rank| rank.all_reduce(&mut vec![1.0_f64; len][..], Op::Sum)).unwrap();
        for rank in 0..n {
            assert!(run.log.bytes_sent(rank) <= 2 * (n - 1) * 8 * len.div_ceil(n));
        }
        assert_eq!((0..n).map(|at| part(len, n, at).len()).sum::<usize>(), len);
    }
}

#[test]
fn a_busy_receiver_is_served_one_message_after_the_other() {
    let run = World::new(4).run(|rank| {
        let mut x = vec![1.0_f32; 250];
        match rank.rank() {
            0 => (1..4).try_for_each(|from| rank.recv(&mut x, from)),
            _ => rank.send(&x[..], 0),
        }
    });
    let log = run.unwrap().log;
    assert_eq!(log.messages.iter().map(|message| message.step).collect::<Vec<usize>>(), [0, 1, 2]);
    assert_eq!(Link { latency_us: 1.0, gb_per_s: 1.0 }.replay(&log).total_us(), 6.0);
}

#[test]
fn groups_reduce_among_themselves() {
    let run = World::new(6).run(|rank| {
        let group = rank.split(rank.rank() % 2)?;
        let mut x = vec![rank.rank() as u64; 2];
        group.all_reduce(&mut x, Op::Sum)?;
        let mut both = vec![x[0]];
        rank.all_reduce(&mut both, Op::Sum)?;
        Ok((group.rank(), group.size(), x[0], both[0]))
    });
    let results = run.unwrap().results;
    assert_eq!(results[4], (2, 3, 6, 45));
    assert_eq!(results[1], (0, 3, 9, 45));
}

#[test]
fn a_collective_takes_no_message_of_others() {
    let run = World::new(2).run(|rank| {
        let (mut sum, mut came) = ([rank.rank() as f32, 1.0], [0.0_f32; 1]);
        if rank.rank() == 0 {
            rank.send(&[7.0_f32][..], 1)?;
        }
        rank.all_reduce(&mut sum[..], Op::Sum)?;
        if rank.rank() == 1 {
            rank.recv(&mut came[..], 0)?;
        }
        Ok((sum, came[0]))
    });
    assert_eq!(run.unwrap().results, [([1.0, 2.0], 0.0), ([1.0, 2.0], 7.0)]);
}

fn failure<T: Send>(world: World, code: impl Fn(&Rank) -> Result<T> + Sync) -> Failure {
    let begin = Instant::now();
    let failure = world.run(code).err().expect("it fails");
    assert!(begin.elapsed() < Duration::from_secs(5), "it took {:?}", begin.elapsed());
    assert!(failure.to_string().contains("\nnext: "));
    failure
}

fn reduce(rank: &Rank, len: usize) -> Result<()> {
    rank.all_reduce(&mut vec![1.0_f32; len][..], Op::Sum)
}

#[test]
fn a_rank_that_skips_a_collective_is_found_without_waiting() {
    let found = failure(World::new(4), |rank| if rank.rank() == 2 { Ok(()) } else { reduce(rank, 8) });
    assert_eq!((found.cause, found.ranks.as_slice()), (FailureCause::Deadlock, &[0, 1, 3][..]));
    for part in ["rank 3 waits in `all_reduce`", "collectives.rs:", "rank 2 has ended without any call"] {
        assert!(found.what.contains(part), "{part}: {found}");
    }
}

#[test]
fn calls_that_differ_are_named_with_both_lines() {
    let other = |rank: &Rank| match rank.rank() {
        1 => rank.broadcast(&mut [0.0_f32; 8][..], 0),
        _ => reduce(rank, 8),
    };
    let length = |rank: &Rank| reduce(rank, if rank.rank() == 1 { 9 } else { 8 });
    let dtype = |rank: &Rank| match rank.rank() {
        1 => rank.all_reduce(&mut [0.0_f64; 8][..], Op::Sum),
        _ => reduce(rank, 8),
    };
    let order = |rank: &Rank| {
        let lengths = if rank.rank() == 1 { [4, 8] } else { [8, 4] };
        lengths.iter().try_for_each(|len| reduce(rank, *len))
    };
    let by = |rank: &Rank| reduce(&rank.by(if rank.rank() == 1 { Algorithm::Tree } else { Algorithm::Ring }), 8);
    let root = |rank: &Rank| rank.broadcast(&mut [0_u32; 2][..], rank.rank());
    type Code<'a> = &'a (dyn Fn(&Rank) -> Result<()> + Sync);
    let codes: [(Code<'_>, [&str; 2]); 6] = [
        (&other, ["`broadcast` of 8 f32, from rank 0", "`all_reduce` of 8 f32, sum"]),
        (&length, ["of 9 f32", "of 8 f32"]),
        (&dtype, ["of 8 f64", "of 8 f32"]),
        (&order, ["of 4 f32", "of 8 f32"]),
        (&by, ["by tree", "by ring"]),
        (&root, ["from rank 0", "from rank 1"]),
    ];
    for (code, parts) in codes {
        let found = failure(World::new(2), code);
        assert_eq!(found.cause, FailureCause::Mismatch, "{found}");
        assert!(parts.iter().all(|part| found.what.contains(part)), "{parts:?}: {found}");
        assert_eq!(found.what.matches("collectives.rs:").count(), 2, "{found}");
    }
    let messages = failure(World::new(2), |rank| match rank.rank() {
        0 => rank.send(&[1.0_f32; 3][..], 1),
        _ => rank.recv(&mut [0.0_f32; 4][..], 0),
    });
    assert_eq!(messages.cause, FailureCause::Mismatch);
    assert!(messages.what.contains("sends 3 f32") && messages.what.contains("receives 4 f32"), "{messages}");
}

#[test]
fn a_rank_that_panics_dies_or_fails_ends_the_others_at_once() {
    let calls = |rank: &Rank, at: fn()| {
        (0..100).try_for_each(|step| {
            if rank.rank() == 2 && step == 50 {
                at();
            }
            reduce(rank, 1000)
        })
    };
    let found = failure(World::new(4), |rank| calls(rank, || panic!("index {} out of bounds", 7)));
    assert_eq!((found.cause, found.ranks.as_slice()), (FailureCause::Panicked, &[2][..]));
    assert!(found.what.contains("rank 2 panicked after `all_reduce`") && found.what.contains("index 7 out of bounds"));
    let found = failure(World::new(4).kill(3, 100), |rank| calls(rank, || ()));
    assert_eq!((found.cause, found.ranks.as_slice()), (FailureCause::Died, &[3][..]));
    assert!(found.what.contains("rank 3 died in `all_reduce`"), "{found}");
    assert!(found.log.messages_sent(3) == 100 && found.ended_ms < 1000.0);
    let found = failure(World::new(3), |rank| {
        if rank.rank() == 1 {
            return Err(Error::invalid("the loss is NaN", "lower the learning rate"));
        }
        calls(rank, || ())
    });
    assert_eq!((found.cause, found.ranks.as_slice()), (FailureCause::Failed, &[1][..]));
    assert!(found.what.contains("rank 1 returned an error before its first call: the loss is NaN"), "{found}");
    assert_eq!(found.fix, "lower the learning rate");
}

#[test]
fn two_that_send_first_are_a_deadlock_where_a_send_waits() {
    let both_send = |rank: &Rank| {
        let (other, mut x) = (1 - rank.rank(), [0.0_f32; 4]);
        rank.send(&[1.0_f32; 4][..], other)?;
        rank.recv(&mut x[..], other)
    };
    assert!(World::new(2).run(both_send).is_ok());
    let found = failure(World::new(2).rendezvous(), both_send);
    assert_eq!(found.cause, FailureCause::Deadlock);
    assert!(found.what.contains("waits in `send`") && found.what.contains("for rank 0 to receive"), "{found}");
    assert!(found.fix.contains("send_recv"));
}

#[test]
fn a_late_rank_is_named_and_a_slow_one_found() {
    let late = failure(World::new(3).time_limit(Duration::from_millis(100)), |rank| {
        if rank.rank() == 1 {
            std::thread::sleep(Duration::from_millis(600));
        }
        reduce(rank, 6)
    });
    assert_eq!((late.cause, late.ranks.as_slice()), (FailureCause::Late, &[1][..]));
    assert!(late.what.contains("rank 1 is late") && late.what.contains("has made no call yet"), "{late}");
    let run = World::new(4).slow(2, Duration::from_millis(20)).run(|rank| (0..5).try_for_each(|_| reduce(rank, 64)));
    let slow = run.unwrap().log.straggler().expect("one is slow");
    assert_eq!((slow.rank, slow.collectives), (2, 5));
    assert!(slow.last >= 4 && slow.behind_ms > 5.0, "{slow:?}");
}

#[test]
fn wrong_buffers_and_ranks_are_errors_of_the_rank_that_names_them() {
    let text = |code: &(dyn Fn(&Rank) -> Result<()> + Sync)| failure(World::new(2), code).to_string();
    let short = text(&|rank| rank.all_gather(&[1.0_f32; 3][..], &mut [0.0; 5][..]));
    assert!(short.contains("6 elements expected, 5 given") || short.contains("expected, 5 given"), "{short}");
    let far = text(&|rank| rank.send(&[1.0_f32][..], 2));
    assert!(far.contains("there are 2 ranks") && far.contains("next: name a rank from 0 to 1"), "{far}");
    let own = text(&|rank| rank.send(&[1.0_f32][..], rank.rank()));
    assert!(own.contains("sends to itself") || own.contains("sends to"), "{own}");
}

#[test]
fn the_picture_follows_from_the_messages() {
    let run = World::new(4).run(|rank| reduce(rank, 8)).unwrap();
    let svg = steps(&run.log).title("A ring of four").draw().svg();
    assert!(svg.contains("step 5") && !svg.contains("step 6"));
    assert!(svg.contains("step 0: rank 0 sends chunk 3 to rank 1, to be added, 8 bytes"), "{svg}");
    assert!(svg.contains("to be kept"));
    let alone = World::new(1).run(|rank| reduce(rank, 8)).unwrap();
    assert!(steps(&alone.log).draw().svg().contains("Nothing was sent."));
}

#[test]
fn bus_bandwidth_is_that_of_nccl_tests() {
    assert_eq!(bus_factor("all_reduce", 2), 1.0);
    assert_eq!(bus_factor("all_reduce", 8), 1.75);
    assert_eq!([bus_factor("reduce_scatter", 4), bus_factor("all_gather", 4)], [0.75; 2]);
    assert_eq!([bus_factor("broadcast", 8), bus_factor("send", 2)], [1.0; 2]);
    // A ring that has no latency reaches its links' rate in bus bandwidth, whatever n is.
    for n in [2, 4, 8] {
        let link = Link { latency_us: 0.0, gb_per_s: 300.0 };
        let us = link.all_reduce_us(Algorithm::Ring, n, 1 << 30);
        let bus = (1_u64 << 30) as f64 / (us * 1e3) * bus_factor("all_reduce", n);
        assert!((bus - 300.0).abs() < 1e-6, "{bus}");
    }
}
