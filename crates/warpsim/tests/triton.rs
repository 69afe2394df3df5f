//! Kernels in Triton (`fixtures/triton/kernels.py`, after Triton's tutorials): their PTX as Triton writes it, against plain loops in
//! double precision, at awkward sizes. None of them makes a mistake, so nothing is to be found.

mod common;

use common::{Random, download, upload};
use warpsim::{Arg, BlockOrder, Device, Kind, Launch, PtxModule, Report};

/// What a buffer holds before a kernel writes it: no number, in floats of every size.
const POISON: u8 = 0xff;

/// A fixture, and how its first lines say that it is launched.
struct Fixture {
    text: String,
    module: PtxModule,
    kernel: String,
    threads: u32,
    shared_bytes: u32,
}

impl Fixture {
    fn load(file: &str) -> Self {
        let path = format!("{}/tests/fixtures/triton/{file}.ptx", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let launch = text.lines().find_map(|line| line.strip_prefix("// launch: ")).expect("how it is launched");
        let mut numbers = launch.split(' ').filter_map(|word| word.parse::<u32>().ok());
        let module = PtxModule::load(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
        let kernel = module.kernels()[0].name.clone();
        let [threads, shared_bytes] = [(); 2].map(|()| numbers.next().expect("threads, then bytes"));
        Self { module, kernel, threads, shared_bytes, text }
    }

    /// Two pointers follow what the kernel's text names: scratch memory that Triton gives kernels which ask for it. These do not.
    fn run(&self, device: &mut Device, grid: [u32; 2], args: &[Arg]) -> Report {
        let launch =
            Launch { grid: [grid[0], grid[1], 1], block: [self.threads, 1, 1], shared_bytes: self.shared_bytes };
        let args = [args, &[Arg::Pointer(0), Arg::Pointer(0)]].concat();
        device.launch(&self.module, &self.kernel, launch, &args).unwrap_or_else(|e| panic!("{}: {e}", self.kernel))
    }

    /// A launch that must do nothing wrong.
    fn launch(&self, device: &mut Device, grid: [u32; 2], args: &[Arg]) {
        let report = self.run(device, grid, args);
        assert!(report.findings.is_empty(), "{}: {}", self.kernel, report.findings[0]);
    }
}

fn blocks(numbers: usize, of_a_block: usize) -> u32 {
    numbers.div_ceil(of_a_block) as u32
}

fn int(x: usize) -> Arg {
    Arg::I32(x as i32)
}

/// A buffer that nobody has written.
fn unwritten(device: &mut Device, bytes: usize) -> u64 {
    let address = device.alloc(bytes).expect("memory");
    device.poison(address, bytes, POISON).expect("inside");
    address
}

/// A 16-bit float: `f16` has 5 bits of exponent, `bf16` 8.
#[derive(Clone, Copy)]
struct Half {
    exponent: u32,
}

const F16: Half = Half { exponent: 5 };
const BF16: Half = Half { exponent: 8 };

impl Half {
    /// The bits of a number that this type holds.
    fn bits(self, x: f32) -> u16 {
        let (bits, fraction) = (x.to_bits(), 15 - self.exponent);
        let power = (bits >> 23 & 0xff) as i32 - 127 + (1 << (self.exponent - 1)) - 1;
        let sizeless = if x == 0.0 { 0 } else { (power as u32) << fraction | (bits & 0x7f_ffff) >> (23 - fraction) };
        let found = (bits >> 31 << 15 | sizeless) as u16;
        assert_eq!(self.value(found), f64::from(x), "more digits than the type has");
        found
    }

    fn value(self, bits: u16) -> f64 {
        let fraction = 15 - self.exponent;
        let (sign, power) = (bits >> 15, i32::from(bits >> fraction) & ((1 << self.exponent) - 1));
        let digits = f64::from(u32::from(bits) & ((1 << fraction) - 1)) / f64::from(1 << fraction);
        let bias = (1 << (self.exponent - 1)) - 1;
        let size = match power {
            0 => digits * 2f64.powi(1 - bias),
            _ if power == (1 << self.exponent) - 1 => f64::NAN,
            _ => (1.0 + digits) * 2f64.powi(power - bias),
        };
        if sign == 1 { -size } else { size }
    }

    /// How far a number is rounded at most, as a part of it.
    fn rounding(self) -> f64 {
        0.5f64.powi(16 - self.exponent as i32)
    }
}

/// Numbers of eight bits from -2 to 2, which each type here holds.
fn numbers(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| (random.bits() % 257) as f32 / 64.0 - 2.0).collect()
}

fn upload_halves(device: &mut Device, kind: Half, numbers: &[f32]) -> u64 {
    upload(device, &numbers.iter().map(|&x| kind.bits(x)).collect::<Vec<u16>>())
}

fn download_halves(device: &Device, kind: Half, address: u64, count: usize) -> Vec<f64> {
    download(device, address, count).into_iter().map(|bits| kind.value(bits)).collect()
}

/// NaN is near nothing.
fn near(what: &str, given: f64, exact: f64, part: f64, rest: f64) {
    assert!((given - exact).abs() <= exact.abs() * part + rest, "{what}: {given} for {exact}");
}

#[test]
fn vector_add() {
    let fixture = Fixture::load("vector_add");
    for n in [1, 31, 100, 1023, 1024, 1025, 100_003] {
        let (mut device, mut random) = (Device::new(), Random(n as u64));
        let (a, b) = (random.floats(n), random.floats(n));
        let [on_a, on_b] = [&a, &b].map(|x| upload(&mut device, x));
        let c = unwritten(&mut device, n * 4);
        let args = [Arg::Pointer(on_a), Arg::Pointer(on_b), Arg::Pointer(c), int(n)];
        fixture.launch(&mut device, [blocks(n, 1024), 1], &args);
        let exact: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(download::<f32>(&device, c, n), exact, "{n}");
    }
}

/// A mistake is named with its line in Python: here the buffers are shorter than `n` says.
#[test]
fn a_mistake_names_its_line_in_python() {
    let mut device = Device::new();
    let [a, b, c] = [(); 3].map(|()| upload(&mut device, &[0_f32; 1000]));
    let args = [Arg::Pointer(a), Arg::Pointer(b), Arg::Pointer(c), int(1001)];
    let report = Fixture::load("vector_add").run(&mut device, [1, 1], &args);
    assert_eq!(report.findings.len(), 3, "{:?}", report.findings);
    for (i, text) in ["tl.load(a + at", "tl.load(b + at", "tl.store(c + at"].into_iter().enumerate() {
        let found = report.findings.iter().find(|found| found.parameter == Some(i)).expect("one for each");
        let (kind, source) = (found.kind, found.source.as_ref().expect("a line"));
        assert_eq!((kind, source.file.as_str()), (Kind::OutOfBounds, "kernels.py"));
        assert!(python(source.line).contains(text), "{text}: line {}", source.line);
    }
}

/// A line of the kernels' text, from 1.
fn python(line: u32) -> &'static str {
    include_str!("fixtures/triton/kernels.py").lines().nth(line as usize - 1).expect("the line")
}

/// Waits and barriers that Triton put there are missed where they are taken out.
#[test]
fn what_is_taken_out_of_the_ptx_is_found() {
    let launches = [
        ("matmul_bf16", "cp.async.wait_group", Kind::Unfinished, "of_a = tl.load"),
        ("matmul_sm_90", "wgmma.wait_group", Kind::Unfinished, "of_a = tl.load"),
        ("matmul_bf16", "bar.sync", Kind::SharedRace, "tl."),
    ];
    for (file, instruction, kind, line) in launches {
        let mut fixture = Fixture::load(file);
        fixture.module =
            PtxModule::load(&fixture.text.replace(instruction, &format!("// {instruction}"))).expect("PTX");
        let mut device = Device::new();
        let side = 160;
        let [a, b, c] = [(); 3].map(|()| upload(&mut device, &vec![0_u16; side * side]));
        let mut args = [a, b, c].map(Arg::Pointer).to_vec();
        args.extend([side; 6].map(int));
        let report = fixture.run(&mut device, [9, 1], &args);
        let found = report.findings.iter().find(|f| f.kind == kind);
        let source =
            found.unwrap_or_else(|| panic!("{file} without {instruction}: {:?}", report.findings)).source.clone();
        let source = source.expect("a line in Python");
        let text = python(source.line);
        assert!(source.file == "kernels.py" && text.contains(line), "{file} without {instruction}: {source}: {text}");
    }
}

/// With rows that lie further apart than they are long, and fewer programs than rows.
#[test]
fn softmax() {
    let fixture = Fixture::load("softmax");
    for (rows, columns, stride, programs) in
        [(1, 1, 1, 1), (3, 31, 33, 2), (33, 129, 129, 4), (7, 781, 800, 7), (5, 1024, 1024, 2)]
    {
        let (mut device, mut random) = (Device::new(), Random(columns as u64));
        let x: Vec<f32> = random.floats(rows * stride).into_iter().map(|x| 300.0 + x * 8.0).collect();
        let (on_x, y) = (upload(&mut device, &x), unwritten(&mut device, rows * columns * 4));
        let args = [Arg::Pointer(on_x), Arg::Pointer(y), int(stride), int(columns), int(rows), int(columns)];
        fixture.launch(&mut device, [programs, 1], &args);
        let given: Vec<f32> = download(&device, y, rows * columns);
        for (row, given) in x.chunks(stride).zip(given.chunks(columns)) {
            let powers: Vec<f64> = row[..columns].iter().map(|&x| (f64::from(x) - 300.0).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.iter().zip(given).for_each(|(p, &given)| near("softmax", given.into(), p / sum, 1e-5, 1e-9));
        }
    }
}

/// Rows of `columns` numbers that lie `stride` apart; between them stand numbers that nobody may use.
fn matrix(random: &mut Random, rows: usize, columns: usize, stride: usize) -> Vec<f32> {
    let number = |(i, x)| if i % stride < columns { x } else { 240.0 };
    numbers(random, rows * stride).into_iter().enumerate().map(number).collect()
}

/// `align`: n, k and the distances of rows are multiples of it.
fn matmul(file: &str, kind: Half, align: usize, leaky: bool) {
    let fixture = Fixture::load(file);
    for (m, n, k) in [(1, 1, 1), (31, 33, 31), (127, 65, 129), (300, 70, 32)] {
        let (mut device, mut random) = (Device::new(), Random((m * n + k) as u64));
        let [n, k] = [n, k].map(|x: usize| x.next_multiple_of(align));
        let [a_stride, b_stride, c_stride] = [k, n, n].map(|x| x + align);
        let (a, b) = (matrix(&mut random, m, k, a_stride), matrix(&mut random, k, n, b_stride));
        let [on_a, on_b] = [&a, &b].map(|x| upload_halves(&mut device, kind, x));
        let c = unwritten(&mut device, m * c_stride * 2);
        let mut args = [on_a, on_b, c].map(Arg::Pointer).to_vec();
        args.extend([m, n, k, a_stride, b_stride, c_stride].map(int));
        fixture.launch(&mut device, [blocks(m, 64) * blocks(n, 64), 1], &args);
        let given = download::<u16>(&device, c, m * c_stride);
        for (row, given) in given.chunks(c_stride).enumerate() {
            for (column, &given) in given.iter().enumerate() {
                if column >= n {
                    assert_eq!(given, 0xffff, "written beyond a row's end");
                    continue;
                }
                let product = |i| f64::from(a[row * a_stride + i]) * f64::from(b[i * b_stride + column]);
                let sum: f64 = (0..k).map(product).sum();
                let exact = if leaky && sum < 0.0 { sum * 0.01 } else { sum };
                near(&format!("{file} {m}×{n}×{k}"), kind.value(given), exact, kind.rounding() * 1.01, 1e-4);
            }
        }
    }
}

#[test]
fn matmul_f16_with_leaky_relu() {
    matmul("matmul_f16", F16, 1, true);
}

/// Where 16 divides n, k and the distances of rows, Triton copies by `cp.async`.
#[test]
fn matmul_bf16() {
    matmul("matmul_bf16", BF16, 16, false);
}

/// On Hopper Triton multiplies by `wgmma`.
#[test]
fn matmul_on_hopper() {
    matmul("matmul_sm_90", F16, 16, false);
}

/// The four numbers that Philox makes of a counter and a key in ten rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let (first, second) = (0xd251_1f53 * u64::from(counter[0]), 0xcd9e_8d57 * u64::from(counter[2]));
        let [high, low] = [first, second].map(|x| (x >> 32) as u32);
        counter = [low ^ counter[1] ^ key[0], second as u32, high ^ counter[3] ^ key[1], first as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

#[test]
fn dropout() {
    let fixture = Fixture::load("dropout");
    let (n, p, seed) = (3001, 0.25_f32, 123);
    let (mut device, mut random) = (Device::new(), Random(1));
    let x = random.floats(n);
    let (on_x, y) = (upload(&mut device, &x), unwritten(&mut device, n * 4));
    let args = [Arg::Pointer(on_x), Arg::Pointer(y), int(n), Arg::F32(p), Arg::I32(seed)];
    fixture.launch(&mut device, [blocks(n, 1024), 1], &args);
    let mut gone = 0;
    for (i, given) in download::<f32>(&device, y, n).into_iter().enumerate() {
        let bits = philox([i as u32, 0, 0, 0], [seed as u32, 0])[0] as i32;
        // Of the two numbers of one size the negative one, -x, comes as x - 1.
        let uniform = (if bits < 0 { -bits - 1 } else { bits }) as f32 * 4.656_612_6e-10;
        let kept = uniform > p;
        gone += usize::from(!kept);
        near("dropout", given.into(), if kept { f64::from(x[i]) / 0.75 } else { 0.0 }, 1e-6, 0.0);
    }
    assert!((n / 5..n / 3).contains(&gone), "{gone} of {n}");
}

/// Mean and 1 / standard deviation.
fn moments(row: &[f32]) -> (f64, f64) {
    let count = row.len() as f64;
    let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let square = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
    (mean, (square + 1e-5).sqrt().recip())
}

#[test]
fn layer_norm() {
    let fixture = Fixture::load("layer_norm");
    for (rows, columns) in [(1, 1), (3, 31), (5, 257), (2, 1151)] {
        let (mut device, mut random) = (Device::new(), Random(columns as u64));
        let (x, weight, bias) = (numbers(&mut random, rows * columns), random.floats(columns), random.floats(columns));
        let on_x = upload_halves(&mut device, F16, &x);
        let y = unwritten(&mut device, rows * columns * 2);
        let [on_weight, on_bias] = [&weight, &bias].map(|x| upload(&mut device, x));
        let [mean, rstd] = [(); 2].map(|()| unwritten(&mut device, rows * 4));
        let mut args = [on_x, y, on_weight, on_bias, mean, rstd].map(Arg::Pointer).to_vec();
        args.extend([int(columns), int(columns), Arg::F32(1e-5)]);
        fixture.launch(&mut device, [rows as u32, 1], &args);
        let given = download_halves(&device, F16, y, rows * columns);
        let [means, rstds] = [mean, rstd].map(|at| download::<f32>(&device, at, rows));
        for (row, x) in x.chunks(columns).enumerate() {
            let (mean, rstd) = moments(x);
            near("mean", means[row].into(), mean, 1e-5, 1e-6);
            near("rstd", rstds[row].into(), rstd, 1e-5, 0.0);
            for (i, &x) in x.iter().enumerate() {
                let exact = (f64::from(x) - mean) * rstd * f64::from(weight[i]) + f64::from(bias[i]);
                near("layer norm", given[row * columns + i], exact, F16.rounding() * 1.01, 1e-5);
            }
        }
    }
}

/// Both kernels of the backward pass; rows of different blocks meet in sums that locks guard.
#[test]
fn layer_norm_backward() {
    let (of_rows, of_columns) = (Fixture::load("layer_norm_dx"), Fixture::load("layer_norm_dw"));
    let orders = [BlockOrder::Forward, BlockOrder::Reverse, BlockOrder::Random(3)];
    for ((rows, columns), order) in [(1, 1), (11, 31), (9, 500)].into_iter().zip(orders) {
        let (mut device, mut random) = (Device::new(), Random(columns as u64));
        device.set_block_order(order);
        let (x, dy) = (numbers(&mut random, rows * columns), numbers(&mut random, rows * columns));
        let weight = random.floats(columns);
        let of: Vec<(f64, f64)> = x.chunks(columns).map(moments).collect();
        let [on_x, on_dy] = [&x, &dy].map(|x| upload_halves(&mut device, F16, x));
        let on_weight = upload(&mut device, &weight);
        let mean = upload(&mut device, &of.iter().map(|of| of.0 as f32).collect::<Vec<_>>());
        let rstd = upload(&mut device, &of.iter().map(|of| of.1 as f32).collect::<Vec<_>>());
        let lock = upload(&mut device, &[0_i32; 8]);
        let dx = unwritten(&mut device, rows * columns * 2);
        // A group that no row belongs to stays zero.
        let [dw, db] = [(); 2].map(|()| upload(&mut device, &vec![0_f32; 4 * columns]));
        let mut args = [dx, on_dy, dw, db, on_x, on_weight, mean, rstd, lock].map(Arg::Pointer).to_vec();
        args.extend([int(columns), int(columns)]);
        of_rows.launch(&mut device, [rows as u32, 1], &args);
        let [all_w, all_b] = [(); 2].map(|()| unwritten(&mut device, columns * 4));
        let mut args = [dw, db, all_w, all_b].map(Arg::Pointer).to_vec();
        args.extend([int(4), int(columns)]);
        of_columns.launch(&mut device, [blocks(columns, 128), 1], &args);

        let given = download_halves(&device, F16, dx, rows * columns);
        let (mut sum_w, mut sum_b) = (vec![0.0; columns], vec![0.0; columns]);
        for row in 0..rows {
            let normal = |i: usize| (f64::from(x[row * columns + i]) - of[row].0) * of[row].1;
            let gradient = |i: usize| f64::from(dy[row * columns + i]);
            let weighted = |i: usize| gradient(i) * f64::from(weight[i]);
            let along = (0..columns).map(|i| weighted(i) * normal(i)).sum::<f64>() / columns as f64;
            let level = (0..columns).map(weighted).sum::<f64>() / columns as f64;
            for i in 0..columns {
                let exact = (weighted(i) - normal(i) * along - level) * of[row].1;
                // A row of one number has the variance 0: 1 / standard deviation is 316, and what is rounded grows by as much.
                near("dx", given[row * columns + i], exact, F16.rounding() * 1.01, 1e-4);
                sum_w[i] += gradient(i) * normal(i);
                sum_b[i] += gradient(i);
            }
        }
        for (address, exact) in [(all_w, sum_w), (all_b, sum_b)] {
            let given: Vec<f32> = download(&device, address, columns);
            given.into_iter().zip(exact).for_each(|(given, exact)| near("dw, db", given.into(), exact, 1e-5, 1e-5));
        }
    }
}

/// Flash attention of two heads, with what it leaves for a backward pass.
fn attention(file: &str, kind: Half, causal: bool) {
    const HEAD: usize = 64;
    let (fixture, heads) = (Fixture::load(file), 2);
    for length in [1, 31, 33, 129] {
        let (mut device, mut random) = (Device::new(), Random(length as u64));
        let inputs = [(); 3].map(|()| numbers(&mut random, heads * length * HEAD));
        let [on_q, on_k, on_v] = inputs.each_ref().map(|x| upload_halves(&mut device, kind, x));
        let (o, lse) = (unwritten(&mut device, heads * length * HEAD * 2), unwritten(&mut device, heads * length * 4));
        let mut args = [on_q, on_k, on_v, o, lse].map(Arg::Pointer).to_vec();
        let scale = 0.125;
        args.extend([int(length), Arg::F32(scale * std::f32::consts::LOG2_E)]);
        fixture.launch(&mut device, [blocks(length, 64), heads as u32], &args);
        let given = download_halves(&device, kind, o, heads * length * HEAD);
        let logarithms: Vec<f32> = download(&device, lse, heads * length);
        let [q, k, v] = inputs;
        let row = |x: &[f32], head: usize, at: usize| -> Vec<f64> {
            x[(head * length + at) * HEAD..][..HEAD].iter().map(|&x| x.into()).collect()
        };
        for (head, query) in (0..heads).flat_map(|head| (0..length).map(move |query| (head, query))) {
            let of_q = row(&q, head, query);
            let seen = if causal { query + 1 } else { length };
            let score = |key| of_q.iter().zip(row(&k, head, key)).map(|(a, b)| a * b).sum::<f64>() * f64::from(scale);
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let powers: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
            let sum: f64 = powers.iter().sum();
            let what = format!("{file}, length {length}, head {head}, query {query}");
            let logarithm = f64::from(logarithms[head * length + query]);
            near(&what, logarithm, (most + sum.ln()) * std::f64::consts::LOG2_E, 1e-4, 1e-4);
            let values: Vec<Vec<f64>> = (0..seen).map(|key| row(&v, head, key)).collect();
            for x in 0..HEAD {
                let (mut exact, mut sizes) = (0.0, 0.0);
                for (power, value) in powers.iter().zip(&values) {
                    exact += power * value[x] / sum;
                    sizes += power * value[x].abs() / sum;
                }
                // Each power is rounded to 16 bits, and so is the result.
                let off = (sizes + exact.abs()) * kind.rounding() * 1.01;
                near(&what, given[(head * length + query) * HEAD + x], exact, 0.0, off + 1e-5);
            }
        }
    }
}

#[test]
fn attention_f16() {
    attention("attention", F16, false);
}

#[test]
fn causal_attention_bf16() {
    attention("attention_causal", BF16, true);
}
