// All-reduce over peer memory: each GPU reads and writes the others' memory itself, over NVLink or PCIe.
//
// All ranks call the same kernel with the same grid. Each adds in the order of ranks, so all of them get the same bits.
// constants: RANKS; BF16 for numbers of 16 bits; THREADS per block; VECTORS of 16 bytes in flight per thread; LIMIT_NS until a rank counts as missing;
// MOST_RANKS, MOST_BLOCKS and SLOT_BYTES lay out the workspace; from the launcher.

#ifdef BF16
typedef unsigned short Number;
const int PER_WORD = 2;
#else
typedef float Number;
const int PER_WORD = 1;
#endif

struct Peers {
    unsigned char *at[MOST_RANKS];
};

// By comparisons and not by an index: a table that is indexed would be copied into each thread's local memory.
unsigned char *of(Peers all, int rank) {
    unsigned char *at = all.at[0];
#pragma unroll
    for (int r = 1; r < RANKS; ++r) {
        at = r == rank ? all.at[r] : at;
    }
    return at;
}

// At the beginning of each rank's workspace, which this rank alone writes.
struct Control {
    unsigned calls;   // that have ended
    unsigned taken;   // tickets of this call
    unsigned missing; // 1 + the rank that did not come, or 0
    unsigned call;    // in which it did not
};

// Behind it flags that the others write, [stage][block][rank], and two slots for each rank. A slot is written again two calls later:
// a rank that has ended a call has had everybody's part of it, and they send that after they have read all of the call before.
const int FLAGS_AT = 256, SLOTS_AT = FLAGS_AT + 4 * 2 * MOST_BLOCKS * MOST_RANKS;

unsigned *flag(Peers all, int owner, int stage, int rank) {
    return (unsigned *)(of(all, owner) + FLAGS_AT) + (stage * MOST_BLOCKS + blockIdx.x) * MOST_RANKS + rank;
}

uint4 *slot(Peers all, int owner, unsigned call, int rank) {
    return (uint4 *)(of(all, owner) + SLOTS_AT + ((call & 1) * RANKS + rank) * (long long)SLOT_BYTES);
}

void store_release(unsigned *at, unsigned value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

unsigned load_acquire(const unsigned *at) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

// Volatile: from the memory itself, never from a cache of this GPU, and never torn within 8 bytes.
uint4 load(const uint4 *at) {
    uint4 x;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(at)
                 : "memory");
    return x;
}

void store(uint4 *at, uint4 x) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

unsigned long long now_ns() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// Whether to wait no longer: after LIMIT_NS, or when another thread has given up. Nothing spins for ever.
bool give_up(Control *own, int rank, unsigned call, unsigned &tries, unsigned long long &begin) {
    if (++tries % 512 != 0) {
        return false;
    }
    unsigned long long time = now_ns();
    begin = begin == 0 ? time : begin;
    if (*(volatile unsigned *)&own->missing != 0) {
        return true;
    }
    if (time - begin < LIMIT_NS) {
        return false;
    }
    if (atomicCAS(&own->missing, 0u, 1u + rank) == 0) {
        own->call = call;
    }
    return true;
}

void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// The number of this call, or 0 where an earlier one has failed. Thread 0 of each block reads the count, and takes a ticket to say that it has:
// who takes the last one may change the count.
unsigned begin_call(Control *own, unsigned &ticket) {
    __shared__ unsigned call;
    if (threadIdx.x == 0) {
        unsigned missing = *(volatile unsigned *)&own->missing, calls = *(volatile unsigned *)&own->calls;
        // A flag of 0 is one that nobody has written.
        call = missing != 0 ? 0 : calls + 1 + (calls + 1 == 0);
        fence();
        // Back to 0 by itself.
        ticket = atomicInc(&own->taken, gridDim.x - 1);
    }
    __syncthreads();
    return call;
}

void end_call(Control *own, unsigned call, unsigned ticket) {
    if (threadIdx.x == 0 && ticket == gridDim.x - 1) {
        fence();
        own->calls = call;
    }
}

// Waits until this block of all ranks is here; what they wrote before can then be read.
bool meet(Peers all, Control *own, int rank, int stage, unsigned call) {
    __syncthreads();
    int other = threadIdx.x;
    bool arrived = true;
    if (other < RANKS && other != rank) {
        store_release(flag(all, other, stage, rank), call);
        unsigned tries = 0;
        unsigned long long begin = 0;
        // One that is a call ahead has been here.
        while (arrived && (int)(load_acquire(flag(all, rank, stage, other)) - call) < 0) {
            arrived = !give_up(own, other, call, tries, begin);
        }
    }
    return __syncthreads_and(arrived);
}

// The numbers of a word are added in 32 bits, and rounded once.
void add(float *sums, unsigned word, bool first) {
#ifdef BF16
    float low = __uint_as_float(word << 16), high = __uint_as_float(word & 0xffff0000u);
    sums[0] = first ? low : sums[0] + low;
    sums[1] = first ? high : sums[1] + high;
#else
    sums[0] = first ? __uint_as_float(word) : sums[0] + __uint_as_float(word);
#endif
}

unsigned rounded(const float *sums) {
#ifdef BF16
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(sums[1]), "f"(sums[0]));
    return word;
#else
    return __float_as_uint(sums[0]);
#endif
}

void add(float (*sums)[PER_WORD], uint4 x, bool first) {
    add(sums[0], x.x, first);
    add(sums[1], x.y, first);
    add(sums[2], x.z, first);
    add(sums[3], x.w, first);
}

uint4 rounded(const float (*sums)[PER_WORD]) {
    return make_uint4(rounded(sums[0]), rounded(sums[1]), rounded(sums[2]), rounded(sums[3]));
}

// Word `i` of n numbers; what lies behind the end counts as 0 and is not written.
unsigned word(const unsigned *in, long long i, long long n) {
    if ((i + 1) * PER_WORD <= n) {
        return in[i];
    }
    return i * PER_WORD < n ? ((const unsigned short *)in)[i * PER_WORD] : 0;
}

void set_word(unsigned *out, long long i, long long n, unsigned value) {
    if ((i + 1) * PER_WORD <= n) {
        out[i] = value;
    } else if (i * PER_WORD < n) {
        ((unsigned short *)out)[i * PER_WORD] = (unsigned short)value;
    }
}

uint4 vector(const unsigned *in, long long v, long long n) {
    if (4 * (v + 1) * PER_WORD <= n) {
        return ((const uint4 *)in)[v];
    }
    return make_uint4(word(in, 4 * v, n), word(in, 4 * v + 1, n), word(in, 4 * v + 2, n), word(in, 4 * v + 3, n));
}

void set_vector(unsigned *out, long long v, long long n, uint4 x) {
    if (4 * (v + 1) * PER_WORD <= n) {
        ((uint4 *)out)[v] = x;
    } else {
        set_word(out, 4 * v, n, x.x);
        set_word(out, 4 * v + 1, n, x.y);
        set_word(out, 4 * v + 2, n, x.z);
        set_word(out, 4 * v + 3, n, x.w);
    }
}

long long divided(long long a, long long b) { return (a + b - 1) / b; }

// One shot, pushed: two words travel with the number of the call beside each, so that whoever reads them sees that they are there, without
// a fence and a flag behind them (NCCL calls this protocol LL). Twice the bytes, and one way over the link.
void push(Peers all, int rank, unsigned *data, long long n) {
    Control *own = (Control *)of(all, rank);
    unsigned ticket = 0, call = begin_call(own, ticket);
    if (call == 0) {
        return;
    }
    long long packets = divided(n, 2 * PER_WORD);
    long long first = (long long)blockIdx.x * THREADS + threadIdx.x, step = (long long)gridDim.x * THREADS;
    for (long long p = first; p < packets; p += step) {
        uint4 packet = make_uint4(word(data, 2 * p, n), call, word(data, 2 * p + 1, n), call);
#pragma unroll
        for (int r = 0; r < RANKS; ++r) {
            if (r != rank) {
                store(slot(all, r, call, rank) + p, packet);
            }
        }
    }
    unsigned tries = 0;
    unsigned long long begin = 0;
    bool failed = false;
    for (long long p = first; p < packets && !failed; p += step) {
        float sums[2][PER_WORD];
#pragma unroll
        for (int r = 0; r < RANKS; ++r) {
            uint4 packet = make_uint4(0, call, 0, call);
            if (r == rank) {
                packet.x = word(data, 2 * p, n);
                packet.z = word(data, 2 * p + 1, n);
            } else {
                do {
                    packet = load(slot(all, rank, call, r) + p);
                } while ((packet.y != call || packet.w != call) && !(failed = failed || give_up(own, r, call, tries, begin)));
            }
            add(sums[0], packet.x, r == 0);
            add(sums[1], packet.z, r == 0);
        }
        if (!failed) {
            set_word(data, 2 * p, n, rounded(sums[0]));
            set_word(data, 2 * p + 1, n, rounded(sums[1]));
        }
    }
    end_call(own, call, ticket);
}

// One shot, pulled: each rank puts its numbers into a slot of its own memory, raises a flag at the others, and reads their slots. The bytes go
// once; reading a peer's memory is a way there and back.
void pull(Peers all, int rank, unsigned *data, long long n) {
    Control *own = (Control *)of(all, rank);
    unsigned ticket = 0, call = begin_call(own, ticket);
    if (call == 0) {
        return;
    }
    long long vectors = divided(n, 4 * PER_WORD);
    long long first = (long long)blockIdx.x * THREADS + threadIdx.x, step = (long long)gridDim.x * THREADS;
    for (long long v = first; v < vectors; v += step) {
        slot(all, rank, call, rank)[v] = vector(data, v, n);
    }
    // A block reads what the same block of the others has written.
    if (!meet(all, own, rank, 0, call)) {
        return;
    }
    for (long long v = first; v < vectors; v += VECTORS * step) {
        uint4 x[VECTORS][RANKS];
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
#pragma unroll
            for (int r = 0; r < RANKS; ++r) {
                if (v + k * step < vectors) {
                    x[k][r] = load(slot(all, r, call, r) + v + k * step);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            if (v + k * step < vectors) {
                float sums[4][PER_WORD];
#pragma unroll
                for (int r = 0; r < RANKS; ++r) {
                    add(sums, x[k][r], r == 0);
                }
                set_vector(data, v + k * step, n, rounded(sums));
            }
        }
    }
    end_call(own, call, ticket);
}

// Two shots, in place, in memory that all ranks reach: rank r adds the r-th part of all, and writes the sums to all. No rank touches another's
// part, so nothing is copied aside.
void two_shots(Peers all, Peers data, int rank, long long n) {
    Control *own = (Control *)of(all, rank);
    unsigned ticket = 0, call = begin_call(own, ticket);
    // The others' numbers are there once their kernel has begun.
    if (call == 0 || !meet(all, own, rank, 0, call)) {
        return;
    }
    long long vectors = n / (4 * PER_WORD), part = divided(vectors, RANKS);
    long long end = min(vectors, (rank + 1) * part), step = (long long)gridDim.x * THREADS;
    for (long long v = rank * part + (long long)blockIdx.x * THREADS + threadIdx.x; v < end; v += VECTORS * step) {
        uint4 x[VECTORS][RANKS];
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
#pragma unroll
            for (int r = 0; r < RANKS; ++r) {
                if (v + k * step < end) {
                    x[k][r] = load((const uint4 *)data.at[r] + v + k * step);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            if (v + k * step < end) {
                float sums[4][PER_WORD];
#pragma unroll
                for (int r = 0; r < RANKS; ++r) {
                    add(sums, x[k][r], r == 0);
                }
                uint4 sum = rounded(sums);
#pragma unroll
                for (int r = 0; r < RANKS; ++r) {
                    store((uint4 *)data.at[r] + v + k * step, sum);
                }
            }
        }
    }
    // What fills no vector is the last rank's.
    long long words = divided(n, PER_WORD), w = 4 * vectors + threadIdx.x;
    if (rank == RANKS - 1 && blockIdx.x == 0 && w < words) {
        float sums[PER_WORD];
#pragma unroll
        for (int r = 0; r < RANKS; ++r) {
            add(sums, word((const unsigned *)data.at[r], w, n), r == 0);
        }
#pragma unroll
        for (int r = 0; r < RANKS; ++r) {
            set_word((unsigned *)data.at[r], w, n, rounded(sums));
        }
    }
    // This kernel ends when nobody writes to this rank any more.
    if (meet(all, own, rank, 1, call)) {
        end_call(own, call, ticket);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) all_reduce_push(Peers all, int rank, Number *data, long long n) {
    push(all, rank, (unsigned *)data, n);
}

extern "C" __global__ void __launch_bounds__(THREADS) all_reduce_pull(Peers all, int rank, Number *data, long long n) {
    pull(all, rank, (unsigned *)data, n);
}

// `own` is where `everywhere` says that this rank's numbers are.
extern "C" __global__ void __launch_bounds__(THREADS) all_reduce_two_shots(Peers all, Peers everywhere, int rank, Number *own, long long n) {
    two_shots(all, everywhere, rank, n);
}
