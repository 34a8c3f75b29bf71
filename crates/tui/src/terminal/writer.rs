//! A thread that writes, so that a terminal that takes no bytes (Ctrl-S, a slow network) stops nothing else. The file
//! descriptor stays a blocking one, for it is shared with the shell.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::watch;

/// How long to wait at the end for a terminal that takes no bytes.
const LAST_WAIT: Duration = Duration::from_millis(500);

enum Order {
    Write(Vec<u8>),
    /// Say so when all before is written.
    Tell(mpsc::Sender<()>),
}

/// How far the thread is.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    written: u64,
    failed: Option<Errno>,
}

#[derive(Debug)]
pub(super) struct Writer {
    orders: mpsc::Sender<Order>,
    progress: watch::Receiver<Progress>,
    /// How many orders to write were given.
    ordered: u64,
}

impl Writer {
    pub(super) fn start(output: OwnedFd) -> io::Result<Self> {
        let (orders, given) = mpsc::channel();
        let (done, progress) = watch::channel(Progress::default());
        std::thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || work(&output, &given, &done))?;
        Ok(Self { orders, progress, ordered: 0 })
    }

    /// Writes bytes after all those before.
    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() && self.orders.send(Order::Write(bytes)).is_ok() {
            self.ordered += 1;
        }
    }

    /// Whether bytes still wait to be written.
    pub(super) fn busy(&self) -> bool {
        let progress = *self.progress.borrow();
        progress.failed.is_none() && progress.written < self.ordered
    }

    /// Waits until all is written.
    pub(super) async fn written(&mut self) -> io::Result<()> {
        let ordered = self.ordered;
        let done = |progress: &Progress| progress.failed.is_some() || progress.written >= ordered;
        match self.progress.wait_for(done).await {
            Ok(progress) => progress.failed.map_or(Ok(()), |error| Err(error.into())),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Waits, without a runtime and not for ever, until all is written.
    pub(super) fn settle(&self) {
        let (settle, settled) = mpsc::channel();
        if self.orders.send(Order::Tell(settle)).is_ok() {
            // A terminal that takes nothing is left as it is.
            let _settled = settled.recv_timeout(LAST_WAIT);
        }
    }
}

fn work(output: &OwnedFd, orders: &mpsc::Receiver<Order>, done: &watch::Sender<Progress>) {
    for order in orders {
        match order {
            Order::Write(bytes) => {
                let failed = done.borrow().failed;
                let result = failed.map_or_else(|| write_all(output, &bytes), Err);
                done.send_modify(|progress| {
                    progress.written += 1;
                    progress.failed = result.err();
                });
            }
            Order::Tell(settle) => {
                // Who asked may have stopped waiting.
                let _told = settle.send(());
            }
        }
    }
}

fn write_all(output: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(output, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            // Another program has made the shared terminal a non-blocking one.
            Err(Errno::AGAIN) => {
                match poll(&mut [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
