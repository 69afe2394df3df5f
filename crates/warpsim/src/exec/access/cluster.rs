//! Shared memory of the other blocks of a cluster (distributed shared memory).

use crate::exec::blocks::state::Env;
use crate::exec::values::lanes::{LANES, Row, each};
use crate::finding::Kind;
use crate::memory::{SHARED_WINDOW, from_generic, of_block};
use crate::ptx::types::Space;

/// Lanes that address one block: its rank, unless it is their own; their addresses within it; which lanes.
pub type Part = (Option<u64>, Row<u64>, u32);

/// The lanes by the block of the cluster whose shared memory they address; `None` where nobody leaves the own block.
#[inline(always)]
pub fn parts(env: &Env, space: Space, all: &Row<u64>, mask: u32) -> Option<Vec<Part>> {
    if env.peers.is_empty() || !matches!(space, Space::Shared | Space::Generic) {
        return None;
    }
    split(space, all, mask)
}

#[inline(never)]
fn split(space: Space, all: &Row<u64>, mask: u32) -> Option<Vec<Part>> {
    let mut ranks = [None; LANES];
    let mut within = *all;
    each(mask, |lane| {
        let (kind, at) = match space {
            Space::Generic => from_generic(all[lane]),
            space => (space, all[lane]),
        };
        if kind == Space::Shared {
            let (rank, at) = of_block(at);
            let base = if space == Space::Generic { SHARED_WINDOW } else { 0 };
            (ranks[lane], within[lane]) = (rank, base + at);
        }
    });
    let mut rest = mask;
    let mut parts = Vec::new();
    while rest != 0 {
        let rank = ranks[rest.trailing_zeros() as usize];
        let lanes = (0..LANES).filter(|&l| rest >> l & 1 != 0 && ranks[l] == rank).fold(0, |m, l| m | 1 << l);
        parts.push((rank, within, lanes));
        rest &= !lanes;
    }
    parts.iter().any(|(rank, ..)| rank.is_some()).then_some(parts)
}

/// Does something in the shared memory of the block of a rank, which is put in the place of the own one meanwhile.
pub fn visit(env: &mut Env, (thread, pc): (u32, u32), rank: Option<u64>, f: impl FnOnce(&mut Env)) {
    let own = env.block.0 % env.machine.cluster_size();
    let Some(rank) = rank.filter(|rank| *rank != own) else { return f(env) };
    let problem = match env.peers.get(rank as usize) {
        None => Some("which the cluster does not have; next: keep ranks below %cluster_nctarank"),
        Some(peer) if peer.ended => {
            Some("which has ended; next: let each block wait at the cluster's barrier before it ends")
        }
        Some(_) if env.meeting.phase == 0 => Some(
            "which need not have started; next: let all blocks meet at the cluster's barrier before the first of them \
             reaches into another",
        ),
        Some(_) => None,
    };
    if let Some(problem) = problem {
        let message = format!("reaches into the shared memory of block {rank} of the cluster, {problem}");
        env.note(Kind::OutOfBounds, pc, thread, None, message);
    }
    let Some(peer) = env.peers.get_mut(rank as usize).filter(|peer| !peer.ended) else { return };
    std::mem::swap(&mut peer.shared, &mut env.shared);
    std::mem::swap(&mut peer.shadow, &mut env.shadow);
    env.visited = true;
    f(env);
    env.visited = false;
    if let Some(peer) = env.peers.get_mut(rank as usize) {
        std::mem::swap(&mut peer.shared, &mut env.shared);
        std::mem::swap(&mut peer.shadow, &mut env.shadow);
    }
}
