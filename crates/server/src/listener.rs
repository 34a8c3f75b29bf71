//! Where clients connect: an address of this machine alone, or a socket of a user.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use quipu_loopback::{LoopbackListener, accept_until};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::error::ServerError;

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where clients connect.
#[derive(Debug)]
pub struct ServerListener(Kind);

#[derive(Debug)]
enum Kind {
    Loopback(LoopbackListener),
    Unix(UnixSocket),
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// Of the network of this machine.
    Loopback(SocketAddr),
    /// The path of a socket.
    Unix(PathBuf),
}

impl ServerListener {
    /// Listens at a loopback address. Port 0 is any that is free.
    ///
    /// # Errors
    /// `NotLoopback`, `Address`.
    pub async fn loopback(address: SocketAddr) -> Result<Self, ServerError> {
        // Not even for a moment.
        if !address.ip().is_loopback() {
            return Err(ServerError::NotLoopback(address));
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| ServerError::Address { address, error })?;
        Ok(Self(Kind::Loopback(LoopbackListener::new(listener)?)))
    }

    /// Listens at a socket that only its owner may use. One that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// `InUse`, `NotSocket`, `PathTooLong`, `Socket`.
    pub async fn unix(path: &Path) -> Result<Self, ServerError> {
        UnixSocket::bind(path).await.map(|socket| Self(Kind::Unix(socket)))
    }

    /// Where it listens.
    pub fn address(&self) -> ServerAddress {
        match &self.0 {
            Kind::Loopback(listener) => ServerAddress::Loopback(listener.address()),
            Kind::Unix(socket) => ServerAddress::Unix(socket.path.clone()),
        }
    }

    /// What clients call it in `Host`; `None` where they can call it anything.
    pub(crate) fn hosts(&self) -> Option<Vec<String>> {
        match &self.0 {
            Kind::Loopback(listener) => Some(listener.hosts()),
            Kind::Unix(_) => None,
        }
    }

    /// The next connection; `None` once `stop` is cancelled.
    pub(crate) async fn accept(&self, stop: &CancellationToken) -> Option<Box<dyn Stream>> {
        match &self.0 {
            Kind::Loopback(listener) => {
                let stream = listener.accept(stop).await?;
                // Pieces of a stream go out as they come.
                drop(stream.set_nodelay(true));
                Some(Box::new(stream))
            }
            Kind::Unix(socket) => Some(Box::new(socket.accept(stop).await?)),
        }
    }
}

/// A socket, whose file goes with it.
#[derive(Debug)]
struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of its file.
    file: (u64, u64),
}

impl UnixSocket {
    async fn bind(path: &Path) -> Result<Self, ServerError> {
        let at = |error: io::Error| match error.kind() {
            ErrorKind::InvalidInput => ServerError::PathTooLong(path.to_owned()),
            _ => ServerError::Socket { path: path.to_owned(), error },
        };
        // It is made at another path, which may be shorter.
        std::os::unix::net::SocketAddr::from_pathname(path).map_err(at)?;
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ServerError::NotSocket(path.to_owned()));
            }
            Ok(_) => match UnixStream::connect(path).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(at(error)),
                Ok(_) => return Err(ServerError::InUse(path.to_owned())),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(at(error)),
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Until it has its mode, nobody else comes near it; and the place is taken at once.
        let aside = tempfile::Builder::new().prefix(".q").rand_bytes(6).tempdir_in(parent).map_err(at)?;
        let made = aside.path().join("s");
        let listener = UnixListener::bind(&made).map_err(at)?;
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600)).map_err(at)?;
        let file = std::fs::symlink_metadata(&made).map(|file| (file.dev(), file.ino())).map_err(at)?;
        std::fs::rename(&made, path).map_err(at)?;
        Ok(Self { listener, path: path.to_owned(), file })
    }

    async fn accept(&self, stop: &CancellationToken) -> Option<UnixStream> {
        accept_until(stop, || self.listener.accept()).await.map(|(stream, _)| stream)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        // Another server may have taken its place.
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listener_refuses_addresses_of_other_machines() {
        for address in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
            let refused = ServerListener::loopback(address.parse().unwrap()).await.unwrap_err();
            assert!(matches!(refused, ServerError::NotLoopback(_)), "{refused}");
            assert!(refused.to_string().contains("other machines"), "{refused}");
        }
    }

    #[tokio::test]
    async fn socket_of_a_path_too_long_to_connect_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s".repeat(120));
        let refused = ServerListener::unix(&path).await.unwrap_err();
        assert!(matches!(refused, ServerError::PathTooLong(_)), "{refused}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn socket_is_private_and_replaced_when_stale() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.sock");
        let first = ServerListener::unix(&path).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let refused = ServerListener::unix(&path).await.unwrap_err();
        assert!(matches!(refused, ServerError::InUse(_)), "{refused}");
        drop(first);
        assert!(!path.exists());
        // As a process leaves it that is killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let second = ServerListener::unix(&path).await.unwrap();
        assert_eq!(second.address(), ServerAddress::Unix(path.clone()));
        drop(UnixStream::connect(&path).await.unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        drop(second);
        std::fs::write(&path, "mine").unwrap();
        let refused = ServerListener::unix(&path).await.unwrap_err();
        assert!(matches!(refused, ServerError::NotSocket(_)), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
