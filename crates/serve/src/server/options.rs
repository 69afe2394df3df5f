//! How a server is started.

use crate::scheduler::Limits;
use gpulab_measure::{Error, Result};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the page shows of the GPU on which the steps are computed. Numbers that the driver does not tell are missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuReading {
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Share of the last sampling period in which at least one kernel ran.
    pub utilization_percent: Option<f64>,
    /// Device memory that is taken, by whomever.
    pub memory_used_bytes: Option<f64>,
    /// Device memory in all.
    pub memory_total_bytes: Option<f64>,
    /// Power draw of the board.
    pub power_w: Option<f64>,
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens; a port of 0 is any that is free.
    pub address: SocketAddr,
    /// What clients must send as `Authorization: Bearer …`; nothing where everybody on this machine may ask.
    pub token: Option<String>,
    /// What the scheduler takes on.
    pub limits: Limits,
    /// Tokens of a step while the batch is busy ([`crate::Scheduler::with_chunked_prefill`]); nothing for as many as in
    /// other steps.
    pub chunked_prefill: Option<usize>,
    /// Blocks of the KV cache.
    pub blocks: usize,
    /// Tokens in a block.
    pub block_size: usize,
    /// The most bytes of a request's body.
    pub body_bytes: usize,
    /// Tokens of an answer to a chat that names no limit.
    pub most_new: usize,
    /// Connections at a time.
    pub connections: usize,
    /// For a request's head and for its body to arrive.
    pub read_limit: Duration,
    /// For a client to take something of its answer.
    pub write_limit: Duration,
    /// For a whole answer, waiting included.
    pub answer_limit: Duration,
    /// For answers to end, once the server is to stop.
    pub stop_limit: Duration,
    /// What the page shows of the GPU; whoever starts the server keeps it up to date.
    pub gpu: Option<Arc<Mutex<GpuReading>>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            address: SocketAddr::from(([127, 0, 0, 1], 8000)),
            token: None,
            limits: Limits::default(),
            chunked_prefill: None,
            blocks: 512,
            block_size: 16,
            body_bytes: 1 << 20,
            most_new: 512,
            connections: 256,
            read_limit: Duration::from_secs(15),
            write_limit: Duration::from_secs(30),
            answer_limit: Duration::from_secs(300),
            stop_limit: Duration::from_secs(30),
            gpu: None,
        }
    }
}

impl Options {
    /// # Errors
    /// [`Error::Invalid`] when others on the network could ask without a token, or the token cannot stand in a header.
    pub(super) fn check(&self) -> Result<()> {
        match &self.token {
            None if !self.address.ip().is_loopback() => Err(Error::invalid(
                format!("at {} everybody on the network could use this server", self.address),
                "set a token (GPULAB_SERVE_TOKEN, or --token-file), or listen at 127.0.0.1",
            )),
            Some(token) if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err(Error::invalid(
                    "the token is empty, or has letters that cannot stand in a header",
                    "use letters and digits without spaces, such as what `openssl rand -hex 16` prints",
                ))
            }
            _ => Ok(()),
        }
    }
}
