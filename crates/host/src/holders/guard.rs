//! One holder asked: in a thread of its own, so that one that blocks it keeps nobody else from anything, and for so long.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use quipu_store::HolderError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::HolderFault;

/// Bytes of what a panic says.
const MESSAGE: usize = 4 << 10;

/// Asks, and waits for `deadline` at most. One that does not answer by then is dropped where it next waits; where it never
/// does, its thread is left to itself.
pub(super) async fn ask<T, F, A>(deadline: Duration, question: F) -> Result<T, HolderFault>
where
    T: Send + 'static,
    F: FnOnce() -> A + Send + 'static,
    A: Future<Output = Result<T, HolderError>>,
{
    let (answer, answered) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let given_up = CancellationToken::new();
    let dropped = given_up.clone();
    let _give_up = given_up.drop_guard();
    let work = move || {
        let asked = AssertUnwindSafe(async { question().await }).catch_unwind();
        let done = runtime.block_on(async {
            tokio::select! {
                done = asked => Some(done),
                () = dropped.cancelled() => None,
            }
        });
        if let Some(done) = done {
            // Whoever asked may have given up just now.
            let _given_up = answer.send(done);
        }
    };
    let started = std::thread::Builder::new().name("holder".to_owned()).spawn(work);
    started.map_err(|error| HolderFault::NoThread { detail: error.to_string() })?;
    match tokio::time::timeout(deadline, answered).await {
        Ok(Ok(Ok(done))) => done.map_err(HolderFault::Failed),
        Ok(Ok(Err(panic))) => Err(HolderFault::Panicked { message: panic_message(&*panic) }),
        // Its thread is gone without an answer: what it left behind panicked when it was dropped.
        Ok(Err(_)) => Err(HolderFault::Panicked { message: "it exited without an answer".to_owned() }),
        Err(_) => Err(HolderFault::TimedOut { after: deadline }),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked");
    let end = text.floor_char_boundary(MESSAGE);
    text[..end].to_owned()
}
