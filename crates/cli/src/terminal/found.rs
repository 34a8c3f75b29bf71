//! What a search found, as rows of a list.

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_tui::{FoundItem, FoundItems};
use serde::Deserialize;

use crate::print::{ago, one_line};

/// Columns of a row's text.
const WIDTH: usize = 300;
/// Columns of a session's title.
const TITLE: usize = 60;

/// A line of `quipu search --json`.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Line {
    #[serde(rename_all = "camelCase")]
    Hit {
        node: NodeId,
        session: Option<SessionId>,
        agent: Option<String>,
        title: Option<String>,
        #[serde(default)]
        removed: Option<bool>,
        role: String,
        tool: Option<String>,
        at: UnixMs,
        text: String,
        cut_before: bool,
        cut_after: bool,
    },
    End {
        told: Vec<String>,
    },
}

/// What the command printed; lines that are none of its are left out.
pub(super) fn items(out: &str, now: UnixMs) -> FoundItems {
    let mut items = FoundItems::default();
    for line in out.lines() {
        match serde_json::from_str(line) {
            Ok(Line::End { told }) => items.told = told,
            Ok(Line::Hit {
                node,
                session,
                agent,
                title,
                removed,
                role,
                tool,
                at,
                text,
                cut_before,
                cut_after,
            }) => {
                let [before, after] = [cut_before, cut_after].map(|cut| if cut { "…" } else { "" });
                let who = tool.unwrap_or(role);
                let mut detail = one_line(&title.unwrap_or_default(), TITLE);
                if let Some(agent) = agent.filter(|agent| agent != quipu::AGENT) {
                    detail.push_str(&format!(" · {}", one_line(&agent, TITLE)));
                }
                detail.push_str(&format!(" · {}", ago(now, at)));
                items.found.push(FoundItem {
                    node,
                    // One that was removed cannot be gone on with where it stands.
                    session: session.filter(|_| removed != Some(true)),
                    text: format!("{}: {before}{}{after}", one_line(&who, TITLE), one_line(&text, WIDTH)),
                    detail,
                });
            }
            Err(_) => {}
        }
    }
    items
}
