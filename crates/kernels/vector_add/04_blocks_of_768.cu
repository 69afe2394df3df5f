// idea: any number of threads per block gives the same result; only measuring finds the fastest.
// changed: blocks of 768 threads in place of 256; c is stored as data that nobody reads again soon.
// constants: none; the block size is the launch's: the fastest of 128 to 1024 on an H200.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int fours = n / 4;
    if (i < fours) {
        // A float4 must lie at a multiple of 16 bytes; a buffer begins at a multiple of 256.
        float4 x = ((const float4 *)a)[i];
        float4 y = ((const float4 *)b)[i];
        __stcs(&((float4 *)c)[i], make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w));
    } else if (i == fours) {
        for (int left = 4 * fours; left < n; ++left) {
            c[left] = a[left] + b[left];
        }
    }
}
