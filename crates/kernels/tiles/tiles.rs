// Tiles for tensor cores. A program is written once, for a block, and compiled twice: for the thread that fetches tiles into shared
// memory, where `load` asks the TMA and `dot` is nothing; and for the warpgroups that compute, where `load` waits for the tile and
// `dot` multiplies. So copies run ahead of products, and the program says nothing of it.
use core::array::from_fn;
use gpulab_device::hopper::*;
use gpulab_device::warp::{ALL, shuffle_xor};

/// A stack of matrices of bf16 in global memory, one of them chosen, in tiles of R × C.
#[derive(Clone, Copy)]
pub struct Matrix<const R: usize, const C: usize> {
    map: u64,
    number: u32,
}

impl<const R: usize, const C: usize> Matrix<R, C> {
    /// # Safety
    /// `map` is a `tensor_map!` of a stack with boxes of R rows. If tiles are stored, it was made for writing, and no two are one.
    #[inline(always)]
    pub unsafe fn new(map: u64) -> Self {
        Matrix { map, number: 0 }
    }
    #[inline(always)]
    pub fn number(self, number: u32) -> Self {
        Matrix { number, ..self }
    }
}

/// A tile in shared memory: panels of 64 columns, whose rows have 128 bytes, swizzled.
#[derive(Clone, Copy)]
pub struct Tile<const R: usize, const C: usize>(u32);

/// The same tile, its rows taken as columns.
#[derive(Clone, Copy)]
pub struct Transposed<const R: usize, const C: usize>(u32);

impl<const R: usize, const C: usize> Tile<R, C> {
    #[inline(always)]
    pub fn transposed(self) -> Transposed<R, C> {
        Transposed(self.0)
    }
}

/// Numbers of a tile that a block computes, 64 rows of it in each warpgroup, as its products leave them: in a thread lie, of each
/// 8 columns, two neighbours of two rows that are eight apart.
#[derive(Clone, Copy)]
pub struct Sum<S>(S);

/// A number for each of a thread's two rows; the four threads that share a row have the same one.
#[derive(Clone, Copy)]
pub struct PerRow([f32; 2]);

/// A `Sum` in bf16, as the left operand of a product: the layout of the two is the same, 16 columns at a time.
#[derive(Clone, Copy)]
pub struct Rounded<S>(S);

impl<S: Sums> Sum<S> {
    #[inline(always)]
    pub fn zeros() -> Self {
        Sum(S::zeros())
    }
    #[inline(always)]
    fn at(&self, i: usize) -> f32 {
        self.0.as_ref()[i]
    }
    /// Two neighbours in bf16.
    #[inline(always)]
    fn pair(&self, i: usize) -> u32 {
        Bf16::pair_from_f32(self.at(i), self.at(i + 1))
    }
    #[inline(always)]
    pub fn map(self, row: PerRow, f: impl Fn(f32, f32) -> f32) -> Self {
        Sum(S::of(|i| f(self.at(i), row.0[i / 2 % 2])))
    }
    /// Of each row what the thread itself has.
    #[inline(always)]
    pub fn fold(self, from: PerRow, f: impl Fn(f32, f32) -> f32) -> PerRow {
        let own = |half| (0..size_of::<S>() / 4).filter(move |i| i / 2 % 2 == half);
        PerRow(from_fn(|half| own(half).fold(from.0[half], |all, i| f(all, self.at(i)))))
    }
    #[inline(always)]
    pub fn rounded(self) -> Rounded<S> {
        Rounded(S::of(|i| if 2 * i < size_of::<S>() / 4 { f32::from_bits(self.pair(2 * i)) } else { 0.0 }))
    }
}

impl PerRow {
    #[inline(always)]
    pub fn full(x: f32) -> Self {
        PerRow([x; 2])
    }
    #[inline(always)]
    pub fn with(self, y: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        PerRow(from_fn(|i| f(self.0[i], y.0[i])))
    }
}

/// The right operand of a product: DEPTH numbers along the sum, 16 of them a `part`.
pub trait Right: Copy {
    const DEPTH: usize;
    fn add<S: Sums>(self, sums: &mut S, a: u64, part: usize, keep: bool);
    fn add_of<S: Sums>(self, sums: &mut S, a: [u32; 4], part: usize, keep: bool);
}

/// The left one, by the warpgroup of that number.
pub trait Left: Copy {
    fn times<S: Sums>(self, b: impl Right, sums: &mut S, group: u32, part: usize, keep: bool);
}

// Descriptors count in 16 bytes: 16 rows of a panel are 128 of them, 16 columns 2. A row of a panel has 8.
impl<const R: usize, const C: usize> Tile<R, C> {
    #[inline(always)]
    fn part(self, part: usize) -> u64 {
        tile_descriptor(self.0, R as u32 * 128, 1024) + part as u64 * 128
    }
}

impl<const R: usize, const C: usize> Transposed<R, C> {
    #[inline(always)]
    fn part(self, part: usize) -> u64 {
        tile_descriptor(self.0, 16, 1024) + (part / 4 * R * 8 + part % 4 * 2) as u64
    }
}

impl<const R: usize, const C: usize> Right for Tile<R, C> {
    const DEPTH: usize = R;
    #[inline(always)]
    fn add<S: Sums>(self, sums: &mut S, a: u64, part: usize, keep: bool) {
        sums.add_product::<1>(a, self.part(part), keep);
    }
    #[inline(always)]
    fn add_of<S: Sums>(self, sums: &mut S, a: [u32; 4], part: usize, keep: bool) {
        sums.add_product_of::<1>(a, self.part(part), keep);
    }
}

impl<const R: usize, const C: usize> Right for Transposed<R, C> {
    const DEPTH: usize = C;
    #[inline(always)]
    fn add<S: Sums>(self, sums: &mut S, a: u64, part: usize, keep: bool) {
        sums.add_product::<0>(a, self.part(part), keep);
    }
    #[inline(always)]
    fn add_of<S: Sums>(self, sums: &mut S, a: [u32; 4], part: usize, keep: bool) {
        sums.add_product_of::<0>(a, self.part(part), keep);
    }
}

impl<const R: usize, const C: usize> Left for Tile<R, C> {
    #[inline(always)]
    fn times<S: Sums>(self, b: impl Right, sums: &mut S, group: u32, part: usize, keep: bool) {
        b.add(sums, Transposed::<R, C>(self.0 + group * 64 * 128).part(part), part, keep);
    }
}

impl<P: Sums> Left for Rounded<P> {
    #[inline(always)]
    fn times<S: Sums>(self, b: impl Right, sums: &mut S, _group: u32, part: usize, keep: bool) {
        b.add_of(sums, from_fn(|i| self.0.as_ref()[part * 4 + i].to_bits()), part, keep);
    }
}

/// Shared memory, given out from its start on.
pub struct SharedMemory(u32);

impl SharedMemory {
    /// Once in a kernel, by all threads; the launch gives 1024 bytes beyond what is taken.
    #[inline(always)]
    pub fn new() -> Self {
        SharedMemory(shared!([Bf16]).address(0).next_multiple_of(1024))
    }
    #[inline(always)]
    pub fn take(&mut self, bytes: u32) -> u32 {
        self.0 += bytes;
        self.0 - bytes
    }
    /// STAGES stages of so many bytes, a multiple of 1024. Rings are taken last: their barriers follow.
    #[inline(always)]
    pub fn ring<const STAGES: u32>(&mut self, bytes: u32) -> Ring<STAGES> {
        let (stages, barriers) = (self.take(STAGES * bytes), self.take(1024));
        // SAFETY: both kinds of barriers have room, and `run` has the threads meet.
        let [full, empty] = unsafe { [Barriers::new(barriers), Barriers::new(barriers + 8 * STAGES)] };
        if thread_x() == 0 {
            for stage in 0..STAGES {
                full.init(stage, 1);
                empty.init(stage, GROUPS as u32);
            }
        }
        Ring { stages, bytes, full, empty, stage: 0, parity: 0 }
    }
}

/// Places in shared memory that are filled and emptied in turn.
#[derive(Clone, Copy)]
pub struct Ring<const STAGES: u32> {
    stages: u32,
    bytes: u32,
    full: Barriers,
    empty: Barriers,
    stage: u32,
    parity: u32,
}

/// One of them.
#[derive(Clone, Copy)]
pub struct Stage {
    at: u32,
    full: (Barriers, u32),
    empty: (Barriers, u32),
}

impl<const STAGES: u32> Ring<STAGES> {
    /// The next stage, and the parity of its phase.
    #[inline(always)]
    fn next(&mut self) -> (Stage, u32) {
        let (stage, parity) = (self.stage, self.parity);
        let last = stage == STAGES - 1;
        (self.stage, self.parity) = if last { (0, parity ^ 1) } else { (stage + 1, parity) };
        (Stage { at: self.stages + stage * self.bytes, full: (self.full, stage), empty: (self.empty, stage) }, parity)
    }
}

/// A program for a block.
pub trait Program: Copy {
    fn run<R: Role>(self, on: &mut R);
}

/// What a program is compiled for. Only `next` and `load` mean something to the thread that fetches.
pub trait Role {
    /// The next stage of a ring: of all of its bytes, to load into.
    fn next<const STAGES: u32>(&mut self, ring: &mut Ring<STAGES>) -> Stage;
    /// The tile that begins at that row and column; zeros where the matrix has no number.
    fn load<const R: usize, const C: usize>(
        &mut self,
        stage: &mut Stage,
        from: Matrix<R, C>,
        row: u32,
        column: u32,
    ) -> Tile<R, C>;
    /// Starts `sum = a · b`, or adds to it.
    #[inline(always)]
    fn start<S: Sums>(&mut self, _sum: &mut Sum<S>, _a: impl Left, _b: impl Right, _add: bool) {}
    /// Waits until no more than LEFT products are unfinished, and this sum is there.
    #[inline(always)]
    fn wait<S: Sums, const LEFT: u32>(&mut self, _sum: &mut Sum<S>) {}
    /// These numbers, which are not negative, are known before a `wait` that follows: compilers like to wait first.
    #[inline(always)]
    fn settle(&mut self, _known: PerRow) {}
    /// Nobody reads this stage any more.
    #[inline(always)]
    fn free(&mut self, _stage: Stage) {}
    /// `sum += a · b`, of tiles that lie in a stage which is freed once that is done.
    #[inline(always)]
    fn dot<S: Sums>(&mut self, _sum: &mut Sum<S>, _a: impl Left, _b: impl Right, _stage: Stage) {}
    /// What the four threads that share a row make of their numbers by `f`.
    #[inline(always)]
    fn reduce(&mut self, own: PerRow, _f: impl Fn(f32, f32) -> f32) -> PerRow {
        own
    }
    /// `other` from column `end` of each row on; rows and columns count in the tile.
    #[inline(always)]
    fn keep_below<S: Sums>(&mut self, sum: Sum<S>, _end: impl Fn(u32) -> i32, _other: f32) -> Sum<S> {
        sum
    }
    /// Writes the sums as bf16, from that row and column on.
    #[inline(always)]
    fn store<S: Sums>(&mut self, _to: Matrix<64, 64>, _row: u32, _column: u32, _sum: Sum<S>) {}
}

/// The thread that fetches.
pub struct Fetch;

impl Role for Fetch {
    #[inline(always)]
    fn next<const STAGES: u32>(&mut self, ring: &mut Ring<STAGES>) -> Stage {
        let (stage, parity) = ring.next();
        // The first pass finds its stages free: they count as left by a phase of parity 1.
        stage.empty.0.wait(stage.empty.1, parity ^ 1);
        stage.full.0.arrive_and_expect(stage.full.1, ring.bytes);
        stage
    }
    #[inline(always)]
    fn load<const R: usize, const C: usize>(
        &mut self,
        stage: &mut Stage,
        from: Matrix<R, C>,
        row: u32,
        column: u32,
    ) -> Tile<R, C> {
        let tile = Tile(stage.at);
        for panel in 0..C as u32 / 64 {
            // SAFETY: a ring has room for what its program loads, and the map is as `Matrix::new` was promised.
            unsafe {
                tma_load(stage.at, from.map, [column + panel * 64, row, from.number].map(|x| x as i32), stage.full)
            };
            stage.at += R as u32 * 128;
        }
        tile
    }
}

/// A warpgroup that computes: its number, where its results leave, and the stage that its last `dot` reads.
pub struct Compute {
    group: u32,
    output: u32,
    /// Of the output's two tiles the one that is filled next, in bytes.
    side: u32,
    held: Option<Stage>,
}

/// Bytes through which results leave: two tiles of 64 × 64 a warpgroup.
pub const OUTPUT: u32 = GROUPS as u32 * 2 * 64 * 128;

impl Compute {
    #[inline(always)]
    fn first(&self) -> bool {
        thread_x() % WARPGROUP == 0
    }
}

impl Role for Compute {
    #[inline(always)]
    fn next<const STAGES: u32>(&mut self, ring: &mut Ring<STAGES>) -> Stage {
        let (stage, parity) = ring.next();
        stage.full.0.wait(stage.full.1, parity);
        stage
    }
    #[inline(always)]
    fn load<const R: usize, const C: usize>(
        &mut self,
        stage: &mut Stage,
        _: Matrix<R, C>,
        _: u32,
        _: u32,
    ) -> Tile<R, C> {
        stage.at += (R * C * 2) as u32;
        Tile(stage.at - (R * C * 2) as u32)
    }
    #[inline(always)]
    fn start<S: Sums>(&mut self, sum: &mut Sum<S>, a: impl Left, b: impl Right, add: bool) {
        sum.0.fence();
        start_parts(&mut sum.0, a, b, self.group, add);
        commit_products();
    }
    #[inline(always)]
    fn wait<S: Sums, const LEFT: u32>(&mut self, sum: &mut Sum<S>) {
        sum.0.wait::<LEFT>();
    }
    #[inline(always)]
    fn settle(&mut self, known: PerRow) {
        settle(known.0[0] + known.0[1]);
    }
    #[inline(always)]
    fn free(&mut self, stage: Stage) {
        if self.first() {
            stage.empty.0.arrive(stage.empty.1);
        }
    }
    #[inline(always)]
    fn dot<S: Sums>(&mut self, sum: &mut Sum<S>, a: impl Left, b: impl Right, stage: Stage) {
        self.start(sum, a, b, true);
        // All but the newest product is done, so the tiles of the one before are free.
        sum.0.wait::<1>();
        if let Some(before) = self.held.replace(stage) {
            self.free(before);
        }
    }
    #[inline(always)]
    fn reduce(&mut self, own: PerRow, f: impl Fn(f32, f32) -> f32) -> PerRow {
        PerRow(own.0.map(|x| [1, 2].iter().fold(x, |x, &lanes| f(x, shuffle_xor(ALL, x, lanes)))))
    }
    #[inline(always)]
    fn keep_below<S: Sums>(&mut self, sum: Sum<S>, end: impl Fn(u32) -> i32, other: f32) -> Sum<S> {
        let thread = thread_x() % WARPGROUP;
        let row = self.group * 64 + thread / 32 * 16 + thread % 32 / 4;
        // From the thread's first column on: the others are then constants.
        let ends: [i32; 2] = from_fn(|half| end(row + half as u32 * 8) - (thread % 4 * 2) as i32);
        Sum(S::of(|i| if ((i / 4 * 8 + i % 2) as i32) < ends[i / 2 % 2] { sum.at(i) } else { other }))
    }
    #[inline(always)]
    fn store<S: Sums>(&mut self, to: Matrix<64, 64>, row: u32, column: u32, mut sum: Sum<S>) {
        sum.0.wait::<0>();
        if let Some(last) = self.held.take() {
            self.free(last);
        }
        let thread = thread_x() % WARPGROUP;
        let own = thread / 32 * 16 + thread % 16;
        for panel in 0..size_of::<S>() / 128 {
            let tile = self.output + self.side;
            self.side ^= 64 * 128;
            if self.first() {
                tma_stores_read::<1>();
            }
            sync_some(1 + self.group, WARPGROUP);
            for piece in (0..8).step_by(2) {
                let swizzled = (piece as u32 + thread % 32 / 16) ^ own % 8;
                let pairs = from_fn(|i| sum.pair(panel * 32 + piece * 4 + i * 2));
                // SAFETY: 16 bytes of this warpgroup's output.
                unsafe { store_matrices(tile + own * 128 + swizzled * 16, pairs) };
            }
            fence_async();
            sync_some(1 + self.group, WARPGROUP);
            if self.first() {
                let from = [column + panel as u32 * 64, row + self.group * 64, to.number].map(|x| x as i32);
                // SAFETY: the map is as `Matrix::new` was promised.
                unsafe { tma_store(to.map, tile, from) };
            }
        }
    }
}

#[inline(always)]
fn start_parts<S: Sums, B: Right>(sums: &mut S, a: impl Left, b: B, group: u32, add: bool) {
    for part in 0..B::DEPTH / 16 {
        a.times(b, sums, group, part, add || part > 0);
    }
}

/// Runs a program: warpgroup 0 fetches, with SPARE registers per thread, and GROUPS others compute, with REGISTERS.
#[inline(always)]
pub fn run(program: impl Program, output: u32) {
    if thread_x() == 0 {
        barriers_are_ready();
    }
    sync_threads();
    if thread_x() < WARPGROUP {
        give_registers::<{ SPARE as u32 }>();
        if thread_x() == 0 {
            program.run(&mut Fetch);
        }
    } else {
        take_registers::<{ REGISTERS as u32 }>();
        let group = thread_x() / WARPGROUP - 1;
        let mut on = Compute { group, output: output + group * 2 * 64 * 128, side: 0, held: None };
        program.run(&mut on);
        if on.first() {
            tma_stores_read::<0>();
        }
    }
}

/// The block's tiles of R × C of an m × n matrix, one grid further each. Bands of BAND rows of tiles are walked downwards and
/// then to the right: tiles that are worked on at the same time share rows and columns, which are then in the cache.
#[inline(always)]
pub fn tiles<const R: usize, const C: usize, const BAND: usize>(m: u32, n: u32) -> impl Iterator<Item = (u32, u32)> {
    let (rows, columns, wide) = (m.div_ceil(R as u32), n.div_ceil(C as u32), BAND as u32);
    let mut next = block_x();
    core::iter::from_fn(move || {
        let index = next;
        next += blocks_x();
        (index < rows * columns).then(|| {
            let band = index / (wide * columns) * wide;
            let (height, within) = ((rows - band).min(wide), index % (wide * columns));
            ((band + within % height) * R as u32, within / height * C as u32)
        })
    })
}
