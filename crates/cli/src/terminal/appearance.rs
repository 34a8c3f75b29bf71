//! How the terminal looks: `theme` of the settings, and the files of themes.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _};

use quipu_tui::osc::Notify;
use quipu_tui::terminal::Abilities;
use quipu_tui::{Depth, THEME_LIMIT, Theme};

use quipu_host::settings::NotifySetting;
use quipu_host::{Home, env};

/// The theme and the abilities of a terminal.
pub(super) struct Appearance {
    pub(super) theme: Theme,
    /// The theme goes by what is behind text.
    pub(super) adapts: bool,
    pub(super) abilities: Abilities,
    /// What is wrong with the theme.
    pub(super) problems: Vec<String>,
}

/// What the settings make of a terminal that can do this.
pub(super) fn appearance(home: &Home, mut abilities: Abilities) -> Appearance {
    let settings = home.config();
    let depth = abilities.depth;
    if let Some(links) = settings.terminal.hyperlinks {
        abilities.links = links && !abilities.linear;
    }
    if !settings.terminal.show_images {
        abilities.graphics = None;
    }
    match settings.terminal.notify {
        NotifySetting::Off => abilities.notify = Notify::Off,
        NotifySetting::Bell => abilities.notify = Notify::Bell,
        NotifySetting::Osc9 if !abilities.linear => abilities.notify = Notify::Osc9,
        NotifySetting::Osc777 if !abilities.linear => abilities.notify = Notify::Osc777,
        NotifySetting::Auto | NotifySetting::Osc9 | NotifySetting::Osc777 => {}
    }
    let name = settings.theme.as_deref();
    let read = |name: &str| {
        let path = home.dir.join("themes").join(format!("{name}.json"));
        if !std::fs::metadata(&path)?.is_file() {
            return Err(Error::new(ErrorKind::InvalidInput, "not a file"));
        }
        // A byte more than it may have, so that one that is too long is told of.
        let mut text = String::new();
        File::open(&path)?.take(THEME_LIMIT as u64 + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let (theme, problems) = Theme::choose(name, depth, env("COLORFGBG").as_deref(), read);
    Appearance { theme, adapts: name.is_none() && depth > Depth::Ansi, abilities, problems }
}
