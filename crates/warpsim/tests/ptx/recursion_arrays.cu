// Each call has an array of its own.
__device__ __noinline__ int digits(int n, int* above) {
    int mine[4] = {n, n + 1, n + 2, n + 3};
    if (n <= 0) return above[n & 3];
    return digits(n - 1, mine) + mine[above[0] & 3];
}
extern "C" __global__ void arrays(int* out) { out[threadIdx.x] = digits(threadIdx.x % 5, out); }
