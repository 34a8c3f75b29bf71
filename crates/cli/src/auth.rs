//! `quipu auth`: which credentials are known. Credentials themselves are never printed.

use std::io::{Read as _, Write as _};

use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use quipu_providers::{AuthFile, StoredLogin, forget_key_use, nearest};

use crate::args::{AuthAction, AuthArgs, StoreArg};
use crate::auth_keys::{key_id, key_json, key_state, now};
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::print::{Paint, note, printable};
use quipu_host::Home;

/// Bytes of a key at most.
const KEY_LIMIT: u64 = 16 << 10;

/// Where a key is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyPlace {
    File,
    Keychain,
}

pub(crate) async fn run(args: &AuthArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    match &args.action {
        None => list(&home, args.json),
        Some(AuthAction::Set { provider, name, keychain }) => {
            let place = if *keychain { KeyPlace::Keychain } else { KeyPlace::File };
            set(&home, provider, name.as_deref(), place)
        }
        Some(AuthAction::Login(login)) => crate::login::run(&home, login).await,
        Some(AuthAction::Use { agent, provider, yes }) => {
            crate::login::use_agent(&home, agent, provider.as_deref(), *yes).await
        }
        Some(AuthAction::Remove { provider }) => {
            let file = AuthFile::new(&home.dir);
            let keychain = home.settings().keychain();
            let removed =
                keychain.replace(&file, provider, || file.remove(provider)).map_err(Failure::failed)?;
            forget_key_use(&home.dir, provider).map_err(Failure::failed)?;
            note(if removed { "Removed." } else { "No key was stored for this provider, and no login." });
            Ok(())
        }
    }
}

fn list(home: &Home, json: bool) -> Result<(), Failure> {
    let settings = home.settings();
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    let mut without = Vec::new();
    let now = now();
    for provider in settings.providers() {
        let source = settings.credential_source(provider);
        let spoken = settings.models_of(provider).iter().any(|model| quipu_providers::is_supported(model));
        let keys = settings.key_statuses(provider);
        if json {
            let mut line = serde_json::json!({ "provider": provider, "source": source, "supported": spoken });
            if let Some(login) = settings.stored_login(provider) {
                line["login"] = serde_json::json!({ "expires": login.expires, "renewable": login.is_renewable,
                    "agent": login.agent });
            }
            if !keys.is_empty() {
                line["keys"] = keys.iter().map(key_json).collect();
            }
            writeln!(out, "{line}")?;
            continue;
        }
        match source {
            Some(source) => {
                let hint = if spoken { "" } else { "  (its API is not supported yet)" };
                writeln!(
                    out,
                    "{}  from {}{}{}",
                    paint.bold(&printable(provider)),
                    printable(&source),
                    settings.stored_login(provider).map(|login| login_words(&login)).unwrap_or_default(),
                    paint.dim(hint)
                )?;
                for key in &keys {
                    writeln!(out, "  {}  {}", printable(&key.id), paint.dim(&key_state(key, now)))?;
                }
            }
            None if spoken => without.push(printable(provider)),
            None => {}
        }
    }
    out.flush()?;
    if !json {
        note(format!("Without a credential: {}. Add one: quipu auth set PROVIDER", without.join(", ")));
        let logins = settings.logins();
        for login in settings.agent_logins() {
            let provider = login.provider.as_deref().unwrap_or_default();
            let in_use =
                settings.stored_login(provider).is_some_and(|it| it.agent.as_ref() == Some(&login.agent));
            let words = match (&login.provider, in_use) {
                (_, true) => continue,
                (None, _) => {
                    let why = login.obstacle.as_deref().unwrap_or("no provider takes it");
                    format!(", which cannot be used: {why}")
                }
                (Some(provider), _) => format!(" for {provider}. Use it: quipu auth use {}", login.agent),
            };
            note(format!("{} keeps a login in {}{words}", login.name, login.path.display()));
        }
        note(format!("With a login: {}. Log in: quipu auth login PROVIDER", logins.providers().join(", ")));
    }
    Ok(())
}

/// That a credential is a login, and how long its token is good.
fn login_words(login: &StoredLogin) -> String {
    if let Some(agent) = &login.agent {
        return format!(": a login that stays with {agent}");
    }
    let Some(expires) = login.expires else { return ": a login".to_owned() };
    let left = expires.saturating_sub(quipu_host::now()) / 60_000;
    let left = match left {
        ..=0 => "its token has expired".to_owned(),
        1..=119 => format!("its token expires in {left} min"),
        120..=2_879 => format!("its token expires in {} h", left / 60),
        _ => format!("its token expires in {} days", left / 1_440),
    };
    let renewed = if login.is_renewable { " and is renewed by itself" } else { "" };
    format!(": a login, {left}{renewed}")
}

fn set(home: &Home, provider: &str, name: Option<&str>, place: KeyPlace) -> Result<(), Failure> {
    let settings = home.settings();
    if !settings.providers().contains(&provider) && !quipu_host::needs_search_key(provider) {
        let near = nearest(provider, settings.providers().into_iter().map(str::to_owned));
        let near =
            near.first().map_or(String::new(), |near| format!("; did you mean `{}`?", printable(near)));
        return Err(Failure::usage(format!(
            "there is no provider `{}`{near}; `quipu auth` lists them, and models.json in {} can add one",
            printable(provider),
            home.dir.display()
        )));
    }
    let id = key_id(provider, name)?;
    let mut key = String::new();
    if crate::console::is_typed() {
        note(format!("API key for {} (hidden; Enter to finish):", printable(provider)));
        key = typed()?;
    } else {
        crate::console::stdin().take(KEY_LIMIT + 1).read_to_string(&mut key)?;
    }
    let key = key.trim();
    if key.is_empty() || key.len() as u64 > KEY_LIMIT || key.contains(char::is_whitespace) {
        return Err(Failure::usage("invalid key: give one word of at most 16 KiB on stdin"));
    }
    let file = AuthFile::new(&home.dir);
    let keychain = settings.keychain();
    let stored = match place {
        KeyPlace::File => keychain.replace(&file, &id, || file.set_key(&id, key)),
        KeyPlace::Keychain => keychain.set_key(&file, &id, key),
    };
    stored.map_err(Failure::failed)?;
    forget_key_use(&home.dir, &id).map_err(Failure::failed)?;
    let path = file.path().display();
    note(match place {
        KeyPlace::File => format!("Stored in {path}, which only you can read. The key was not tested."),
        KeyPlace::Keychain => {
            format!("Stored in the keychain; {path} says how to read it. The key was not tested.")
        }
    });
    Ok(())
}

/// A line of the terminal that it does not show. Ctrl-C and Ctrl-D leave, with the terminal as it was.
fn typed() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).map_err(std::io::Error::from)?;
    let mut hidden = before.clone();
    // Without signals and lines of its own: whatever is pressed, the terminal is put back.
    hidden.local_flags.remove(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG);
    tcsetattr(&stdin, SetArg::TCSAFLUSH, &hidden).map_err(std::io::Error::from)?;
    let line = hidden_line(&mut stdin.lock());
    tcsetattr(&stdin, SetArg::TCSADRAIN, &before).map_err(std::io::Error::from)?;
    line?.ok_or_else(|| Failure::new(Exit::Interrupted, "no key was stored"))
}

/// The bytes up to Enter, what was erased left out; `None` when somebody left.
fn hidden_line(input: &mut impl std::io::BufRead) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    for byte in input.bytes() {
        match byte? {
            b'\r' | b'\n' => return Ok(Some(line)),
            0x03 | 0x1c => return Ok(None),
            0x04 => return Ok(Some(line).filter(|line| !line.is_empty())),
            0x08 | 0x7f => drop(line.pop()),
            0x15 => line.clear(),
            byte if line.len() as u64 <= KEY_LIMIT => line.push(char::from(byte)),
            _ => {}
        }
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_shown() {
        let check = |typed: &str, expect: Option<&str>| {
            let line = hidden_line(&mut typed.as_bytes()).unwrap();
            assert_eq!(line.as_deref(), expect, "{typed:?}");
        };
        check("key\rmore", Some("key"));
        check("kex\u{7f}y\n", Some("key"));
        check("wrong\u{15}key\n", Some("key"));
        check("key\u{4}", Some("key"));
        check("key", Some("key"));
        check("key\u{3}", None);
        check("\u{4}", None);
        check("", None);
    }
}
