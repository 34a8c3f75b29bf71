//! The graph around a node as a picture: one lane for each branch, one row for each node, text beside it. One file that
//! needs nothing else.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;

use quipu::history::{Life, LifeLine};
use quipu_protocol::{NodeId, UnixMs};
use unicode_width::UnicodeWidthStr as _;

use crate::exit::Failure;
use crate::print::ago;

/// Units between rows, between lanes, and around all.
const ROW: usize = 26;
const LANE: usize = 22;
const MARGIN: usize = 20;
/// Units of a column of text.
const COLUMN: usize = 8;
/// Colours of lanes, in turn: told apart on light and on dark.
const COLOURS: [&str; 6] = ["#2f81c4", "#c4682f", "#3a9a57", "#9a4fb8", "#b8902f", "#c43f5c"];

/// A row of the picture.
struct Row<'a> {
    line: &'a LifeLine,
    lane: usize,
    /// The row of its parent.
    parent: Option<usize>,
}

/// The picture.
pub(crate) fn draw(life: &Life, now: UnixMs) -> String {
    let rows = laid_out(&life.lines);
    let lanes = rows.iter().map(|row| row.lane + 1).max().unwrap_or(1);
    let texts: Vec<String> = rows.iter().map(|row| line_text(row.line, now)).collect();
    let columns = texts.iter().map(|text| text.width()).max().unwrap_or(0);
    let text_at = MARGIN + lanes * LANE;
    let width = text_at + columns * COLUMN + MARGIN;
    let height = 2 * MARGIN + rows.len() * ROW;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>quipu life {}</title>\n\
         <style>text{{font:13px ui-monospace,monospace;fill:#1f2328;white-space:pre}}.far{{fill:#6e7781}}.bg{{fill:#fff}}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.far{{fill:#9198a1}}.bg{{fill:#0d1117}}}}</style>\n\
         <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n",
        life.focus.short()
    );
    let x = |lane: usize| MARGIN + lane * LANE;
    let y = |row: usize| MARGIN + row * ROW + ROW / 2;
    for (at, row) in rows.iter().enumerate() {
        let Some(parent) = row.parent else { continue };
        let (from_x, from_y) = (x(rows[parent].lane), y(parent));
        let (to_x, to_y) = (x(row.lane), y(at));
        // Down its parent's lane, and over at the end.
        let turn = to_y - ROW / 2;
        out.push_str(&format!(
            "<path d=\"M{from_x} {from_y}V{turn}Q{from_x} {to_y} {to_x} {to_y}\" fill=\"none\" stroke=\"{}\" \
             stroke-width=\"2\"/>\n",
            colour(row.lane)
        ));
    }
    for (at, (row, text)) in rows.iter().zip(&texts).enumerate() {
        let fill = if row.line.illegal.is_some() { "none" } else { colour(row.lane) };
        let radius = if row.line.is_focus || row.line.is_head { 7 } else { 5 };
        let class = if row.line.illegal.is_some() { " class=\"far\"" } else { "" };
        out.push_str(&format!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{}\" stroke-width=\"2\"/>\n\
             <text x=\"{text_at}\" y=\"{}\"{class}>{}</text>\n",
            x(row.lane),
            y(at),
            colour(row.lane),
            y(at) + 4,
            escaped(text)
        ));
    }
    out.push_str("</svg>\n");
    out
}

fn colour(lane: usize) -> &'static str {
    COLOURS[lane % COLOURS.len()]
}

fn line_text(line: &LifeLine, now: UnixMs) -> String {
    format!("{} ({}) {}{}", line.node.short(), ago(now, line.at), line.preview, line.marks())
}

/// The last child of a node stays in its lane, and those before it stand one to the right: their branches end before
/// the next begins.
fn laid_out(lines: &[LifeLine]) -> Vec<Row<'_>> {
    let mut last_child: HashMap<NodeId, NodeId> = HashMap::new();
    for line in lines {
        last_child.extend(line.parent.map(|parent| (parent, line.node)));
    }
    let mut at: HashMap<NodeId, usize> = HashMap::new();
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(lines.len());
    for line in lines {
        let parent = line.parent.and_then(|parent| at.get(&parent).copied());
        let lane = match (parent, line.parent) {
            (Some(row), Some(id)) => {
                rows[row].lane + usize::from(last_child.get(&id).is_some_and(|last| *last != line.node))
            }
            // Below one that is not shown: in the trunk.
            _ => 0,
        };
        at.insert(line.node, rows.len());
        rows.push(Row { line, lane, parent });
    }
    rows
}

/// Text that stands in XML as it is; characters that XML cannot hold are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\u{fffe}' | '\u{ffff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            other if other.is_control() => {}
            other => out.push(other),
        }
    }
    out
}

/// Writes a picture into a new file.
pub(crate) fn write(path: &Path, picture: &str) -> Result<(), Failure> {
    let fail = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "; choose another file, or remove it first",
            _ => "",
        };
        Failure::failed(format!("{} could not be written: {error}{hint}", path.display()))
    };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".quipu-life-").tempfile_in(dir).map_err(fail)?;
    file.write_all(picture.as_bytes()).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    file.persist_noclobber(path).map_err(|error| fail(error.error))?;
    Ok(())
}
