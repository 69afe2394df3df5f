//! What the checks of whole kernels ask beside the result: did all warps work, and are the inputs as they were?

use super::verdict::{Check, none_wrong, wrong};
use gpulab::gpu::Buffer;
use gpulab::inspect::{Access, AccessKind, Inspection, Space};
use gpulab::launch::Element;

/// A check that few lanes did the work: `least` is the mean of active lanes that a kernel of this kind has, far above what
/// one thread alone reaches.
pub(super) fn lanes_work(seen: &Inspection, least: f64) -> Check {
    let lanes = seen.counters.active_lanes_per_instruction();
    let what = format!("the result is right, but on average only {lanes:.1} of a warp's 32 lanes are active");
    none_wrong(
        (lanes < least).then_some(what),
        "one warp costs the same to issue with 1 lane or 32: what do the other threads of the launch do meanwhile?",
    )
}

/// A check that the watched warp did its own share: some accesses to global memory, and at most `most` of them.
pub(super) fn warp_shares(seen: &Inspection, most: usize) -> Check {
    let global = seen.accesses.iter().filter(|access| access.space == Space::Global && access.kind != AccessKind::Load);
    let (count, ([block, ..], warp)) = (global.count(), seen.watched);
    if count == 0 {
        let what = format!("warp {warp} of block {block} stores nothing, although there are elements for all");
        return wrong(what, "who does its part of the work, and how long does that warp take?");
    }
    let what = format!("warp {warp} of block {block} alone makes {count} stores; a fair share is at most {most}");
    none_wrong((count > most).then_some(what), "which warps of the launch have nothing to do?")
}

/// A check that the watched warp loads its part from global memory: between `least` and `most` times.
pub(super) fn loads_shared(seen: &Inspection, least: usize, most: usize) -> Check {
    let load = |access: &&Access| access.space == Space::Global && access.kind == AccessKind::Load;
    let loads = seen.accesses.iter().filter(load).count();
    let ([block, ..], warp) = seen.watched;
    if loads < least {
        let what =
            format!("it is right; but warp {warp} of block {block} loads {loads} times, and {least} would be its part");
        return wrong(what, "who does the work of that warp, and how long does that take?");
    }
    let what =
        format!("it is right; but warp {warp} of block {block} loads {loads} times; a fair part is at most {most}");
    none_wrong((loads > most).then_some(what), "which warps of the launch have nothing to do meanwhile?")
}

/// A check that an input holds what was put there.
pub(super) fn unchanged<T: Element + PartialEq>(name: &str, buffer: &Buffer<T>, before: &[T]) -> Check {
    let after = buffer.to_host()?;
    let at = after.iter().zip(before).position(|(after, before)| after != before);
    let what = at.map(|at| format!("element {at} of the input `{name}` is no longer what it was before the launch"));
    none_wrong(what, "the caller may need its inputs again: write to the outputs alone")
}
