// Tensor cores by hand, further shapes and types; fragments as the PTX ISA lays them out ("Matrix Fragments for mma").
typedef unsigned int u32;
// Word `r` of a (M × K) and b (K × 8, column after column) for a lane, with elements of BITS bits packed in memory.
#define WORDS_A(M, K, BITS) \
    u32 x[M * K * BITS / 1024]; \
    for (int r = 0; r < M * K * BITS / 1024; r++) \
        x[r] = a[(g + (M == 16 ? r % 2 * 8 : 0)) * (K * BITS / 32) + (M == 16 ? r / 2 : r) * 4 + t];
#define WORDS_B(K, BITS) \
    u32 y[8 * K * BITS / 1024]; \
    for (int r = 0; r < 8 * K * BITS / 1024; r++) y[r] = b[g * (K * BITS / 32) + r * 4 + t];
#define LANE int lane = threadIdx.x, g = lane / 4, t = lane % 4
#define PUT4 int* d = out + g * 8 + t * 2; d[0] = c[0]; d[1] = c[1]; d[64] = c[2]; d[65] = c[3]
#define INTEGER_2_1(NAME, SHAPE, K, BITS, TYPES) \
    extern "C" __global__ void NAME(const u32* a, const u32* b, int* out) { \
        LANE; WORDS_A(16, K, BITS) WORDS_B(K, BITS) \
        int c[4] = {1, 2, 3, 4}; \
        asm volatile("mma.sync.aligned." SHAPE ".row.col" TYPES " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" \
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(y[0])); \
        PUT4; \
    }
#define INTEGER_4_2(NAME, SHAPE, K, BITS, TYPES) \
    extern "C" __global__ void NAME(const u32* a, const u32* b, int* out) { \
        LANE; WORDS_A(16, K, BITS) WORDS_B(K, BITS) \
        int c[4] = {1, 2, 3, 4}; \
        asm volatile("mma.sync.aligned." SHAPE ".row.col" TYPES " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1])); \
        PUT4; \
    }
#define INTEGER_1_1(NAME, SHAPE, K, BITS, TYPES) \
    extern "C" __global__ void NAME(const u32* a, const u32* b, int* out) { \
        LANE; WORDS_A(8, K, BITS) WORDS_B(K, BITS) \
        int c[2] = {1, 2}; \
        asm volatile("mma.sync.aligned." SHAPE ".row.col" TYPES " {%0,%1}, {%2}, {%3}, {%0,%1};" \
            : "+r"(c[0]), "+r"(c[1]) : "r"(x[0]), "r"(y[0])); \
        out[g * 8 + t * 2] = c[0]; out[g * 8 + t * 2 + 1] = c[1]; \
    }
INTEGER_2_1(u8_s8_k16, "m16n8k16", 16, 8, ".s32.u8.s8.s32")
INTEGER_4_2(s8_u8_k32, "m16n8k32", 32, 8, ".s32.s8.u8.s32")
INTEGER_4_2(u8_u8_sat, "m16n8k32", 32, 8, ".satfinite.s32.u8.u8.s32")
INTEGER_2_1(s4_u4_k32, "m16n8k32", 32, 4, ".s32.s4.u4.s32")
INTEGER_4_2(u4_s4_k64, "m16n8k64", 64, 4, ".s32.u4.s4.s32")
INTEGER_1_1(s8_s8_small, "m8n8k16", 16, 8, ".s32.s8.s8.s32")
INTEGER_1_1(s4_s4_small, "m8n8k32", 32, 4, ".s32.s4.s4.s32")
// Halves as accumulators: words of two, which start as 1 and 2, 3 and 4.
#define HALVES(NAME, K, SHAPE, FROM, ...) \
    extern "C" __global__ void NAME(const u32* a, const u32* b, u32* out) { \
        LANE; WORDS_A(16, K, 16) WORDS_B(K, 16) \
        u32 c[2] = {0x40003c00u, 0x44004200u}; \
        asm volatile("mma.sync.aligned." SHAPE ".row.col.f16.f16.f16.f16 {%0,%1}, " FROM ", {%0,%1};" \
            : "+r"(c[0]), "+r"(c[1]) : __VA_ARGS__); \
        out[g * 4 + t] = c[0]; out[(g + 8) * 4 + t] = c[1]; \
    }
HALVES(half_k8, 8, "m16n8k8", "{%2,%3}, {%4}", "r"(x[0]), "r"(x[1]), "r"(y[0]))
HALVES(half_k16, 16, "m16n8k16", "{%2,%3,%4,%5}, {%6,%7}", "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]))
extern "C" __global__ void doubles(const double* a, const double* b, double* out) {
    LANE;
    double c[2] = {1, 2};
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+d"(c[0]), "+d"(c[1]) : "d"(a[g * 4 + t]), "d"(b[g * 4 + t]));
    out[g * 8 + t * 2] = c[0];
    out[g * 8 + t * 2 + 1] = c[1];
}
