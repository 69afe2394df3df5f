//! The pipeline in the kernels of `kernels/table/`. A column is a buffer; how many rows there are stands on the GPU too.

use crate::pipeline::RideLimits;
use crate::pipeline::{Joined, Moments, PipelineResult, Stage, Zone};
use crate::rides::{Drivers, Rides};
use gpulab::error::Result;
use gpulab::gpu::{Buffer, Gpu, Kernel, Pinned, Stream};
use gpulab::launch::LaunchConfig;
use gpulab_kernels::ladder::operator;

/// Rows that a warp takes in keep, compact and probe.
const TILE: usize = 1024;

/// Rides and drivers in a GPU's memory, with room for all that the pipeline makes of them: nothing is allocated while it
/// runs, and nothing comes back to the host between two stages, not even how many rows are left.
pub struct OnGpu {
    gpu: Gpu,
    kernels: Kernels,
    rows: usize,
    drivers: usize,
    /// Slots of the hash table: 2^(32 − shift).
    shift: u32,
    all: Columns,
    register: [Buffer<u32>; 2],
    kept: Columns,
    features: [Buffer<f32>; 3],
    bits: Buffer<u32>,
    offsets: Buffer<u32>,
    sums: Buffer<u64>,
    zone_rides: Buffer<u32>,
    zone_cents: Buffer<u64>,
    zone_metres: Buffer<u64>,
    slots: Buffer<u64>,
    year: Buffer<u32>,
    joined_rows: Buffer<u32>,
    joined: ([Buffer<u32>; 2], [Buffer<f32>; 3]),
}

/// The columns of rides, in the order of [`Rides::NAMES`], and how many rows they have.
struct Columns {
    columns: [Buffer<u32>; 5],
    rows: Buffer<u32>,
}

struct Kernels {
    keep: Kernel,
    scan: Kernel,
    compact_u32: Kernel,
    compact_f32: Kernel,
    moments: Kernel,
    scale: Kernel,
    group: Kernel,
    build: Kernel,
    probe: Kernel,
}

impl Kernels {
    fn new(gpu: &Gpu) -> Result<Kernels> {
        let load = |path: &str, name: &str| gpu.compile(operator(path)?.source()?)?.kernel(name);
        Ok(Kernels {
            keep: load("table/keep", "keep")?,
            scan: load("table/scan", "scan")?,
            compact_u32: load("table/compact", "compact_u32")?,
            compact_f32: load("table/compact", "compact_f32")?,
            moments: load("table/normalise", "moments")?,
            scale: load("table/normalise", "scale")?,
            group: load("table/group", "group")?,
            build: load("table/join", "build")?,
            probe: load("table/join", "probe")?,
        })
    }
}

/// As [`std::array::from_fn`], for what can fail.
fn buffers<T: gpulab::launch::Element, const N: usize>(
    mut make: impl FnMut(usize) -> Result<Buffer<T>>,
) -> Result<[Buffer<T>; N]> {
    let made = (0..N).map(&mut make).collect::<Result<Vec<_>>>()?;
    Ok(made.try_into().unwrap_or_else(|_| unreachable!("N were made")))
}

impl OnGpu {
    /// Compiles the kernels, allocates, and copies rides and drivers to the GPU.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for columns of different lengths and a licence that stands twice, [`Error::OutOfMemory`](gpulab::Error::OutOfMemory), and
    /// those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, rides: &Rides, drivers: &Drivers) -> Result<OnGpu> {
        rides.check()?;
        drivers.check()?;
        let (n, limits) = (rides.len(), RideLimits::of_the_course()?);
        // At most half of the slots are taken, so that a search ends soon.
        let slots = (2 * drivers.licence.len()).next_power_of_two().max(64);
        let zones = limits.zones as usize;
        let tiles = n.div_ceil(TILE).max(1);
        let host = rides.columns();
        Ok(OnGpu {
            gpu: gpu.clone(),
            kernels: Kernels::new(gpu)?,
            rows: n,
            drivers: drivers.licence.len(),
            shift: 32 - slots.trailing_zeros(),
            all: Columns { columns: buffers(|k| gpu.to_device(host[k]))?, rows: gpu.to_device(&[n as u32])? },
            register: buffers(|k| gpu.to_device([&drivers.licence, &drivers.year][k]))?,
            kept: Columns { columns: buffers(|_| gpu.alloc(n))?, rows: gpu.zeros(1)? },
            features: buffers(|_| gpu.alloc(n))?,
            bits: gpu.alloc(tiles * TILE / 32)?,
            offsets: gpu.alloc(tiles)?,
            sums: gpu.zeros(6)?,
            zone_rides: gpu.zeros(zones)?,
            zone_cents: gpu.zeros(zones)?,
            zone_metres: gpu.zeros(zones)?,
            slots: gpu.alloc(slots)?,
            year: gpu.alloc(n)?,
            joined_rows: gpu.zeros(1)?,
            joined: (buffers(|_| gpu.alloc(n))?, buffers(|_| gpu.alloc(n))?),
        })
    }

    /// How many rides there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Runs one stage. Later stages work on what earlier ones left.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`].
    pub fn run(&mut self, stage: Stage) -> Result<()> {
        match stage {
            Stage::Filter => self.filter(),
            Stage::Normalise => self.normalise(),
            Stage::Group => self.group(),
            Stage::Join => self.join(),
        }
    }

    /// Runs all stages.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`].
    pub fn run_all(&mut self) -> Result<()> {
        Stage::ALL.into_iter().try_for_each(|stage| self.run(stage))
    }

    /// Rides that cannot be true go: a bit a row, where each row goes, and the move of five columns.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`].
    pub fn filter(&mut self) -> Result<()> {
        let (tiles, one) = (self.tiles("table/keep")?, self.one_block()?);
        let OnGpu { kernels, all, kept, bits, offsets, .. } = self;
        let [zone, _, metres, seconds, cents] = &all.columns;
        kernels.keep.launch(tiles, (zone, metres, seconds, cents, &all.rows, &mut *bits, &mut *offsets))?;
        kernels.scan.launch(one, (&mut *offsets, &all.rows, &mut kept.rows))?;
        for (from, to) in all.columns.iter().zip(&mut kept.columns) {
            kernels.compact_u32.launch(tiles, (from, &*bits, &*offsets, &all.rows, to))?;
        }
        Ok(())
    }

    /// Metres, seconds and cents get mean 0 and standard deviation 1.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`].
    pub fn normalise(&mut self) -> Result<()> {
        let walking = self.walking("table/normalise", 4, 8)?;
        self.sums.fill_bytes(0)?;
        let OnGpu { kernels, kept, features: [metres_out, seconds_out, cents_out], sums, .. } = self;
        let [_, _, metres, seconds, cents] = &kept.columns;
        kernels.moments.launch(walking, (metres, seconds, cents, &kept.rows, &mut *sums))?;
        let columns = (metres, seconds, cents, &kept.rows, &*sums, metres_out, seconds_out, cents_out);
        kernels.scale.launch(walking, columns)
    }

    /// Rides, cents and metres of each zone.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`].
    pub fn group(&mut self) -> Result<()> {
        let walking = self.walking("table/group", 4, 4)?;
        self.zone_rides.fill_bytes(0)?;
        self.zone_cents.fill_bytes(0)?;
        self.zone_metres.fill_bytes(0)?;
        let [zone, _, metres, _, cents] = &self.kept.columns;
        let results = (&mut self.zone_rides, &mut self.zone_cents, &mut self.zone_metres);
        self.kernels.group.launch(walking, (zone, cents, metres, &self.kept.rows, results.0, results.1, results.2))
    }

    /// Each ride gets the year of its driver's car; rides without a known driver go.
    ///
    /// # Errors
    /// Those of [`Kernel::launch`].
    pub fn join(&mut self) -> Result<()> {
        let (tiles, one, shift) = (self.tiles("table/join")?, self.one_block()?, self.shift);
        // All bytes 0xff: empty.
        self.slots.fill_bytes(0xFF)?;
        let OnGpu { kernels, register: [licences, years], kept, bits, offsets, slots, year, .. } = self;
        let each = LaunchConfig::for_elements(self.drivers, 256);
        kernels.build.launch(each, (&*licences, &*years, self.drivers as u32, &mut *slots, shift))?;
        let found = (&kept.columns[1], &kept.rows, &*slots, shift, &mut *year, &mut *bits, &mut *offsets);
        kernels.probe.launch(tiles, found)?;
        kernels.scan.launch(one, (&mut *offsets, &kept.rows, &mut self.joined_rows))?;
        for (from, to) in [&kept.columns[0], &*year].into_iter().zip(&mut self.joined.0) {
            kernels.compact_u32.launch(tiles, (from, &*bits, &*offsets, &kept.rows, to))?;
        }
        for (from, to) in self.features.iter().zip(&mut self.joined.1) {
            kernels.compact_f32.launch(tiles, (from, &*bits, &*offsets, &kept.rows, to))?;
        }
        Ok(())
    }

    /// A warp for each tile of 1024 rows.
    fn tiles(&self, path: &str) -> Result<LaunchConfig> {
        let warps = operator(path)?.constant("WARPS");
        Ok(LaunchConfig { block: (32 * warps, 1, 1), ..LaunchConfig::for_elements(self.rows, warps * TILE as u32) })
    }

    /// The one block of the scan.
    fn one_block(&self) -> Result<LaunchConfig> {
        Ok(LaunchConfig::new(1, operator("table/scan")?.constant("THREADS")))
    }

    /// Blocks that walk over the rows, `each` a thread at a time: at most so many for each multiprocessor.
    fn walking(&self, path: &str, each: u32, blocks_per_sm: u32) -> Result<LaunchConfig> {
        let threads = operator(path)?.constant("THREADS");
        let most = blocks_per_sm * self.gpu.multiprocessors().max(1);
        let all = LaunchConfig::for_elements(self.rows, threads * each).grid.0;
        Ok(LaunchConfig::new(all.min(most), threads))
    }
}

impl OnGpu {
    /// Copies everything back to the host.
    ///
    /// # Errors
    /// [`Error::Driver`](gpulab::Error::Driver), also for work launched earlier.
    pub fn outcome(&self) -> Result<PipelineResult> {
        let kept = self.kept.rows.to_host()?[0] as usize;
        let (sums, n) = (self.sums.to_host()?, kept as u64);
        let moments = [0, 2, 4].map(|k| Moments::of_sums(n, sums[k], sums[k + 1]));
        let (rides, cents) = (self.zone_rides.to_host()?, self.zone_cents.to_host()?);
        let metres = self.zone_metres.to_host()?;
        let zone = |z: usize| Zone { zone: z as u32, rides: u64::from(rides[z]), cents: cents[z], metres: metres[z] };
        let zones = (0..rides.len()).map(zone).filter(|zone| zone.rides > 0).collect();
        let rows = self.joined_rows.to_host()?[0] as usize;
        let ([zone, year], features) = &self.joined;
        let mut joined = Joined { zone: zone.to_host()?, year: year.to_host()?, ..Joined::default() };
        joined.zone.truncate(rows);
        joined.year.truncate(rows);
        for (to, from) in joined.features.iter_mut().zip(features) {
            *to = from.to_host()?;
            to.truncate(rows);
        }
        Ok(PipelineResult { kept, moments, zones, joined })
    }

    /// Copies rides and drivers to the GPU again, from ordinary memory.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) for a table of another length, [`Error::Driver`](gpulab::Error::Driver).
    pub fn load(&mut self, rides: &Rides, drivers: &Drivers) -> Result<()> {
        for (to, from) in self.all.columns.iter_mut().zip(rides.columns()) {
            to.copy_from(from)?;
        }
        for (to, from) in self.register.iter_mut().zip([&drivers.licence, &drivers.year]) {
            to.copy_from(from)?;
        }
        Ok(())
    }

    /// As [`OnGpu::load`], from pinned memory, column by column, on a stream.
    pub(crate) fn load_pinned(&mut self, stream: &Stream, columns: &[Pinned<u32>]) -> Result<()> {
        let buffers = self.all.columns.iter_mut().chain(&mut self.register);
        buffers.zip(columns).try_for_each(|(to, from)| to.copy_from_on(stream, from))
    }

    /// Copies the finished columns back into vectors that are there already: all their rows, used or not.
    pub(crate) fn store(&self, words: &mut [Vec<u32>; 2], features: &mut [Vec<f32>; 3]) -> Result<()> {
        let (whole, parts) = &self.joined;
        whole.iter().zip(words).try_for_each(|(from, to)| from.copy_to(to))?;
        parts.iter().zip(features).try_for_each(|(from, to)| from.copy_to(to))
    }

    /// As [`OnGpu::store`], into pinned memory.
    pub(crate) fn store_pinned(
        &self,
        stream: &Stream,
        words: &mut [Pinned<u32>],
        features: &mut [Pinned<f32>],
    ) -> Result<()> {
        let (whole, parts) = &self.joined;
        whole.iter().zip(words).try_for_each(|(from, to)| from.copy_to_on(stream, to))?;
        parts.iter().zip(features).try_for_each(|(from, to)| from.copy_to_on(stream, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Zone, plain};
    use crate::rides::{drivers, rides};
    use gpulab::error::Error;
    use gpulab::sim::BlockOrder;

    /// All stages in the simulator, which finds races and reads of what nobody wrote, against the plain loops: row by row.
    fn check(rides: &Rides, drivers: &Drivers) {
        check_in(BlockOrder::Forward, rides, drivers);
    }

    fn check_in(order: BlockOrder, rides: &Rides, drivers: &Drivers) {
        let gpu = Gpu::simulated_in(order).unwrap();
        let mut on_gpu = OnGpu::new(&gpu, rides, drivers).unwrap();
        let right = plain(rides, drivers).unwrap();
        // Twice: what one run leaves behind must not disturb the next.
        for _ in 0..2 {
            on_gpu.run_all().unwrap_or_else(|error| panic!("{} rides: {error}", rides.len()));
            let outcome = on_gpu.outcome().unwrap();
            assert_eq!(right.differs(&outcome), None, "{} rides", rides.len());
            // Here the order is that of the rides.
            assert_eq!(right.joined.zone, outcome.joined.zone);
            assert_eq!(right.joined.year, outcome.joined.year);
            for (right, given) in right.joined.features.iter().zip(&outcome.joined.features) {
                assert!(right.iter().zip(given).all(|(right, given)| (right - given).abs() < 1e-5));
            }
        }
    }

    #[test]
    fn the_pipeline_is_right_at_awkward_sizes() {
        for rows in [0, 1, 31, 33, 1023, 1024, 1025, 20_001] {
            check(&rides(rows, 50, rows as u64), &drivers(50, 1));
        }
    }

    #[test]
    fn the_pipeline_is_right_in_every_order_of_blocks() {
        for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
            check_in(order, &rides(10_001, 50, 3), &drivers(50, 1));
        }
    }

    #[test]
    fn no_driver_one_driver_and_as_many_as_slots_allow() {
        for count in [0, 1, 31, 32, 1000] {
            check(&rides(2000, count, 5), &drivers(count, 5));
        }
    }

    #[test]
    fn all_rows_alike_and_all_rows_wrong() {
        let alike = |metres: u32| Rides {
            zone: vec![265; 3000],
            licence: vec![9; 3000],
            metres: vec![metres; 3000],
            seconds: vec![10_800; 3000],
            cents: vec![25_000; 3000],
        };
        // The licence 0 and the largest one are keys as any other.
        let drivers = Drivers { licence: vec![0, 9, u32::MAX], year: vec![2000, 2001, 2002] };
        check(&alike(100_000), &drivers);
        check(&alike(0), &drivers);
        let mut edges = alike(100_000);
        edges.licence.iter_mut().step_by(2).for_each(|licence| *licence = u32::MAX);
        edges.licence.iter_mut().step_by(3).for_each(|licence| *licence = 0);
        check(&edges, &drivers);
    }

    #[test]
    fn a_block_hands_its_sums_over_before_they_overflow() {
        // Of 100 km each, 43,000 rides of one zone overflow 32 bits; eight blocks have that many each.
        let n = 8 * 43_000 + 1;
        let rides = Rides {
            zone: vec![1; n],
            licence: vec![9; n],
            metres: vec![100_000; n],
            seconds: vec![10_800; n],
            cents: vec![25_000; n],
        };
        let mut on_gpu = OnGpu::new(&Gpu::simulated().unwrap(), &rides, &Drivers::default()).unwrap();
        on_gpu.filter().unwrap();
        on_gpu.group().unwrap();
        let n = n as u64;
        let right = Zone { zone: 1, rides: n, cents: 25_000 * n, metres: 100_000 * n };
        assert_eq!(on_gpu.outcome().unwrap().zones, [right]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let gpu = Gpu::simulated().unwrap();
        let twice = Drivers { licence: vec![4, 4], year: vec![2000, 2001] };
        let text = OnGpu::new(&gpu, &rides(10, 2, 1), &twice).err().unwrap().to_string();
        assert!(text.contains("licence 4 stands twice"), "{text}");
        let mut on_gpu = OnGpu::new(&gpu, &rides(10, 2, 1), &drivers(2, 1)).unwrap();
        assert!(matches!(on_gpu.load(&rides(9, 2, 1), &drivers(2, 1)), Err(Error::LengthMismatch { .. })));
    }
}
