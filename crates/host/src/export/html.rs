//! A session as one page of HTML that needs nothing else.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu_dag::Node;
use quipu_protocol::NodeId;
use quipu_render::{html_entry, html_text};
use quipu_store::SessionRow;
use quipu_transcript::Decoded;
use sha2::{Digest as _, Sha256};

use super::ExportError;
use super::read::{RowPosition, Writer};
use super::text::{MORE, facts, turn};
use crate::text::iso;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Branches inside each other that are indented.
const DEEPEST: usize = 5;
/// Entries that are laid out together at most: far fewer things to look at than entries, where these are many.
const SECTION: u64 = 100;

/// A page on its way out. It is shown as it comes, and each entry is laid out when it is looked at.
pub(super) struct Html<'a> {
    out: &'a mut (dyn Write + Send),
    last: Option<NodeId>,
    entries: u64,
}

impl<'a> Html<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self { out, last: None, entries: 0 }
    }
}

impl Writer for Html<'_> {
    fn begin(&mut self, row: &SessionRow, _: &serde_json::Value) -> Result<(), ExportError> {
        let [style, script] = [STYLE, SCRIPT].map(|text| STANDARD.encode(Sha256::digest(text)));
        let (title, facts) = facts(row);
        let title = html_text(&title);
        // Nothing is loaded from anywhere, and nothing else runs.
        write!(
            self.out,
            "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
             <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'sha256-{style}'; \
             script-src 'sha256-{script}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
             <meta name=referrer content=no-referrer>\n\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
             <link rel=icon href=\"data:,\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
             <aside>\n<div id=tools><input id=find type=search placeholder=\"Search ( / )\" aria-label=Search \
             autocomplete=off spellcheck=false><output id=hits></output>\
             <button id=fold type=button>Unfold all</button></div>\n\
             <nav id=tree aria-label=Branches></nav>\n</aside>\n<header>\n<h1>{title}</h1>\n<dl>\n"
        )?;
        for (what, is) in facts {
            writeln!(self.out, "<dt>{what}</dt><dd>{}</dd>", html_text(&is))?;
        }
        Ok(self.out.write_all(b"</dl>\n</header>\n<main>\n<section>\n")?)
    }

    fn node(
        &mut self,
        position: &RowPosition<'_>,
        node: &Node,
        decoded: &Decoded,
    ) -> Result<(), ExportError> {
        let turn = turn(self.last, position, node);
        self.last = Some(node.id);
        if quipu::history::is_note(&decoded.entry) && turn.is_none() {
            return Ok(());
        }
        if self.entries > 0 && self.entries.is_multiple_of(SECTION) {
            self.out.write_all(b"</section>\n<section>\n")?;
        }
        self.entries += 1;
        let shown = html_entry(&decoded.entry);
        let (kind, level, id) = (shown.kind, position.level, node.id.short());
        write!(self.out, "<article id=n{id} class=\"{kind} l{}", level.min(DEEPEST))?;
        for (name, is) in [("branch", position.starts), ("head", position.head), ("past", position.past)] {
            if is {
                write!(self.out, " {name}")?;
            }
        }
        write!(self.out, "\" data-level={level}")?;
        let label = position.label.map(html_text);
        if let Some(label) = &label {
            write!(self.out, " data-label=\"{label}\"")?;
        }
        self.out.write_all(b">\n")?;
        if let Some((which, from)) = turn {
            let from = match from {
                Some(from) => format!("<a href=#n{0}><code>{0}</code></a>", from.short()),
                None => "the beginning".into(),
            };
            writeln!(self.out, "<p class=turn>{which} from {from}</p>")?;
        }
        let time = iso(node.record.timestamp);
        write!(self.out, "<h2>{} <small><time>{time}</time> <a href=#n{id}>{id}</a></small>", shown.title)?;
        for mark in [label.as_deref(), position.head.then_some("head")].into_iter().flatten() {
            write!(self.out, " <mark>{mark}</mark>")?;
        }
        self.out.write_all(b"</h2>\n")?;
        self.out.write_all(shown.body.as_bytes())?;
        Ok(self.out.write_all(b"</article>\n")?)
    }

    fn fork(&mut self, row: &SessionRow) -> Result<(), ExportError> {
        let title = if row.called.is_empty() { &row.title } else { &row.called };
        let (id, title) = (html_text(row.id.as_str()), html_text(title));
        Ok(writeln!(self.out, "<p class=fork>Session <code>{id}</code> continues from here: {title}</p>")?)
    }

    fn end(&mut self, more: bool) -> Result<(), ExportError> {
        if more {
            writeln!(self.out, "<p class=aside>Not complete: {MORE}.</p>")?;
        }
        write!(self.out, "</section>\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n")?;
        Ok(self.out.flush()?)
    }
}
