// Solutions of lesson 13: each section replaces the exercise cell of that name.

// exercise: gather_four
const GATHER_FOUR: &str = r#"
// A float or a float4; n counts these.
template <typename T> __device__ void copy(const T *from, T *to, int n, int lane) {
    for (int k = lane; k < n; k += 32) {
        to[k] = from[k];
    }
}
extern "C" __global__ void gather(const float *table, const int *index, float *out, int count, int width) {
    int place = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (place < count) {
        const float *from = table + index[place] * width;
        float *to = out + place * width;
        if (width % 4 == 0) {
            copy((const float4 *)from, (float4 *)to, width / 4, lane);
        } else {
            copy(from, to, width, lane);
        }
    }
}"#;

// exercise: scatter_add
const SCATTER_ADD: &str = r#"extern "C" __global__ void scatter_add(const int *row, const int *position,
        const float *grad_out, float *grad_table, int count, int width) {
    // A warp an entry. The first entry of a row adds up all of them, in the order of the list; the others have nothing to do.
    int e = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (e >= count || (e > 0 && row[e - 1] == row[e])) { return; }
    int own = row[e];
    for (int column = lane; column < width; column += 32) {
        float sum = grad_table[own * width + column];
        for (int k = e; k < count && row[k] == own; ++k) {
            sum += grad_out[position[k] * width + column];
        }
        grad_table[own * width + column] = sum;
    }
}"#;
fn scatter_launch(count: usize, _width: usize) -> LaunchConfig {
    LaunchConfig::for_elements(32 * count, 128)
}

// exercise: straddling_rows
// Rows begin 0, 4, 8, … 60 bytes into a unit, all equally often; from 48, 52, 56 and 60 they reach into a second one.
let my_bytes_a_row: Option<f64> = Some(64.0 * 12.0 / 16.0 + 128.0 * 4.0 / 16.0);
