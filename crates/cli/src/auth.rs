//! `quipu auth`: which credentials are known. Credentials themselves are never printed.

use std::io::{IsTerminal as _, Read as _, Write as _};

use quipu_providers::AuthFile;

use crate::args::{AuthAction, AuthArgs, StoreArg};
use crate::exit::Failure;
use crate::print::{Paint, note, printable};
use crate::setup::Place;

/// Bytes of a key at most.
const KEY_LIMIT: u64 = 16 << 10;

pub(crate) fn run(args: &AuthArgs) -> Result<(), Failure> {
    let place = Place::find(&StoreArg::default())?;
    match &args.action {
        None => list(&place, args.json),
        Some(AuthAction::Set { provider }) => set(&place, provider),
        Some(AuthAction::Remove { provider }) => {
            let removed = AuthFile::new(&place.home).remove(provider).map_err(Failure::failed)?;
            note(if removed { "Removed." } else { "There was no stored key for it." });
            Ok(())
        }
    }
}

fn list(place: &Place, json: bool) -> Result<(), Failure> {
    let settings = place.settings();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let paint = Paint::stdout();
    let mut without = Vec::new();
    for provider in settings.providers() {
        let source = settings.credential_source(provider);
        let spoken = settings.models_of(provider).iter().any(|model| quipu_providers::is_supported(model));
        if json {
            let line = serde_json::json!({ "provider": provider, "source": source, "supported": spoken });
            writeln!(out, "{line}")?;
            continue;
        }
        match source {
            Some(source) => {
                let hint = if spoken { "" } else { "  (its wire is not spoken yet)" };
                writeln!(
                    out,
                    "{}  from {}{}",
                    paint.bold(&printable(provider)),
                    printable(&source),
                    paint.dim(hint)
                )?;
            }
            None if spoken => without.push(printable(provider)),
            None => {}
        }
    }
    out.flush()?;
    if !json {
        note(format!("Without a credential: {}. Add one: quipu auth set PROVIDER", without.join(", ")));
    }
    Ok(())
}

fn set(place: &Place, provider: &str) -> Result<(), Failure> {
    if !place.settings().providers().contains(&provider) {
        return Err(Failure::usage(format!(
            "there is no provider `{}`; `quipu auth` lists them, and models.json in {} can add one",
            printable(provider),
            place.home.display()
        )));
    }
    if std::io::stdin().is_terminal() {
        note("Paste the key and end with Enter, then Ctrl-D (it is shown as you paste it):");
    }
    let mut key = String::new();
    std::io::stdin().lock().take(KEY_LIMIT + 1).read_to_string(&mut key)?;
    let key = key.trim();
    if key.is_empty() || key.len() as u64 > KEY_LIMIT || key.contains(char::is_whitespace) {
        return Err(Failure::usage("that is no key: it must be one word of at most 16 KiB, on stdin"));
    }
    let file = AuthFile::new(&place.home);
    file.set_key(provider, key).map_err(Failure::failed)?;
    note(format!("Stored in {}.", file.path().display()));
    Ok(())
}
