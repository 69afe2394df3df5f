// Functions that stay calls: with a loop, with others inside, with shared memory, with an early return.
__device__ __noinline__ float poly(float x, int n) { float s = 0; for (int i = 0; i < n; i++) s = s * x + i; return s; }
__device__ __noinline__ int collatz(int n) {
    int steps = 0;
    while (true) {
        if (n <= 1) return steps;
        n = n & 1 ? 3 * n + 1 : n / 2;
        steps++;
    }
}
struct Pair { int first; double second; };
__device__ __noinline__ Pair both(int i, float x) {
    Pair p;
    p.first = collatz(i) + 1;
    p.second = poly(x, i & 3) + collatz(i + 1);
    return p;
}
__device__ __noinline__ int neighbour(int x) {
    __shared__ int words[64];
    words[threadIdx.x] = x;
    __syncthreads();
    int y = words[threadIdx.x ^ 1];
    __syncthreads();
    return y;
}
extern "C" __global__ void calls(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int a = neighbour(i), b = neighbour(2 * i);
    if (i < n) {
        Pair p = both(i, in[i]);
        out[i] = poly(in[i], i & 7) + p.first + (float)p.second + a * 0.5f + b;
    }
}
