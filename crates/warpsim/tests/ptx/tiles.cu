// Instructions that move tiles, lane by lane: at[i] is the byte of shared memory that thread i points at.
#define TILE \
    extern __shared__ __align__(16) unsigned char tile[]; \
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) ((int*)tile)[i] = 1; \
    __syncthreads(); \
    unsigned int address = (unsigned int)__cvta_generic_to_shared(tile) + at[threadIdx.x]
extern "C" __global__ void matrix_1(const int* at, int* out) {
    TILE;
    int a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(address));
    out[threadIdx.x] = a;
}
#define MATRIX_2(NAME, PTX) \
    extern "C" __global__ void NAME(const int* at, int* out) { \
        TILE; \
        int a, b; \
        asm volatile(PTX " {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address)); \
        out[threadIdx.x] = a + b; \
    }
MATRIX_2(matrix_2, "ldmatrix.sync.aligned.m8n8.x2.shared.b16")
MATRIX_2(matrix_2_trans, "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16")
#define MATRIX_4(NAME, PTX) \
    extern "C" __global__ void NAME(const int* at, int* out) { \
        TILE; \
        int a, b, c, d; \
        asm volatile(PTX " {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address)); \
        out[threadIdx.x] = a + b + c + d; \
    }
MATRIX_4(matrix_4, "ldmatrix.sync.aligned.m8n8.x4.shared.b16")
MATRIX_4(matrix_4_trans, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16")
// Thread i copies from byte from[i] of `in` to byte at[i] of shared memory; a negative `from` sits out.
#define COPY(NAME, ...) \
    extern "C" __global__ void NAME(const int* in, const int* from, const int* at, int* out) { \
        TILE; \
        int mine = from[threadIdx.x]; \
        if (mine >= 0) { \
            unsigned long long source = (unsigned long long)__cvta_generic_to_global(in) + mine; \
            asm volatile(__VA_ARGS__ ::"r"(address), "l"(source) : "memory"); \
        } \
        asm volatile("cp.async.wait_all;" ::: "memory"); \
        __syncthreads(); \
        out[threadIdx.x] = ((volatile int*)tile)[threadIdx.x]; \
    }
COPY(copy_4, "cp.async.ca.shared.global [%0], [%1], 4;")
COPY(copy_8, "cp.async.ca.shared.global [%0], [%1], 8;")
COPY(copy_16, "cp.async.ca.shared.global [%0], [%1], 16;")
COPY(copy_16_bypass, "cp.async.cg.shared.global [%0], [%1], 16;")
COPY(copy_16_none, "cp.async.cg.shared.global [%0], [%1], 16, 0;")
COPY(copy_16_part, "cp.async.cg.shared.global [%0], [%1], 16, 4;")
COPY(copy_4_none, "cp.async.ca.shared.global [%0], [%1], 4, 0;")
// The bytes that are read come from a table: the rest becomes zero.
#define COPY_SOME(NAME, PTX) \
    extern "C" __global__ void NAME(const int* in, const int* from, const int* at, const int* sizes) { \
        TILE; \
        int mine = from[threadIdx.x], size = sizes[threadIdx.x]; \
        if (mine >= 0) { \
            unsigned long long source = (unsigned long long)__cvta_generic_to_global(in) + mine; \
            asm volatile(PTX ::"r"(address), "l"(source), "r"(size) : "memory"); \
        } \
        asm volatile("cp.async.wait_all;" ::: "memory"); \
    }
COPY_SOME(copy_16_some, "cp.async.cg.shared.global [%0], [%1], 16, %2;")
COPY_SOME(copy_4_some, "cp.async.ca.shared.global [%0], [%1], 4, %2;")
// Locals that are indexed lie in local memory: a thread writes 64 words and reads 8.
extern "C" __global__ void locals(const int* at, int* out) {
    int stack[64];
    for (int i = 0; i < 64; i++) stack[i] = i * threadIdx.x + at[i & 31];
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += stack[(at[threadIdx.x] + i * 7) & 63];
    out[threadIdx.x] = sum;
}
extern "C" __global__ void locals_8(const int* at, int* out) {
    int2 stack[64];
#pragma unroll 1
    for (int i = 0; i < 64; i++) stack[(i * 5 + at[0]) & 63] = make_int2(i * threadIdx.x, at[i & 31]);
    int2 v = stack[at[threadIdx.x] & 63];
    out[threadIdx.x] = v.x + v.y;
}
extern "C" __global__ void locals_16(const int* at, int* out) {
    int4 stack[64];
#pragma unroll 1
    for (int i = 0; i < 64; i++) stack[(i * 5 + at[0]) & 63] = make_int4(i * threadIdx.x, at[i & 31], i, at[0]);
    int4 v = stack[at[threadIdx.x] & 63];
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
extern "C" __global__ void locals_1(const int* at, int* out) {
    signed char stack[64];
    for (int i = 0; i < 64; i++) stack[i] = (signed char)(i * threadIdx.x);
    out[threadIdx.x] = stack[at[threadIdx.x] & 63];
}
