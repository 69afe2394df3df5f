//! Draws every kind of picture of an inspection into a folder, to be looked at after a change:
//! `cargo run -p gpulab-kernels --example inspect_pictures -- FOLDER`. No GPU is needed.

mod ladders;

use gpulab::inspect::Inspection;
use gpulab::prelude::*;
use std::path::{Path, PathBuf};

const KERNELS: &str = r#"// Access patterns, good and bad.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    // The last block has threads to spare.
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}
extern "C" __global__ void unguarded(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + b[i];
}
extern "C" __global__ void strided(const float *a, float *c, int n, int stride, int offset) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i * stride + offset < n) {
        c[i] = a[i * stride + offset];
    }
}
extern "C" __global__ void wide(const float4 *a, float4 *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i];
}
extern "C" __global__ void gather(const float *a, const int *index, float *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[index[i]];
}
extern "C" __global__ void some(const float *a, double *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 3 == 0) {
        c[i] = a[n];
    }
}
extern "C" __global__ void divergent(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = 0;
    for (int k = 0; k <= (i & 31); k++) {
        if ((k ^ i) & 1) {
            sum += k * 3;
            if (sum > 100) sum -= i;
        } else {
            sum ^= k << 2;
        }
    }
    out[i] = sum;
}
template <int WIDTH> __device__ void turn(const float *in, float *out, int n) {
    __shared__ float tile[32][WIDTH];
    int column = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[row * n + column];
    __syncthreads();
    int to = (blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32;
    out[to + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void transpose(const float *in, float *out, int n) {
    turn<32>(in, out, n);
}
extern "C" __global__ void transpose_padded(const float *in, float *out, int n) {
    turn<33>(in, out, n);
}
extern "C" __global__ void banks(float *out, int stride) {
    __shared__ float words[2048];
    __shared__ float4 quads[64];
    __shared__ double pairs[64];
    words[threadIdx.x * stride] = threadIdx.x;
    quads[threadIdx.x] = make_float4(1, 2, 3, 4);
    pairs[threadIdx.x] = 1.0;
    __syncthreads();
    float same = words[7 * stride];
    out[threadIdx.x] = same + quads[threadIdx.x ^ 5].x + pairs[threadIdx.x * 2 & 63];
}
extern "C" __global__ void race(float *out) {
    __shared__ float sums[64];
    sums[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = sums[63 - threadIdx.x];
}
"#;

struct Album {
    folder: PathBuf,
    drawn: usize,
}

impl Album {
    /// A piece of a page.
    fn page(&mut self, name: &str, html: &str) {
        self.drawn += 1;
        std::fs::write(self.folder.join(format!("{name}.html")), html).expect("the folder is there");
    }

    fn keep(&mut self, name: &str, figure: &plot::Figure) -> Result<()> {
        self.drawn += 1;
        figure.save(self.folder.join(format!("{name}.svg")))
    }

    /// The launch, the source and the table of one inspection.
    fn whole(&mut self, name: &str, it: &Inspection) -> Result<()> {
        self.keep(&format!("{name}-launch"), &it.launch())?;
        self.keep(&format!("{name}-source"), &it.source())?;
        self.page(&format!("{name}-table"), &it.html());
        println!("{it}");
        Ok(())
    }
}

fn main() -> Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("no folder is named\nnext: cargo run -p gpulab-kernels --example inspect_pictures -- FOLDER");
        std::process::exit(2);
    };
    let mut album = Album { folder: Path::new(&folder).to_path_buf(), drawn: 0 };
    let gpu = Gpu::simulated()?;
    let module = gpu.compile(KERNELS)?;
    global(&gpu, &module, &mut album)?;
    shared(&gpu, &module, &mut album)?;
    ladders::all(&mut album)?;
    println!("{} pictures in {folder}", album.drawn);
    Ok(())
}

fn global(gpu: &Gpu, module: &Module, album: &mut Album) -> Result<()> {
    let n = 1_000_003;
    let (a, b) = (gpu.to_device(&cpu::random_f32(n, 1))?, gpu.to_device(&cpu::random_f32(n, 2))?);
    let mut c = gpu.zeros::<f32>(n)?;
    let all = LaunchConfig::for_elements(n, 256);
    let it = module.kernel("vector_add")?.inspect(all, (&a, &b, &mut c, n as i32))?;
    album.whole("vector_add", &it)?;
    album.keep("sectors-coalesced", &it.sectors("a[i]")?)?;
    let it = module.kernel("vector_add")?.inspect_warp(all, (&a, &b, &mut c, n as i32), (3906, 0, 0), 2)?;
    album.keep("sectors-last-warp", &it.sectors("c[i]")?)?;
    album.whole("unguarded", &module.kernel("unguarded")?.inspect(all, (&a, &b, &mut c, n as i32))?)?;
    let few = LaunchConfig::new(4, 128);
    for (stride, offset) in [(1, 1), (2, 0), (3, 0), (8, 0), (32, 0)] {
        let it = module.kernel("strided")?.inspect(few, (&a, &mut c, n as i32, stride, offset))?;
        album.keep(&format!("sectors-stride-{stride}-offset-{offset}"), &it.sectors("a[i * stride + offset]")?)?;
        if stride == 32 {
            album.whole("strided", &it)?;
        }
    }
    let it = module.kernel("wide")?.inspect(LaunchConfig::new(4, 100), (&a, &mut c))?;
    album.keep("sectors-wide", &it.sectors("a[i]")?)?;
    album.keep("wide-launch", &it.launch())?;
    let index: Vec<i32> = (0..512).map(|i| i * 1237 % 1009).collect();
    let it = module.kernel("gather")?.inspect(few, (&a, &gpu.to_device(&index)?, &mut c))?;
    album.keep("sectors-gather", &it.sectors("a[index[i]]")?)?;
    let mut doubles = gpu.zeros::<f64>(512)?;
    let it = module.kernel("some")?.inspect(few, (&a, &mut doubles, 5))?;
    album.keep("sectors-broadcast", &it.sectors("a[n]")?)?;
    album.keep("sectors-some-lanes", &it.sectors("c[i]")?)?;
    let mut out = gpu.zeros::<i32>(512)?;
    album.whole("divergent", &module.kernel("divergent")?.inspect(few, (&mut out, 500))?)
}

fn shared(gpu: &Gpu, module: &Module, album: &mut Album) -> Result<()> {
    let n = 128;
    let (a, mut c) = (gpu.to_device(&cpu::random_f32(n * n, 1))?, gpu.zeros::<f32>(n * n)?);
    let tiles = LaunchConfig { grid: (4, 4, 1), block: (32, 32, 1), shared_bytes: 0 };
    for name in ["transpose", "transpose_padded"] {
        let it = module.kernel(name)?.inspect_warp(tiles, (&a, &mut c, n as i32), (1, 2, 0), 3)?;
        album.whole(name, &it)?;
        album.keep(&format!("banks-{name}-rows"), &it.banks("tile[threadIdx.y]")?)?;
        album.keep(&format!("banks-{name}-columns"), &it.banks("tile[threadIdx.x]")?)?;
    }
    let one = LaunchConfig::new(1, 64);
    for stride in [1, 2, 17] {
        let it = module.kernel("banks")?.inspect(one, (&mut c, stride))?;
        album.keep(&format!("banks-stride-{stride}"), &it.banks("words[threadIdx.x * stride] =")?)?;
        if stride == 1 {
            album.keep("banks-broadcast", &it.banks("load words")?)?;
            album.keep("banks-quads", &it.banks("store quads")?)?;
            album.keep("banks-pairs", &it.banks("load pairs")?)?;
        }
    }
    album.whole("race", &module.kernel("race")?.inspect(one, (&mut c,))?)
}
