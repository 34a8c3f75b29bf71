//! A server for the client at the other end of two pipes.

use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::error::ServeError;
use crate::handler::GraphServer;
use crate::lines::Lines;

/// Why a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdioEnd {
    /// The client closed its end.
    Closed,
    /// The client read nothing for 30 s while an answer waited.
    Stalled,
}

/// Serves the client until it closes its end, or `stop` is cancelled.
///
/// # Errors
/// `Handshake` where the client does not begin as the protocol says.
pub async fn serve_stdio<R, W>(
    server: GraphServer,
    reader: R,
    writer: W,
    stop: CancellationToken,
) -> Result<StdioEnd, ServeError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let lines = Lines::new(reader, writer, server.in_flight().clone());
    let stall = lines.stall();
    let end = || if stall.happened() { StdioEnd::Stalled } else { StdioEnd::Closed };
    let running = match serve_server_with_ct(server, lines, stop).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            return Ok(end());
        }
        Err(error) => return Err(ServeError::Handshake(error.to_string())),
    };
    match running.waiting().await {
        Ok(_) => Ok(end()),
        Err(error) => Err(ServeError::Handshake(error.to_string())),
    }
}
