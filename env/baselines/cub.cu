// The sum of CUB (part of the CUDA toolkit), for `examples/record_ladders` to time beside the course's own kernels.
// Build: nvcc -O3 -arch=native -shared -Xcompiler -fPIC env/baselines/cub.cu -o libcub_peer.so
#include <cub/cub.cuh>
#include <vector>

static std::vector<float *> arrays;
static void *scratch;
static size_t scratch_bytes;
static float *result;
static int length;

// Copies `count` arrays of `n` floats to the GPU; 0, or CUDA's error.
extern "C" int peer_open(const float *const *host, int count, int n) {
    for (float *array : arrays) {
        cudaFree(array);
    }
    arrays.clear();
    cudaFree(scratch);
    cudaFree(result);
    length = n;
    scratch_bytes = 0;
    cub::DeviceReduce::Sum(nullptr, scratch_bytes, (const float *)nullptr, (float *)nullptr, n);
    cudaError_t error = cudaMalloc(&scratch, scratch_bytes);
    if (error == cudaSuccess) {
        error = cudaMalloc(&result, sizeof(float));
    }
    for (int i = 0; i < count && error == cudaSuccess; ++i) {
        float *array = nullptr;
        error = cudaMalloc(&array, n * sizeof(float));
        if (error == cudaSuccess) {
            arrays.push_back(array);
            error = cudaMemcpy(array, host[i], n * sizeof(float), cudaMemcpyHostToDevice);
        }
    }
    return error;
}

// Queues one sum on the default stream; arrays take turns. 0, or CUDA's error.
extern "C" int peer_run(int call) {
    return cub::DeviceReduce::Sum(scratch, scratch_bytes, arrays[call % arrays.size()], result, length, 0);
}

// The last sum. 0, or CUDA's error.
extern "C" int peer_result(float *to) {
    return cudaMemcpy(to, result, sizeof(float), cudaMemcpyDeviceToHost);
}
