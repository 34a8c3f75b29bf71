//! A real browser without a window, told what to do over two pipes.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// A browser that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A browser with one page. It ends with it.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    page: String,
    last: u64,
    /// What it told unasked.
    told: VecDeque<Value>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// `None`, and a line that says so, where there is none.
    pub(crate) fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let found = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
        let Some(program) = found.into_iter().find(|file| file.is_file()) else {
            let hint = "no chromium in PATH: the Debian package chromium has it";
            assert!(std::env::var_os("QUIPU_REQUIRE_PEERS").is_none_or(|value| value != "1"), "{hint}");
            println!("skipped: {hint}");
            return None;
        };
        let home = tempfile::Builder::new().prefix("quipu-browser-").tempdir().unwrap();
        // It listens on the descriptor 3 and answers on 4.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"]).arg(program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-extensions",
            "--remote-debugging-pipe",
            "--window-size=1200,900",
        ]);
        command.arg(format!("--user-data-dir={}", home.path().join("data").display())).arg("about:blank");
        command.env("HOME", home.path()).env("TMPDIR", home.path());
        // Its children end with it.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let from = child.stdout.take().unwrap();
        let (tx, output) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0) {
                let Ok(Ok(())) = message.map(|message| tx.send(message)) else { return };
            }
        });
        let input = child.stdin.take().unwrap();
        let mut browser =
            Self { child, input, output, page: String::new(), last: 0, told: VecDeque::new(), _home: home };
        let made = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        browser.page =
            browser.ask("Target.attachToTarget", &attach)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Network", "Log", "Runtime"] {
            browser.ask(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.page.is_empty() {
            message["sessionId"] = json!(self.page);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let told = self.next(method);
            if told["id"] == json!(self.last) {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].clone();
            }
            self.told.push_back(told);
        }
    }

    fn next(&mut self, for_what: &str) -> Value {
        let message = self.output.recv_timeout(LIMIT);
        let message = message.unwrap_or_else(|why| panic!("{for_what}: the browser says nothing: {why}"));
        serde_json::from_slice(&message).unwrap()
    }

    /// Opens a file, and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) {
        self.told.clear();
        self.ask("Page.navigate", &json!({ "url": format!("file://{}", file.display()) }));
        while !self.told.iter().any(|told| told["method"] == "Page.loadEventFired") {
            let told = self.next("load");
            self.told.push_back(told);
        }
    }

    /// What a line of script gives; a promise is waited for.
    pub(crate) fn run(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let done = self.ask("Runtime.evaluate", &params);
        assert!(done["exceptionDetails"].is_null(), "{script}: {done}");
        done["result"]["value"].clone()
    }

    /// What it asked for since the file was opened, beside the file itself and what stands in it, and what its console says.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.run("new Promise(done => setTimeout(done))");
        let mut complaints = Vec::new();
        for told in &self.told {
            let params = &told["params"];
            match told["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" if params["type"] != "Document" => {
                    let url = params["request"]["url"].as_str().unwrap_or_default();
                    if !url.starts_with("data:") {
                        complaints.push(format!("asks for {url}"));
                    }
                }
                "Log.entryAdded" | "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" => {
                    complaints.push(params.to_string());
                }
                "Page.javascriptDialogOpening" | "Page.frameRequestedNavigation" | "Page.windowOpen" => {
                    complaints.push(told.to_string());
                }
                _ => {}
            }
        }
        complaints
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap_or_default();
        drop(self.child.wait());
    }
}
