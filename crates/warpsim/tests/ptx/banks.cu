// Shared memory, lane by lane: thread i touches byte at[i] of 4 KiB; a negative entry sits out.
// The accesses stand in assembly, so that neither compiler splits, joins or drops them.
#define TILE \
    extern __shared__ __align__(16) unsigned char tile[]; \
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) ((int*)tile)[i] = 1; \
    __syncthreads(); \
    int mine = at[threadIdx.x]; \
    unsigned int address = (unsigned int)__cvta_generic_to_shared(tile) + mine
#define READ(NAME, TYPE, CONSTRAINT, T) \
    extern "C" __global__ void NAME(const int* at, int* out) { \
        TILE; \
        if (mine < 0) return; \
        T v; \
        asm volatile("ld.shared." TYPE " %0, [%1];" : "=" CONSTRAINT(v) : "r"(address)); \
        out[threadIdx.x] = (int)v; \
    }
READ(read_1, "u8", "h", unsigned short)
READ(read_2, "u16", "h", unsigned short)
READ(read_4, "u32", "r", unsigned int)
READ(read_8_scalar, "f64", "d", double)
extern "C" __global__ void read_8(const int* at, int* out) {
    TILE;
    if (mine < 0) return;
    int a, b;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address));
    out[threadIdx.x] = a + b;
}
extern "C" __global__ void read_16(const int* at, int* out) {
    TILE;
    if (mine < 0) return;
    int a, b, c, d;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address));
    out[threadIdx.x] = a + b + c + d;
}
#define WRITE(NAME, ...) \
    extern "C" __global__ void NAME(const int* at) { \
        TILE; \
        if (mine < 0) return; \
        asm volatile(__VA_ARGS__ ::"r"(address), "r"(1) : "memory"); \
    }
WRITE(write_1, "st.shared.u8 [%0], %1;")
WRITE(write_2, "{ .reg .b16 h; cvt.u16.u32 h, %1; st.shared.u16 [%0], h; }")
WRITE(write_4, "st.shared.u32 [%0], %1;")
WRITE(write_8, "st.shared.v2.b32 [%0], {%1, %1};")
WRITE(write_16, "st.shared.v4.b32 [%0], {%1, %1, %1, %1};")
// Reductions: a count (a literal 1), other values, other operations.
WRITE(red_add, "red.shared.add.u32 [%0], 1;")
WRITE(red_seven, "red.shared.add.u32 [%0], 7;")
WRITE(red_minus, "red.shared.add.s32 [%0], -1;")
WRITE(red_or, "red.shared.or.b32 [%0], %1;")
WRITE(red_inc, "red.shared.inc.u32 [%0], 1000;")
WRITE(red_8, "red.shared.add.u64 [%0], 1;")
WRITE(red_float, "red.shared.add.f32 [%0], 0f3f800000;")
WRITE(red_double, "red.shared.add.f64 [%0], 0d3ff0000000000000;")
// Its result is dropped.
WRITE(atom_dropped, "{ .reg .b32 old; atom.shared.add.u32 old, [%0], 1; }")
// Atomics whose result is used.
#define ATOMIC(NAME, ...) \
    extern "C" __global__ void NAME(const int* at, int* out) { \
        TILE; \
        if (mine < 0) return; \
        int old; \
        asm volatile(__VA_ARGS__ : "=r"(old) : "r"(address), "r"(1) : "memory"); \
        out[threadIdx.x] = old; \
    }
ATOMIC(atom_add, "atom.shared.add.u32 %0, [%1], 1;")
ATOMIC(atom_max, "atom.shared.max.s32 %0, [%1], %2;")
ATOMIC(atom_exch, "atom.shared.exch.b32 %0, [%1], %2;")
ATOMIC(atom_cas, "atom.shared.cas.b32 %0, [%1], %2, %2;")
ATOMIC(cas_8, "{ .reg .b64 w, x; cvt.u64.u32 w, %2; atom.shared.cas.b64 x, [%1], w, w; cvt.u32.u64 %0, x; }")
ATOMIC(exch_8, "{ .reg .b64 w, x; cvt.u64.u32 w, %2; atom.shared.exch.b64 x, [%1], w; cvt.u32.u64 %0, x; }")
