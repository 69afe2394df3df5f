// cuBLAS's bf16 matrix product, for `examples/record_matmul_bf16` to time beside the course's own kernels.
// Build: nvcc -O3 -shared -Xcompiler -fPIC env/peers/cublas_bf16.cu -lcublas -o libcublas_peer.so
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <vector>

struct Set {
    void *a, *b, *c;
};

static std::vector<Set> sets;
static cublasHandle_t handle;
static int rows, columns, inner;

static int copied(void **to, const void *from, size_t bytes) {
    cudaError_t error = cudaMalloc(to, bytes);
    return error == cudaSuccess && from ? cudaMemcpy(*to, from, bytes, cudaMemcpyHostToDevice) : error;
}

// Copies `count` pairs of row-major matrices to the GPU, a (m × k) and b (k × n) in turns; 0, or an error.
extern "C" int peer_open(const unsigned short *const *host, int count, int m, int n, int k) {
    for (Set &set : sets) {
        cudaFree(set.a);
        cudaFree(set.b);
        cudaFree(set.c);
    }
    sets.clear();
    rows = m, columns = n, inner = k;
    int error = handle ? 0 : cublasCreate(&handle);
    for (int i = 0; i < count && error == 0; ++i) {
        Set set = {};
        error = copied(&set.a, host[2 * i], (size_t)m * k * 2);
        error = error ? error : copied(&set.b, host[2 * i + 1], (size_t)k * n * 2);
        error = error ? error : copied(&set.c, nullptr, (size_t)m * n * 2);
        sets.push_back(set);
    }
    return error;
}

// Queues one product on the default stream; sums in fp32. cuBLAS counts by columns: to it, row-major c = a · b is
// transposed c = transposed b · transposed a, with nothing to transpose. 0, or an error.
extern "C" int peer_run(int call) {
    const Set &set = sets[call % sets.size()];
    float one = 1, zero = 0;
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, inner, &one, set.b, CUDA_R_16BF, columns, set.a,
                        CUDA_R_16BF, inner, &zero, set.c, CUDA_R_16BF, columns, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// The first set's product. 0, or an error.
extern "C" int peer_result(unsigned short *to) {
    return cudaMemcpy(to, sets[0].c, (size_t)rows * columns * 2, cudaMemcpyDeviceToHost);
}
