// Hopper's own instructions, each under a name: the TMA, barriers that count bytes, warpgroups.
// Names and rules: PTX ISA, "mbarrier", "cp.async.bulk.tensor", "wgmma" and "setmaxnreg". All need compute_90a.
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;
typedef unsigned int u32;
typedef unsigned long long u64;

// What the host writes with cuTensorMapEncodeTiled: base, sizes, row length and box of a matrix. Opaque to us.
struct alignas(128) TensorMap {
    u64 words[16];
};

// The TMA and the matrix units take addresses within shared memory, as 32 bits.
__device__ __forceinline__ u32 shared_address(const void *p) {
    return (u32)__cvta_generic_to_shared(p);
}

// ---- Barriers in shared memory (mbarrier): a phase ends when `count` threads have arrived and all bytes are here.
__device__ __forceinline__ void barrier_init(u64 *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

// Makes fresh barriers known to the TMA and to the other blocks of the cluster.
__device__ __forceinline__ void barriers_are_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and says how many bytes the TMA will bring in this phase.
__device__ __forceinline__ void arrive_and_expect(u64 *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Arrives at the same barrier of block `rank` of the cluster.
__device__ __forceinline__ void arrive_at(u64 *barrier, int rank) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
                 " mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(shared_address(barrier)),
                 "r"(rank)
                 : "memory");
}

// Waits for the end of the phase of this parity: 0 for the first phase, 1 for the second, 0 for the third …
__device__ __forceinline__ void wait(u64 *barrier, int parity) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

// ---- The TMA: one thread asks, it moves a whole box and swizzles it on the way.
__device__ __forceinline__ void tma_load(void *to, const TensorMap *map, int column, int row, u64 *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
                 : "memory");
}

// The same, into all blocks of the cluster whose bit is set in `blocks`; each one's barrier counts the bytes.
__device__ __forceinline__ void tma_load_to(void *to, const TensorMap *map, int column, int row, u64 *barrier,
                                            int blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"((unsigned short)blocks)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap *map, const void *from, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                 " cp.async.bulk.commit_group;" ::"l"(map), "r"(column), "r"(row), "r"(shared_address(from))
                 : "memory");
}

// Waits until at most PENDING of this thread's stores still read shared memory.
template <int PENDING>
__device__ __forceinline__ void tma_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Ordinary writes to shared memory before this are seen by the TMA and the matrix units after it.
__device__ __forceinline__ void fence_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Warpgroups: 128 threads that multiply together (wgmma).
// Where a tile lies, for the matrix units: rows of 128 bytes, swizzled; `leading` and `stride`: bytes between pieces.
__device__ __forceinline__ u64 tile_descriptor(const void *tile, int leading, int stride) {
    u64 address = shared_address(tile);
    return (address & 0x3ffff) >> 4 | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | 1ull << 62;
}

// What was written to registers comes before the products that follow (shared memory: fence_async).
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most PENDING committed groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// sum (64 × 256) += a (64 × 16, rows along k) × b (16 × 256, rows along n).
// Starts the product and returns: sum is not to be touched before wgmma_wait.
__device__ __forceinline__ void wgmma_64x256x16(float (&s)[128], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, 0, 1;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]),
          "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]),
          "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]),
          "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]),
          "+f"(s[32]), "+f"(s[33]), "+f"(s[34]), "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]),
          "+f"(s[40]), "+f"(s[41]), "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47]),
          "+f"(s[48]), "+f"(s[49]), "+f"(s[50]), "+f"(s[51]), "+f"(s[52]), "+f"(s[53]), "+f"(s[54]), "+f"(s[55]),
          "+f"(s[56]), "+f"(s[57]), "+f"(s[58]), "+f"(s[59]), "+f"(s[60]), "+f"(s[61]), "+f"(s[62]), "+f"(s[63]),
          "+f"(s[64]), "+f"(s[65]), "+f"(s[66]), "+f"(s[67]), "+f"(s[68]), "+f"(s[69]), "+f"(s[70]), "+f"(s[71]),
          "+f"(s[72]), "+f"(s[73]), "+f"(s[74]), "+f"(s[75]), "+f"(s[76]), "+f"(s[77]), "+f"(s[78]), "+f"(s[79]),
          "+f"(s[80]), "+f"(s[81]), "+f"(s[82]), "+f"(s[83]), "+f"(s[84]), "+f"(s[85]), "+f"(s[86]), "+f"(s[87]),
          "+f"(s[88]), "+f"(s[89]), "+f"(s[90]), "+f"(s[91]), "+f"(s[92]), "+f"(s[93]), "+f"(s[94]), "+f"(s[95]),
          "+f"(s[96]), "+f"(s[97]), "+f"(s[98]), "+f"(s[99]), "+f"(s[100]), "+f"(s[101]), "+f"(s[102]), "+f"(s[103]),
      "+f"(s[104]), "+f"(s[105]), "+f"(s[106]), "+f"(s[107]), "+f"(s[108]), "+f"(s[109]), "+f"(s[110]), "+f"(s[111]),
      "+f"(s[112]), "+f"(s[113]), "+f"(s[114]), "+f"(s[115]), "+f"(s[116]), "+f"(s[117]), "+f"(s[118]), "+f"(s[119]),
          "+f"(s[120]), "+f"(s[121]), "+f"(s[122]), "+f"(s[123]), "+f"(s[124]), "+f"(s[125]), "+f"(s[126]), "+f"(s[127])
        : "l"(a), "l"(b));
}

// ---- Registers move from warpgroups that need few to those that hold the sums. COUNT is a multiple of 8.
template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- Clusters: blocks that run at the same time and reach each other's shared memory.
__device__ __forceinline__ int cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of the cluster. Relaxed: it publishes no writes but barriers_are_ready's; a release here and in arrive_at
// would wait for all of the GPU's memory.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");
}

// A barrier of one warpgroup: `id` from 1 (0 is __syncthreads).
__device__ __forceinline__ void warpgroup_sync(int id) {
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

// Writes four 8 × 8 matrices from the registers of a warp; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(void *to, u32 m0, u32 m1, u32 m2, u32 m3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// Two sums as a pair of bf16, the first in the lower half.
__device__ __forceinline__ u32 pair(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *(u32 *)&both;
}
