// A 32 by 32 tile goes through shared memory. PAD = 0: a column of the tile lies in one bank.
#define TILE 32
template <int PAD>
__device__ void transpose(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[TILE][TILE + PAD];
    int col = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    if (row < rows && col < cols) tile[threadIdx.y][threadIdx.x] = in[row * cols + col];
    __syncthreads();
    int out_col = blockIdx.y * TILE + threadIdx.x;
    int out_row = blockIdx.x * TILE + threadIdx.y;
    if (out_row < cols && out_col < rows) out[out_row * rows + out_col] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void transpose_plain(const float* in, float* out, int rows, int cols) {
    transpose<0>(in, out, rows, cols);
}
extern "C" __global__ void transpose_padded(const float* in, float* out, int rows, int cols) {
    transpose<1>(in, out, rows, cols);
}
