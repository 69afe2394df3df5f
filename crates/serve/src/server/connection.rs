//! Connections: HTTP/1.1 on each, with limits for clients that are silent, send slowly, or do not read.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub connections: usize,
    pub read: Duration,
    pub write: Duration,
    pub stop: Duration,
}

/// Serves connections until `stop` says so; then those that are there come to their end, within a limit.
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut open = JoinSet::new();
    loop {
        // Who finds no place waits in the system's own queue.
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place.expect("nobody closes it"),
            () = told(&mut stop) => break,
        };
        let stream = tokio::select! {
            stream = listener.accept() => stream,
            () = told(&mut stop) => break,
        };
        while open.try_join_next().is_some() {}
        match stream {
            Ok((stream, _)) => {
                let one = connection(stream, router.clone(), limits, stop.clone());
                open.spawn(async move {
                    one.await;
                    drop(place);
                });
            }
            // Too many open files, above all: others may close theirs.
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(limits.stop, async { while open.join_next().await.is_some() {} }).await;
    open.shutdown().await;
}

/// Until the server is to stop, or nobody is left to say so.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(stream: TcpStream, router: Router, limits: Limits, mut stop: watch::Receiver<bool>) {
    // Each token is sent when it is there.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Impatient { stream, limit: limits.write, waiting: None });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read)
        .max_buf_size(64 * 1024)
        .serve_connection(io, TowerToHyperService::new(router));
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = told(&mut stop) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

/// A stream whose writes fail when the other side has taken nothing for that long.
struct Impatient {
    stream: TcpStream,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, to)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, from);
        this.judge(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, from);
        this.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.judge(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpSocket;

    #[test]
    fn who_does_not_read_is_not_written_to_for_ever() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let client = TcpSocket::new_v4().unwrap();
            client.set_recv_buffer_size(4096).unwrap();
            let client = client.connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let mut impatient = Impatient { stream, limit: Duration::from_millis(50), waiting: None };
            let block = vec![7; 1 << 16];
            let mut written = 0;
            let error = loop {
                match std::future::poll_fn(|context| Pin::new(&mut impatient).poll_write(context, &block)).await {
                    Ok(bytes) => written += bytes,
                    Err(error) => break error,
                }
            };
            assert!(error.kind() == io::ErrorKind::TimedOut && written > 0, "{error} after {written} bytes");
            drop(client);
        });
    }
}
