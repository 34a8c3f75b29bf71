//! Where the browser returns to.

use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::LoginError;
use crate::failure::quote;

/// Bytes of a request's head at most.
const MAX_HEAD: usize = 16 << 10;
/// How long a connection may take.
const CONNECTION: Duration = Duration::from_secs(10);
/// Connections at a time at most; browsers open some in vain.
const MAX_CONNECTIONS: usize = 16;

/// A listener on this machine for the address that the browser returns to.
pub struct Callback {
    listener: TcpListener,
    path: String,
    /// What the browser must bring; `None` where the path itself is the secret.
    state: Option<String>,
}

impl Callback {
    /// Listens where `redirect` leads, and gives the address with the port that it got. The browser must bring `state`.
    ///
    /// # Errors
    /// `Callback` where the address is not on this machine, or nobody can listen there.
    pub async fn listen(redirect: &str, state: Option<&str>) -> Result<(Self, String), LoginError> {
        let failed = |why: String| LoginError::Callback { address: redirect.to_owned(), why };
        let mut url = Url::parse(redirect).map_err(|error| failed(error.to_string()))?;
        if url.scheme() != "http" || !crate::net::is_loopback(url.host_str().unwrap_or_default()) {
            return Err(failed("it is not on this machine".into()));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let listener =
            TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| failed(error.to_string()))?;
        if port == 0 {
            let port = listener.local_addr().map_err(|error| failed(error.to_string()))?.port();
            url.set_port(Some(port)).map_err(|()| failed("it takes no port".into()))?;
        }
        let callback = Self { listener, path: url.path().to_owned(), state: state.map(str::to_owned) };
        Ok((callback, url.into()))
    }

    /// The code that the browser brings. Requests that are not from this login get an error page and change nothing.
    ///
    /// # Errors
    /// `Denied` where the browser brings a no.
    pub async fn code(&self) -> Result<String, LoginError> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(done) = connections.join_next() => {
                    if let Ok(Some(result)) = done {
                        return result;
                    }
                }
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    let Ok((stream, _)) = accepted else { continue };
                    let (path, state) = (self.path.clone(), self.state.clone());
                    connections.spawn(async move {
                        let served = serve(stream, &path, state.as_deref());
                        tokio::time::timeout(CONNECTION, served).await.ok().flatten()
                    });
                }
            }
        }
    }
}

/// What a connection brings; `None` where that is nothing of this login.
async fn serve(mut stream: TcpStream, path: &str, state: Option<&str>) -> Option<Result<String, LoginError>> {
    let mut head = Vec::new();
    let mut piece = [0; 4 << 10];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(piece.get(..read)?);
        if head.len() > MAX_HEAD {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.lines().next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let url = Url::parse("http://localhost").ok()?.join(target).ok()?;
    let value =
        |name: &str| url.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned());
    let is_ours = state.is_none_or(|state| value("state").as_deref() == Some(state));
    let (status, text, result) = if method != "GET" || url.path() != path {
        ("404 Not Found", "There is nothing here.", None)
    } else if !is_ours {
        ("400 Bad Request", "This is not the login that is waiting.", None)
    } else if let Some(error) = value("error") {
        let words = value("error_description").unwrap_or(error);
        let denied = LoginError::Denied { words: format!(": {}", quote(&words)) };
        ("200 OK", "The login was denied. You can close this page.", Some(Err(denied)))
    } else {
        match value("code").filter(|code| !code.is_empty()) {
            Some(code) => (
                "200 OK",
                "The code has arrived. You can close this page and return to Quipu.",
                Some(Ok(code)),
            ),
            None => ("400 Bad Request", "There is no code here.", None),
        }
    };
    let page = format!("<!doctype html><meta charset=utf-8><title>Quipu</title><p>{text}</p>\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncache-control: no-store\r\n\
         referrer-policy: no-referrer\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    // A browser that is gone already has brought its code all the same.
    drop(stream.write_all(answer.as_bytes()).await);
    drop(stream.shutdown().await);
    result
}
