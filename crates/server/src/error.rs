//! Why a server cannot run.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use quipu_loopback::ListenError;

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Other machines could reach it.
    #[error(
        "{0} can be reached by other machines, and whoever reaches the server can run commands; use 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    /// Every program of every user could drive it.
    #[error("a server at an address needs a token: every user of this machine can reach it")]
    NoToken,
    /// The address cannot be used.
    #[error("{address} cannot be listened at: {error}; choose another port")]
    Address {
        /// Which one.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A server answers at the path.
    #[error("a server answers at {} already", .0.display())]
    InUse(PathBuf),
    /// Something else is at the path.
    #[error("{} exists and is no socket; choose another path", .0.display())]
    NotSocket(PathBuf),
    /// Clients could not connect to it.
    #[error("{} is too long for the path of a socket; choose a shorter one", .0.display())]
    PathTooLong(PathBuf),
    /// The path cannot be used.
    #[error("{} cannot be listened at: {error}", path.display())]
    Socket {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The network failed.
    #[error("the network failed: {0}")]
    Network(#[from] io::Error),
}

impl From<ListenError> for ServerError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::NotLoopback(address) => Self::NotLoopback(address),
            ListenError::Network(error) => Self::Network(error),
        }
    }
}
