//! Products of a warpgroup (`wgmma`) and of a warp (`mma`) against double precision, type by type, and conversions of
//! 8-bit floats. Values and the places of elements are written out here as the PTX ISA gives them.

mod common;

use common::{Random, clean, download, upload};
use warpsim::{Arg, Device, Launch, PtxModule};

/// Columns of a warpgroup's product.
const COLUMNS: usize = 16;

fn bytes(ty: &str) -> usize {
    match ty {
        "e4m3" | "e5m2" | "s8" | "u8" => 1,
        "f16" | "bf16" => 2,
        _ => 4,
    }
}

/// Sign, exponent and fraction in so many bits, without regard to infinities and NaN.
fn float(bits: u32, exponent: u32, fraction: u32) -> f64 {
    let (sign, power) = (bits >> (exponent + fraction) & 1, bits >> fraction & ((1 << exponent) - 1));
    let digits = f64::from(bits & ((1 << fraction) - 1)) / f64::from(1u32 << fraction);
    let bias = (1 << (exponent - 1)) - 1;
    let size = if power == 0 { digits * 2f64.powi(1 - bias) } else { (1.0 + digits) * 2f64.powi(power as i32 - bias) };
    if sign == 1 { -size } else { size }
}

fn value(ty: &str, bits: u32) -> f64 {
    match ty {
        "e4m3" => float(bits, 4, 3),
        "e5m2" => float(bits, 5, 2),
        "f16" => float(bits, 5, 10),
        "bf16" => float(bits, 8, 7),
        // The low 13 bits do not count.
        "tf32" => float(bits >> 13, 8, 10),
        "f32" => float(bits, 8, 23),
        "s8" => f64::from(bits as u8 as i8),
        "u8" => f64::from(bits as u8),
        _ => f64::from(bits as i32),
    }
}

/// A finite number, of 8 bits any.
fn number(ty: &str, random: &mut Random) -> u32 {
    let bits = random.bits() as u32;
    let power = bits >> 24 & 7;
    match ty {
        "e4m3" => Some(bits & 0xff).filter(|x| x & 0x7f != 0x7f).unwrap_or(1),
        "e5m2" => Some(bits & 0xff).filter(|x| x & 0x7c != 0x7c).unwrap_or(1),
        "f16" => bits & 0x83ff | (12 + power) << 10,
        "bf16" => bits & 0x807f | (120 + power) << 7,
        "tf32" => bits & 0x807f_ffff | (120 + power) << 23,
        _ => bits & 0xff,
    }
}

/// Numbers of a row side by side in memory.
fn pack(ty: &str, numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(|bits| bits.to_le_bytes()[..bytes(ty)].to_vec()).collect()
}

/// Two factors: rows of a, and columns of b.
struct Factors {
    types: [&'static str; 2],
    depth: usize,
    a: Vec<u32>,
    b: Vec<u32>,
    /// Where the numbers of a row are that are no zeros, if it keeps only those.
    places: Option<Vec<usize>>,
}

impl Factors {
    fn random(types: [&'static str; 2], (rows, columns, depth): (usize, usize, usize), random: &mut Random) -> Self {
        let [a, b] = [(types[0], rows), (types[1], columns)]
            .map(|(ty, count)| (0..count * depth).map(|_| number(ty, random)).collect());
        Self { types, depth, a, b, places: None }
    }

    /// Two of four columns of each row are not zero; of tf32, one of two.
    fn sparse(types: [&'static str; 2], random: &mut Random) -> Self {
        let mut it = Self::random(types, (64, COLUMNS, 64 / bytes(types[0])), random);
        let pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
        let chunk = |from: usize, random: &mut Random| match types[0] {
            "tf32" => vec![from + (random.bits() % 2) as usize, from + 2 + (random.bits() % 2) as usize],
            _ => pairs[random.bits() as usize % 6].map(|at| from + at).to_vec(),
        };
        let places: Vec<usize> = (0..it.a.len()).step_by(4).flat_map(|from| chunk(from, random)).collect();
        (0..it.a.len()).filter(|at| !places.contains(at)).for_each(|at| it.a[at] = 0);
        it.places = Some(places);
        it
    }

    /// What a row keeps.
    fn stored(&self) -> (Vec<u32>, usize) {
        match &self.places {
            Some(places) => (places.iter().map(|&at| self.a[at]).collect(), self.depth / 2),
            None => (self.a.clone(), self.depth),
        }
    }

    /// The register of each thread that says where the numbers are: so many bits from one on tell of columns of a row.
    fn metadata(&self, pair: usize) -> Vec<u32> {
        let Some(places) = &self.places else { return vec![0; 128] };
        // Of each number: two bits, its place among four; of tf32 four bits, both of its halves.
        let bits = |row: usize, from: usize, to: usize| {
            let there = places.iter().filter(|&&at| at / self.depth == row && (from..to).contains(&(at % self.depth)));
            there.rev().fold(0, |word, at| match self.types[0] {
                "tf32" => word << 4 | if at % 2 == 0 { 0b0100 } else { 0b1110 },
                _ => word << 2 | (at % 4) as u32,
            })
        };
        (0..128)
            .map(|thread| {
                let (row, four) = (thread / 32 * 16 + thread % 32 / 4, thread % 4);
                match bytes(self.types[0]) {
                    1 => bits(row + four % 2 * 8, four / 2 * 32, four / 2 * 32 + 32),
                    // What the other pair holds does not count.
                    _ if four / 2 != pair => 0xffff_ffff,
                    size => {
                        let (from, to) = (four % 2 * 32 / size, (four % 2 + 1) * 32 / size);
                        bits(row, from, to) | bits(row + 8, from, to) << 16
                    }
                }
            })
            .collect()
    }

    /// The sum of products of a row and a column, and that of their sizes.
    fn product(&self, row: usize, column: usize) -> (f64, f64) {
        let terms = (0..self.depth).map(|k| {
            let x = value(self.types[0], self.a[row * self.depth + k]);
            x * value(self.types[1], self.b[column * self.depth + k])
        });
        terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()))
    }
}

/// Whether a result is right, as far as its type and sums in single precision can tell.
fn holds(sum: &str, given: f64, (exact, size): (f64, f64)) -> bool {
    let ulp = match sum {
        "f16" => 2f64.powi(-11) * exact.abs() + 2f64.powi(-25),
        "f32" => 0.0,
        _ => return given == exact,
    };
    let overflows = sum == "f16" && exact.abs() > 65519.0 && given.abs() > 65504.0;
    overflows || (given - exact).abs() <= ulp + size * 2f64.powi(-19)
}

/// The rows of a factor in shared memory as matrices of 8 rows of 16 bytes, which follow each other along a row.
fn cores(ty: &str, numbers: &[u32], depth: usize) -> Vec<u8> {
    let per = 16 / bytes(ty);
    let matrices = numbers.chunks(8 * depth).flat_map(|rows| (0..depth / per).map(move |core| (rows, core)));
    let row = |(rows, core): (&[u32], usize), row: usize| rows[row * depth + core * per..][..per].to_vec();
    pack(ty, matrices.flat_map(|matrix| (0..8).flat_map(move |i| row(matrix, i))))
}

/// The registers of each thread with rows of a: 16 rows a warp.
fn fragments(ty: &str, numbers: &[u32], depth: usize) -> Vec<u8> {
    let per = 4 / bytes(ty);
    let element = |thread: usize, register: usize, part: usize| {
        let row = thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 2);
        numbers[row * depth + (register / 2 * 4 + thread % 4) * per + part]
    };
    let all = (0..numbers.len() / depth / 16 * 32).flat_map(|t| (0..depth / per / 4 * 2).map(move |r| (t, r)));
    pack(ty, all.flat_map(|(t, r)| (0..per).map(move |p| element(t, r, p))))
}

/// The PTX of a product of 64 rows of 32 bytes; sums start at what the host gives.
fn warpgroup(
    types: [&str; 2],
    sum: &str,
    in_registers: bool,
    rest: &str,
    (saturate, pair): (bool, Option<u32>),
) -> String {
    let count = COLUMNS / 2 / if sum == "f16" { 2 } else { 1 };
    let sums: Vec<String> = (0..count).map(|i| format!("%d{i}")).collect();
    let each = |f: &dyn Fn(usize) -> String| (0..count).map(f).collect::<String>();
    let row = if pair.is_some() { 64 } else { 32 };
    format!(
        ".version 8.7
.target sm_90a
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 places)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<11>;
    .reg .b32 %d<{count}>;
    .reg .b64 %rd<9>;
    .shared .align 128 .b8 tile[{room}];
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u64 %rd8, [places];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd8, %rd8, %rd4;
    ld.global.u32 %r10, [%rd8];
    shl.b32 %r2, %r1, 4;
    cvt.u64.u32 %rd4, %r2;
    add.u64 %rd1, %rd1, %rd4;
    ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd1];
    mov.u32 %r7, tile;
    add.u32 %r8, %r7, %r2;
    st.shared.v4.u32 [%r8], {{%r3, %r4, %r5, %r6}};
    setp.ge.u32 %p1, %r1, {threads};
    @%p1 bra READY;
    add.u64 %rd2, %rd2, %rd4;
    ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd2];
    st.shared.v4.u32 [%r8+2048], {{%r3, %r4, %r5, %r6}};
    ld.global.v4.u32 {{%r3, %r4, %r5, %r6}}, [%rd1];
READY:
    mul.wide.u32 %rd5, %r1, {width};
    add.u64 %rd3, %rd3, %rd5;
    {loads}
    fence.proxy.async;
    bar.sync 0;
    shr.u32 %r9, %r7, 4;
    cvt.u64.u32 %rd6, %r9;
    add.u64 %rd7, %rd6, 128;
    or.b64 %rd6, %rd6, 0x0000001000080000;
    or.b64 %rd7, %rd7, {right_strides};
    wgmma.fence.sync.aligned;
    wgmma.mma_async{sp}.sync.aligned.m64n{COLUMNS}k{depth}.{sum}.{left}.{right}{saturate} {{{sums}}}, {a}, %rd7{places}, 1{rest};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    {stores}
    ret;
}}",
        room = 2048 + row * COLUMNS,
        threads = row * COLUMNS / 16,
        // Eight rows of a and of b take as many matrices of 128 bytes as a row has 16 bytes.
        right_strides = if row == 64 { "0x0000002000080000" } else { "0x0000001000080000" },
        sp = if pair.is_some() { ".sp" } else { "" },
        places = pair.map_or(String::new(), |pair| format!(", %r10, {pair}")),
        width = 4 * count,
        loads = each(&|i| format!("ld.global.u32 %d{i}, [%rd3+{}];\n", 4 * i)),
        stores = each(&|i| format!("st.global.u32 [%rd3+{}], %d{i};\n", 4 * i)),
        depth = row / bytes(types[0]),
        left = types[0],
        right = types[1],
        saturate = if saturate { ".satfinite" } else { "" },
        sums = sums.join(", "),
        a = if in_registers { "{%r3, %r4, %r5, %r6}" } else { "%rd6" },
    )
}

/// Runs it; the sum at a row and a column.
fn run(
    ptx: &str,
    factors: &Factors,
    in_registers: bool,
    sum: &str,
    start: u32,
) -> impl Fn(usize, usize) -> u32 + use<> {
    let module = PtxModule::load(ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
    let mut device = Device::new();
    let (a, depth) = factors.stored();
    let a = match in_registers {
        true => fragments(factors.types[0], &a, depth),
        false => cores(factors.types[0], &a, depth),
    };
    let places = upload(&mut device, &factors.metadata(usize::from(ptx.contains("%r10, 1,"))));
    let (a, b) = (upload(&mut device, &a), upload(&mut device, &cores(factors.types[1], &factors.b, factors.depth)));
    let per = if sum == "f16" { 2 } else { 1 };
    let count = COLUMNS / 2 / per;
    let c = upload(&mut device, &vec![start; 128 * count]);
    clean(&mut device, &module, "product", Launch::linear(1, 128), &[a, b, c, places].map(Arg::Pointer));
    let out = download::<u32>(&device, c, 128 * count);
    move |row, column| {
        let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
        let element = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
        let word = out[thread * count + element / per];
        if per == 2 { word >> (16 * (element % 2)) & 0xffff } else { word }
    }
}

#[test]
fn products_of_a_warpgroup() {
    let mut random = Random(5);
    let halves = ", 1, -1, 0";
    for (types, sum, rest) in [
        (["e4m3", "e4m3"], "f32", ", 1, 1"),
        (["e4m3", "e5m2"], "f32", ", -1, 1"),
        (["e5m2", "e4m3"], "f16", ", -1, -1"),
        (["e5m2", "e5m2"], "f32", ", 1, 1"),
        (["tf32", "tf32"], "f32", ", 1, -1"),
        (["bf16", "bf16"], "f32", halves),
        (["f16", "f16"], "f32", halves),
        (["f16", "f16"], "f16", halves),
        (["s8", "s8"], "s32", ""),
        (["s8", "u8"], "s32", ""),
        (["u8", "u8"], "s32", ""),
    ] {
        let pairs = if bytes(types[0]) == 1 { vec![None, Some(0)] } else { vec![None, Some(0), Some(1)] };
        for (in_registers, pair) in pairs.iter().flat_map(|pair| [(false, *pair), (true, *pair)]) {
            let factors = match pair {
                Some(_) => Factors::sparse(types, &mut random),
                None => Factors::random(types, (64, COLUMNS, 32 / bytes(types[0])), &mut random),
            };
            let more = if rest == halves && !in_registers { ", 0" } else { "" };
            let ptx = warpgroup(types, sum, in_registers, &format!("{rest}{more}"), (false, pair));
            // One, or a thousand.
            let (start, one) = match sum {
                "f32" => (0x3f80_0000, 1.0),
                "f16" => (0x3c00_3c00, 1.0),
                _ => (1000, 1000.0),
            };
            let at = run(&ptx, &factors, in_registers, sum, start);
            let sign = if rest.matches('-').count() == 1 { -1.0 } else { 1.0 };
            for (row, column) in (0..64).flat_map(|row| (0..COLUMNS).map(move |column| (row, column))) {
                let (exact, size) = factors.product(row, column);
                let (exact, size, given) = (sign * exact + one, size + one, value(sum, at(row, column)));
                assert!(
                    holds(sum, given, (exact, size)),
                    "{types:?} {sum}, {in_registers}, {pair:?}, ({row}, {column}): {given}, not {exact}"
                );
            }
        }
    }
}

#[test]
fn every_float_of_8_bits() {
    for ty in ["e4m3", "e5m2"] {
        // Each row multiplies four numbers by one and by zeros.
        let one = if ty == "e4m3" { 0x38 } else { 0x3c };
        let special = |bits: u32| if ty == "e4m3" { bits & 0x7f == 0x7f } else { bits & 0x7c == 0x7c };
        let mut factors =
            Factors { types: [ty, ty], depth: 32, a: vec![0; 64 * 32], b: vec![0; COLUMNS * 32], places: None };
        (0..4).for_each(|k| factors.b[k * 32 + k] = one);
        (0..256).filter(|&bits| !special(bits)).for_each(|bits| {
            factors.a[bits as usize / 4 * 32 + bits as usize % 4] = bits;
        });
        let ptx = warpgroup([ty, ty], "f32", false, ", 1, 1", (false, None));
        let at = run(&ptx, &factors, false, "f32", 0);
        for bits in (0..256).filter(|&bits| !special(bits)) {
            let given = f32::from_bits(at(bits as usize / 4, bits as usize % 4));
            assert_eq!(f64::from(given), value(ty, bits), "{ty} {bits:#04x}");
        }
        // NaN, and infinity where there is one: alone in its row.
        let specials: Vec<u32> = (0..256).filter(|&bits| special(bits)).collect();
        factors.a.fill(0);
        specials.iter().enumerate().for_each(|(row, &bits)| factors.a[row * 32] = bits);
        factors.b.fill(one);
        let at = run(&ptx, &factors, false, "f32", 0);
        for (row, bits) in specials.into_iter().enumerate() {
            let given = f32::from_bits(at(row, 0));
            match (ty, bits & 3) {
                ("e5m2", 0) => assert_eq!(given, if bits & 0x80 == 0 { f32::INFINITY } else { f32::NEG_INFINITY }),
                _ => assert!(given.is_nan(), "{ty} {bits:#04x}: {given}"),
            }
        }
    }
}

#[test]
fn integer_sums_wrap_or_stop() {
    let mut factors =
        Factors { types: ["u8", "u8"], depth: 32, a: vec![255; 64 * 32], b: vec![255; COLUMNS * 32], places: None };
    for (saturate, low) in [(false, false), (true, false), (true, true)] {
        if low {
            factors.types[0] = "s8";
            factors.a.fill(0x80);
        }
        let ptx = warpgroup(factors.types, "s32", false, "", (saturate, None));
        let start = if low { i32::MIN + 5 } else { i32::MAX - 5 };
        let at = run(&ptx, &factors, false, "s32", start as u32);
        let expected = match (saturate, low) {
            (false, _) => start.wrapping_add(32 * 255 * 255),
            (true, false) => i32::MAX,
            (true, true) => i32::MIN,
        };
        assert_eq!(at(63, 15) as i32, expected);
    }
}

#[test]
fn products_of_a_warp() {
    let mut random = Random(6);
    for (types, depth) in [["e4m3", "e4m3"], ["e4m3", "e5m2"], ["e5m2", "e4m3"], ["e5m2", "e5m2"]]
        .into_iter()
        .flat_map(|types| [(types, 16), (types, 32)])
    {
        for sum in ["f32", "f16"] {
            let factors = Factors::random(types, (16, 8, depth), &mut random);
            let (left, right, sums) = (depth / 8, depth / 16, if sum == "f16" { 2 } else { 4 });
            let list =
                |name: &str, count: usize| (0..count).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
            let moves = |op: &str, name: &str, base: &str, count: usize| {
                let one = |i: usize| match op {
                    "ld" => format!("ld.global.u32 %{name}{i}, [{base}+{}];\n", 4 * i),
                    _ => format!("st.global.u32 [{base}+{}], %{name}{i};\n", 4 * i),
                };
                (0..count).map(one).collect::<String>()
            };
            let ptx = format!(
                ".version 8.7
.target sm_90
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c)
{{
    .reg .b32 %r<2>;
    .reg .b32 %a<4>;
    .reg .b32 %b<2>;
    .reg .b32 %d<4>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, {};
    add.u64 %rd1, %rd1, %rd4;
    mul.wide.u32 %rd5, %r1, {};
    add.u64 %rd2, %rd2, %rd5;
    mul.wide.u32 %rd6, %r1, {};
    add.u64 %rd3, %rd3, %rd6;
    {}{}{}
    mma.sync.aligned.m16n8k{depth}.row.col.{sum}.{}.{}.{sum} {{{}}}, {{{}}}, {{{}}}, {{{}}};
    {}
    ret;
}}",
                4 * left,
                4 * right,
                4 * sums,
                moves("ld", "a", "%rd1", left),
                moves("ld", "b", "%rd2", right),
                moves("ld", "d", "%rd3", sums),
                types[0],
                types[1],
                list("d", sums),
                list("a", left),
                list("b", right),
                list("d", sums),
                moves("st", "d", "%rd3", sums),
            );
            let module = PtxModule::load(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
            let mut device = Device::new();
            let a = upload(&mut device, &fragments(types[0], &factors.a, depth));
            // Columns of b: four numbers a register, 16 numbers for the four threads of a column.
            let b = (0..32).flat_map(|lane| (0..right).map(move |register| (lane, register)));
            let b =
                b.flat_map(|(lane, register)| (0..4).map(move |i| lane / 4 * depth + register * 16 + lane % 4 * 4 + i));
            let b = upload(&mut device, &pack(types[1], b.map(|at| factors.b[at])));
            let start = if sum == "f16" { 0x4000_3c00 } else { 0x3f80_0000 };
            let c = upload(&mut device, &vec![start; 32 * sums]);
            clean(&mut device, &module, "product", Launch::linear(1, 32), &[a, b, c].map(Arg::Pointer));
            let out = download::<u32>(&device, c, 32 * sums);
            for (row, column) in (0..16).flat_map(|row| (0..8).map(move |column| (row, column))) {
                let (lane, element) = (row % 8 * 4 + column / 2, row / 8 * 2 + column % 2);
                let (given, start) = match sum {
                    "f16" => {
                        let word = out[lane * 2 + element / 2] >> (16 * (element % 2)) & 0xffff;
                        (word, if element % 2 == 0 { 1.0 } else { 2.0 })
                    }
                    _ => (out[lane * 4 + element], 1.0),
                };
                let (exact, size) = factors.product(row, column);
                let given = value(sum, given);
                assert!(
                    holds(sum, given, (exact + start, size + start)),
                    "{types:?} k{depth} {sum}, ({row}, {column}): {given}, not {}",
                    exact + start
                );
            }
        }
    }
}

#[test]
fn sparse_products_of_a_warp() {
    let mut random = Random(7);
    for (ty, pair, form) in [("bf16", 0, "sp::ordered_metadata"), ("bf16", 1, "sp"), ("f16", 0, "sp"), ("f16", 1, "sp")]
    {
        let factors = Factors::sparse([ty, ty], &mut random);
        let ptx = format!(
            ".version 8.7
.target sm_90
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 places)
{{
    .reg .b32 %r<11>;
    .reg .b32 %d<4>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u64 %rd4, [places];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd5, %r1, 16;
    mul.wide.u32 %rd6, %r1, 4;
    add.u64 %rd1, %rd1, %rd5;
    add.u64 %rd2, %rd2, %rd5;
    add.u64 %rd3, %rd3, %rd5;
    add.u64 %rd4, %rd4, %rd6;
    ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%rd1];
    ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd2];
    ld.global.v4.u32 {{%d0, %d1, %d2, %d3}}, [%rd3];
    ld.global.u32 %r10, [%rd4];
    mma.{form}.sync.aligned.m16n8k32.row.col.f32.{ty}.{ty}.f32 {{%d0, %d1, %d2, %d3}}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7, %r8, %r9}}, {{%d0, %d1, %d2, %d3}}, %r10, {pair};
    st.global.v4.u32 [%rd3], {{%d0, %d1, %d2, %d3}};
    ret;
}}"
        );
        for (from, to) in [("m16n8k32", "m16n8k16"), (", %r10, ", ", %r10, 3"), (".row", ".satfinite.row")] {
            assert!(PtxModule::load(&ptx.replace(from, to)).is_err(), "{to}");
        }
        let module = PtxModule::load(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        let mut device = Device::new();
        // A warp's 16 of the 64 rows, and eight of the columns.
        let (stored, depth) = factors.stored();
        let a = upload(&mut device, &fragments(ty, &stored[..16 * depth], depth));
        // Columns of b: register r of a lane has two numbers of its column, from row 8 r on.
        let b = (0..32).flat_map(|lane| (0..4).map(move |register| (lane, register)));
        let b = b.flat_map(|(lane, register)| (0..2).map(move |i| lane / 4 * 32 + register * 8 + lane % 4 * 2 + i));
        let b = upload(&mut device, &pack(ty, b.map(|at| factors.b[at])));
        let c = upload(&mut device, &vec![0x3f80_0000_u32; 128]);
        let metadata = upload(&mut device, &factors.metadata(pair)[..32]);
        clean(&mut device, &module, "product", Launch::linear(1, 32), &[a, b, c, metadata].map(Arg::Pointer));
        let out = download::<u32>(&device, c, 128);
        for (row, column) in (0..16).flat_map(|row| (0..8).map(move |column| (row, column))) {
            let given = value("f32", out[(row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2]);
            let (exact, size) = factors.product(row, column);
            assert!(
                holds("f32", given, (exact + 1.0, size + 1.0)),
                "{ty} {pair}, ({row}, {column}): {given}, not {exact}"
            );
        }
    }
}

#[test]
fn what_no_gpu_has_is_refused() {
    let good = warpgroup(["e4m3", "e4m3"], "f32", false, ", 1, 1", (false, None));
    assert!(PtxModule::load(&good).is_ok());
    for (from, to) in [
        ("m64n16k32", "m64n16k16"),
        (".f32.e4m3.e4m3", ".f32.e4m3.s8"),
        (".f32.e4m3.e4m3", ".f32.e4m3.e4m3.satfinite"),
        (", 1, 1, 1;", ", 1, 1, 1, 0, 0;"),
        (", 1, 1, 1;", ", 1, 1, 2;"),
        ("wgmma.mma_async.sync", "wgmma.mma_async.sp.sync"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = PtxModule::load(&good.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains("wgmma"), "{error}");
    }
    // Of 8 bits, all four threads hold places: there is no pair to choose.
    let sparse = warpgroup(["e4m3", "e4m3"], "f32", false, ", 1, 1", (false, Some(0)));
    assert!(PtxModule::load(&sparse).is_ok());
    assert!(PtxModule::load(&sparse.replace("%r10, 0,", "%r10, 1,")).is_err());
    // Sums of integers: no multiple of 16, and signs that only floats have.
    let integers = warpgroup(["s8", "s8"], "s32", false, "", (false, None));
    assert!(PtxModule::load(&integers).is_ok());
    for (from, to) in [(", 1;", ", 1, 1, 1;"), ("m64n16k32", "m64n40k32")] {
        assert!(PtxModule::load(&integers.replace(from, to)).is_err(), "{to}");
    }
}

/// One conversion in each of so many threads, of two words to one.
fn convert(instruction: &str, words: &[[u32; 2]]) -> Vec<u32> {
    let ptx = format!(
        ".version 8.7
.target sm_90
.address_size 64
.visible .entry convert(.param .u64 from, .param .u64 to)
{{
    .reg .b16 %h<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r1, %r1, 64, %r2;
    mul.wide.u32 %rd3, %r1, 8;
    add.u64 %rd1, %rd1, %rd3;
    ld.global.v2.u32 {{%r3, %r4}}, [%rd1];
    cvt.u16.u32 %h1, %r3;
    {instruction}
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd2, %rd2, %rd4;
    st.global.u32 [%rd2], %r5;
    ret;
}}"
    );
    let module = PtxModule::load(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
    let mut device = Device::new();
    let from = upload(&mut device, &words.concat());
    let to = upload(&mut device, &vec![0u32; words.len()]);
    let launch = Launch::linear(words.len() as u32 / 64, 64);
    clean(&mut device, &module, "convert", launch, &[from, to].map(Arg::Pointer));
    download(&device, to, words.len())
}

#[test]
fn floats_of_8_bits_from_and_to_others() {
    let mut random = Random(8);
    for (ty, finite, nan) in [("e4m3", 0x7e, 0x7f), ("e5m2", 0x7b, 0x7f)] {
        // Back and forth, in both halves.
        let all: Vec<[u32; 2]> = (0..256).map(|bits| [bits | (bits ^ 0x55) << 8, 0]).collect();
        let halves = convert(&format!("cvt.rn.f16x2.{ty}x2 %r5, %h1;"), &all);
        let back = format!("cvt.rn.satfinite.{ty}x2.f16x2 %h1, %r3; cvt.u32.u16 %r5, %h1;");
        let back = convert(&back, &halves.iter().map(|&word| [word, 0]).collect::<Vec<_>>());
        for (at, [pair, _]) in all.into_iter().enumerate() {
            for (bits, half, again) in
                [(pair & 0xff, halves[at] & 0xffff, back[at] & 0xff), (pair >> 8, halves[at] >> 16, back[at] >> 8)]
            {
                if bits & 0x7f <= finite {
                    assert_eq!((value("f16", half), again), (value(ty, bits), bits), "{ty} {bits:#04x}");
                }
            }
        }
        // To the nearest of all, ties to even, and never past the largest.
        let nearest = |x: f32| {
            let codes = (0..=finite).map(|code| code | if x.is_sign_negative() { 0x80 } else { 0 });
            let most = value(ty, finite);
            let away = |code: u32| (value(ty, code) - f64::from(x).clamp(-most, most)).abs();
            codes.min_by(|&x, &y| away(x).total_cmp(&away(y)).then((x & 1).cmp(&(y & 1)))).expect("codes")
        };
        let mut floats: Vec<f32> =
            (0..960).map(|_| random.float() * 2f32.powi((random.bits() % 36) as i32 - 18)).collect();
        floats.extend((0..finite).map(|code| (value(ty, code) + value(ty, code + 1)) as f32 / 2.0));
        floats.extend([0.0, -0.0, 1e30, -1e30, f32::INFINITY, f32::MIN_POSITIVE]);
        floats.resize(floats.len().next_multiple_of(64), 1.0);
        let words: Vec<[u32; 2]> = floats.iter().map(|x| [x.to_bits(), (-x).to_bits()]).collect();
        let given = convert(&format!("cvt.rn.satfinite.{ty}x2.f32 %h1, %r3, %r4; cvt.u32.u16 %r5, %h1;"), &words);
        for (x, given) in floats.iter().zip(given) {
            assert_eq!(given, nearest(*x) << 8 | nearest(-x), "{ty} {x}");
        }
        let relu = format!("cvt.rn.satfinite.relu.{ty}x2.f32 %h1, %r3, %r4; cvt.u32.u16 %r5, %h1;");
        let given = convert(&relu, &[[f32::NAN.to_bits(), (-2f32).to_bits()]; 64]);
        assert_eq!(given, [nan << 8; 64]);
    }
}

#[test]
fn a_swizzle_narrower_than_a_row() {
    let ptx = warpgroup(["s8", "s8"], "s32", false, "", (false, Some(0))).replace("0x00000020000", "0xc0000020000");
    let module = PtxModule::load(&ptx).unwrap_or_else(|e| panic!("{e}"));
    let mut device = Device::new();
    let args = [upload(&mut device, &[0u8; 4096]); 4].map(Arg::Pointer);
    let findings = device.launch(&module, "product", Launch::linear(1, 128), &args).expect("it runs").findings;
    assert!(
        findings.iter().any(|f| f.message.contains("a swizzle of 32 bytes, and each of its rows has 64")),
        "{findings:?}"
    );
}
