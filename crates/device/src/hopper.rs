//! What Hopper GPUs brought: the TMA, barriers that count bytes, and products of warpgroups (wgmma). Names and rules: PTX ISA,
//! "mbarrier", "cp.async.bulk.tensor", "wgmma" and "setmaxnreg". All of it needs sm_90a.

use crate::macros::asm;

/// Threads of a warpgroup, which multiply together.
pub const WARPGROUP: u32 = 128;

/// What a launch passes for a `gpulab::gpu::TensorMap`: base, sizes and box of a matrix, opaque to a kernel. It is a parameter by
/// value, and [`tensor_map!`](crate::tensor_map) says where it lies.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub struct CuTensorMap([u64; 16]);

/// Where parameter number `at` of this kernel lies, a [`CuTensorMap`], as the TMA takes it: `tensor_map!(matmul, 0)`.
///
/// In CUDA C it is the address of a `const __grid_constant__` parameter; of any other one LLVM makes a copy first, in memory
/// that the TMA does not reach. To be written in the kernel itself, since a function has no parameters of that name. The TMA asks
/// for a multiple of 64, and rustc aligns parameters to 16 bytes at most: `gpulab` writes `.align 64` where this comment says so.
#[macro_export]
macro_rules! tensor_map {
    ($kernel:ident, $at:literal) => {{
        let map: u64;
        // SAFETY: it takes the address of a parameter.
        unsafe {
            $crate::macros::asm!(
                concat!("{{ .reg .u64 at; mov.u64 at, ", stringify!($kernel), "_param_", $at, "; cvta.param.u64 {}, at; }} // tensor_map ",
                    stringify!($kernel), "_param_", $at),
                out(reg64) map, options(pure, nomem, nostack, preserves_flags));
        }
        map
    }};
}

/// Barriers in shared memory (mbarrier), one behind the other. A phase of a barrier ends when all have arrived that are expected,
/// and all bytes are there.
#[derive(Debug, Clone, Copy)]
pub struct Barriers(u32);

impl Barriers {
    /// # Safety
    /// From that multiple of 8 on, shared memory has room for all that are used, 8 bytes each. Before any other use,
    /// [`init`](Barriers::init) has run for it, and the threads have met.
    #[inline(always)]
    pub unsafe fn new(address: u32) -> Barriers {
        Barriers(address)
    }

    /// The address of one of them.
    #[inline(always)]
    pub fn address(self, at: u32) -> u32 {
        self.0 + at * 8
    }

    /// By one thread: so many arrive in each phase.
    #[inline(always)]
    pub fn init(self, at: u32, count: u32) {
        // SAFETY: as `new` was promised.
        unsafe {
            asm!("mbarrier.init.shared::cta.b64 [{}], {};", in(reg32) self.address(at), in(reg32) count, options(nostack));
        }
    }

    /// One arrives.
    #[inline(always)]
    pub fn arrive(self, at: u32) {
        // SAFETY: as above.
        unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{}];", in(reg32) self.address(at), options(nostack)) }
    }

    /// One arrives, and says how many bytes the TMA will bring in this phase.
    #[inline(always)]
    pub fn arrive_and_expect(self, at: u32, bytes: u32) {
        // SAFETY: as above.
        unsafe {
            asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{}], {};", in(reg32) self.address(at), in(reg32) bytes,
                options(nostack));
        }
    }

    /// Waits for the end of the phase of this parity: 0 for the first one, 1 for the second, 0 for the third …
    #[inline(always)]
    #[allow(named_asm_labels)] // within braces a label of PTX is known there alone
    pub fn wait(self, at: u32, parity: u32) {
        // SAFETY: as above.
        unsafe {
            asm!("{{ .reg .pred done;", "again: mbarrier.try_wait.parity.shared::cta.b64 done, [{}], {};", "@!done bra again; }}",
                in(reg32) self.address(at), in(reg32) parity, options(nostack));
        }
    }
}

/// By the thread that has made barriers: the TMA is to know them.
#[inline(always)]
pub fn barriers_are_ready() {
    // SAFETY: a fence.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack)) }
}

/// What was written to shared memory before this is seen by the TMA and by products after it.
#[inline(always)]
pub fn fence_async() {
    // SAFETY: a fence.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack)) }
}

/// One thread asks the TMA for a box of a stack of matrices, from that column, row and matrix on: rows of 128 bytes, swizzled on
/// the way. What lies beyond the matrix arrives as zeros. Its bytes count at the barrier.
///
/// # Safety
/// `map` is a [`tensor_map!`](crate::tensor_map) of a stack, made for reading, and the box has room at `to`, a multiple of 1024.
#[inline(always)]
pub unsafe fn tma_load(to: u32, map: u64, [column, row, matrix]: [i32; 3], (barriers, at): (Barriers, u32)) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{}], [{}, {{{}, {}, {}}}], [{}];",
            in(reg32) to, in(reg64) map, in(reg32) column, in(reg32) row, in(reg32) matrix, in(reg32) barriers.address(at),
            options(nostack));
    }
}

/// One thread has the TMA write such a box; what lies beyond the matrix is not written.
///
/// # Safety
/// As [`tma_load`], with a map made for writing; nobody else writes the same.
#[inline(always)]
pub unsafe fn tma_store(map: u64, from: u32, [column, row, matrix]: [i32; 3]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [{}, {{{}, {}, {}}}], [{}];", "cp.async.bulk.commit_group;",
            in(reg64) map, in(reg32) column, in(reg32) row, in(reg32) matrix, in(reg32) from, options(nostack));
    }
}

/// Waits until at most `LEFT` of this thread's stores still read shared memory.
#[inline(always)]
pub fn tma_stores_read<const LEFT: u32>() {
    // SAFETY: it waits.
    unsafe { asm!("cp.async.bulk.wait_group.read {};", const LEFT, options(nostack)) }
}

/// Waits until `threads` threads are at the barrier of this number, from 1 on (0 is that of the whole block).
#[inline(always)]
pub fn sync_some(number: u32, threads: u32) {
    // SAFETY: as `sync_threads`.
    unsafe { asm!("bar.sync {}, {};", in(reg32) number, in(reg32) threads, options(nostack)) }
}

/// Registers move from warpgroups that need few to others: from now on each of its threads has `COUNT`, a multiple of 8.
#[inline(always)]
pub fn give_registers<const COUNT: u32>() {
    // SAFETY: ptxas keeps what a thread needs within them, or says that it cannot.
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 {};", const COUNT, options(nostack)) }
}

/// Waits until there are so many for each thread, and takes them.
#[inline(always)]
pub fn take_registers<const COUNT: u32>() {
    // SAFETY: as above.
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 {};", const COUNT, options(nostack)) }
}

/// Where a tile of rows of 128 bytes lies, swizzled, for [`Sums::add_product`]; `leading` and `stride`: bytes between its pieces
/// along the rows and across them.
#[inline(always)]
pub fn tile_descriptor(address: u32, leading: u32, stride: u32) -> u64 {
    u64::from((address & 0x3_ffff) >> 4) | u64::from(leading >> 4) << 16 | u64::from(stride >> 4) << 32 | 1 << 62
}

/// The products that were started since the last call are one group.
#[inline(always)]
pub fn commit_products() {
    // SAFETY: it touches no memory.
    unsafe { asm!("wgmma.commit_group.sync.aligned;", options(nostack)) }
}

/// A thread's part of a product of 64 rows and twice as many columns as it has numbers: of each 8 columns two neighbours of two
/// rows that are eight apart. All 128 threads of a warpgroup come to each call.
pub trait Sums: Copy + AsRef<[f32]> {
    /// Of that function's numbers.
    fn of(f: impl Fn(usize) -> f32) -> Self;
    /// Zeros. LLVM is told nothing of their value: where it knows it, it writes them on each way to a product, also on those that
    /// come from another one, and ptxas then has each product wait for the one before.
    fn zeros() -> Self;
    /// What was written to these registers, and to those of left operands, comes before the products that follow.
    fn fence(&mut self);
    /// Starts `self += a · b` (or `self = a · b` where `keep` is false) of 64 × 16 and 16 × N numbers in bf16, and returns:
    /// `self` is not to be touched before [`wait`](Sums::wait). `a` and `b` are [`tile_descriptor`]s, `a`'s rows along the sum;
    /// b's rows (its lines in memory) lie across the sum where `ACROSS` is 1, else along it, too.
    fn add_product<const ACROSS: u32>(&mut self, a: u64, b: u64, keep: bool);
    /// The same with `a` from registers: two rows' pairs of columns, and the same 8 columns further.
    fn add_product_of<const ACROSS: u32>(&mut self, a: [u32; 4], b: u64, keep: bool);
    /// Waits until at most `LEFT` groups of products are unfinished. `self` holds what the others have left.
    fn wait<const LEFT: u32>(&mut self);
}

/// A number that is not negative is known here: what follows, such as a wait for products, is not moved in front of the arithmetic
/// that it comes from. (ptxas moves `wgmma.wait_group` up past all arithmetic on other registers, but not into another basic
/// block: this branch ends one. It is never taken.)
#[inline(always)]
#[allow(named_asm_labels)] // within braces a label of PTX is known there alone
pub fn settle(x: f32) {
    // SAFETY: at the most it waits a moment.
    unsafe {
        asm!("{{ .reg .pred odd;", "setp.lt.f32 odd, {}, 0f00000000;", "@!odd bra known;", "nanosleep.u32 20;", "known: }}",
            in(reg32) x, options(nostack));
    }
}

/// Indices of all registers but the last one, the last one, and the numbers of the operands behind them.
macro_rules! sums {
    ($count:literal, $columns:literal: $($i:literal)*, $last:literal; $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal) => {
        impl Sums for [f32; $count] {
            #[inline(always)]
            fn of(f: impl Fn(usize) -> f32) -> Self {
                core::array::from_fn(f)
            }

            #[inline(always)]
            fn zeros() -> Self {
                let mut own = [0.0; $count];
                // SAFETY: no instruction.
                unsafe {
                    asm!(concat!("//", $(" {", $i, "}",)* " {", $last, "}"),
                        $(inout(reg32) own[$i],)* inout(reg32) own[$last], options(pure, nomem, nostack));
                }
                own
            }

            #[inline(always)]
            fn fence(&mut self) {
                // SAFETY: a fence. The registers are named in a comment: LLVM is to have written them before it.
                unsafe {
                    asm!(concat!("wgmma.fence.sync.aligned; //", $(" {", $i, "}",)* " {", $last, "}"),
                        $(inout(reg32) self[$i],)* inout(reg32) self[$last], options(nostack));
                }
            }

            #[inline(always)]
            fn add_product<const ACROSS: u32>(&mut self, a: u64, b: u64, keep: bool) {
                // SAFETY: arithmetic on registers and shared memory.
                unsafe {
                    asm!("{{ .reg .pred keep;", concat!("setp.ne.b32 keep, {", $c, "}, 0;"),
                        concat!("wgmma.mma_async.sync.aligned.m64n", $columns, "k16.f32.bf16.bf16 {{", $("{", $i, "}, ",)* "{", $last,
                            "}}}, {", $a, "}, {", $b, "}, keep, 1, 1, 0, {", $d, "}; }}"),
                        $(inout(reg32) self[$i],)* inout(reg32) self[$last], in(reg64) a, in(reg64) b,
                        in(reg32) u32::from(keep), const ACROSS, options(nostack));
                }
            }

            #[inline(always)]
            fn add_product_of<const ACROSS: u32>(&mut self, a: [u32; 4], b: u64, keep: bool) {
                // SAFETY: as above.
                unsafe {
                    asm!("{{ .reg .pred keep;", concat!("setp.ne.b32 keep, {", $f, "}, 0;"),
                        concat!("wgmma.mma_async.sync.aligned.m64n", $columns, "k16.f32.bf16.bf16 {{", $("{", $i, "}, ",)* "{", $last,
                            "}}}, {{{", $a, "}, {", $b, "}, {", $c, "}, {", $d, "}}}, {", $e, "}, keep, 1, 1, {", $g, "}; }}"),
                        $(inout(reg32) self[$i],)* inout(reg32) self[$last], in(reg32) a[0], in(reg32) a[1], in(reg32) a[2],
                        in(reg32) a[3], in(reg64) b, in(reg32) u32::from(keep), const ACROSS, options(nostack));
                }
            }

            #[inline(always)]
            fn wait<const LEFT: u32>(&mut self) {
                // SAFETY: it waits. The registers are named in a comment: LLVM is not to use what they held before.
                unsafe {
                    asm!(concat!("wgmma.wait_group.sync.aligned {", $a, "}; //", $(" {", $i, "}",)* " {", $last, "}"),
                        $(inout(reg32) self[$i],)* inout(reg32) self[$last], const LEFT, options(nostack));
                }
            }
        }
    };
}

sums!(32, 64: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30, 31; 32 33 34 35 36 37 38);
sums!(64, 128: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62, 63; 64 65 66 67 68 69 70);
sums!(96, 192: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82
    83 84 85 86 87 88 89 90 91 92 93 94, 95; 96 97 98 99 100 101 102);
sums!(128, 256: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82
    83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117
    118 119 120 121 122 123 124 125 126, 127; 128 129 130 131 132 133 134);

/// Writes four 8 × 8 matrices of 16-bit numbers from the registers of a warp (`stmatrix.x4`). Lane l gives the address of row l % 8
/// of matrix l / 8. All lanes of the warp must come to this call.
///
/// # Safety
/// The address is a multiple of 16 in shared memory, with room for 16 bytes.
#[inline(always)]
pub unsafe fn store_matrices(to: u32, m: [u32; 4]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [{}], {{{}, {}, {}, {}}};", in(reg32) to, in(reg32) m[0], in(reg32) m[1],
            in(reg32) m[2], in(reg32) m[3], options(nostack));
    }
}
