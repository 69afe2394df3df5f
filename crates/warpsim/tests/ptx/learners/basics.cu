// Kernels as learners write them: integers, shared memory, warps.
extern "C" __global__ void histogram(const unsigned char* data, unsigned int* bins, int n) {
    __shared__ unsigned int local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
extern "C" __global__ void scan(const int* in, int* out, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x;
    s[t] = t < n ? in[t] : 0;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        int v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    if (t < n) out[t] = s[t];
}
extern "C" __global__ void stencil(const float* in, float* out, int n) {
    __shared__ float tile[128 + 6];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x + 3;
    tile[t] = i < n ? in[i] : 0.0f;
    if (threadIdx.x < 3) {
        tile[t - 3] = i >= 3 ? in[i - 3] : 0.0f;
        tile[t + blockDim.x] = i + blockDim.x < n ? in[i + blockDim.x] : 0.0f;
    }
    __syncthreads();
    float sum = 0;
    #pragma unroll
    for (int k = -3; k <= 3; k++) sum += tile[t + k];
    if (i < n) out[i] = sum;
}
extern "C" __global__ void bitonic(int* data) {
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = data[t];
    __syncthreads();
    for (int k = 2; k <= 256; k <<= 1)
        for (int j = k >> 1; j > 0; j >>= 1) {
            int other = t ^ j;
            if (other > t) {
                bool up = (t & k) == 0;
                if ((s[t] > s[other]) == up) { int x = s[t]; s[t] = s[other]; s[other] = x; }
            }
            __syncthreads();
        }
    data[t] = s[t];
}
extern "C" __global__ void search(const char* text, int n, const char* what, int m, int* found) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > n - m) return;
    for (int k = 0; k < m; k++) if (text[i + k] != what[k]) return;
    atomicMin(found, i);
}
extern "C" __global__ void xorshift(unsigned int* out, int n, unsigned int seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned int x = seed ^ (i * 2654435761u);
    for (int k = 0; k < 10; k++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
    out[i] = x;
}
extern "C" __global__ void mandelbrot(int* out, int w, int h, int most) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float cr = -2.0f + 3.0f * x / w, ci = -1.5f + 3.0f * y / h, zr = 0, zi = 0;
    int i = 0;
    while (i < most && zr * zr + zi * zi < 4.0f) {
        float t = zr * zr - zi * zi + cr;
        zi = 2 * zr * zi + ci;
        zr = t;
        i++;
    }
    out[y * w + x] = i;
}
extern "C" __global__ void nbody(const float4* bodies, float4* force, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ float4 tile[64];
    float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float3 a = make_float3(0, 0, 0);
    for (int base = 0; base < n; base += 64) {
        if (base + threadIdx.x < n) tile[threadIdx.x] = bodies[base + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 64 && base + j < n; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), s = tile[j].w * r * r * r;
            a.x += dx * s; a.y += dy * s; a.z += dz * s;
        }
        __syncthreads();
    }
    if (i < n) force[i] = make_float4(a.x, a.y, a.z, 0);
}
extern "C" __global__ void life(const unsigned char* in, unsigned char* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    int count = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) count += in[(y + dy + h) % h * w + (x + dx + w) % w];
    out[y * w + x] = count == 3 || (count == 2 && in[y * w + x]);
}
extern "C" __global__ void dot(const float* a, const float* b, float* out, int n) {
    float s = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) s += __ldg(a + i) * __ldg(b + i);
    for (int o = 16; o > 0; o /= 2) s += __shfl_down_sync(0xffffffffu, s, o);
    __shared__ float part[32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int o = 16; o > 0; o /= 2) s += __shfl_xor_sync(0xffffffffu, s, o);
        if (threadIdx.x == 0) atomicAdd(out, s);
    }
}
extern "C" __global__ void compact(const int* in, int* out, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool keep = i < n && in[i] % 3 == 0;
    unsigned mask = __ballot_sync(0xffffffffu, keep);
    int lane = threadIdx.x & 31, base = 0;
    if (lane == 0) base = atomicAdd(count, __popc(mask));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (keep) out[base + __popc(mask & ((1u << lane) - 1))] = in[i];
}
__device__ float atomicMaxFloat(float* at, float x) {
    int* p = (int*)at; int old = *p, seen;
    do { seen = old; old = atomicCAS(p, seen, __float_as_int(fmaxf(x, __int_as_float(seen)))); } while (seen != old);
    return __int_as_float(old);
}
extern "C" __global__ void max_float(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicMaxFloat(out, in[i]);
}
__constant__ float weights[5] = {1, 4, 6, 4, 1};
extern "C" __global__ void blur(const float* in, float* out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float s = 0, t = 0;
    for (int k = -2; k <= 2; k++) {
        int c = min(max(x + k, 0), w - 1);
        s += weights[k + 2] * in[y * w + c];
        t += weights[k + 2];
    }
    out[y * w + x] = s / t;
}
extern "C" __global__ void volume(int* out, int3 size) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < size.x && y < size.y && z < size.z) out[(z * size.y + y) * size.x + x] = x + 10 * y + 100 * z;
}
extern "C" __global__ void calculator(const char* ops, const long long* a, const long long* b, long long* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i], r;
    switch (ops[i]) {
        case '+': r = x + y; break;
        case '-': r = x - y; break;
        case '*': r = x * y; break;
        case '/': r = y ? x / y : 0; break;
        case '%': r = y ? x % y : 0; break;
        case '&': r = x & y; break;
        case '<': r = x << (y & 63); break;
        case '>': r = x >> (y & 63); break;
        case 'u': r = (unsigned long long)x / (unsigned long long)(y ? y : 1); break;
        case 'h': r = __mul64hi(x, y); break;
        default: r = -1;
    }
    out[i] = r;
}
template <int N> struct Matrix { float v[N][N]; };
extern "C" __global__ void by_value(Matrix<3> m, const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int r = 0; r < 3; r++) {
        float s = 0;
        for (int c = 0; c < 3; c++) s += m.v[r][c] * in[i * 3 + c];
        out[i * 3 + r] = s;
    }
}
extern "C" __global__ void local_sort(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i * 8 >= n) return;
    int v[8];
    for (int k = 0; k < 8; k++) v[k] = data[i * 8 + k];
    for (int k = 1; k < 8; k++) {
        int x = v[k], j = k - 1;
        while (j >= 0 && v[j] > x) { v[j + 1] = v[j]; j--; }
        v[j + 1] = x;
    }
    for (int k = 0; k < 8; k++) data[i * 8 + k] = v[k];
}
extern "C" __global__ void primes(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int p = i >= 2;
    for (int d = 2; d * d <= i; d++) if (i % d == 0) { p = 0; break; }
    out[i] = p;
}
extern "C" __global__ void gcd(const unsigned* a, const unsigned* b, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    while (y) { unsigned t = x % y; x = y; y = t; }
    out[i] = x;
}
extern "C" __global__ void collatz_most(int* best, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x + 1;
    if (i > n) return;
    long long x = i; int steps = 0;
    while (x != 1) { x = (x & 1) ? 3 * x + 1 : x >> 1; steps++; }
    atomicMax(best, steps);
}
extern "C" __global__ void crc32(const unsigned char* data, int each, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned c = ~0u;
    for (int k = 0; k < each; k++) { c ^= data[i * each + k]; for (int b = 0; b < 8; b++) c = c & 1 ? (c >> 1) ^ 0xedb88320u : c >> 1; }
    out[i] = ~c;
}
extern "C" __global__ void reduce_last_block(const int* in, int* partial, unsigned* done, int* out, int n) {
    __shared__ int s[64];
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) { if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d]; __syncthreads(); }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(done, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) { int t = 0; for (int b = 0; b < gridDim.x; b++) t += ((volatile int*)partial)[b]; *out = t; }
}
#include <cuda_fp16.h>
extern "C" __global__ void axpy_half2(const half2* x, half2* y, half a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half2 s = __half2half2(a);
    if (i < n) y[i] = __hfma2(s, x[i], y[i]);
}
extern "C" __global__ void half_math(const half* x, half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    half v = x[i];
    half r = hexp(v) + hsin(v) * hsqrt(__habs(v)) - htanh(v) / (half)2.0f + hlog(__habs(v) + (half)1.0f) + hrcp(v+(half)3.f) + hfloor(v) + hrint(v);
    if (v > (half)0.5f && !__hisnan(v)) r = __hmin(r, (half)9.0f);
    if (__hbne2(__half2half2(v),__half2half2(r))) r = r + (half)(float)(int)(short)v;
    half2 p = __hgt2(__halves2half2(v, r), __float2half2_rn(0.25f));
    y[i] = r + __low2half(p) + __high2half(p);
}
