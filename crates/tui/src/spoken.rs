//! What others see change, told in words once: the live part of the screen for who hears it.

use quipu_protocol::UnixMs;

use crate::state::State;
use crate::{Line, clean, render, view};

/// After so many milliseconds without a word it is said that the work goes on.
pub(crate) const QUIET: i64 = 15_000;

impl State {
    /// Tells what others see.
    pub(crate) fn tell(&mut self) {
        let Some(mut linear) = self.linear.take() else { return };
        let columns = self.size.columns;
        let mut lines = Vec::new();
        if let Some(hint) = self.hint.take() {
            lines.extend(render::note(&hint, columns, &self.theme));
        }
        let retried = self.activity.retry.as_ref().map(|retry| (retry.0, retry.1));
        if retried != linear.retried {
            lines.extend(view::retries(self, columns));
            linear.retried = retried;
        }
        let under_way = view::under_way(self, columns);
        lines.extend(under_way.iter().filter(|block| !linear.printed.contains(block)).flatten().cloned());
        linear.printed = under_way;
        let asked =
            self.questions.asks.front().map(|(ask, _)| (ask.id.clone(), self.questions.reason.is_some()));
        if asked != linear.asked {
            lines.extend(view::asks(self, columns, usize::MAX).0);
            linear.asked = asked;
        }
        let listed = self.overlay.as_ref().map(|component| component.spoken()).unwrap_or_default();
        if listed != linear.listed {
            lines.extend(listed.iter().map(|line| Line::from(&*clean(line))));
            linear.listed = listed;
        }
        let draft = self.editor.text();
        if draft != linear.draft {
            if !draft.is_empty() {
                let text = format!("Not sent: {draft}\nEnter alone sends it, /edit changes it.");
                lines.extend(render::plain(&text, columns, self.theme.text, usize::MAX));
            }
            linear.draft = draft;
        }
        self.transcript.printed.append(&mut lines);
        if !self.transcript.printed.is_empty() || !self.is_working() {
            linear.at = self.now;
        } else if let Some((what, since)) = self.ongoing_work()
            && self.now.saturating_sub(linear.at) >= QUIET
            && self.questions.asks.is_empty()
        {
            linear.at = self.now;
            let took = crate::blocks::duration(render::span(self.now.saturating_sub(since)));
            let text = format!("Still {}, {took}.", clean(&what));
            self.transcript.printed.extend(render::note(&text, columns, &self.theme));
        }
        self.linear = Some(linear);
    }

    /// What is under way, and since when.
    fn ongoing_work(&self) -> Option<(String, UnixMs)> {
        let working = self.activity.shown().map(|working| (working.words(), working.since));
        let shell = self.shell.running.as_ref();
        working.or_else(|| shell.map(|shell| ("running your command".to_owned(), shell.since)))
    }
}
