// Integer and float arithmetic of many kinds, one result per slot of a row of 16.
extern "C" __global__ void integers(const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i];
    unsigned u = x, v = y;
    int* o = out + i * 16;
    o[0] = x + y;
    o[1] = x * y;
    o[2] = y ? (y == -1 ? -x : x / y) : 0;
    o[3] = v ? u % v : 0;
    o[4] = min(x, y);
    o[5] = max(u, v);
    o[6] = __mulhi(x, y);
    o[7] = __umulhi(u, v);
    o[8] = __popc(u) + __clz(x) * 100;
    o[9] = __brev(u);
    o[10] = __byte_perm(u, v, 0x3715);
    o[11] = (x >> (v & 31)) ^ (u >> (v & 31)) ^ (u << (v & 31));
    o[12] = __ffs(x);
    o[13] = __funnelshift_l(u, v, 13);
    o[14] = __dp4a(x, y, 7);
    o[15] = (int)(((long long)x * y) >> 20) + abs(x) + (int)((short)x) + (int)((signed char)y);
}
extern "C" __global__ void floats(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i];
    float* o = out + i * 16;
    o[0] = x / y;
    o[1] = sqrtf(fabsf(x));
    o[2] = fmaf(x, y, 1.0f);
    o[3] = __fdividef(x, y);
    o[4] = expf(x);
    o[5] = logf(fabsf(x) + 1.0f);
    o[6] = sinf(x);
    o[7] = __cosf(y);
    o[8] = tanhf(x);
    o[9] = rsqrtf(fabsf(y) + 1.0f);
    o[10] = fminf(x, y) - fmaxf(x, y);
    o[11] = floorf(x) + ceilf(y) + rintf(x) + truncf(y);
    o[12] = (float)(int)x + (float)(unsigned)fabsf(y);
    o[13] = (float)((double)x * (double)y + 0.5);
    o[14] = __expf(x);
    o[15] = powf(fabsf(x) + 0.5f, 1.5f);
}
extern "C" __global__ void doubles(const double* a, const double* b, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i];
    double* o = out + i * 8;
    o[0] = x + y;
    o[1] = x * y - 1.0;
    o[2] = x / y;
    o[3] = sqrt(fabs(x));
    o[4] = fma(x, y, x);
    o[5] = (double)(long long)x;
    o[6] = (float)x;
    o[7] = fmin(x, floor(y));
}
