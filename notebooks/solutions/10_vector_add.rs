// Solutions of lesson 10: each section replaces the exercise cell of that name.

// exercise: scale
const SCALE: &str = r#"extern "C" __global__ void scale(const float *x, float *y, int n) {
    int threads = gridDim.x * blockDim.x;
    // A grid-stride loop: in each step all threads together take one run of neighbours.
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        y[i] = 2.0f * x[i];
    }
}"#;

// exercise: planes
const PLANES: &str = r#"extern "C" __global__ void planes(const float *pixels, float *out, int n) {
    // A thread for each float of the image: loads are neighbours, and a warp's stores are three runs of neighbours.
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 3 * n) {
        out[i % 3 * n + i / 3] = pixels[i];
    }
}"#;
fn planes_launch(n: usize) -> LaunchConfig {
    LaunchConfig::for_elements(3 * n, 256)
}

// exercise: shifted_sectors
// A warp's 128 bytes begin 4 bytes into a sector, so they reach into a fifth: 2^20 / 32 requests of 5 sectors.
let my_shifted_sectors: Option<f64> = Some(163_840.0);
