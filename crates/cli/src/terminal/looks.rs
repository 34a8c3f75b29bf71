//! How the terminal looks: `theme` in `settings.json`, and the files of themes.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};

use quipu_tui::osc::Notify;
use quipu_tui::terminal::Abilities;
use quipu_tui::{Depth, THEME_LIMIT, Theme};
use serde_json::Value;

use quipu_host::{Place, env};

/// How a terminal looks.
pub(super) struct Looks {
    pub(super) theme: Theme,
    /// The theme goes by what is behind text.
    pub(super) adapts: bool,
    pub(super) abilities: Abilities,
    /// What is wrong with the settings.
    pub(super) problems: Vec<String>,
}

/// What the settings make of a terminal that can do this.
pub(super) fn looks(place: &Place, mut abilities: Abilities) -> Looks {
    // A file that cannot be read is told of where its models are.
    let settings = place.settings_json().unwrap_or_default();
    let mut told = Vec::new();
    let depth = abilities.depth;
    let terminal = &settings["terminal"];
    if let Some(links) = terminal["hyperlinks"].as_bool() {
        abilities.links = links && !abilities.linear;
    }
    if terminal["showImages"] == false {
        abilities.graphics = None;
    }
    match terminal["notify"].as_str() {
        Some("off") => abilities.notify = Notify::Off,
        Some("bell") => abilities.notify = Notify::Bell,
        Some("osc9") if !abilities.linear => abilities.notify = Notify::Osc9,
        Some("osc777") if !abilities.linear => abilities.notify = Notify::Osc777,
        None if terminal["notify"].is_null() => {}
        Some("auto" | "osc9" | "osc777") => {}
        _ => told.push(
            "`terminal.notify` in settings.json must be \"auto\", \"osc9\", \"osc777\", \"bell\" or \"off\""
                .to_owned(),
        ),
    }
    let name = match settings.get("theme") {
        Some(Value::String(name)) => Some(name.as_str()),
        None | Some(Value::Null) => None,
        Some(_) => {
            told.push("`theme` in settings.json must be the name of a theme, such as \"light\"".to_owned());
            None
        }
    };
    let read = |name: &str| {
        let path = place.home.join("themes").join(format!("{name}.json"));
        if !std::fs::metadata(&path)?.is_file() {
            return Err(Error::new(ErrorKind::InvalidInput, "not a file"));
        }
        // A byte more than it may have, so that one that is too long is told of.
        let mut text = String::new();
        File::open(&path)?.take(THEME_LIMIT as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let (theme, problems) = Theme::choose(name, depth, env("COLORFGBG").as_deref(), read);
    told.extend(problems);
    Looks { theme, adapts: name.is_none() && depth > Depth::Ansi, abilities, problems: told }
}
