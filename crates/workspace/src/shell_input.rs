//! The standard input of a running command.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

/// What a command reads. Dropped, it ends: the command reads the end of its input.
#[derive(Debug)]
pub struct ShellInput {
    pipe: pipe::Sender,
    /// Fires when the command begins: what is written before would be taken for the word to begin.
    begun: CancellationToken,
}

impl ShellInput {
    pub(crate) fn new(writer: io::PipeWriter, begun: CancellationToken) -> io::Result<Self> {
        Ok(Self { pipe: pipe::Sender::from_owned_fd(OwnedFd::from(writer))?, begun })
    }

    /// Writes the beginning of `bytes` as soon as there is room in the pipe, and gives how much that was. Waits as long as the
    /// command has not begun or does not read. Dropped, it has written nothing.
    ///
    /// # Errors
    /// The command reads nothing any more.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.cancelled().await;
        self.pipe.write(bytes).await
    }
}
