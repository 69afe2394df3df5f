// Shared memory in words of 8 and 16 bytes: how many passes they take.
extern "C" __global__ void wide8(float* out, int stride, int spread) {
    extern __shared__ float2 pairs[];
    int at = (threadIdx.x / spread) * stride;
    pairs[at] = make_float2(threadIdx.x, 1.0f);
    __syncthreads();
    float2 v = pairs[at];
    out[threadIdx.x] = v.x + v.y;
}
extern "C" __global__ void wide16(float* out, int stride, int spread) {
    extern __shared__ float4 quads[];
    int at = (threadIdx.x / spread) * stride;
    quads[at] = make_float4(threadIdx.x, 1.0f, 2.0f, 3.0f);
    __syncthreads();
    float4 v = quads[at];
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
// Reads only, so that many lanes may share a word without a race: lane i reads word (i / spread) * stride.
extern "C" __global__ void read16(float* out, int stride, int spread) {
    extern __shared__ float4 quads[];
    quads[threadIdx.x] = make_float4(threadIdx.x, 1.0f, 2.0f, 3.0f);
    __syncthreads();
    float4 v = quads[((threadIdx.x / spread) * stride) & 31];
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
extern "C" __global__ void read8(float* out, int stride, int spread) {
    extern __shared__ float2 pairs[];
    pairs[threadIdx.x] = make_float2(threadIdx.x, 1.0f);
    __syncthreads();
    float2 v = pairs[((threadIdx.x / spread) * stride) & 31];
    out[threadIdx.x] = v.x + v.y;
}
