// Constant, global, local and generic addresses, switch, structs by value.
struct Pair { int first; float second; long long third; };
__constant__ float table[4] = {1.5f, -2.0f, 3.25f, 0.125f};
__device__ int counter = 40;
__device__ int* where = &counter;
extern "C" __global__ void spaces(Pair pair, const unsigned char* bytes, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int scratch[8];
    for (int k = 0; k < 8; k++) scratch[k] = k * pair.first + bytes[i];
    int pick = scratch[bytes[i] & 7];
    __shared__ int box[2];
    int* generic = (i & 1) ? &box[0] : &scratch[3];
    box[0] = 9;
    __syncthreads();
    double sum = pick + *generic + table[i & 3] * pair.second + (double)pair.third;
    switch (bytes[i] & 3) {
        case 0: sum += 1; break;
        case 1: sum *= 2; break;
        case 2: sum -= 3; break;
        default: sum += *where;
    }
    out[i] = sum;
}
