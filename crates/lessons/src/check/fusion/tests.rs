//! Right kernels pass, and each wrong one is told what is wrong with it.

use super::*;
use crate::check::kernels::expect;

const SWIGLU: &str =
    "extern \"C\" __global__ void swiglu(const float *gate, const float *up, float *t, float *y, int n) {
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < n; i += gridDim.x * blockDim.x) {
        float g = gate[i];
        y[i] = g / (1.0f + expf(-g)) * up[i];
    }
}";

const LOG_SUM_EXP: &str = "extern \"C\" __global__ void log_sum_exp(const float *x, float *y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) { return; }
    float most = -3.4e38f, sum = 0.0f;
    for (int column = 0; column < columns; ++column) {
        float own = x[column * rows + row];
        float larger = fmaxf(most, own);
        sum = sum * expf(most - larger) + expf(own - larger);
        most = larger;
    }
    y[row] = most + logf(sum);
}";

#[test]
fn swiglu_knows_its_mistakes() {
    expect(
        swiglu,
        SWIGLU,
        &[
            // Through memory, as two kernels would.
            (
                "y[i] = g / (1.0f + expf(-g)) * up[i];",
                "t[i] = g / (1.0f + expf(-g)); __threadfence_block(); y[i] = ((volatile float *)t)[i] * up[i];",
                "49152 bytes are read and 32768 written, 32768 and 16384 would do\nhint: what one step leaves",
            ),
            ("* up[i]", "", "it may be one formula"),
            ("i < n", "i < (n + 31) / 32 * 32", "is there one?"),
            ("int first = ", "int first = 0 * ", "steps of all threads"),
            ("i += gridDim.x * blockDim.x", "i += 4096", "was never written"),
            ("y[i] = g", "y[i] = 0.0f; __threadfence_block(); y[i] = g", "write each result once"),
            (
                "float g = gate[i];",
                "float g = gate[i]; __threadfence_block(); g = 0.5f * (g + ((volatile const float *)gate)[i]);",
                "can stay in a register",
            ),
        ],
    );
}

#[test]
fn log_sum_exp_knows_its_mistakes() {
    expect(
        log_sum_exp,
        LOG_SUM_EXP,
        &[
            ("sum * expf(most - larger)", "sum", "by what factor must it shrink"),
            ("expf(own - larger)", "expf(own)", "by what factor"),
            ("float larger = fmaxf(most, own);", "float larger = 0.0f;", "exp(10000) is infinite"),
            ("x[column * rows + row]", "x[row * columns + column]", "the table lies column by column"),
            ("most = -3.4e38f", "most = 0.0f", "which maximum does an empty row have"),
            ("if (row >= rows) { return; }", "", "is there one?"),
            (
                "if (row >= rows) { return; }",
                "if (row >= rows) { return; } if (rows == 512) { row = row * 129 % 512; }",
                "hint: neighbouring threads are to read neighbouring numbers",
            ),
            // Two looks at each number: first for the maximum.
            (
                "for (int column = 0",
                "for (int column = 0; column < columns; ++column) { most = fmaxf(most, x[column * rows + row]); }
                 for (int column = 0",
                "409600 bytes are read and 2048 written, 204800 and 2048 would do\nhint: each number need be read once",
            ),
        ],
    );
}
