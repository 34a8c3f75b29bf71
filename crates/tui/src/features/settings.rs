//! Settings of the user: one of them, or all in an editor.

use crate::component::Chooser;
use crate::editor::Candidate;
use crate::host::SettingOutcome;
use crate::picker::{Picker, PickerRow};
use crate::{Effect, Request, SlashCommand, State};

pub(crate) const SETTINGS: SlashCommand = SlashCommand::new(
    "settings",
    "[NAME VALUE]",
    "change settings; open settings.json in your editor",
    settings,
)
.completes();

/// Keeps a setting that is said, or shows all.
fn settings(_: &mut State, setting: &str, effects: &mut Vec<Effect>) {
    if setting.is_empty() {
        let all = Request::to_host("settings", |host| host.arguments("settings".into(), None), show);
        effects.push(Effect::Ask(all));
    } else {
        keep(setting.to_owned(), effects);
    }
}

fn show(state: &mut State, settings: Vec<Candidate>, _: &mut Vec<Effect>) {
    let row = |one: Candidate| PickerRow::new(one.meant().to_owned(), one.text, one.detail);
    let mut rows = vec![PickerRow::new(String::new(), "settings.json in your editor", "")];
    rows.extend(settings.into_iter().map(row));
    state.show(Chooser::new(Picker::new("Settings", rows), choose));
}

fn choose(state: &mut State, setting: String, effects: &mut Vec<Effect>) {
    if setting.is_empty() {
        effects.push(Effect::EditSettings);
    } else if setting.contains(' ') {
        keep(setting, effects);
    } else if state.linear.is_some() {
        // A value is still to be written.
        state.hint = Some(format!("/settings {setting} and a value sets it."));
    } else {
        state.editor.set_text(&format!("/settings {setting} "));
    }
}

fn keep(setting: String, effects: &mut Vec<Effect>) {
    effects.push(Effect::Ask(Request::to_host("keep setting", |host| host.set(setting), kept)));
}

impl State {
    /// Finds out what follows from the settings as they are now.
    pub(crate) fn read_settings(&mut self, effects: &mut Vec<Effect>) {
        effects.push(Effect::Ask(Request::to_host("read settings", |host| host.edited(), kept)));
    }
}

/// A setting is kept: it holds for what is opened from now on, so the session is opened again.
fn kept(state: &mut State, kept: SettingOutcome, effects: &mut Vec<Effect>) {
    if let Some(theme) = kept.theme {
        // A theme that is named counts, whatever is behind text.
        state.adapts = false;
        state.wear(&theme);
    }
    state.note(&kept.message);
    if !kept.reopens || state.opening.unready || state.standing.session.is_none() {
        return;
    }
    state.opening.reopens = true;
    if state.opening.under_way
        || state.activity.working.is_some()
        || state.activity.busy.is_some()
        || state.shell.running.is_some()
    {
        state.note("It takes effect in this session when the work is done");
    }
    state.reopen(effects);
}
