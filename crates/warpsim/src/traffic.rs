//! What an access costs the memory system, by the addresses of its lanes: 32-byte sectors, and passes through the banks
//! of shared memory. Each rule is compared with an H200 in `tests/hardware`.

/// Different 32-byte sectors among the addresses of the lanes; aligned elements of at most 32 bytes lie in one each.
#[inline]
pub(crate) fn sectors(addresses: &[u64; 32], mask: u32) -> u64 {
    let mut seen = [0u64; 32];
    let (mut count, mut sorted) = (0, true);
    let mut rest = mask;
    while rest != 0 {
        let sector = addresses[rest.trailing_zeros() as usize] >> 5;
        rest &= rest - 1;
        if count > 0 && seen[count - 1] == sector {
            continue;
        }
        sorted &= count == 0 || seen[count - 1] < sector;
        seen[count] = sector;
        count += 1;
    }
    if !sorted {
        seen[..count].sort_unstable();
        let different = seen[..count].windows(2).filter(|w| w[0] != w[1]).count();
        return different as u64 + 1;
    }
    count as u64
}

/// Wavefronts of a shared access of `bytes` a lane, and those that it takes at least: one for each part of the warp
/// that goes by itself ([`lanes_at_once`]).
#[inline]
pub(crate) fn wavefronts<const LOAD: bool>(addresses: &[u64; 32], mask: u32, bytes: u32) -> (u64, u64) {
    if mask == u32::MAX && bytes <= 4 {
        // Words less than 32 apart share a bank only with themselves.
        let (mut low, mut high) = (u64::MAX, 0);
        for address in addresses {
            low = low.min(address >> 2);
            high = high.max(address >> 2);
        }
        if high - low < 32 {
            return (1, 1);
        }
    }
    if bytes <= 4 {
        return (passes(addresses, mask, 1), 1);
    }
    let (part, words) = (lanes_at_once(addresses, mask, bytes, LOAD), if bytes <= 8 { 2 } else { 4 });
    let (mut waves, mut least) = (0, 0);
    for first in (0..32).step_by(part) {
        let members = mask & u32::MAX >> (32 - part) << first;
        if members != 0 {
            waves += passes(addresses, members, words);
            least += 1;
        }
    }
    (waves, least)
}

/// How many neighbouring lanes the banks of shared memory serve together, in an access of `bytes` a lane: a warp, half of
/// it for 8 bytes, a quarter for 16. A `load` other than `ldmatrix` may serve two such parts at once: when each lane reads
/// the same as its neighbour (lane ^ 1), or each the same as its neighbour but one (lane ^ 2). A lane that is not in `mask`
/// agrees with all.
#[inline]
pub fn lanes_at_once(addresses: &[u64; 32], mask: u32, bytes: u32, load: bool) -> usize {
    let part = match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    if load && part < 32 && joined(addresses, mask) { 2 * part } else { part }
}

fn joined(addresses: &[u64; 32], mask: u32) -> bool {
    [1, 2].into_iter().any(|step| {
        (0..32).all(|lane| {
            let other = lane ^ step;
            addresses[lane] == addresses[other] || mask >> lane & mask >> other & 1 == 0
        })
    })
}

/// The most different words in one bank.
fn passes(addresses: &[u64; 32], mut members: u32, words: usize) -> u64 {
    let mut first = [u64::MAX; 32];
    let mut more: Vec<u64> = Vec::new();
    while members != 0 {
        let word = addresses[members.trailing_zeros() as usize] >> 2;
        members &= members - 1;
        for word in word..word + words as u64 {
            let slot = &mut first[word as usize & 31];
            if *slot == u64::MAX {
                *slot = word;
            } else if *slot != word {
                more.push(word);
            }
        }
    }
    if more.is_empty() {
        return 1;
    }
    more.sort_unstable();
    more.dedup();
    let mut count = [1u64; 32];
    more.iter().for_each(|w| count[*w as usize & 31] += 1);
    count.into_iter().max().unwrap_or(1)
}

/// Wavefronts of an atomic of `bytes` on shared memory and its conflicts; words of 8 bytes go by half warps. `merged`:
/// the lanes of a word go in one pass. `twice`: each pass is made twice.
pub(crate) fn atomic_wavefronts(addresses: &[u64; 32], mask: u32, bytes: u32, merged: bool, twice: bool) -> (u64, u64) {
    let mut lanes = [[0u64; 32]; 2];
    let halves = if bytes == 8 { 2 } else { 1 };
    for lane in (0..32).filter(|lane| mask >> lane & 1 != 0) {
        for word in 0..halves {
            lanes[lane * halves / 32][((addresses[lane] / 4) as usize + word) & 31] += 1;
        }
    }
    let waves = match merged {
        true => [passes(addresses, mask, 1), 0],
        false => lanes.map(|half| half.into_iter().max().unwrap_or(0)),
    };
    let factor = if twice { 2 } else { 1 };
    (waves.iter().sum::<u64>() * factor, waves.iter().map(|waves| waves.saturating_sub(1)).sum())
}

/// Sectors of an access to local memory, where word w of lane l lies at 128 w + 4 l.
pub(crate) fn local_sectors(addresses: &[u64; 32], mask: u32, bytes: u32) -> u64 {
    let words = u64::from(bytes.div_ceil(4));
    // Lanes outside the mask may hold any address.
    let place = |lane: usize, word: u64| (addresses[lane] / 4 + word).wrapping_mul(128).wrapping_add(4 * lane as u64);
    (0..words).map(|word| sectors(&std::array::from_fn(|lane| place(lane, word)), mask)).sum()
}

/// Sectors of a `cp.async` that goes past L1: each 128-byte line of the source takes those that it fills in shared memory.
pub(crate) fn bypass_sectors(from: &[u64; 32], to: &[u64; 32], mask: u32) -> u64 {
    let mut pairs: Vec<(u64, u64)> =
        (0..32).filter(|lane| mask >> lane & 1 != 0).map(|lane| (from[lane] >> 7, to[lane] >> 5)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs.len() as u64
}
