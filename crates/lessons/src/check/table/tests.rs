//! Right kernels pass, and each wrong one is told what is wrong with it.

use super::*;
use crate::check::kernels::expect;

const KEEP: &str = "extern \"C\" __global__ void keep(const unsigned *cents, unsigned *out, unsigned *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool stays = i < n && cents[i] >= 200;
    unsigned ballot = __ballot_sync(0xffffffff, stays), first = 0;
    if (lane == 0) { first = atomicAdd(count, __popc(ballot)); }
    first = __shfl_sync(0xffffffff, first, 0);
    if (stays) { out[first + __popc(ballot & ((1u << lane) - 1))] = cents[i]; }
}";

const GROUP: &str =
    "extern \"C\" __global__ void group(const unsigned *zone, const unsigned *cents, unsigned *sums, int n) {
    __shared__ unsigned own[64];
    if (threadIdx.x < 64) { own[threadIdx.x] = 0; }
    __syncthreads(); // all are 0
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[zone[i]], cents[i]);
    }
    __syncthreads(); // all are added
    if (threadIdx.x < 64) { atomicAdd(&sums[threadIdx.x], own[threadIdx.x]); }
}";

#[test]
fn keep_fares_knows_its_mistakes() {
    expect(
        keep_fares,
        KEEP,
        &[
            (
                "first = atomicAdd(count, __popc(ballot));",
                "first = *count; *count += __popc(ballot);",
                "atomicAdd makes them",
            ),
            ("__popc(ballot & ((1u << lane) - 1))", "lane", "was never written"),
            ("__popc(ballot & ((1u << lane) - 1))", "0", "two threads"),
            ("i < n && cents", "cents", "does it exist"),
            ("cents[i] >= 200", "cents[i] > 300", "fares are to be kept"),
            ("atomicAdd(count, __popc(ballot))", "atomicAdd(count, 32)", "__popc counts"),
            ("] = cents[i]", "] = i", "stores its own fare"),
            ("__global__ void keep", "__global__ void kept", "no kernel `keep`"),
        ],
    );
    let each = "extern \"C\" __global__ void keep(const unsigned *cents, unsigned *out, unsigned *count, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n && cents[i] >= 200) { out[atomicAdd(count, 1)] = cents[i]; }
    }";
    let text = keep_fares(each).text();
    assert!(text.contains("it is right; but 32 lanes of one warp") && text.contains("__ballot_sync"), "{text}");
}

#[test]
fn sums_by_zone_knows_its_mistakes() {
    expect(
        sums_by_zone,
        GROUP,
        &[
            ("__syncthreads(); // all are 0", "", "a __syncthreads() belongs"),
            ("__syncthreads(); // all are added", "", "a __syncthreads() belongs"),
            ("own[threadIdx.x] = 0;", "", "begins with anything"),
            ("atomicAdd(&own[zone[i]], cents[i])", "own[zone[i]] += cents[i]", "shared memory"),
            ("atomicAdd(&sums[threadIdx.x], own[threadIdx.x])", "sums[threadIdx.x] += own[threadIdx.x]", "take turns"),
            (
                "{ atomicAdd(&sums[threadIdx.x]",
                "if (threadIdx.x < 32) { atomicAdd(&sums[threadIdx.x]",
                "all 64 of them",
            ),
            ("i += gridDim.x * blockDim.x", "i += n", "some fares are missing"),
            ("atomicAdd(&own[zone[i]], cents[i])", "atomicAdd(&own[zone[i]], 2 * cents[i])", "more than once"),
        ],
    );
    let common = "extern \"C\" __global__ void group(const unsigned *zone, const unsigned *cents, unsigned *sums, int n) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { atomicAdd(&sums[zone[i]], cents[i]); }
    }";
    let text = sums_by_zone(common).text();
    assert!(text.contains("it is right; but with n = 40003") && text.contains("sums of its own"), "{text}");
}
