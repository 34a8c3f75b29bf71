//! Servers for the programs of this machine alone: the address that they may listen at, the names by which clients know it, and
//! the connections that they accept. Knows no protocol, no store and no session.

mod token;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub use token::BearerToken;

/// How long nothing is accepted after a connection that could not be.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a listener cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other machines could reach it.
    #[error("{0} is not an address of this machine alone; use 127.0.0.1 or [::1]")]
    NotLoopback(SocketAddr),
    /// The network failed.
    #[error("the network failed: {0}")]
    Network(#[from] std::io::Error),
}

/// A listener that other machines cannot reach.
#[derive(Debug)]
pub struct LoopbackListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl LoopbackListener {
    /// Takes a listener of a loopback address.
    ///
    /// # Errors
    /// `NotLoopback` for another address, `Network` where the system does not say which it has.
    pub fn new(listener: TcpListener) -> Result<Self, ListenError> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a client that means this server calls it in `Host`, and behind `http://` in `Origin`. A page of a browser whose own
    /// name leads here calls it by that.
    pub fn hosts(&self) -> Vec<String> {
        let port = self.address.port();
        let names = ["localhost", "127.0.0.1", "[::1]"].iter().map(|host| format!("{host}:{port}"));
        let mut hosts: Vec<String> = names.collect();
        let own = self.address.to_string();
        if !hosts.contains(&own) {
            hosts.push(own);
        }
        hosts
    }

    /// The next connection; `None` once `stop` is cancelled.
    pub async fn accept(&self, stop: &CancellationToken) -> Option<TcpStream> {
        accept_until(stop, || self.listener.accept()).await.map(|(stream, _)| stream)
    }
}

/// The next connection of a listener of any kind; `None` once `stop` is cancelled.
pub async fn accept_until<T, F: Future<Output = std::io::Result<T>>>(
    stop: &CancellationToken,
    accept: impl Fn() -> F,
) -> Option<T> {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = accept() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            // The client is gone already, or the process has no descriptor left for a moment.
            Err(error) => tracing::debug!(%error, "a connection was not accepted"),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn listener(address: &str) -> Result<LoopbackListener, ListenError> {
        LoopbackListener::new(TcpListener::bind(address).await.unwrap())
    }

    #[tokio::test]
    async fn listener_of_another_address_is_refused() {
        let refused = listener("0.0.0.0:0").await.unwrap_err();
        assert!(matches!(refused, ListenError::NotLoopback(_)), "{refused}");
    }

    #[tokio::test]
    async fn hosts_name_the_address_and_the_port_once() {
        let first = listener("127.0.0.1:0").await.unwrap();
        let port = first.address().port();
        let common = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}"));
        assert_eq!(first.hosts(), common);
        let second = listener("127.0.0.2:0").await.unwrap();
        assert_eq!(second.hosts().last(), Some(&format!("127.0.0.2:{}", second.address().port())));
        assert_eq!(second.hosts().len(), 4);
    }

    #[tokio::test]
    async fn accepting_ends_when_it_is_stopped() {
        let listener = listener("127.0.0.1:0").await.unwrap();
        let stop = CancellationToken::new();
        let client = TcpStream::connect(listener.address()).await.unwrap();
        let accepted = listener.accept(&stop).await.unwrap();
        assert_eq!(accepted.peer_addr().unwrap(), client.local_addr().unwrap());
        let (next, ()) = tokio::join!(listener.accept(&stop), async { stop.cancel() });
        assert!(next.is_none());
    }
}
