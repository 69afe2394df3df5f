// Kernels that are right, and look like mistakes: no tool and no check may say a word.
#define KERNEL extern "C" __global__ void
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
KERNEL add(const float* a, const float* b, float* out, int n) {
    int i = INDEX;
    if (i < n) out[i] = a[i] + b[i];
}
KERNEL grid_stride(const float* in, float* out, int n) {
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) out[i] = 2 * in[i];
}
KERNEL matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float x[16][16], y[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        int right = k + threadIdx.x, down = k + threadIdx.y;
        x[threadIdx.y][threadIdx.x] = row < n && right < n ? a[row * n + right] : 0;
        y[threadIdx.y][threadIdx.x] = down < n && column < n ? b[down * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += x[threadIdx.y][i] * y[i][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}
KERNEL tree(const int* in, int* out) {
    __shared__ int sums[128];
    int t = threadIdx.x;
    sums[t] = in[t];
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) out[0] = sums[0];
}
KERNEL warp_sums(const int* in, int* out) {
    __shared__ int sums[4];
    int x = in[INDEX];
    for (int step = 16; step > 0; step /= 2) x += __shfl_down_sync(0xffffffffu, x, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
}
KERNEL histogram(const int* in, int* bins, int n) {
    __shared__ int mine[32];
    if (threadIdx.x < 32) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = INDEX; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[in[i] & 31], 1);
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
KERNEL transpose(const float* in, float* out) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32, y = blockIdx.y * 32, width = gridDim.x * 32, height = gridDim.y * 32;
    for (int k = threadIdx.y; k < 32; k += 8) tile[k][threadIdx.x] = in[(y + k) * width + x + threadIdx.x];
    __syncthreads();
    for (int k = threadIdx.y; k < 32; k += 8) out[(x + k) * height + y + threadIdx.x] = tile[threadIdx.x][k];
}
// Threads without work are gone before the barrier.
KERNEL early_return(const int* in, int* out, int n) {
    __shared__ int words[128];
    int i = INDEX;
    if (i >= n) return;
    words[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = words[threadIdx.x ^ 1];
}
// The block that finishes last adds what all have written.
KERNEL last_block(const int* in, volatile int* partial, int* out, unsigned* done) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = in[blockIdx.x];
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        int sum = 0;
        for (int b = 0; b < gridDim.x; b++) sum += partial[b];
        out[0] = sum;
    }
}
KERNEL stencil(const float* in, float* out, int n) {
    __shared__ float tile[130];
    int t = threadIdx.x, i = INDEX;
    tile[t + 1] = i < n ? in[i] : 0;
    if (t == 0) tile[0] = i > 0 ? in[i - 1] : 0;
    if (t == 127) tile[129] = i + 1 < n ? in[i + 1] : 0;
    __syncthreads();
    if (i < n) out[i] = tile[t] + tile[t + 1] + tile[t + 2];
}
// Neighbouring bytes of one word belong to different threads and blocks.
KERNEL letters(unsigned char* text) {
    __shared__ unsigned char mine[33];
    mine[threadIdx.x] = 'a' + threadIdx.x % 26;
    __syncthreads();
    text[blockIdx.x * 33 + threadIdx.x] = mine[32 - threadIdx.x];
}
KERNEL two_arrays(const int* in, float* out) {
    extern __shared__ int words[];
    float* halves = (float*)(words + blockDim.x);
    words[threadIdx.x] = in[threadIdx.x];
    halves[threadIdx.x] = 0.5f * in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x] + halves[threadIdx.x ^ 1];
}
KERNEL scan(const int* in, int* out) {
    __shared__ int sums[2][128];
    int t = threadIdx.x, now = 0;
    sums[0][t] = in[t];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        sums[1 - now][t] = sums[now][t] + (t >= step ? sums[now][t - step] : 0);
        now = 1 - now;
        __syncthreads();
    }
    out[t] = sums[now][t];
}
