//! How the terminal looks: `theme` in `settings.json`, and the files of themes.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};

use quipu_tui::{Depth, THEME_LIMIT, Theme};
use serde_json::Value;

use crate::setup::{Place, env};

/// The theme to begin with, and what is wrong with it.
pub(super) fn theme(place: &Place, depth: Depth) -> (Theme, Vec<String>) {
    // A file that cannot be read is told of where its models are.
    let settings = place.settings_json().unwrap_or_default();
    let mut told = Vec::new();
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
    (theme, told)
}
