//! A server from its start to its end.

use super::connection::{self, Limits};
use super::engine::Engine;
use super::http::{App, router};
use super::model::{ServedModel, TextCodec};
use super::options::Options;
use gpulab_measure::{Error, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A server that runs: one thread for the model's steps, one for all connections.
pub struct Server {
    address: SocketAddr,
    app: Arc<App>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens and serves, until it is stopped or dropped.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that do not fit together; [`Error::Unsupported`] when the address is not free.
    ///
    /// ```
    /// use gpulab_serve::server::{Babble, Options, Server};
    /// let options = Options { address: ([127, 0, 0, 1], 0).into(), ..Options::default() };
    /// let model = Babble::new(options.blocks, options.block_size, std::time::Duration::ZERO);
    /// let server = Server::start(Box::new(model), Babble::text(), options)?;
    /// assert!(server.address().ip().is_loopback());
    /// server.stop();
    /// # Ok::<(), gpulab_serve::Error>(())
    /// ```
    pub fn start(model: Box<dyn ServedModel>, text: Arc<dyn TextCodec>, options: Options) -> Result<Server> {
        options.check()?;
        let fails = |error: std::io::Error| {
            Error::unsupported(
                format!("a server at {}: {error}", options.address),
                "name another port (--port), or end what listens there",
            )
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fails)?;
        let listener = runtime.block_on(TcpListener::bind(options.address)).map_err(fails)?;
        let address = listener.local_addr().map_err(fails)?;
        let limits = Limits {
            connections: options.connections,
            read: options.read_limit,
            write: options.write_limit,
            stop: options.stop_limit,
        };
        let engine = Engine::start(model, text.clone(), &options)?;
        let app = Arc::new(App::new(engine, text, options));
        let router = router(app.clone());
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::spawn(move || runtime.block_on(connection::serve(listener, router, limits, stopped)));
        Ok(Server { address, app, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Free blocks of the cache and all of its blocks.
    ///
    /// # Errors
    /// What is wrong, where the cache's books do not agree.
    pub fn audit(&self) -> std::result::Result<(usize, usize), String> {
        self.app.engine.audit()
    }

    /// Takes nothing on any more, lets the answers that are in flight come to their end within [`Options::stop_limit`], and ends.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.app.engine.drain();
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.app.engine.stop();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends what the server logs to the standard error, a line for each event with its fields. `all`: also what asks every second, and
/// connections that end early.
pub fn log_to_stderr(all: bool) {
    let level = if all { tracing::Level::DEBUG } else { tracing::Level::INFO };
    // The first one counts, where somebody else has set one.
    let _ = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).try_init();
}
