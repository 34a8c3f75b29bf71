//! Model servers on this machine that nobody has set up: looked for where they usually listen, and only when they
//! are asked for by name or nothing else can be used.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use quipu_protocol::Model;
use reqwest::Url;
use serde::Deserialize;

use crate::net;

/// How long a connection may take. On this machine it is made, or refused, at once.
const CONNECT: Duration = Duration::from_millis(200);
/// How long a server may take to say which models it has.
const ANSWER: Duration = Duration::from_millis(1_000);
/// Bytes of that answer at most.
const MAX_BYTES: u64 = 1 << 20;
/// Models of one server at most.
const MAX_MODELS: usize = 1_000;
/// What is assumed of a model whose server does not say.
const WINDOW: u64 = 128_000;
const MAX_TOKENS: u64 = 16_384;

/// A usual address of a local model server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalEndpoint {
    /// The provider's id.
    pub(crate) id: String,
    /// Its name for people.
    pub(crate) name: String,
    /// The base URL.
    pub(crate) url: String,
}

impl LocalEndpoint {
    /// The port; `None` where the URL is none.
    pub(crate) fn port(&self) -> Option<u16> {
        Url::parse(&self.url).ok()?.port_or_known_default()
    }
}

/// A model server that listens on this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalServer {
    /// The provider's id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// What it can be asked for; never empty.
    pub models: Vec<Arc<Model>>,
}

/// The usual places.
pub(crate) fn places() -> &'static [LocalEndpoint] {
    static PLACES: OnceLock<Vec<LocalEndpoint>> = OnceLock::new();
    PLACES.get_or_init(|| serde_json::from_str(include_str!("../data/local.json")).unwrap_or_default())
}

/// The servers that listen, in the order of `places`. Blocks for less than two seconds.
pub(crate) fn find(places: &[LocalEndpoint]) -> Vec<LocalServer> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = places.iter().map(|place| scope.spawn(|| ask(place))).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok().flatten()).collect()
    })
}

/// A model of this place, of which nothing but the id is known.
pub(crate) fn model(place: &LocalEndpoint, id: &str) -> Model {
    Model {
        id: id.to_owned(),
        name: id.to_owned(),
        api: crate::openai::API.to_owned(),
        provider: place.id.clone(),
        base_url: place.url.clone(),
        input: vec!["text".to_owned()],
        context_window: WINDOW,
        max_tokens: MAX_TOKENS,
        ..Model::default()
    }
}

fn ask(place: &LocalEndpoint) -> Option<LocalServer> {
    let url = Url::parse(&place.url).ok()?;
    let host = url.host_str().filter(|host| net::is_loopback(host))?;
    let (host, port) = (host.trim_start_matches('[').trim_end_matches(']'), url.port_or_known_default()?);
    let address = SocketAddr::new(host.parse().ok()?, port);
    let body = get(address, &format!("{}/models", url.path().trim_end_matches('/')))?;
    let models = models(place, &body)?;
    let (id, name, address) = (place.id.clone(), place.name.clone(), address.to_string());
    (!models.is_empty()).then_some(LocalServer { id, name, address, models })
}

/// The body of a plain HTTP answer. Version 1.0, so that it most often comes in one piece and ends with the connection.
fn get(address: SocketAddr, path: &str) -> Option<Vec<u8>> {
    let until = Instant::now() + ANSWER;
    let mut stream = TcpStream::connect_timeout(&address, CONNECT).ok()?;
    stream.set_write_timeout(Some(ANSWER)).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let mut piece = [0; 8 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left).filter(|left| !left.is_zero())).ok()?;
        if left.is_zero() || answer.len() as u64 > MAX_BYTES {
            return None;
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(piece.get(..read)?),
            Err(_) => return None,
        }
        // Some servers keep the connection all the same.
        if body(&answer, false).is_some() {
            break;
        }
    }
    body(&answer, true)
}

/// The body of a good answer; `None` for another, or one that is not whole. One of unknown length is whole when the
/// connection has `ended`.
fn body(answer: &[u8], ended: bool) -> Option<Vec<u8>> {
    let (head, body) = split(answer)?;
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if !head.starts_with("http/1.") || head.split(' ').nth(1) != Some("200") {
        return None;
    }
    let header = |name: &str| head.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
    if header("transfer-encoding:").is_some() {
        return unchunk(body);
    }
    match header("content-length:").map(str::parse::<usize>) {
        Some(length) => body.get(..length.ok()?).map(<[u8]>::to_vec),
        None => ended.then(|| body.to_vec()),
    }
}

/// A body in chunks, once its last one is there.
fn unchunk(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = body.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(body.get(..end)?).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        let start = end + 2;
        let stop = start.checked_add(size)?;
        out.extend_from_slice(body.get(start..stop)?);
        body = body.get(stop.checked_add(2)?..)?;
    }
}

fn split(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((answer.get(..at)?, answer.get(at + 4..)?))
}

/// The models of a list; `None` when it is none, because something else listens there.
fn models(place: &LocalEndpoint, body: &[u8]) -> Option<Vec<Arc<Model>>> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<serde_json::Value>,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    let read = |entry: &serde_json::Value| {
        let id = entry.get("id")?.as_str().filter(|id| !id.is_empty() && id.len() <= 512)?;
        let mut model = model(place, id);
        let sizes =
            ["/max_model_len", "/context_length", "/max_context_length", "/meta/n_ctx", "/meta/n_ctx_train"];
        let window =
            sizes.iter().find_map(|pointer| entry.pointer(pointer)?.as_u64()).filter(|size| *size > 0);
        if let Some(window) = window {
            model.context_window = window;
            model.max_tokens = MAX_TOKENS.min(window / 2).max(1);
        }
        Some(Arc::new(model))
    };
    // One that only makes vectors of texts answers no prompt.
    let embeds = |model: &Arc<Model>| model.id.to_ascii_lowercase().contains("embed");
    Some(list.data.iter().filter_map(read).filter(|model| !embeds(model)).take(MAX_MODELS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> LocalEndpoint {
        LocalEndpoint { id: "mine".into(), name: "Mine".into(), url: url.into() }
    }

    /// A server that answers one request with these bytes, and says what it was asked.
    fn serve(answer: &'static [u8]) -> (String, std::thread::JoinHandle<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let read = stream.read(&mut request).unwrap();
            stream.write_all(answer).ok();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        (url, thread)
    }

    #[test]
    fn the_table_is_sound() {
        let ports: Vec<_> = places().iter().map(LocalEndpoint::port).collect();
        for (at, place) in places().iter().enumerate() {
            assert!(!ports[..at].contains(&place.port()), "{place:?}: each port once");
            let url = Url::parse(&place.url).unwrap();
            assert!(net::is_loopback(url.host_str().unwrap()) && url.path().ends_with("/v1"), "{place:?}");
        }
    }

    #[test]
    fn a_server_that_listens_is_found() {
        let (url, asked) = serve(
            b"HTTP/1.1 200 OK\r\nContent-Length: 102\r\n\r\n{\"object\":\"list\",\"data\":[{\"id\":\"small\",\"meta\":{\"n_ctx_train\":4096}},{\"id\":\"nomic-embed\"},{\"id\":7},{}]}",
        );
        let found = find(&[place(&url)]);
        assert!(asked.join().unwrap().starts_with("GET /v1/models HTTP/1.0\r\n"));
        let [server] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(format!("http://{}/v1", server.address), url);
        let [model] = server.models.as_slice() else { panic!("{server:?}") };
        assert_eq!((model.id.as_str(), model.context_window, model.max_tokens), ("small", 4_096, 2_048));
        assert_eq!((model.provider.as_str(), model.base_url.as_str()), ("mine", url.as_str()));
    }

    #[test]
    fn local_answer_without_a_model_list_is_skipped() {
        for answer in [
            b"HTTP/1.1 404 Not Found\r\n\r\n{\"data\":[{\"id\":\"a\"}]}".as_slice(),
            b"HTTP/1.1 200 OK\r\n\r\n<html>",
            b"HTTP/1.1 200 OK\r\n\r\n{\"data\":[]}",
            b"HTTP/1.1 200 OK\r\n\r\n{\"data\":{}}",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"data\":[{\"id\":\"a\"}]}",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
            b"SSH-2.0-x\r\n",
            b"",
        ] {
            let (url, asked) = serve(answer);
            assert_eq!(find(&[place(&url)]), [], "{}", String::from_utf8_lossy(answer));
            asked.join().unwrap();
        }
        // Nobody listens there any more, or it is another machine, which is never asked.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let urls = [format!("http://{free}/v1"), "http://192.0.2.1:1/v1".into(), "nonsense".into()];
        assert_eq!(find(&urls.map(|url| place(&url))), []);
    }
}
