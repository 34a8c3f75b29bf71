//! Bounded channels between the tasks of a session. Each item is boxed: a channel has room for 32 of them from its beginning
//! on, and with that of its items would take most of the memory of a session at rest.

use std::fmt;

use tokio::sync::mpsc;

/// A channel for this many items at once, at least one.
pub(crate) fn channel<T>(items: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel(items);
    (Sender(sender), Receiver(receiver))
}

/// The receiver is gone.
#[derive(Debug)]
pub(crate) struct ClosedMailbox;

/// There is no room, or the receiver is gone.
#[derive(Debug)]
pub(crate) struct FullMailbox;

pub(crate) struct Sender<T>(mpsc::Sender<Box<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> Sender<T> {
    /// Waits until there is room.
    pub(crate) async fn send(&self, item: T) -> Result<(), ClosedMailbox> {
        self.0.send(Box::new(item)).await.map_err(|_| ClosedMailbox)
    }

    /// Sends at once, or not at all.
    pub(crate) fn try_send(&self, item: T) -> Result<(), FullMailbox> {
        self.0.try_send(Box::new(item)).map_err(|_| FullMailbox)
    }

    /// Waits in a thread of its own until there is room.
    pub(crate) fn blocking_send(&self, item: T) -> Result<(), ClosedMailbox> {
        self.0.blocking_send(Box::new(item)).map_err(|_| ClosedMailbox)
    }

    /// Room for one item, when there is some.
    pub(crate) async fn reserve(&self) -> Result<Permit<'_, T>, ClosedMailbox> {
        self.0.reserve().await.map(Permit).map_err(|_| ClosedMailbox)
    }

    /// One that does not keep the channel open.
    pub(crate) fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.downgrade())
    }
}

pub(crate) struct Permit<'a, T>(mpsc::Permit<'a, Box<T>>);

impl<T> Permit<'_, T> {
    pub(crate) fn send(self, item: T) {
        self.0.send(Box::new(item));
    }
}

pub(crate) struct WeakSender<T>(mpsc::WeakSender<Box<T>>);

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> WeakSender<T> {
    /// `None` once the last sender is gone.
    pub(crate) fn upgrade(&self) -> Option<Sender<T>> {
        self.0.upgrade().map(Sender)
    }
}

pub(crate) struct Receiver<T>(mpsc::Receiver<Box<T>>);

impl<T> Receiver<T> {
    /// The next item; `None` once the channel is closed and empty.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        self.0.recv().await.map(|item| *item)
    }

    /// Nothing is sent any more; what was sent can be received.
    pub(crate) fn close(&mut self) {
        self.0.close();
    }
}
