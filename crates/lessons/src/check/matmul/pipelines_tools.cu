// What `product_loop` is given: copies and products of one block's tiles, 16 × 16 numbers of a and of b a step.
class Tiles {
    float (*a_stage)[16][16], (*b_stage)[16][16];
    const float *a, *b;
    int m, n, k, *log;

    __device__ void note(int what) { if (log && threadIdx.x + threadIdx.y == 0 && log[0] < 500) log[++log[0]] = what; }

    __device__ void copy(float *to, const float *from, bool inside) {
        unsigned address = (unsigned)__cvta_generic_to_shared(to);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(inside ? 4 : 0) : "memory");
    }

  public:
    float sum = 0.0f;

    __device__ Tiles(float (*a_stage)[16][16], float (*b_stage)[16][16], const float *a, const float *b, int m, int n, int k, int *log)
        : a_stage(a_stage), b_stage(b_stage), a(a), b(b), m(m), n(n), k(k), log(log) {}

    // Starts copying that step's tiles into stage 0 or 1, as one group, and does not wait.
    __device__ void fetch(int step, int stage) {
        note(1000 + 2 * step + stage);
        int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
        int k_a = step * 16 + threadIdx.x, k_b = step * 16 + threadIdx.y;
        bool a_inside = row < m && k_a < k, b_inside = k_b < k && column < n;
        copy(&a_stage[stage][threadIdx.y][threadIdx.x], a_inside ? a + row * k + k_a : a, a_inside);
        copy(&b_stage[stage][threadIdx.y][threadIdx.x], b_inside ? b + k_b * n + column : b, b_inside);
        asm volatile("cp.async.commit_group;");
    }
    // Waits until this thread's groups have arrived: all of them, or all but the youngest.
    __device__ void wait_all() { note(100); asm volatile("cp.async.wait_group 0;" ::: "memory"); }
    __device__ void wait_all_but_one() { note(101); asm volatile("cp.async.wait_group 1;" ::: "memory"); }

    // Adds the product of that stage's tiles to this thread's sum.
    __device__ void multiply(int stage) {
        note(500 + stage);
        for (int i = 0; i < 16; ++i) sum += a_stage[stage][threadIdx.y][i] * b_stage[stage][i][threadIdx.x];
    }
};

extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int n, int k, int *log) {
    __shared__ float a_stage[2][16][16], b_stage[2][16][16];
    bool first = blockIdx.x + blockIdx.y == 0;
    Tiles tiles(a_stage, b_stage, a, b, m, n, k, first ? log : nullptr);
    product_loop(tiles, (k + 15) / 16);
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    if (row < m && column < n) c[row * n + column] = tiles.sum;
}
