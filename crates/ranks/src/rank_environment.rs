//! Rank and world size, from what the launcher put into the environment.

use gpulab_measure::{Error, Result};

/// One process' place in a world of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankEnvironment {
    /// Its number, from 0.
    pub rank: usize,
    /// How many processes there are.
    pub size: usize,
    /// Its number on its own machine, which is the GPU that it takes.
    pub local_rank: usize,
}

/// Launcher, and its names of rank, world size and local rank.
const LAUNCHERS: [(&str, [&str; 3]); 4] = [
    ("torchrun", ["RANK", "WORLD_SIZE", "LOCAL_RANK"]),
    ("Open MPI", ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"]),
    ("MPICH", ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"]),
    // Last: a shell on a Slurm node has these as well, around any other launcher.
    ("Slurm", ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"]),
];

impl RankEnvironment {
    /// From the environment of this process; alone where no launcher is found.
    ///
    /// # Errors
    /// As [`RankEnvironment::from_variables`].
    pub fn from_environment() -> Result<RankEnvironment> {
        RankEnvironment::from_variables(|name| std::env::var(name).ok())
    }

    /// From the variables that `torchrun`, Open MPI, MPICH (and Intel MPI) or Slurm set.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::RankEnvironment;
    /// let slurm = [("SLURM_PROCID", "9"), ("SLURM_NTASKS", "16"), ("SLURM_LOCALID", "1")];
    /// let of = |name: &str| slurm.iter().find(|one| one.0 == name).map(|one| one.1.to_string());
    /// assert_eq!(RankEnvironment::from_variables(of)?, RankEnvironment { rank: 9, size: 16, local_rank: 1 });
    /// assert_eq!(RankEnvironment::from_variables(|_| None)?, RankEnvironment { rank: 0, size: 1, local_rank: 0 });
    /// # Ok::<(), gpulab_measure::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] where a launcher set some of its variables and not all, or no numbers, or a rank outside of the world.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<RankEnvironment> {
        for (launcher, names) in LAUNCHERS {
            let texts = names.map(&variable);
            // A world size alone is what somebody left in the environment.
            if texts[0].is_none() {
                continue;
            }
            let bad = |what: String| {
                Error::invalid(
                    format!("{launcher} set {}: {what}", names[0]),
                    format!("start it with {launcher} again, or unset {}", names.join(", ")),
                )
            };
            let number = |at: usize| -> Result<usize> {
                let text = texts[at].as_deref().ok_or_else(|| bad(format!("{} is missing", names[at])))?;
                text.trim().parse().map_err(|_| bad(format!("{} is `{text}`, which is no number", names[at])))
            };
            let place = RankEnvironment { rank: number(0)?, size: number(1)?, local_rank: number(2)? };
            if place.rank >= place.size || place.local_rank > place.rank {
                return Err(bad(format!(
                    "rank {} (local rank {}) of {} ranks cannot be",
                    place.rank, place.local_rank, place.size
                )));
            }
            return Ok(place);
        }
        Ok(RankEnvironment { rank: 0, size: 1, local_rank: 0 })
    }

    /// Host and port at which rank 0 waits for the others, such as `node003:29400`: `MASTER_ADDR` and `MASTER_PORT` where they are set
    /// (`torchrun` has a server of its own there, and the next port is taken); else the first host of Slurm's list, with a port that
    /// follows from the job's number; else this host, where all ranks are on it.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::RankEnvironment;
    /// let slurm = [("SLURM_STEP_NODELIST", "node[003-007,012]"), ("SLURM_JOB_ID", "4711"), ("SLURM_STEP_ID", "0")];
    /// let of = |name: &str| slurm.iter().find(|one| one.0 == name).map(|one| one.1.to_string());
    /// assert_eq!(RankEnvironment { rank: 9, size: 16, local_rank: 1 }.rendezvous_endpoint(of)?, "node003:24711");
    /// # Ok::<(), gpulab_measure::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] where nothing says where rank 0 is, or `MASTER_PORT` is no port.
    pub fn rendezvous_endpoint(self, variable: impl Fn(&str) -> Option<String>) -> Result<String> {
        let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<usize>().ok());
        if let Some(host) = variable("MASTER_ADDR").filter(|host| !host.is_empty()) {
            let given = variable("MASTER_PORT").unwrap_or_else(|| RENDEZVOUS_PORT.to_string());
            let port: u16 = given.trim().parse().map_err(|_| {
                Error::invalid(
                    format!("MASTER_PORT is `{given}`, which is no port"),
                    "set it to a number from 1024 to 65000",
                )
            })?;
            let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|text| text == "True");
            return Ok(format!("{host}:{}", if taken { port.wrapping_add(1) } else { port }));
        }
        if let Some(hosts) = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST")) {
            // Jobs, and steps of a job, that share a node get ports of their own.
            let job = number("SLURM_JOB_ID").unwrap_or(0) + 7 * number("SLURM_STEP_ID").unwrap_or(0);
            return Ok(format!("{}:{}", first_host(&hosts), 20_000 + job % 10_000));
        }
        let here = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"].iter().find_map(|name| number(name));
        if self.size == 1 || here == Some(self.size) {
            return Ok(format!("127.0.0.1:{RENDEZVOUS_PORT}"));
        }
        Err(Error::invalid(
            format!("rank {} of {} does not know where rank 0 is", self.rank, self.size),
            "set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port there, for all ranks",
        ))
    }
}

/// Where nothing names a port.
const RENDEZVOUS_PORT: u16 = 29_400;

/// The first of Slurm's list of hosts: `node[003-007,012],login1` is `node003` and more.
fn first_host(list: &str) -> String {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (prefix, rest) = list.split_at(end);
    match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((numbers, suffix)) => {
            let number = numbers.split([',', '-']).next().unwrap_or_default();
            let suffix = suffix.split(',').next().unwrap_or_default();
            format!("{prefix}{number}{suffix}")
        }
        None => prefix.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<RankEnvironment> {
        RankEnvironment::from_variables(|name| variables.iter().find(|one| one.0 == name).map(|one| one.1.to_string()))
    }

    #[test]
    fn each_launcher_is_read_and_the_inner_one_counts() {
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")];
        assert_eq!(of(&torchrun), Ok(RankEnvironment { rank: 3, size: 4, local_rank: 1 }));
        let mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")];
        assert_eq!(of(&mpi), Ok(RankEnvironment { rank: 0, size: 2, local_rank: 0 }));
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_LOCALID", "0")];
        assert_eq!(of(&[&slurm[..], &torchrun[..]].concat()).unwrap().size, 4);
        assert_eq!(of(&slurm).unwrap().size, 1);
        assert_eq!(of(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1")]).unwrap().rank, 1);
        // Nobody's variable.
        assert_eq!(of(&[("WORLD_SIZE", "8")]).unwrap().size, 1);
    }

    #[test]
    fn the_ranks_meet_where_the_launcher_says() {
        let of = |place: RankEnvironment, variables: &[(&str, &str)]| {
            place.rendezvous_endpoint(|name| variables.iter().find(|one| one.0 == name).map(|one| one.1.to_string()))
        };
        let place = RankEnvironment { rank: 1, size: 4, local_rank: 1 };
        let master = [("MASTER_ADDR", "node7"), ("MASTER_PORT", "29500")];
        assert_eq!(of(place, &master).unwrap(), "node7:29500");
        let torchrun = [&master[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
        assert_eq!(of(place, &torchrun).unwrap(), "node7:29501");
        assert!(of(place, &[("MASTER_ADDR", "a"), ("MASTER_PORT", "x")]).unwrap_err().to_string().contains("no port"));
        for (list, first) in [("a1,a2", "a1"), ("gpu-[1,3]-ib,x", "gpu-1-ib"), ("n[01-16]", "n01"), ("solo", "solo")] {
            assert_eq!(of(place, &[("SLURM_JOB_NODELIST", list)]).unwrap(), format!("{first}:20000"));
        }
        assert_eq!(of(place, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "4")]).unwrap(), "127.0.0.1:29400");
        let two_hosts = of(place, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")]).unwrap_err().to_string();
        assert!(two_hosts.contains("does not know where rank 0 is") && two_hosts.contains("set MASTER_ADDR"));
        assert_eq!(of(RankEnvironment { rank: 0, size: 1, local_rank: 0 }, &[]).unwrap(), "127.0.0.1:29400");
    }

    #[test]
    fn half_an_environment_is_an_error_that_names_what_is_missing() {
        let text = |variables: &[(&str, &str)]| of(variables).unwrap_err().to_string();
        let missing = text(&[("RANK", "3"), ("LOCAL_RANK", "1")]);
        assert!(missing.contains("WORLD_SIZE is missing") && missing.contains("next: start it with torchrun"));
        assert!(text(&[("RANK", "x"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")]).contains("`x`, which is no number"));
        let outside = text(&[("SLURM_PROCID", "4"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "0")]);
        assert!(outside.contains("rank 4 (local rank 0) of 4 ranks cannot be"), "{outside}");
        assert!(text(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "2")]).contains("cannot be"));
    }
}
