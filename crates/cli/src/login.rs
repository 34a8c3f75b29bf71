//! `quipu auth login`: a person logs in, in a browser or on another device.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::process::{Command, Stdio};

use quipu_host::{Home, RestrictionConsent, agent_login, begin_login, login_offer, use_agent_login};
use quipu_providers::{LoginMethod, LoginOptions, LoginPrompt};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::LoginArgs;
use crate::confirm::confirm;
use crate::exit::{Exit, Failure};
use crate::print::note;

/// Bytes that are pasted at most.
const PASTE_LIMIT: u64 = 16 << 10;

pub(crate) async fn run(home: &Home, args: &LoginArgs) -> Result<(), Failure> {
    let provider = &args.provider;
    if crate::console::is_within() {
        return Err(Failure::usage(format!(
            "a login needs a terminal: run `quipu auth login {provider}` in a shell"
        )));
    }
    let settings = home.settings();
    let offer = login_offer(&settings, provider)?;
    let method = match (args.device, args.no_browser) {
        (true, _) => Some(LoginMethod::Device),
        (false, true) if offer.in_browser => Some(LoginMethod::Paste),
        (false, _) => None,
    };
    accepted(offer.restriction.as_deref(), &offer.account, args.yes)?;
    let options = LoginOptions { method, domain: args.domain.clone(), ..LoginOptions::default() };
    let mut interrupts = signal(SignalKind::interrupt())?;
    let cancel = CancellationToken::new();
    let work = async {
        let login = begin_login(home, &settings, offer, RestrictionConsent::Accepted, options).await?;
        let prompt = login.prompt();
        show(&prompt, !args.no_browser);
        login.finish(pasted(prompt.takes_code), &cancel).await
    };
    let done = tokio::select! {
        done = work => done?,
        _ = interrupts.recv() => {
            cancel.cancel();
            return Err(Failure::new(Exit::Interrupted, "the login was stopped; nothing is stored"));
        }
    };
    note(done);
    Ok(())
}

/// Whether a person accepts the restriction of an account. Without one that is said, and it ends.
fn accepted(restriction: Option<&str>, account: &str, yes: bool) -> Result<(), Failure> {
    let Some(restriction) = restriction else { return Ok(()) };
    note(restriction);
    if yes {
        return Ok(());
    }
    confirm(&format!("Use {account} all the same?"), &format!("{account} is used"), "nothing was stored")
}

/// Uses the login that another program keeps.
pub(crate) async fn use_agent(
    home: &Home,
    agent: &str,
    provider: Option<&str>,
    yes: bool,
) -> Result<(), Failure> {
    let settings = home.settings();
    let login = agent_login(&settings, agent, provider)?;
    let logins = settings.logins();
    let provider = login.provider.as_deref().unwrap_or_default();
    let account =
        logins.account(provider).map_or_else(|| format!("the login of {}", login.name), str::to_owned);
    accepted(login.restriction.as_deref(), &account, yes)?;
    note(use_agent_login(home, &settings, &login, RestrictionConsent::Accepted).await?);
    Ok(())
}

/// Says what to open and type, and opens it where there is a browser.
fn show(prompt: &LoginPrompt, may_open: bool) {
    note("Open this page:");
    note(format!("  {}", prompt.url));
    if let Some(code) = &prompt.user_code {
        note(format!("and enter the code {code}"));
    }
    match (prompt.takes_code, prompt.listens) {
        (true, true) => {
            note("If the browser is on another machine, paste its last address here, and press Enter.");
        }
        (true, false) => note("Paste the code, or the last address of the browser, and press Enter."),
        (false, _) => {}
    }
    note("Waiting for 15 minutes at most; Ctrl-C ends it.");
    let on_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if may_open && on_terminal {
        open(&prompt.url);
    }
}

/// Opens a page in the browser of this machine, where there is a program that does it. The page is shown anyway.
pub(crate) fn open(url: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let has_screen = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| quipu_host::env(name).is_some());
    if has_screen {
        let mut command = Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(command.spawn());
    }
}

/// A line of stdin; `None` when there is none.
async fn pasted(takes_code: bool) -> Option<String> {
    if !takes_code {
        return None;
    }
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        crate::console::stdin().take(PASTE_LIMIT + 1).read_line(&mut line).map(|_| line)
    });
    let line = line.await.ok()?.ok()?;
    Some(line).filter(|line| !line.trim().is_empty())
}
