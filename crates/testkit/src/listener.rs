//! A listening socket with a thread of its own, so that it serves tests with and without a runtime.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Takes connections on `127.0.0.1`. Gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Gives each connection to `serve`, all of them side by side.
    pub(crate) fn start<F>(what: &str, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(what.to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await;
                match listener.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                    Ok((address, listener)) => {
                        drop(tell.send(Ok(address)));
                        tokio::select! {
                            () = accept(listener, serve) => {}
                            _ = stopped => {}
                        }
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            });
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => panic!("no thread for the {what}: {error}"),
        };
        match told.recv() {
            Ok(Ok(address)) => Self { address, stop: Some(stop), thread: Some(thread) },
            Ok(Err(error)) => panic!("no socket for the {what}: {error}"),
            Err(error) => panic!("the {what} died: {error}"),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The thread ends on the signal, or has ended already.
        if let Some(stop) = self.stop.take() {
            stop.send(()).ok();
        }
        drop(self.thread.take().map(JoinHandle::join));
    }
}

async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((connection, _)) = accepted else { return };
                connections.spawn(serve(connection));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
