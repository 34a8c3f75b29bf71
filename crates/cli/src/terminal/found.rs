//! What a search found, as rows of a list.

use quipu_protocol::UnixMs;
use quipu_tui::{FoundItem, FoundItems};

use crate::print::{ago, one_line};
use crate::search::Results;

/// Columns of a row's text.
const WIDTH: usize = 300;
/// Columns of a session's title.
const TITLE: usize = 60;

pub(super) fn items(results: &Results, now: UnixMs) -> FoundItems {
    let item = |hit: &quipu_store::Hit| {
        let row = results.rows.get(hit.session.as_ref());
        let cut = |cut: bool| if cut { "…" } else { "" };
        let (before, after) = (cut(hit.excerpt.cut_before), cut(hit.excerpt.cut_after));
        let who = hit.tool.as_ref().unwrap_or(&hit.role);
        let title = row.map_or("", |row| if row.called.is_empty() { &row.title } else { &row.called });
        let mut detail = one_line(title, TITLE);
        if let Some(row) = row.filter(|row| row.agent != quipu::AGENT) {
            detail.push_str(&format!(" · {}", one_line(&row.agent, TITLE)));
        }
        detail.push_str(&format!(" · {}", ago(now, hit.at)));
        FoundItem {
            node: hit.node,
            // One that was removed cannot be gone on with where it stands.
            session: hit.session.clone().filter(|_| row.is_none_or(|row| row.head.is_some())),
            text: format!("{}: {before}{}{after}", one_line(who, TITLE), one_line(&hit.excerpt.text, WIDTH)),
            detail,
        }
    };
    FoundItems { found: results.found.hits.iter().map(item).collect(), told: results.told.clone() }
}
