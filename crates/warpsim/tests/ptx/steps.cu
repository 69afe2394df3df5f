// Each thread does what a table says, step by step, with a barrier after the steps that have one.
extern "C" __global__ void steps(const int* table, const int* barriers, unsigned char* memory, int count, int in_shared) {
    __shared__ __align__(4) unsigned char mine[32];
    if (threadIdx.x < 32) mine[threadIdx.x] = 0;
    __syncthreads();
    unsigned char* where = in_shared ? mine : memory;
    unsigned seen = 0;
    for (int step = 0; step < count; step++) {
        int entry = table[(step * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x];
        int what = entry & 7, at = entry >> 3 & 31, value = entry >> 8;
        if (what == 1) seen += *(unsigned*)(where + (at & ~3));
        if (what == 2) *(unsigned*)(where + (at & ~3)) = value * 0x01010101u;
        if (what == 3) seen += where[at];
        if (what == 4) where[at] = value;
        if (what == 5) atomicXor((unsigned*)(where + (at & ~3)), 0x80808080u);
        if (barriers[step]) __syncthreads();
    }
    if (seen == 0xffffffffu) memory[0] = 1;
}
// Two reads of what another block may write, and a count that shows whether memory was put back.
extern "C" __global__ void twice(int* a, int* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = a[i] + a[(i + 1) % n];
    sum[i] += 1;
}
