// Global memory, lane by lane: thread i touches byte at[i] of `in`; a negative entry sits out.
// The accesses stand in assembly, so that neither compiler splits, joins or drops them.
#define MINE \
    int mine = at[threadIdx.x]; \
    if (mine < 0) return; \
    unsigned long long address = (unsigned long long)__cvta_generic_to_global(in) + mine
#define READ(NAME, PTX, CONSTRAINT, T) \
    extern "C" __global__ void NAME(const int* in, const int* at, int* out) { \
        MINE; \
        T v; \
        asm volatile(PTX " %0, [%1];" : "=" CONSTRAINT(v) : "l"(address)); \
        out[threadIdx.x] = (int)v; \
    }
READ(load_1, "ld.global.u8", "h", unsigned short)
READ(load_2, "ld.global.u16", "h", unsigned short)
READ(load_4, "ld.global.u32", "r", unsigned int)
READ(load_nc, "ld.global.nc.u32", "r", unsigned int)
READ(load_cg, "ld.global.cg.u32", "r", unsigned int)
READ(load_volatile, "ld.volatile.global.u32", "r", unsigned int)
READ(load_8, "ld.global.u64", "l", unsigned long long)
extern "C" __global__ void load_16(const int* in, const int* at, int* out) {
    MINE;
    int a, b, c, d;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(address));
    out[threadIdx.x] = a + b + c + d;
}
extern "C" __global__ void load_nc_16(const int* in, const int* at, int* out) {
    MINE;
    int a, b, c, d;
    asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(address));
    out[threadIdx.x] = a + b + c + d;
}
// A generic address, as a pointer through a function has.
READ(load_generic, "ld.u32", "r", unsigned int)
#define WRITE(NAME, ...) \
    extern "C" __global__ void NAME(int* in, const int* at) { \
        MINE; \
        asm volatile(__VA_ARGS__ ::"l"(address), "r"(1) : "memory"); \
    }
WRITE(store_1, "st.global.u8 [%0], %1;")
WRITE(store_2, "{ .reg .b16 h; cvt.u16.u32 h, %1; st.global.u16 [%0], h; }")
WRITE(store_4, "st.global.u32 [%0], %1;")
WRITE(store_8, "st.global.v2.b32 [%0], {%1, %1};")
WRITE(store_16, "st.global.v4.b32 [%0], {%1, %1, %1, %1};")
WRITE(red_add, "red.global.add.u32 [%0], %1;")
WRITE(red_float, "{ .reg .f32 f; mov.b32 f, %1; red.global.add.f32 [%0], f; }")
WRITE(red_8, "{ .reg .b64 w; cvt.u64.u32 w, %1; red.global.add.u64 [%0], w; }")
#define ATOMIC(NAME, ...) \
    extern "C" __global__ void NAME(int* in, const int* at, int* out) { \
        MINE; \
        int old; \
        asm volatile(__VA_ARGS__ : "=r"(old) : "l"(address), "r"(1) : "memory"); \
        out[threadIdx.x] = old; \
    }
ATOMIC(atom_add, "atom.global.add.u32 %0, [%1], %2;")
ATOMIC(atom_exch, "atom.global.exch.b32 %0, [%1], %2;")
ATOMIC(atom_cas, "atom.global.cas.b32 %0, [%1], %2, %2;")
