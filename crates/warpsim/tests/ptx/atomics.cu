// One slot for each atomic operation.
extern "C" __global__ void atomics(int* s, unsigned int* u, unsigned long long* l, float* f, double* d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicMin(&s[0], i - 7); atomicMax(&s[1], i); atomicAdd(&s[2], -i); atomicSub(&s[3], 2);
    atomicAnd(&u[0], ~(1u << (i & 31))); atomicOr(&u[1], 1u << (i & 31)); atomicXor(&u[2], i * 7u);
    atomicInc(&u[3], 10u); atomicDec(&u[4], 10u); atomicExch(&u[5], (unsigned)i);
    atomicAdd(&l[0], 0x100000001ull); atomicMax(&l[1], (unsigned long long)i << 33);
    atomicAdd(f, 0.5f); atomicAdd(d, 0.25);
    unsigned old = u[6], seen;
    do { seen = old; old = atomicCAS(&u[6], seen, seen + 3u); } while (old != seen);
}
