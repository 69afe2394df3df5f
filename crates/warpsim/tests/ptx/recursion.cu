// Functions that call themselves.
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void fibonacci(int* out) { out[threadIdx.x] = fib(threadIdx.x % 11); }
__device__ __noinline__ int acker(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return acker(m - 1, 1);
    return acker(m - 1, acker(m, n - 1));
}
extern "C" __global__ void ackermann(int* out) { out[threadIdx.x] = acker(threadIdx.x % 3, threadIdx.x / 3); }
__device__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 || odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n != 0 && even(n - 1); }
extern "C" __global__ void parity(int* out) { out[threadIdx.x] = odd(threadIdx.x); }
struct Move { int from, to, by; };
__device__ __noinline__ int hanoi(int n, Move m) {
    if (n == 0) return 0;
    Move first = {m.from, m.by, m.to}, last = {m.by, m.to, m.from};
    int before = hanoi(n - 1, first);
    return before + n * (10 * m.from + m.to) + hanoi(n - 1, last);
}
extern "C" __global__ void towers(int* out) {
    Move m = {1, 3, 2};
    out[threadIdx.x] = hanoi(threadIdx.x % 7, m);
}
__device__ __noinline__ int tree(int n) {
    if (n == 7) asm volatile("exit;");
    if (n <= 0) return 1;
    int sum = 0;
    for (int k = 1; k <= 3; k++) sum += k * tree(n - k);
    return sum;
}
extern "C" __global__ void trees(int* out) { out[threadIdx.x] = tree(threadIdx.x % 8); }
__device__ __noinline__ int deeper(int n, volatile int* out) { out[0] = n; return deeper(n + 1, out) + n; }
extern "C" __global__ void endless(int* out) { out[threadIdx.x] = deeper(threadIdx.x, out); }
