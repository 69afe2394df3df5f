//! The ways to the GPU and back.

use super::OnGpu;
use crate::outcome::{Joined, Moments, Outcome, Zone};
use crate::{Drivers, Rides};
use gpulab::error::Result;
use gpulab::gpu::{Pinned, Stream};

impl OnGpu {
    /// Copies everything back to the host.
    ///
    /// # Errors
    /// [`Error::Driver`](gpulab::Error::Driver), also for work launched earlier.
    pub fn outcome(&self) -> Result<Outcome> {
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
        Ok(Outcome { kept, moments, zones, joined })
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
