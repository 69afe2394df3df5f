// Calls through pointers: virtual functions, a table, a comparison handed over, one that goes nowhere.
struct Shape { __device__ virtual float area() const { return 0; } };
struct Square : Shape { float a; __device__ float area() const override { return a * a; } };
struct Circle : Shape { float r; __device__ float area() const override { return 3 * r * r; } };
extern "C" __global__ void shapes(float* out) {
    Square s; s.a = threadIdx.x; Circle c; c.r = threadIdx.x + 1; Shape none;
    Shape* p = threadIdx.x % 3 == 0 ? (Shape*)&s : threadIdx.x % 3 == 1 ? (Shape*)&c : &none;
    out[threadIdx.x] = p->area();
}
typedef float (*Function)(float);
__device__ float twice(float x) { return 2 * x; }
__device__ float squared(float x) { return x * x; }
__device__ float fourth(float x) { return squared(x) * squared(x); }
__device__ Function table[3] = {twice, squared, fourth};
extern "C" __global__ void tables(float* out) {
    float x = threadIdx.x;
    for (int i = 0; i < threadIdx.x % 4; i++) x = table[(threadIdx.x + i) % 3](x) / 8;
    out[threadIdx.x] = x;
}
__device__ int up(int a, int b) { return a < b; }
__device__ int down(int a, int b) { return a > b; }
__device__ __noinline__ int best(const int* x, int n, int (*before)(int, int)) {
    int found = x[0];
    for (int i = 1; i < n; i++) if (before(x[i], found)) found = x[i];
    return found;
}
extern "C" __global__ void ends(const int* in, int* out) {
    out[threadIdx.x] = best(in + threadIdx.x, 5, threadIdx.x & 1 ? up : down);
}
extern "C" __global__ void nowhere(Function f, float* out) { out[threadIdx.x] = f(1.0f) + table[0](1.0f); }
