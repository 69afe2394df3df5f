// The kernel `walk` of lesson 11 for 2^28 floats, for Nsight Compute (see README.md in this folder): once in random order,
// then with lanes 1, 2, 4 … 64 floats apart.
#include <random>
#include <vector>

extern "C" __global__ void walk(const float *a, float *sums, int apart, int bits) {
    unsigned threads = 1u << bits; // of the whole grid
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, at;
    if (apart >= 0) { // the bits of t, turned round: 2^apart elements from lane to lane
        at = (t << apart | t >> (bits - apart)) & (threads - 1);
    } else { // scrambled: odd factors and folding meet each number once
        at = t * 0x2C1B3C6Du & (threads - 1);
        at = (at ^ at >> 13) * 0x297A2D39u & (threads - 1);
        at ^= at >> 13;
    }
    float sum = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < 16; ++k) { sum += a[k * threads + at]; }
    sums[t] = sum;
}

int main() {
    const int BITS = 24;
    const size_t THREADS = 1 << BITS, N = 16 * THREADS;
    std::vector<float> numbers(N);
    std::mt19937 random(1);
    for (float &x : numbers) { x = (random() >> 8) * (1.0f / (1 << 23)) - 1.0f; }
    float *a, *sums;
    cudaMalloc(&a, N * sizeof(float));
    cudaMalloc(&sums, THREADS * sizeof(float));
    cudaMemcpy(a, numbers.data(), N * sizeof(float), cudaMemcpyHostToDevice);
    for (int apart = -1; apart <= 6; ++apart) { walk<<<THREADS / 256, 256>>>(a, sums, apart, BITS); }
    return cudaDeviceSynchronize();
}
