//! Right kernels pass, and each wrong one is told what is wrong with it.

use super::*;
use crate::check::kernels::expect;

const FOUR: &str = "template <typename T> __device__ void copy(const T *from, T *to, int n, int lane) {
    for (int k = lane; k < n; k += 32) { to[k] = from[k]; }
}
extern \"C\" __global__ void gather(const float *table, const int *index, float *out, int count, int width) {
    int place = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (place < count) {
        const float *from = table + index[place] * width;
        float *to = out + place * width;
        if (width % 4 == 0) { copy((const float4 *)from, (float4 *)to, width / 4, lane); }
        else { copy(from, to, width, lane); }
    }
}";

const PADDING: &str =
    "extern \"C\" __global__ void gather(const float *table, const int *index, float *out, int count, int width, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * width) {
        int row = index[i / width];
        out[i] = 0 <= row && row < rows ? table[row * width + i % width] : 0.0f;
    }
}";

const BACKWARD: &str =
    "extern \"C\" __global__ void backward(float *grad_table, const int *index, const float *grad_out, int count, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * width) { atomicAdd(&grad_table[index[i / width] * width + i % width], grad_out[i]); }
}";

#[test]
fn gather_four_counts_instructions() {
    let narrow_loads = "for (int k = lane; k < n; k += 32) {
        T four; for (int b = 0; b < sizeof(T) / 4; ++b) { ((float *)&four)[b] = ((volatile const float *)(from + k))[b]; }
        to[k] = four; }";
    let tail = "if (width > 4) { if (lane < width % 4) { to[width / 4 * 4 + lane] = from[width / 4 * 4 + lane]; }";
    expect(
        gather_four,
        FOUR,
        &[
            ("if (width % 4 == 0)", "if (false)", "takes 4.0 store instructions"),
            ("if (width % 4 == 0)", "if (true)", "element 0 of place 0, whose index is 0, is NaN"),
            ("if (width % 4 == 0)", "if (width > 4)", "they need the loop over single floats"),
            ("if (width % 4 == 0) {", tail, "Keep the loop over single floats"),
            ("width / 4, lane", "width, lane", "every index names a row here"),
            ("width / 4, lane", "width / 8, lane", "counted in float4"),
            ("for (int k = lane; k < n; k += 32) { to[k] = from[k]; }", narrow_loads, "takes 5.0 load instructions"),
            ("place < count", "place <= count", "past the end"),
            ("index[place]", "place", "element 0 of place 1, whose index is 37"),
            ("gather(", "collect(", "no kernel `gather`"),
            ("int lane) {", "int lane {", "the compiler"),
        ],
    );
}

#[test]
fn padding_is_zero_and_not_read() {
    let chosen = "0 <= row && row < rows ? table[row * width + i % width] : 0.0f";
    expect(
        padding,
        PADDING,
        &[
            ("0 <= row && ", "", "-1 is below the first"),
            (" && row < rows", "", "`rows` is behind the last"),
            ("row < rows", "row <= rows", "`rows` is behind the last"),
            ("0 <= row", "0 < row", "these indices all name a row"),
            (": 0.0f", ": 1.0f", "and it should be 0"),
            (
                chosen,
                "table[min(max(row, 0), rows - 1) * width + i % width] * (0 <= row && row < rows)",
                "store 0.0f itself",
            ),
            (
                chosen,
                "0.0f; float x = ((volatile const float *)table)[(0 <= row && row < rows ? row : 0) * width + i % width];
                 if (0 <= row && row < rows) out[i] = x",
                "the table is read all the same",
            ),
        ],
    );
    let unsigned = PADDING.replace("0 <= row && row < rows", "(unsigned)row < (unsigned)rows");
    assert!(padding(&unsigned).passed(), "{}", padding(&unsigned).text());
}

#[test]
fn backward_adds_every_place() {
    let add = "atomicAdd(&grad_table[index[i / width] * width + i % width], grad_out[i])";
    expect(
        backward,
        BACKWARD,
        &[
            (add, "grad_table[index[i / width] * width + i % width] += grad_out[i]", "the sum of one is lost"),
            (
                add,
                "atomicExch(&grad_table[index[i / width] * width + i % width], grad_out[i])",
                "stays, and every place",
            ),
            ("index[i / width]", "i / width", "every place that names the row"),
            ("i % width", "0", "element 0 of row"),
            ("i < count * width", "i < count", "and it should be"),
        ],
    );
}
