//! How long a browser takes to open a page: Chromium without a window, told what to do over two pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A browser that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// The page says itself that it is drawn, before it counts as loaded.
const READY: &str = "document.documentElement.dataset.ready";

/// A browser with one page. It ends with it.
pub(super) struct Browser {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    page: Option<String>,
    last: u64,
    /// Whether the page was loaded since it was asked for.
    is_loaded: bool,
    _home: tempfile::TempDir,
}

/// The program, where there is one.
pub(super) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|file| file.is_file())
}

impl Browser {
    pub(super) fn start(program: &Path) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("quipu-bench-browser-").tempdir()?;
        // It listens on the descriptor 3 and answers on 4.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"]).arg(program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
        ]);
        command.args(["--remote-debugging-pipe", "--window-size=1200,900"]);
        command.arg(format!("--user-data-dir={}", home.path().join("data").display())).arg("about:blank");
        command.env("HOME", home.path()).env("TMPDIR", home.path());
        // Its children end with it.
        command.process_group(0);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the browser")?;
        let from = child.stdout.take().context("the browser has no output")?;
        let input = child.stdin.take().context("the browser has no input")?;
        let (tx, output) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(from).split(0) {
                let Ok(Ok(())) = message.map(|message| tx.send(message)) else { return };
            }
        });
        let mut browser = Self { child, input, output, page: None, last: 0, is_loaded: false, _home: home };
        let made = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = browser.ask("Target.attachToTarget", &attach)?;
        browser.page = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime"] {
            browser.ask(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    fn next(&mut self, for_what: &str) -> Result<Value> {
        let message = self.output.recv_timeout(LIMIT);
        let message = message.with_context(|| format!("{for_what}: the browser says nothing"))?;
        let told: Value = serde_json::from_slice(&message)?;
        self.is_loaded |= told["method"] == "Page.loadEventFired";
        Ok(told)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(page) = &self.page {
            message["sessionId"] = json!(page);
        }
        self.input.write_all(format!("{message}\0").as_bytes())?;
        loop {
            let told = self.next(method)?;
            if told["id"] == json!(self.last) {
                ensure!(told["error"].is_null(), "{method}: {told}");
                return Ok(told["result"].clone());
            }
        }
    }

    /// Opens a page, and waits until it has drawn itself: milliseconds.
    pub(super) fn open(&mut self, file: &Path) -> Result<f64> {
        let began = Instant::now();
        self.is_loaded = false;
        let opened = self.ask("Page.navigate", &json!({ "url": format!("file://{}", file.display()) }))?;
        ensure!(opened["errorText"].is_null(), "the page does not open: {opened}");
        while !self.is_loaded {
            self.next("load")?;
        }
        let ready = self.ask("Runtime.evaluate", &json!({ "expression": READY, "returnByValue": true }))?;
        ensure!(ready["result"]["value"] == json!("yes"), "the page is not drawn: {ready}");
        Ok(began.elapsed().as_secs_f64() * 1_000.0)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // All of its group: it has children.
        if let Ok(group) = i32::try_from(self.child.id()) {
            killpg(Pid::from_raw(group), Signal::SIGKILL).ok();
        }
        drop(self.child.wait());
    }
}
