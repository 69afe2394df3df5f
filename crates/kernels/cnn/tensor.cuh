// What the operators of the CNN's step share: products of small matrices on tensor cores, in one of four precisions.
// PRECISION 0: f32, as three products of TF32 parts; 1: TF32; 2: bf16; 3: fp16. Sums are f32 in each.
#pragma once

typedef unsigned int u32;

// A number of as many bits as TF32 keeps, rounded to nearest.
__device__ __forceinline__ u32 tf32(float x) {
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

// Two numbers in the halves of a register, the first one low.
__device__ __forceinline__ u32 halves(float low, float high) {
    u32 both;
#if PRECISION == 2
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
    return both;
}

// What a product makes of an operand, as an f32 that needs no more rounding. PRECISION 0 keeps all of it.
__device__ __forceinline__ float rounded(float x) {
#if PRECISION == 0
    return x;
#elif PRECISION == 1
    return __uint_as_float(tf32(x));
#elif PRECISION == 2
    return __uint_as_float(halves(0.0f, x));
#else
    float wide;
    asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(wide) : "f"(x));
    return wide;
#endif
}

// The same where the product itself would not round, but cut: TF32's low bits are not looked at.
__device__ __forceinline__ float for_product(float x) {
    return PRECISION == 1 ? rounded(x) : x;
}

// N numbers of a matrix as the tensor cores take them: whole, as two TF32 parts, or two to a register.
template <int N>
struct Operand {
#if PRECISION == 0
    u32 large[N], small[N];
#elif PRECISION == 1
    u32 large[N];
#else
    u32 large[N / 2];
#endif
};

// Rows g and g + 8 of a (16 × 8), columns t and t + 4; lane = 4 g + t. The order in which columns are named is free, as
// long as it is the same for b.
__device__ __forceinline__ Operand<4> rows_of_a(float g_t, float g8_t, float g_t4, float g8_t4) {
    Operand<4> a;
#if PRECISION <= 1
    float all[4] = {g_t, g8_t, g_t4, g8_t4};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        a.large[i] = PRECISION == 0 ? tf32(all[i]) : __float_as_uint(all[i]);
#if PRECISION == 0
        a.small[i] = tf32(all[i] - __uint_as_float(a.large[i]));
#endif
    }
#else
    a.large[0] = halves(g_t, g_t4);
    a.large[1] = halves(g8_t, g8_t4);
#endif
    return a;
}

// Rows t and t + 4 of b (8 × 8), column g.
__device__ __forceinline__ Operand<2> column_of_b(float t_g, float t4_g) {
    Operand<2> b;
#if PRECISION <= 1
    float all[2] = {t_g, t4_g};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        b.large[i] = PRECISION == 0 ? tf32(all[i]) : __float_as_uint(all[i]);
#if PRECISION == 0
        b.small[i] = tf32(all[i] - __uint_as_float(b.large[i]));
#endif
    }
#else
    b.large[0] = halves(t_g, t4_g);
#endif
    return b;
}

__device__ __forceinline__ void tensor_core(float (&c)[4], const u32 *a, const u32 *b) {
#if PRECISION <= 1
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif PRECISION == 2
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
}

// c (16 × 8) += a · b. Lane 4 g + t holds rows g (c[0], c[1]) and g + 8 (c[2], c[3]), columns 2 t and 2 t + 1.
__device__ __forceinline__ void multiply_add(float (&c)[4], const Operand<4> &a, const Operand<2> &b) {
#if PRECISION == 0
    // The small ones first: what is left out, small · small, is 2^-22 of the product.
    tensor_core(c, a.small, b.large);
    tensor_core(c, a.large, b.small);
#endif
    tensor_core(c, a.large, b.large);
}

// ---- Copies to shared memory that do not wait (cp.async), 16 bytes each; `there` false: zeros.
__device__ __forceinline__ void copy_16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
