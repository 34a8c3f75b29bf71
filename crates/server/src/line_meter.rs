//! How fast the lines of a client come.

use tokio::time::Instant;

use crate::limits::LINES_TIME;

/// Counts the lines of a client.
#[derive(Debug)]
pub(crate) struct LineMeter {
    most: usize,
    count: usize,
    since: Instant,
}

impl LineMeter {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, count: 0, since: Instant::now() }
    }

    /// Counts one; whether it is not one too many.
    pub(crate) fn take(&mut self) -> bool {
        if self.since.elapsed() >= LINES_TIME {
            (self.count, self.since) = (0, Instant::now());
        }
        self.count += 1;
        self.count <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_are_counted_for_ten_seconds() {
        let mut meter = LineMeter::new(2);
        assert_eq!([meter.take(), meter.take(), meter.take()], [true, true, false]);
        tokio::time::advance(LINES_TIME).await;
        assert!(meter.take());
    }
}
