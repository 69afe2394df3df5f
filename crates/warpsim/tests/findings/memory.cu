// Planted mistakes with addresses and values. Each kernel makes one; the line that makes it is marked.
#define KERNEL extern "C" __global__ void
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
KERNEL no_guard(const float* in, float* out) {
    int i = INDEX;
    out[i] = in[i] * 2;  // reads past the end
}
KERNEL write_past_end(const float* in, float* out, int n) {
    int i = INDEX;
    if (i <= n) out[i] = 1 + in[0];  // one too many
}
KERNEL negative_index(const int* in, int* out) {
    int i = INDEX;
    out[i] = in[i - 1];  // thread 0
}
KERNEL right_neighbour(const float* in, float* out, int n) {
    int i = INDEX;
    if (i < n) out[i] = 0.5f * (in[i] + in[i + 1]);  // the last thread
}
KERNEL swapped_axes(int* out, const int* in, int width, int height) {
    int x = threadIdx.x, y = blockIdx.x;
    if (x < width && y < height) out[y * width + x] = in[x * width + y];  // x * height + y was meant
}
KERNEL null_pointer(const int* in, int* out) {
    int i = INDEX;
    out[i] = in[i];  // in is null
}
KERNEL bytes_for_elements(int* out, int bytes) {
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = i;  // the count is in bytes
}
KERNEL atomic_outside(const int* in, int* bins, int n) {
    int i = INDEX;
    if (i < n) atomicAdd(&bins[in[i]], 1);  // a value above the number of bins
}
KERNEL misaligned_word(const char* in, int* out) {
    int i = INDEX;
    out[i] = *(const int*)(in + 4 * i + 2);  // two bytes too far
}
KERNEL misaligned_vector(const float* in, float4* out) {
    int i = INDEX;
    out[i] = *(const float4*)(in + 4 * i + 1);  // 16 bytes from a multiple of 4
}
KERNEL misaligned_store(char* out, double x) {
    int i = INDEX;
    *(double*)(out + 8 * i + 4) = x;  // 8 bytes at a multiple of 4
}
KERNEL shared_overrun(int* out) {
    __shared__ int words[64];
    int t = threadIdx.x;
    words[t] = t;
    __syncthreads();
    if (t < 32) words[t + 33] = -t;  // the last lane
    __syncthreads();
    out[t] = words[63 - t];
}
KERNEL small_dynamic(int* out) {
    extern __shared__ int scratch[];
    scratch[threadIdx.x] = threadIdx.x;  // more threads than words were asked for
    __syncthreads();
    if (threadIdx.x == 0) out[0] = scratch[0];
}
KERNEL local_overrun(int* out, int n) {
    int words[16];
    for (int k = 0; k < 16; k++) words[k] = k * n;
    for (int k = 0; k < 16; k++) words[words[k] & 15] += k;
    out[threadIdx.x] = words[n];  // n is far outside
}
KERNEL unwritten(const float* in, float* out, int n) {
    int i = INDEX;
    if (i < n) out[i] = in[i] + 1;  // nobody filled in
}
KERNEL half_filled(const short* in, short* out, int n) {
    int i = INDEX;
    if (i < n) out[i] = in[i] + 1;  // the second half of in has no value
}
KERNEL sum_onto_nothing(const float* in, float* sums, int n) {
    int i = INDEX;
    if (i < n) sums[i] += in[i];  // sums were never set to zero
}
KERNEL count_onto_nothing(const int* in, int* count, int n) {
    int i = INDEX;
    if (i < n && in[i] == 0) atomicAdd(count, 1);  // the counter was never set to zero
}
KERNEL hole(int* scratch, int* out, int n) {
    int t = threadIdx.x;
    if (t != n) scratch[t] = t;
    __syncthreads();
    out[t] = scratch[t ^ 1];  // the word of thread n
}
KERNEL shared_unwritten(int* out) {
    __shared__ int words[64];
    if (threadIdx.x < 32) words[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = words[63 - threadIdx.x];  // the upper half
}
KERNEL sum_in_shared(const int* in, int* out) {
    __shared__ int sum;
    atomicAdd(&sum, in[threadIdx.x]);  // sum was never set to zero
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum;
}
