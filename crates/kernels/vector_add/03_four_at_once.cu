// idea: one thread loads, adds and stores four neighbouring elements: one instruction of 16 bytes in place of four.
// changed: the pointers are read as float4; the thread after the last four adds what is left over.
// constants: none; the block size is the launch's.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int fours = n / 4;
    if (i < fours) {
        // A float4 must lie at a multiple of 16 bytes; a buffer begins at a multiple of 256.
        float4 x = ((const float4 *)a)[i];
        float4 y = ((const float4 *)b)[i];
        ((float4 *)c)[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    } else if (i == fours) {
        for (int left = 4 * fours; left < n; ++left) {
            c[left] = a[left] + b[left];
        }
    }
}
