// printf with every kind of argument.
extern "C" __global__ void printing(int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 3 == 0 && i < n) printf("thread %d of %s: %5.2f|%-6d|%06d|%x|%lld|%c|%%|%g|%e\n", i, "all", i * 0.5f, i, -i, 255 + i, -5000000000ll, 'a' + i, 1e-7, 12345.678);
    if (i == 1) printf("no arguments\n");
}
