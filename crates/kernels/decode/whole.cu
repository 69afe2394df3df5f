// idea: one kernel per token: its blocks stay, and meet where a kernel ended; the next weights are in flight meanwhile.
// constants: WIDTH, HIDDEN, HEAD (the head dimension); THREADS; SPLIT blocks per cluster; ROWS units per block; LINES rows.
//
// All blocks must run at the same time: a cooperative launch makes sure of that.
#include "attention.cuh"
#include "lines.cuh"

// Where all blocks of the grid meet. `arrived` counts on from one meeting to the next.
struct Meeting {
    unsigned int *arrived, awaited;

    // What this block has written is done.
    __device__ void arrive() {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1);
        }
        awaited += gridDim.x;
    }

    // What all blocks have written can be seen.
    __device__ void wait() {
        if (threadIdx.x == 0) {
            unsigned int seen;
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
            } while (seen < awaited);
        }
        __syncthreads();
    }
};

union Shared {
    Attention::Shared attention;
    Mlp::Shared mlp;
    Row row;
};

// `run_ahead` bytes behind what is in use come into the L2 cache.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    whole(const bf16 *weights, const float *vectors, const float *last_norm, const bf16 *positions, bf16 *caches,
          int *tokens, int *state, float *residual, float *y, unsigned long long *best, unsigned int *arrived,
          int layers, int vocabulary, int context, int run_ahead) {
    extern __shared__ uint4 tiles[];
    __shared__ __align__(16) char bytes[sizeof(Shared)];
    Shared &shared = *(Shared *)bytes;
    const bf16 *table = weights + layers * (Layer::ATTENTION + Layer::MLP);
    const size_t CACHE = (size_t)2 * WIDTH * context;
    const size_t END = (table - weights + (size_t)vocabulary * WIDTH) * sizeof(bf16);
    int clusters = gridDim.x / cluster_blocks(), own_head = blockIdx.x / cluster_blocks();
    Meeting meeting = {arrived, 0};
    Attention attention;
    Mlp mlp;
    Lines lines;
    attention.now = state[0];
    attention.context = context;
    cluster_greet(); // a block must have started before others write into it
    attention.head = own_head;
    if (own_head < WIDTH / HEAD) {
        attention.fetch_all(Layer(weights, vectors, 0), caches, tiles);
    }
    cluster_wait();
    size_t fetched = 0;
    for (int number = 0; number < layers; ++number) {
        Layer layer(weights, vectors, number);
        bf16 *cache = caches + number * CACHE;
        mlp.first = blockIdx.x * ROWS;
        mlp.fetch_all(layer);
        size_t next = (layer.up - weights) * sizeof(bf16) + Layer::MLP * sizeof(bf16) + run_ahead;
        next = next < END ? next : END;
        if (run_ahead > 0) {
            fetched = number == 0 ? next - run_ahead : fetched;
            prefetch((const char *)weights + fetched, next - fetched);
            fetched = next / 16 * 16;
        }
        if (number > 0) {
            meeting.wait();
        }
        Residual turn(residual, 2 * number);
        // In the simulator a block has several heads.
        for (int head = own_head; head < WIDTH / HEAD; head += clusters) {
            if (head != own_head) {
                __syncthreads();
                attention.head = head;
                attention.fetch_all(layer, cache, tiles);
            }
            attention.finish(layer, cache, turn, tiles, shared.attention);
        }
        meeting.arrive();
        attention.head = own_head;
        if (number + 1 < layers && own_head < WIDTH / HEAD) {
            attention.fetch_all(Layer(weights, vectors, number + 1), cache + CACHE, tiles);
        } else if (number + 1 == layers) {
            lines.fetch_all(table, last_norm, vocabulary);
        }
        meeting.wait();
        turn = Residual(residual, 2 * number + 1);
        turn.zero_spare();
        for (; mlp.first < HIDDEN; mlp.first += gridDim.x * ROWS) {
            if (mlp.first != blockIdx.x * ROWS) {
                __syncthreads();
                mlp.fetch_all(layer);
            }
            mlp.finish(turn, shared.mlp);
        }
        meeting.arrive();
    }
    meeting.wait();
    lines.finish(Residual(residual, 2 * layers).x, table, state, y, best, vocabulary, shared.row);
    if (is_last(arrived + 1)) {
        next_token(table, positions, tokens, state, residual, best, context);
        if (threadIdx.x == 0) {
            atomicExch(arrived, 0);
            atomicExch(arrived + 1, 0);
        }
    }
}
