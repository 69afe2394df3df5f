// Solutions of lesson 12c: each section replaces the exercise cell of that name.

// exercise: mma_tile
// Rows of 24 numbers are 48 bytes: eight of them begin in eight different groups of four banks.
const TILE: &str = r#"#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
extern "C" __global__ void mma_tile(const bf16 *a, const bf16 *b, float *c, int m, int n, int k) {
    __shared__ __align__(16) bf16 a_tile[16][24], b_tile[16][8];
    int lane = threadIdx.x, row0 = blockIdx.y * 16, column0 = blockIdx.x * 8;
    float sum[4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = lane; i < 256; i += 32) a_tile[i / 16][i % 16] = row0 + i / 16 < m && k0 + i % 16 < k ? a[(row0 + i / 16) * k + k0 + i % 16] : bf16(0.0f);
        for (int i = lane; i < 128; i += 32) b_tile[i / 8][i % 8] = k0 + i / 8 < k && column0 + i % 8 < n ? b[(k0 + i / 8) * n + column0 + i % 8] : bf16(0.0f);
        __syncwarp(); // filled
        unsigned x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"((unsigned)__cvta_generic_to_shared(&a_tile[lane % 16][lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1])
                     : "r"((unsigned)__cvta_generic_to_shared(&b_tile[lane % 16][0])));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp(); // used
    }
    for (int i = 0; i < 4; ++i) {
        int row = row0 + lane / 4 + i / 2 * 8, column = column0 + lane % 4 * 2 + i % 2;
        if (row < m && column < n) c[row * n + column] = sum[i];
    }
}"#;

// exercise: first_bank
// Piece 3 XOR 5 = 6, so byte 5 · 128 + 6 · 16 = 736 of the tile, word 184, bank 184 mod 32.
let my_bank: Option<u32> = Some(24);

// exercise: error_suspect
let my_fault = check::Fault::RoundedSums;
let my_growth: Option<f64> = Some(check::ErrorSuspect.error(1024, false)? / check::ErrorSuspect.error(64, false)?);
