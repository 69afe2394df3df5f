// Access patterns whose counters theory gives.
extern "C" __global__ void strided(const float* in, float* out, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * stride];
}
extern "C" __global__ void shifted(const float* in, float* out, int offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i + offset];
}
extern "C" __global__ void vector4(const float4* in, float4* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = in[i];
    out[i] = make_float4(v.w, v.z, v.y, v.x);
}
extern "C" __global__ void gather(const float* in, const int* index, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[index[i]];
}
extern "C" __global__ void bank_stride(float* out, int stride) {
    extern __shared__ float words[];
    words[threadIdx.x * stride] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[threadIdx.x * stride];
}
// Every thread takes another number of turns; odd and even threads part ways inside.
extern "C" __global__ void divergent(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = 0;
    for (int k = 0; k <= (i & 31); k++) {
        if ((k ^ i) & 1) {
            sum += k * 3;
            if (sum > 100) sum -= i;
        } else {
            sum ^= k << 2;
        }
        if (sum == 77) break;
    }
    out[i] = sum;
}
// No bounds guard: for the finding.
extern "C" __global__ void unguarded(const float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[i] + 1.0f;
}
