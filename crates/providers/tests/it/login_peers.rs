//! The first requests of logins beside those of the programs that the accounts belong to, which run here and make the
//! same login: they differ where `data/login-differences.json` says so, with a reason, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_providers::{AuthFile, LoginMethod, LoginOptions, Logins, PendingLogin, Settings};
use quipu_testkit::{
    Answer, Authority, CapturedRequest, FakeProxy, FakeServer, Reply, Validity, Wire, peer_files,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::credentials::{World, stored_for};
use crate::logins::rows;

/// How long a program may take to say or ask something.
const LIMIT: Duration = Duration::from_secs(90);
/// Headers that a connection brings.
const CONNECTION: [&str; 4] = ["host", "content-length", "accept-encoding", "connection"];

/// A proxy that nobody runs: nothing reaches the internet.
const NOWHERE: &str = "http://127.0.0.1:9";
/// The files of logins, in a home directory.
const CLAUDE: &str = ".claude/.credentials.json";
const CODEX: &str = ".codex/auth.json";
const COPILOT: &str = ".copilot/config.json";
const GEMINI: &str = ".gemini/oauth_creds.json";

/// What a page or request consists of, by name.
type Members = BTreeMap<String, String>;

/// A member in which the two differ.
#[derive(Debug, Deserialize)]
struct Difference {
    member: String,
    theirs: Option<String>,
    ours: Option<String>,
    reason: String,
}

/// A program with a home of its own, and no way to the internet.
struct Client {
    home: tempfile::TempDir,
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    send: Sender<String>,
    /// Where its browser brings the addresses that it opens.
    browser: u16,
}

impl Client {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let browser = listener.local_addr().unwrap().port();
        let (send, lines) = channel();
        let opened = send.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                // A program that is gone opens nothing more.
                let read = BufReader::new(stream).read_line(&mut line);
                if read.is_err() || opened.send(format!("opened:{}", line.trim())).is_err() {
                    return;
                }
            }
        });
        let client = Self { home, child: None, stdin: None, lines, send, browser };
        let script =
            format!("#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{browser}\nprintf '%s\\n' \"$1\" >&3\n");
        for name in ["browser", "xdg-open"] {
            let path = client.file(&format!("bin/{name}"), &script);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        client
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Starts a program, whose requests to the internet go to `proxy`.
    fn start(&mut self, programs: &[PathBuf; 2], args: &[&str], proxy: &str, more: &[(&str, &str)]) {
        let [node, program] = programs;
        let home = self.home.path();
        let mut path = std::ffi::OsString::from(home.join("bin"));
        for part in [node.parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")] {
            path.push(":");
            path.push(part);
        }
        let mut child = Command::new(program)
            .args(args)
            .env_clear()
            .env("HOME", home)
            .env("PATH", path)
            .env("BROWSER", home.join("bin/browser"))
            .env("DISPLAY", ":99")
            .envs([("HTTPS_PROXY", proxy), ("NO_PROXY", "127.0.0.1,localhost")])
            .envs(more.iter().copied())
            .current_dir(home)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.stdin = child.stdin.take();
        let pipes: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for pipe in pipes {
            let send = self.send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                    drop(send.send(String::from_utf8_lossy(&line).into_owned()));
                }
            });
        }
        self.child = Some(child);
    }

    /// The rest of the first line that has this.
    fn line_with(&self, text: &str) -> String {
        let mut all = Vec::new();
        loop {
            let line = self.lines.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no {text:?} in {all:#?}"));
            if let Some(at) = line.find(text) {
                return line[at..].split_whitespace().next().unwrap_or_default().to_owned();
            }
            all.push(line);
        }
    }

    /// The address that it opens in a browser.
    fn opened(&self) -> String {
        self.line_with("opened:").replacen("opened:", "", 1)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It and those that it has started.
            let group = format!("kill -9 -{}", child.id());
            drop(Command::new("sh").args(["-c", &group]).stderr(Stdio::null()).status());
            drop(child.wait());
        }
        // The thread of the browser ends with its next line.
        drop(TcpStream::connect(("127.0.0.1", self.browser)).and_then(|mut it| it.write_all(b"\n")));
    }
}

/// The programs of a package from npm, with the Node that runs them. `None` where they are not there.
fn program(name: &str) -> Option<[PathBuf; 2]> {
    peer_files(["node/bin/node", &format!(".bin/{name}")])
}

fn query(text: &str) -> Vec<(String, String)> {
    let url = reqwest::Url::parse(&format!("http://localhost/?{text}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

/// A value without what chance, ports and versions make of it.
fn plain(name: &str, value: String) -> String {
    match name {
        "state" | "code_challenge" | "code_verifier" if value.len() >= 20 => "…".into(),
        "redirect_uri" if value.starts_with("http://") => {
            let mut url = reqwest::Url::parse(&value).unwrap();
            url.set_port(None).unwrap();
            url.into()
        }
        // Without version and machine.
        "user-agent" | "x-goog-api-client" => value.split('/').next().unwrap_or_default().to_owned(),
        _ => value,
    }
}

/// Where requests really went, and the place that it stands for.
struct Place {
    base: String,
    original: String,
}

impl Place {
    /// A server that plays this one.
    fn of(server: &FakeServer, original: &str) -> Self {
        Self { base: server.url(), original: original.to_owned() }
    }

    /// Our logins lead to directories of a server of the test.
    fn ours(server: &FakeServer) -> Self {
        Self { base: format!("{}/", server.url()), original: "https://".to_owned() }
    }

    fn put_back(&self, text: &str) -> String {
        text.replace(&self.base, &self.original)
    }

    fn page(&self, url: &str) -> Members {
        let (page, params) = url.split_once('?').unwrap();
        let mut members = Members::from([("page".to_owned(), self.put_back(page))]);
        let params = query(params).into_iter();
        members.extend(params.map(|(name, value)| (format!("page.{name}"), plain(&name, value))));
        members
    }

    /// A request in its members.
    fn request(&self, name: &str, sent: &CapturedRequest) -> Members {
        let url = format!("{}{}", self.base.trim_end_matches('/'), sent.path);
        let mut members =
            Members::from([(name.to_owned(), format!("{} {}", sent.method, self.put_back(&url)))]);
        let headers = sent.headers.iter().filter(|(header, _)| !CONNECTION.contains(&header.as_str()));
        members.extend(
            headers.map(|(header, value)| (format!("{name}.header.{header}"), plain(header, value.clone()))),
        );
        let body = std::str::from_utf8(&sent.body).unwrap();
        let params = if body.starts_with('{') {
            let object: serde_json::Map<String, Value> = serde_json::from_str(body).unwrap();
            let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            object.into_iter().map(|(param, value)| (param, text(value))).collect()
        } else {
            query(body)
        };
        let params = params.into_iter();
        members.extend(
            params.map(|(param, value)| (format!("{name}.{param}"), plain(&param, self.put_back(&value)))),
        );
        members
    }
}

/// Our page and requests of the same login; the last request is refused.
async fn ours(
    provider: &str,
    method: LoginMethod,
    names: &[&str],
    replies: impl IntoIterator<Item = Reply>,
) -> Members {
    let server = FakeServer::start(replies);
    let logins = Logins::parse(&rows(&server.url())).unwrap();
    let least_interval = Duration::from_millis(1);
    let options = LoginOptions { method: Some(method), least_interval, ..LoginOptions::default() };
    let login = PendingLogin::begin(&logins, provider, options).await.unwrap();
    let url = login.prompt().url;
    login.finish(async { Some("CODE".to_owned()) }).await.unwrap_err();
    let mut members = Members::new();
    if method != LoginMethod::Device {
        members = Place::ours(&server).page(&url);
    }
    let requests = server.requests();
    assert_eq!(requests.len(), names.len());
    for (name, sent) in names.iter().zip(&requests) {
        members.extend(Place::ours(&server).request(name, sent));
    }
    members
}

/// Our request for new tokens.
async fn our_refresh(provider: &str) -> Members {
    let server = FakeServer::start([]);
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(home.path().join(name), text).unwrap();
    write("logins.json", rows(&server.url()));
    let entry =
        json!({ "type": "oauth", "access": "ACCESS", "refresh": "REFRESH", "expires": 1, "accepted": 1 });
    write("auth.json", json!({ provider: entry }).to_string());
    let (settings, model) = stored_for(provider, Wire::Messages, home.path(), &server.url());
    let caller = settings.provider_for(&model, None).unwrap();
    assert!(World::of(caller, model).call().await.error.is_some());
    Place::ours(&server).request("refresh", &server.requests()[0])
}

fn check(flow: &str, theirs: &Members, ours: &Members) {
    let listed: BTreeMap<String, Vec<Difference>> =
        serde_json::from_str(include_str!("../data/login-differences.json")).unwrap();
    let listed = listed.get(flow).map(Vec::as_slice).unwrap_or_default();
    assert!(listed.iter().all(|one| !one.reason.is_empty()), "{flow}");
    let listed: BTreeMap<_, _> = listed
        .iter()
        .map(|one| (one.member.as_str(), (one.theirs.as_deref(), one.ours.as_deref())))
        .collect();
    let names: BTreeSet<&str> = theirs.keys().chain(ours.keys()).map(String::as_str).collect();
    let value = |members: &'_ Members, name: &str| members.get(name).cloned();
    let differ = names.into_iter().filter(|name| theirs.get(*name) != ours.get(*name));
    let found: Vec<_> = differ.map(|name| (name, value(theirs, name), value(ours, name))).collect();
    let found: BTreeMap<_, _> =
        found.iter().map(|(name, theirs, ours)| (*name, (theirs.as_deref(), ours.as_deref()))).collect();
    assert_eq!(found, listed, "{flow}: theirs, ours");
}

/// Has the browser return with a code.
fn returns(url: &str) {
    let params: Members = query(url.split_once('?').unwrap().1).into_iter().collect();
    let back = reqwest::Url::parse(&params["redirect_uri"]).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", back.port().unwrap())).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (path, state) = (back.path(), &params["state"]);
    write!(stream, "GET {path}?code=CODE&state={state} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    // Some answer only when the code was turned into tokens, or not.
    drop(stream.read(&mut [0; 64]));
}

/// The first request to this path.
async fn asked(server: &FakeServer, path: &str) -> CapturedRequest {
    let found = async {
        for count in 1.. {
            let all = server.wait_for_requests(count).await;
            if let Some(found) = all.into_iter().find(|one| one.path == path) {
                return found;
            }
        }
        unreachable!("there is always another count")
    };
    tokio::time::timeout(LIMIT, found).await.unwrap_or_else(|_| panic!("{path}: {:#?}", server.requests()))
}

/// The server of an account, as a program finds it that trusts this authority and uses this proxy.
struct Account {
    server: FakeServer,
    proxy: FakeProxy,
    authority: String,
}

impl Account {
    fn at(host: &str) -> Self {
        let authority = Authority::new("An authority of a test");
        let server = FakeServer::start_tls([], &authority.issue(&[host], Validity::Now));
        let proxy = FakeProxy::to(&server);
        Self { server, proxy, authority: authority.pem() }
    }

    /// Its requests are those to this host.
    fn place(&self, host: &str) -> Place {
        Place::of(&self.server, &format!("https://{host}"))
    }

    fn run(&self, client: &mut Client, programs: &[PathBuf; 2], args: &[&str]) {
        let file = client.file("authority.pem", &self.authority);
        let file = file.to_str().unwrap();
        let proxy = format!("http://{}", self.proxy.address());
        let names = ["SSL_CERT_FILE", "CODEX_CA_CERTIFICATE", "NODE_EXTRA_CA_CERTS"];
        client.start(programs, args, &proxy, &names.map(|name| (name, file)));
    }
}

/// The page and the first request of a login in a browser.
async fn in_browser(programs: &[PathBuf; 2], args: &[&str], host: &str, path: &str) -> Members {
    let account = Account::at(host);
    let mut client = Client::new();
    account.run(&mut client, programs, args);
    let url = client.opened();
    let place = account.place(host);
    let mut members = place.page(&url);
    let visit = std::thread::spawn(move || returns(&url));
    members.extend(place.request("tokens", &asked(&account.server, path).await));
    drop(client);
    visit.join().unwrap();
    members
}

fn reply(body: &Value) -> Reply {
    Reply::new(200, "application/json", body.to_string())
}

/// Some servers write the interval as a text.
fn device_replies(interval: &Value) -> [Reply; 2] {
    let code = json!({ "device_code": "DEVICE", "device_auth_id": "DEVICE", "user_code": "ABCD-1234",
        "verification_uri": "https://example.com/x", "interval": interval, "expires_in": 900 });
    let done = json!({ "authorization_code": "CODE", "code_verifier": "VERIFIER", "code_challenge": "CHALLENGE",
            "access_token": "LOGIN", "token_type": "bearer", "scope": "read:user" });
    [reply(&code), reply(&done)]
}

const DEVICE: [&str; 3] = ["code", "poll", "tokens"];

/// The requests of a login with a code, at a server that is named to the program.
async fn by_code(programs: &[PathBuf; 2], args: &[&str], interval: &Value, original: &str) -> Members {
    let server = FakeServer::start(device_replies(interval));
    let mut client = Client::new();
    let url = server.url();
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "SERVER" { url.as_str() } else { arg }).collect();
    client.start(programs, &args, NOWHERE, &[]);
    let sent = tokio::time::timeout(LIMIT, server.wait_for_requests(DEVICE.len())).await;
    let sent = sent.unwrap_or_else(|_| panic!("{:#?}", client.lines.try_iter().collect::<Vec<_>>()));
    let place = Place::of(&server, original);
    DEVICE.iter().zip(&sent).flat_map(|(name, sent)| place.request(name, sent)).collect()
}

fn jwt(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{}", part(&json!({ "alg": "RS256" })), part(claims), URL_SAFE_NO_PAD.encode("signature"))
}

fn claude_file(expires: i64) -> Value {
    json!({ "claudeAiOauth": { "accessToken": "sk-ant-oat01-ACCESS", "refreshToken": "REFRESH",
        "expiresAt": expires, "scopes": ["user:inference", "user:profile"], "subscriptionType": "max" } })
}

fn codex_file(expires: i64) -> Value {
    let account = json!({ "chatgpt_account_id": "account-7", "chatgpt_plan_type": "plus" });
    let token =
        jwt(&json!({ "exp": expires, "email": "a@example.com", "https://api.openai.com/auth": account }));
    json!({ "auth_mode": "chatgpt", "OPENAI_API_KEY": null, "last_refresh": "2026-01-01T00:00:00Z",
        "tokens": { "id_token": token, "access_token": token, "refresh_token": "REFRESH", "account_id": "account-7" } })
}

#[tokio::test]
async fn claude_code_logs_in_as_we_do_but_for_the_list() {
    let Some(claude) = program("claude") else { return };
    let host = "platform.claude.com";
    let theirs = in_browser(&claude, &["auth", "login"], host, "/v1/oauth/token").await;
    check("anthropic browser", &theirs, &ours("anthropic", LoginMethod::Browser, &["tokens"], []).await);
    let account = Account::at(host);
    let mut client = Client::new();
    client.file(CLAUDE, &claude_file(1).to_string());
    account.run(&mut client, &claude, &["-p", "Hi"]);
    let theirs = account.place(host).request("refresh", &asked(&account.server, "/v1/oauth/token").await);
    check("anthropic refresh", &theirs, &our_refresh("anthropic").await);
}

#[tokio::test]
async fn codex_logs_in_as_we_do_but_for_the_list() {
    let Some(codex) = program("codex") else { return };
    let (host, id) = ("auth.openai.com", "openai-codex");
    let theirs = in_browser(&codex, &["login"], host, "/oauth/token").await;
    check("openai-codex browser", &theirs, &ours(id, LoginMethod::Browser, &["tokens"], []).await);
    let args = ["login", "--device-auth", "--experimental_issuer", "SERVER"];
    let theirs = by_code(&codex, &args, &json!("1"), "https://auth.openai.com").await;
    check(
        "openai-codex device",
        &theirs,
        &ours(id, LoginMethod::Device, &DEVICE, device_replies(&json!(0))).await,
    );
    let account = Account::at(host);
    let mut client = Client::new();
    client.file(CODEX, &codex_file(1).to_string());
    account.run(&mut client, &codex, &["exec", "--skip-git-repo-check", "Hi"]);
    let theirs = account.place(host).request("refresh", &asked(&account.server, "/oauth/token").await);
    check("openai-codex refresh", &theirs, &our_refresh(id).await);
}

#[tokio::test]
async fn copilot_logs_in_as_we_do_but_for_the_list() {
    let Some(copilot) = program("copilot") else { return };
    let theirs =
        by_code(&copilot, &["login", "--device-code", "--host", "SERVER"], &json!(1), "https://github.com")
            .await;
    let ours = ours("github-copilot", LoginMethod::Device, &DEVICE, device_replies(&json!(0))).await;
    check("github-copilot device", &theirs, &ours);
}

/// What a request says of the account and the model; a conversation is another's business.
fn without_conversation(mut members: Members) -> Members {
    for (name, value) in &mut members {
        if name == "call.request" {
            let request: Value = serde_json::from_str(value).unwrap();
            let names: Vec<_> = request.as_object().unwrap().keys().cloned().collect();
            *value = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ");
        }
        if name == "call.user_prompt_id" {
            "…".clone_into(value);
        }
    }
    members
}

#[tokio::test]
async fn gemini_cli_calls_as_we_do_but_for_the_list() {
    let Some(gemini) = program("gemini") else { return };
    let (host, id) = ("https://cloudcode-pa.googleapis.com", "google-gemini-cli");
    let replies = || {
        let account = json!({ "currentTier": { "id": "free-tier" }, "cloudaicompanionProject": "project-7" });
        [
            reply(&account).only_for("pluginType\":\"GEMINI\"}}"),
            Answer::on(Wire::Envelope).text("hello").reply().only_for("contents"),
        ]
    };
    let paths = ["/v1internal:loadCodeAssist", "/v1internal:streamGenerateContent?alt=sse"];
    let members = |place: &Place, sent: &[CapturedRequest]| {
        ["account", "call"].iter().zip(sent).flat_map(|(name, sent)| place.request(name, sent)).collect()
    };
    let server = FakeServer::start(replies());
    let mut client = Client::new();
    client.file(GEMINI, &gemini_file().to_string());
    client.file(".gemini/settings.json", r#"{"security":{"auth":{"selectedType":"oauth-personal"}}}"#);
    let url = server.url();
    // A token of a variable, which is not shown to a server of the internet first.
    let vars = [
        ("GOOGLE_GENAI_USE_GCA", "true"),
        ("GOOGLE_CLOUD_ACCESS_TOKEN", "ya29.ACCESS"),
        ("CODE_ASSIST_ENDPOINT", url.as_str()),
        ("NO_BROWSER", "true"),
    ];
    client.start(&gemini, &["--skip-trust", "-m", "gemini-2.5-pro", "-p", "Hi"], NOWHERE, &vars);
    drop(client.stdin.take());
    let sent = [asked(&server, paths[0]).await, asked(&server, paths[1]).await];
    drop(client);
    let theirs: Members = members(&Place::of(&server, host), &sent);

    let server = FakeServer::start(replies());
    let client = Client::new();
    client.file(GEMINI, &gemini_file().to_string());
    let models = json!({ "providers": { id: { "baseUrl": server.url() } } });
    client.file(".quipu/models.json", &models.to_string());
    let home = client.home.path().to_str().unwrap().to_owned();
    let quipu = client.home.path().join(".quipu");
    let load = || Settings::load(&quipu, &|name| (name == "HOME").then(|| home.clone())).0;
    assert_eq!(found(&client), [("gemini-cli".to_owned(), Some(id.to_owned()))]);
    let settings = load();
    let account = settings.agent_account(&settings.agent_logins()[0]).await.unwrap();
    AuthFile::new(&quipu).set_reference(id, "gemini-cli", Some(1), &account).unwrap();
    let settings = load();
    let model = settings.default_of(id).unwrap();
    let caller = settings.provider_for(&model, None).unwrap();
    assert_eq!(World::of(caller, (*model).clone()).call().await.error, None);
    let ours: Members = members(&Place::of(&server, host), &server.requests());
    check("google-gemini-cli", &without_conversation(theirs), &without_conversation(ours));
}

fn gemini_file() -> Value {
    json!({ "access_token": "ya29.ACCESS", "refresh_token": "REFRESH", "scope": "x", "token_type": "Bearer",
        "expiry_date": 4_102_444_800_000_i64 })
}

/// The programs in whose files we find a login of this provider.
fn found(client: &Client) -> Vec<(String, Option<String>)> {
    let home = client.home.path().to_str().unwrap().to_owned();
    let settings =
        Settings::load(&client.home.path().join(".quipu"), &|name| (name == "HOME").then(|| home.clone()));
    settings.0.agent_logins().into_iter().map(|login| (login.agent, login.provider)).collect()
}

#[tokio::test]
async fn files_of_logins_are_those_that_their_owners_read() {
    if let Some(claude) = program("claude") {
        let mut client = Client::new();
        client.file(CLAUDE, &claude_file(4_102_444_800_000).to_string());
        client.start(&claude, &["auth", "status"], NOWHERE, &[]);
        client.line_with("\"loggedIn\": true");
        assert_eq!(found(&client), [("claude-code".to_owned(), Some("anthropic".to_owned()))]);
    }
    if let Some(codex) = program("codex") {
        let mut client = Client::new();
        client.file(CODEX, &codex_file(4_102_444_800).to_string());
        client.start(&codex, &["login", "status"], NOWHERE, &[]);
        client.line_with("Logged in using ChatGPT");
        assert_eq!(found(&client), [("codex".to_owned(), Some("openai-codex".to_owned()))]);
    }
    if let Some(copilot) = program("copilot") {
        let mut client = Client::new();
        let server = FakeServer::start([]);
        let url = server.url();
        let user = json!({ "host": url, "login": "octo" });
        let file = json!({ "authTokens": { format!("{url}:octo"): { "token": "LOGIN" } },
            "loggedInUsers": [{ "host": url, "login": "octo", "kind": "proxima" }], "lastLoggedInUser": user });
        client.file(COPILOT, &format!("// A comment, as its owner writes one.\n{file}"));
        client.start(&copilot, &["-p", "Hi"], NOWHERE, &[]);
        let sent = tokio::time::timeout(LIMIT, server.wait_for_requests(1)).await.unwrap();
        assert!(sent[0].header("authorization").unwrap().ends_with("earer LOGIN"));
        client.file(
            COPILOT,
            &format!("// As above.\n{}", file.to_string().replace(&url, "https://github.com")),
        );
        assert_eq!(found(&client), [("copilot-cli".to_owned(), None)]);
    }
}
