// Tensor cores by hand: one warp multiplies 16 × k by k × 8 (b column by column), fragments as the PTX ISA lays them out.
typedef unsigned int u32;
#define FRAGMENT int lane = threadIdx.x, g = lane / 4, t = lane % 4
#define STORE(T, c) \
    T* d = out + g * 8 + t * 2; \
    d[0] = c[0]; d[1] = c[1]; d[64] = c[2]; d[65] = c[3]
#define MMA_HALF(NAME, TYPE) \
    extern "C" __global__ void NAME(const u32* a, const u32* b, float* out) { \
        FRAGMENT; \
        float c[4] = {1, 2, 3, 4}; \
        u32 x[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]}; \
        u32 y[2] = {b[g * 8 + t], b[g * 8 + t + 4]}; \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1])); \
        STORE(float, c); \
    }
MMA_HALF(mma_f16, "f16")
MMA_HALF(mma_bf16, "bf16")
extern "C" __global__ void mma_tf32(const u32* a, const u32* b, float* out) {
    FRAGMENT;
    float c[4] = {1, 2, 3, 4};
    u32 x[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
    u32 y[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    STORE(float, c);
}
extern "C" __global__ void mma_s8(const u32* a, const u32* b, int* out) {
    FRAGMENT;
    int c[4] = {1, 2, 3, 4};
    u32 x[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
    u32 y[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    STORE(int, c);
}
// The same product through cp.async and ldmatrix: b lies row by row (16 × 8) and is transposed on the way.
extern "C" __global__ void mma_tiles(const u32* a, const u32* b, float* out) {
    __shared__ __align__(16) u32 tile_a[16 * 8];
    __shared__ __align__(16) u32 tile_b[16 * 4];
    FRAGMENT;
    u32 to_a = (u32)__cvta_generic_to_shared(tile_a + lane * 4), to_b = (u32)__cvta_generic_to_shared(tile_b + lane * 2);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_a), "l"(a + lane * 4));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to_b), "l"(b + lane * 2), "r"(8));
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;");
    __syncthreads();
    u32 x[4], y[2];
    float c[4] = {1, 2, 3, 4};
    u32 from_a = (u32)__cvta_generic_to_shared(tile_a + (lane % 16) * 8 + lane / 16 * 4);
    u32 from_b = (u32)__cvta_generic_to_shared(tile_b + (lane % 16) * 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from_a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(from_b));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    STORE(float, c);
}
