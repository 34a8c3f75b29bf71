//! A server that answers each request by its path, and remembers what it was sent.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use quipu::rules::{Effect, Host, Rule, RuleSet, Verdict};
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput};
use quipu_web::{HostJudge, WebAccess};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

/// Head lines and body of an answer.
pub(crate) type Answer = (&'static str, Vec<u8>);

impl Server {
    pub(crate) fn new(answer: impl Fn(&str) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for arrived in listener.incoming() {
                let Ok(mut stream) = arrived else { return };
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                }
                let mut text = String::from_utf8_lossy(&head).into_owned();
                let length =
                    text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                stream.read_exact(&mut body).unwrap();
                text.push_str(&String::from_utf8_lossy(&body));
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                seen.lock().unwrap().push(text);
                let (head, body) = answer(&path);
                let status = if head.starts_with("HTTP/") { "" } else { "HTTP/1.1 200 OK\r\n" };
                // Who asked may be gone.
                write!(stream, "{status}{head}\r\nConnection: close\r\n\r\n").ok();
                stream.write_all(&body).ok();
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

/// Rules of a user.
pub(crate) struct Rules {
    rules: RuleSet,
    pub(crate) is_unasked: bool,
}

impl Rules {
    pub(crate) fn new(rules: &[(Effect, &str)]) -> Self {
        let entries = rules.iter().map(|(effect, text)| (*effect, Rule::parse(text).unwrap())).collect();
        Self { rules: RuleSet::new(entries), is_unasked: false }
    }

    pub(crate) fn access(self) -> Arc<WebAccess> {
        Arc::new(WebAccess::new(Arc::new(self)))
    }
}

impl HostJudge for Rules {
    fn host(&self, host: &Host) -> Verdict {
        self.rules.host(host).verdict
    }

    fn tool(&self, name: &str) -> Verdict {
        self.rules.tool(name).verdict
    }

    fn is_offline(&self) -> bool {
        false
    }

    fn is_unasked(&self) -> bool {
        self.is_unasked
    }
}

pub(crate) fn context() -> ToolContext {
    ToolContext {
        session: None,
        run: "run".into(),
        cwd: "/".into(),
        env: Arc::new([]),
        outputs: quipu_workspace::OutputPlace::as_printed("/nonexistent"),
        progress: Arc::new(|_| {}),
        background: None,
        cancel: CancellationToken::new(),
        sees_images: false,
        access: quipu::Access::default(),
        sandbox: None,
    }
}

pub(crate) async fn run(tool: &dyn Tool, args: Value) -> ToolOutput {
    tool.run(Invocation { id: "c".into(), args: args.into() }, &context()).await
}

pub(crate) fn text(output: &ToolOutput) -> String {
    output.content.iter().filter_map(quipu_protocol::Content::as_text).collect()
}
