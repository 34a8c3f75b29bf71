//! A connection that ends when its client takes nothing.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Fails writing once the other side took nothing for a time.
pub(crate) struct StallGuard<S> {
    stream: S,
    patience: Duration,
    /// Runs while something waits to be written.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub(crate) const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waits: None }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waits = None;
            return polled;
        }
        let patience = self.patience;
        let waits =
            self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        match waits.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.judge(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_write_fails_and_slow_one_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(8);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(30));
        let write = async {
            guarded.write_all(&[7; 32]).await.unwrap();
            let began = Instant::now();
            let failed = guarded.write_all(&[7; 32]).await.unwrap_err();
            assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
        };
        let read = async {
            let mut bytes = [0; 8];
            for _ in 0..4 {
                tokio::time::advance(Duration::from_secs(20)).await;
                theirs.read_exact(&mut bytes).await.unwrap();
            }
            theirs
        };
        tokio::join!(write, read);
    }
}
