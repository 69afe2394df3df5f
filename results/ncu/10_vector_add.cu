// The two kernels of lesson 10 at 2^26 elements, once each, for Nsight Compute (see README.md in this folder).
extern "C" __global__ void neighbours(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { c[i] = a[i] + b[i]; }
}

extern "C" __global__ void pieces(const float *a, const float *b, float *c, int n) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    for (int i = first; i < first + 32 && i < n; ++i) { c[i] = a[i] + b[i]; }
}

int main() {
    int n = 1 << 26;
    size_t bytes = sizeof(float) * n;
    float *a, *b, *c;
    cudaMalloc(&a, bytes);
    cudaMalloc(&b, bytes);
    cudaMalloc(&c, bytes);
    cudaMemset(a, 0, bytes);
    cudaMemset(b, 0, bytes);
    neighbours<<<(n + 255) / 256, 256>>>(a, b, c, n);
    pieces<<<(n / 32 + 255) / 256, 256>>>(a, b, c, n);
    return cudaDeviceSynchronize();
}
