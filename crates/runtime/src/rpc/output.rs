//! Lines on their way to the program: so many bytes at most, and then those who make them wait.

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Kilobytes that wait at most; a longer line goes alone.
const ROOM: u32 = 8 << 10;
/// Lines that wait at most.
const LINES: usize = 1_024;

/// The end at which lines are put. Cheap to clone.
#[derive(Clone)]
pub(super) struct Output {
    lines: mpsc::Sender<WaitingLine>,
    room: Arc<Semaphore>,
    gone: CancellationToken,
}

struct WaitingLine {
    text: String,
    _room: OwnedSemaphorePermit,
}

impl Output {
    /// Writes what is sent to `write`, until every sender is gone or the reader is.
    pub(super) fn start(write: impl AsyncWrite + Unpin + Send + 'static) -> (Self, AbortOnDropHandle<()>) {
        let (lines, waiting) = mpsc::channel(LINES);
        let room = Arc::new(Semaphore::new(ROOM as usize));
        let gone = CancellationToken::new();
        let writer = AbortOnDropHandle::new(tokio::spawn(write_lines(write, waiting, gone.clone())));
        (Self { lines, room, gone }, writer)
    }

    /// Whether a line was taken: not when the reader is gone. Waits for room.
    pub(super) async fn send(&self, mut text: String) -> bool {
        text.push('\n');
        let size = u32::try_from(text.len() >> 10).unwrap_or(u32::MAX).saturating_add(1).min(ROOM);
        let Ok(room) = self.room.clone().acquire_many_owned(size).await else { return false };
        self.lines.send(WaitingLine { text, _room: room }).await.is_ok()
    }

    /// Cancelled when the reader is gone.
    pub(super) fn gone(&self) -> &CancellationToken {
        &self.gone
    }
}

async fn write_lines(
    mut write: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<WaitingLine>,
    gone: CancellationToken,
) {
    while let Some(line) = waiting.recv().await {
        let mut written = write.write_all(line.text.as_bytes()).await;
        drop(line);
        if waiting.is_empty() && written.is_ok() {
            written = write.flush().await;
        }
        if written.is_err() {
            gone.cancel();
            // Whoever sends more learns that nobody reads.
            return;
        }
    }
}
