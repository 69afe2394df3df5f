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

// exercise: padding
const PADDING: &str = r#"extern "C" __global__ void gather(const float *table, const int *index, float *out, int count, int width, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * width) {
        int row = index[i / width];
        // Only one side of the ?: runs, so what is outside is not read.
        out[i] = 0 <= row && row < rows ? table[row * width + i % width] : 0.0f;
    }
}"#;

// exercise: backward
const BACKWARD: &str = r#"extern "C" __global__ void backward(float *grad_table, const int *index, const float *grad_out, int count, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * width) {
        // Nobody can come between the read and the write of an atomic addition.
        atomicAdd(&grad_table[index[i / width] * width + i % width], grad_out[i]);
    }
}"#;
