//! A proxy that takes every host for one server, as if it alone knew their addresses.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::FakeServer;
use crate::listener::Listener;
use crate::server::{CapturedRequest, read};

/// A proxy on `127.0.0.1`: plain requests with the whole address, tunnels by `CONNECT`, and SOCKS5. It writes down
/// what it was asked, of a tunnel only its beginning. Gone when it is dropped.
#[derive(Debug)]
pub struct FakeProxy {
    listener: Listener,
    captured: Arc<watch::Sender<Vec<CapturedRequest>>>,
}

#[derive(Debug, Clone)]
struct Manners {
    to: Option<SocketAddr>,
    /// The value of `proxy-authorization` that it wants.
    password: Option<String>,
    /// What it answers instead of passing anything on.
    refusal: Option<u16>,
}

impl FakeProxy {
    /// One that passes all on to `server`.
    ///
    /// # Panics
    /// When no socket or thread can be had.
    pub fn to(server: &FakeServer) -> Self {
        Self::start(Manners { to: Some(server.address()), password: None, refusal: None })
    }

    /// One that does so for those who send this `proxy-authorization`.
    ///
    /// # Panics
    /// As [`FakeProxy::to`].
    pub fn guarded(server: &FakeServer, authorization: &str) -> Self {
        let password = Some(authorization.to_owned());
        Self::start(Manners { to: Some(server.address()), password, refusal: None })
    }

    /// One that answers everything with this status.
    ///
    /// # Panics
    /// As [`FakeProxy::to`].
    pub fn refusing(status: u16) -> Self {
        Self::start(Manners { to: None, password: None, refusal: Some(status) })
    }

    fn start(manners: Manners) -> Self {
        let captured = Arc::new(watch::Sender::new(Vec::new()));
        let shared = captured.clone();
        let listener = Listener::start("fake proxy", move |connection| {
            let (manners, captured) = (manners.clone(), shared.clone());
            // A connection that one of its sides broke is that test's matter.
            async move { drop(serve(connection, &manners, &captured).await) }
        });
        Self { listener, captured }
    }

    /// Host and port.
    pub fn address(&self) -> String {
        self.listener.address.to_string()
    }

    /// What it was asked so far, in order. The path is the whole address, or host and port of a tunnel; the method
    /// of a tunnel by SOCKS5 is `SOCKS5`.
    pub fn requests(&self) -> Vec<CapturedRequest> {
        self.captured.borrow().clone()
    }
}

async fn serve(
    mut connection: TcpStream,
    manners: &Manners,
    captured: &watch::Sender<Vec<CapturedRequest>>,
) -> std::io::Result<()> {
    let mut first = [0];
    if connection.peek(&mut first).await? == 1 && first == [5] {
        let target = socks(&mut connection, manners).await?;
        captured.send_modify(|all| all.push(CapturedRequest::tunnel("SOCKS5", target)));
        let Some(to) = manners.to else { return Ok(()) };
        let mut server = TcpStream::connect(to).await?;
        return copy_bidirectional(&mut connection, &mut server).await.map(drop);
    }
    let Some(request) = read(&mut connection).await? else { return Ok(()) };
    captured.send_modify(|all| all.push(request.clone()));
    let knows =
        manners.password.as_deref().is_none_or(|it| request.header("proxy-authorization") == Some(it));
    let refusal = manners.refusal.or((!knows).then_some(407));
    let (Some(to), None) = (manners.to, refusal) else {
        let head = format!(
            "HTTP/1.1 {} Refused\r\ncontent-type: text/plain\r\ncontent-length: 11\r\nconnection: close\r\n\r\n",
            refusal.unwrap_or(502)
        );
        connection.write_all(head.as_bytes()).await?;
        connection.write_all(b"proxy words").await?;
        return connection.shutdown().await;
    };
    let mut server = TcpStream::connect(to).await?;
    if request.method == "CONNECT" {
        connection.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        return copy_bidirectional(&mut connection, &mut server).await.map(drop);
    }
    // To the server itself, an address has no host.
    let path = request.path.splitn(4, '/').nth(3).unwrap_or_default();
    let mut head = format!("{} /{path} HTTP/1.1\r\n", request.method);
    for (name, value) in request.headers.iter().filter(|(name, _)| !name.starts_with("proxy-")) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    server.write_all(head.as_bytes()).await?;
    server.write_all(&request.body).await?;
    tokio::io::copy(&mut server, &mut connection).await?;
    connection.shutdown().await
}

/// The greeting of SOCKS5 without a password, and where it wants to go.
async fn socks(connection: &mut TcpStream, manners: &Manners) -> std::io::Result<String> {
    let [_, methods] = take(connection).await?;
    connection.read_exact(&mut vec![0; methods.into()]).await?;
    connection.write_all(&[5, 0]).await?;
    let [_, _, _, kind] = take(connection).await?;
    let host = match kind {
        3 => {
            let [length] = take(connection).await?;
            let mut name = vec![0; length.into()];
            connection.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => std::net::Ipv4Addr::from(take(connection).await?).to_string(),
    };
    let port = u16::from_be_bytes(take(connection).await?);
    let refused = u8::from(manners.refusal.is_some()) * 2;
    connection.write_all(&[5, refused, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(format!("{host}:{port}"))
}

async fn take<const N: usize>(connection: &mut TcpStream) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    connection.read_exact(&mut bytes).await?;
    Ok(bytes)
}
