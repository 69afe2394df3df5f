// Solutions of lesson 15: each section replaces the exercise cell of that name.

// exercise: keep_fares
const KEEP_FARES: &str = r#"extern "C" __global__ void keep(const unsigned *cents, unsigned *out, unsigned *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool stays = i < n && cents[i] >= 200;
    // All lanes come by: whoever has no element votes no.
    unsigned ballot = __ballot_sync(0xffffffff, stays), first = 0;
    if (lane == 0) {
        first = atomicAdd(count, __popc(ballot));
    }
    first = __shfl_sync(0xffffffff, first, 0);
    if (stays) {
        out[first + __popc(ballot & ((1u << lane) - 1))] = cents[i];
    }
}"#;

// exercise: group_by_zone
const GROUP_BY_ZONE: &str = r#"extern "C" __global__ void group(const unsigned *zone, const unsigned *cents, unsigned long long *sums, unsigned *rides, int n) {
    // 2^32 / 250,000 is 17,179 rides: a block's own sums need 64 bits.
    __shared__ unsigned long long own[64];
    __shared__ unsigned count[64];
    if (threadIdx.x < 64) {
        own[threadIdx.x] = 0;
        count[threadIdx.x] = 0;
    }
    __syncthreads(); // all are 0
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[zone[i]], (unsigned long long)cents[i]);
        atomicAdd(&count[zone[i]], 1u);
    }
    __syncthreads(); // all are added
    if (threadIdx.x < 64) {
        atomicAdd(&sums[threadIdx.x], own[threadIdx.x]);
        atomicAdd(&rides[threadIdx.x], count[threadIdx.x]);
    }
}"#;
