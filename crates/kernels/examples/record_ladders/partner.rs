//! A process that times something else on the same GPU, alternating with this one: `env/baselines/record_ladders.py` with PyTorch.
//!
//! The arrays go through files in a shared folder: `SET_INPUT.bin` as they lie in memory, and `exact.bin`, the reference
//! in f64. Then lines go through this process's stdout and stdin:
//!
//! | this one writes | the other one answers |
//! | --- | --- |
//! | `{"topic": …, "size": […], "inputs": [["f32", 4096], …], "sets": 2, "exact": [[[output, from, count], …], …]}` | `{"name": "torch", "error": 1e-7, "others": []}`, or `{}` when it has nothing to time |
//! | `go`, or `go 1` for the first of the others | the ms of one call, the mean of a sample |

use gpulab::prelude::*;
use gpulab::talk::ask;
use gpulab_kernels::run::{Peer, PeerWork, Workload};
use gpulab_kernels::topics::Reference;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// The other process, and the folder that both see.
pub struct Partner {
    folder: PathBuf,
}

impl Partner {
    /// It listens already.
    pub fn new(folder: &str) -> Partner {
        Partner { folder: PathBuf::from(folder) }
    }

    /// Hands the job's arrays over; the peers that time the other side's work on them, if there are any.
    pub fn prepare<'a>(partner: &'a RefCell<Partner>, job: &Workload<'_>) -> Result<Vec<Peer<'a>>> {
        let folder = partner.borrow().folder.clone();
        for (set, inputs) in job.sets.iter().enumerate() {
            for (input, host) in inputs.iter().enumerate() {
                write(&folder.join(format!("{set}_{input}.bin")), host.bytes())?;
            }
        }
        let values = job.exact.iter().flatten().flat_map(|piece| &piece.values);
        let exact: Vec<u8> = values.flat_map(|x| x.to_le_bytes()).collect();
        write(&folder.join("exact.bin"), &exact)?;
        let inputs: Vec<_> = job.sets[0].iter().map(|host| (host.dtype(), host.len())).collect();
        let piece = |piece: &Reference| (piece.output, piece.from, piece.values.len());
        let pieces: Vec<Vec<_>> = job.exact.iter().map(|set| set.iter().map(piece).collect()).collect();
        let request = serde_json::json!({
            "topic": job.ladder.topic(), "size": job.size.numbers(), "inputs": inputs, "sets": job.sets.len(),
            "bytes": job.work.bytes, "exact": pieces,
        });
        let answer: serde_json::Value = ask(&request.to_string())?;
        let others = answer["others"].as_array().into_iter().flatten();
        let variants = std::iter::once(&answer).chain(others).enumerate();
        let peer = |(at, variant): (usize, &serde_json::Value)| {
            let line = if at == 0 { "go".to_string() } else { format!("go {at}") };
            let sample = move || ask(&line);
            let name = variant["name"].as_str()?.to_string();
            Some(Peer { name, error: variant["error"].as_f64(), work: PeerWork::Clocked(Box::new(sample)) })
        };
        Ok(variants.filter_map(peer).collect())
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|error| Error::File {
        path: path.to_path_buf(),
        during: "handing arrays over".to_string(),
        text: error.to_string(),
        fix: "choose a folder with more room".to_string(),
    })
}
