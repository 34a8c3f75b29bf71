//! Summaries: what a text of many nodes, or of many chunks, becomes.

use crate::source::{SourceSpeaker, SourceText};
use crate::{SummaryMethod, TimeRange};

/// Bytes of an extractive summary of nodes at most, about.
const LEAF: usize = 1_200;
/// The same of chunks.
const PARENT: usize = 2_400;
/// Bytes of one sentence at most, and at least where there is not room for that.
const SENTENCE: usize = 280;
const SHORTEST: usize = 80;
/// Bytes of a text that are looked at: a long one begins with what it is about.
const LOOKED_AT: usize = 4_000;
/// What stands for sources without a word.
const WORDLESS: &str = "- (no words)";

/// A summary that is part of a larger one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSummary {
    /// Its span.
    pub span: TimeRange,
    /// Its words.
    pub summary: String,
}

/// Makes summaries. The same sources give the same words.
pub trait Summariser: Send + Sync {
    /// How it makes them. Another one makes other chunks.
    fn method(&self) -> SummaryMethod;

    /// Of nodes of one session, in their order.
    fn leaf(&self, sources: &[SourceText]) -> String;

    /// Of summaries, by time.
    fn parent(&self, children: &[ChildSummary]) -> String;
}

/// Sentences of the sources, without a model: what was asked (`> `), and what the last answer before the next request says (`- `).
/// Each word stands in a source; a cut is an ellipsis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExtractiveSummary;

/// Its rules.
const VERSION: u32 = 1;

impl Summariser for ExtractiveSummary {
    fn method(&self) -> SummaryMethod {
        SummaryMethod::Extractive { version: VERSION, instead: None, refusal: None }
    }

    fn leaf(&self, sources: &[SourceText]) -> String {
        joined(leaf_lines(sources).into_iter().map(|(line, _)| line))
    }

    fn parent(&self, children: &[ChildSummary]) -> String {
        joined(parent_lines(children).into_iter().map(|(line, _)| line))
    }
}

pub(crate) fn joined(lines: impl Iterator<Item = String>) -> String {
    let text = lines.collect::<Vec<_>>().join("\n");
    if text.is_empty() { WORDLESS.to_owned() } else { text }
}

/// The lines of an extractive summary of nodes, each with the place of the source that it is of.
pub(crate) fn leaf_lines(sources: &[SourceText]) -> Vec<(String, usize)> {
    let mut lines = chosen(sources);
    if lines.is_empty() {
        lines = sources.iter().enumerate().filter_map(of_calls).collect();
    }
    fitted(&lines, LEAF)
}

/// The same of a part of such a text, with its share of the room.
pub(crate) fn part_lines(sources: &[SourceText], bytes: usize, of: usize) -> Vec<(String, usize)> {
    let room = (LEAF * bytes).checked_div(of).unwrap_or(LEAF).clamp(SHORTEST, LEAF);
    fitted(&chosen(sources), room)
}

/// The same of summaries, each with the child and the place of the line in its summary.
pub(crate) fn parent_lines(children: &[ChildSummary]) -> Vec<(String, (usize, usize))> {
    let room = PARENT / children.len().max(1);
    let of = |(at, child): (usize, &ChildSummary)| {
        let lines = beginning(&child.summary, room).into_iter().enumerate();
        lines.map(move |(line, text)| (text, (at, line))).collect::<Vec<_>>()
    };
    children.iter().enumerate().flat_map(of).collect()
}

/// What stands before a sentence, the text it is of, and the place of that among the sources.
type MarkedText<'a> = (&'static str, &'a str, usize);

fn chosen(sources: &[SourceText]) -> Vec<MarkedText<'_>> {
    let mut lines: Vec<MarkedText<'_>> = Vec::new();
    let mut answer: Option<(&str, usize)> = None;
    for (at, source) in sources.iter().enumerate() {
        if source.text.trim().is_empty() {
            continue;
        }
        match source.speaker {
            SourceSpeaker::Person => {
                lines.extend(answer.take().map(|(text, at)| ("- ", text, at)));
                lines.push(("> ", &source.text, at));
            }
            SourceSpeaker::Model => answer = Some((&source.text, at)),
            SourceSpeaker::Tool => {}
        }
    }
    lines.extend(answer.map(|(text, at)| ("- ", text, at)));
    lines
}

fn of_calls((at, source): (usize, &SourceText)) -> Option<MarkedText<'_>> {
    let first = source.calls.first().map(String::as_str).or(Some(source.text.as_str()));
    first.filter(|text| !text.trim().is_empty()).map(|text| ("- ", text, at))
}

/// The lines in so many bytes: each shorter where they are many, and evenly chosen ones where they are too many for that.
fn fitted(lines: &[MarkedText<'_>], room: usize) -> Vec<(String, usize)> {
    if lines.is_empty() {
        return Vec::new();
    }
    let most = room / SHORTEST;
    let count = lines.len().min(most);
    let length = (room / count).min(SENTENCE);
    let picked = (0..count).filter_map(|nth| lines.get(nth * lines.len() / count));
    let of =
        |(mark, text, at): &MarkedText<'_>| (format!("{mark}{}", sentence(text, length - mark.len())), *at);
    picked.map(of).collect()
}

/// The first lines of a summary in so many bytes.
fn beginning(summary: &str, room: usize) -> Vec<String> {
    let mut left = room;
    let mut lines = Vec::new();
    for line in summary.lines().filter(|line| !line.trim().is_empty()) {
        if left < SHORTEST && !lines.is_empty() {
            break;
        }
        let text = sentence(line, left.max(SHORTEST));
        left = left.saturating_sub(text.len() + 1);
        lines.push(text);
    }
    lines
}

/// The beginning of a text on one line: whole sentences of it, or words with an ellipsis behind them.
fn sentence(text: &str, length: usize) -> String {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c.is_control());
    let cut_off = text.len() > LOOKED_AT;
    let looked_at = &text[..text.floor_char_boundary(LOOKED_AT.min(text.len()))];
    let mut flat = String::with_capacity(looked_at.len());
    for word in looked_at.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty())
    {
        if !flat.is_empty() {
            flat.push(' ');
        }
        flat.push_str(word);
    }
    if flat.len() <= length && !cut_off {
        return flat;
    }
    let most = flat.floor_char_boundary(length.saturating_sub('…'.len_utf8()).min(flat.len()));
    let head = &flat[..most];
    let ends = [". ", "! ", "? "].iter().filter_map(|end| head.rfind(end)).max();
    match ends {
        // A sentence that is about as long as there is room for.
        Some(end) if end * 2 >= most => head[..=end].to_owned(),
        _ => {
            let end = head.rfind(' ').filter(|end| end * 2 >= most).unwrap_or(most);
            format!("{}…", head[..end].trim_end())
        }
    }
}

#[cfg(test)]
mod tests {
    use quipu_protocol::AuthorClass;

    use super::*;

    fn said(speaker: SourceSpeaker, text: &str) -> SourceText {
        SourceText {
            speaker,
            text: text.into(),
            calls: Vec::new(),
            is_error: false,
            class: AuthorClass::Owner,
        }
    }

    #[test]
    fn summary_has_requests_and_last_answers() {
        use SourceSpeaker::{Model, Person, Tool};
        let sources = [
            said(Person, "Fix the parser.\nIt fails."),
            said(Model, "Let me look."),
            said(Tool, "error: 42"),
            said(Model, "Fixed in src/parse.rs."),
            said(Person, "Thanks!"),
        ];
        let summary = ExtractiveSummary.leaf(&sources);
        assert_eq!(summary, "> Fix the parser. It fails.\n- Fixed in src/parse.rs.\n> Thanks!");
    }

    #[test]
    fn summary_of_anything_is_short_and_never_empty() {
        let long = "ä".repeat(10 << 20);
        let call =
            SourceText { calls: vec!["read {\"path\":\"a.rs\"}".into()], ..said(SourceSpeaker::Model, "") };
        let many: Vec<SourceText> =
            (0..5_000).map(|at| said(SourceSpeaker::Person, &format!("Do {at}."))).collect();
        for sources in [vec![], vec![said(SourceSpeaker::Person, &long)], vec![call], many] {
            let summary = ExtractiveSummary.leaf(&sources);
            assert!(!summary.is_empty() && summary.len() <= LEAF + 16, "{} bytes", summary.len());
        }
        let span = TimeRange::new(1, 2).unwrap();
        let child = ChildSummary { span, summary: "> word word word. And more of it here.\n".repeat(40) };
        let parent = ExtractiveSummary.parent(&vec![child; 16]);
        assert!(!parent.is_empty() && parent.len() <= PARENT + 16 * 100, "{} bytes", parent.len());
    }

    #[test]
    fn summary_of_text_behind_much_space_has_its_words() {
        let text = format!("{}Fix the parser.", " \n\u{7}".repeat(LOOKED_AT));
        assert_eq!(ExtractiveSummary.leaf(&[said(SourceSpeaker::Person, &text)]), "> Fix the parser.");
    }

    #[test]
    fn words_of_a_summary_stand_in_its_sources() {
        let text = "First a sentence of 12 words about /etc/hosts. Then another one! ".repeat(20);
        let summary = ExtractiveSummary.leaf(&[said(SourceSpeaker::Person, &text)]);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in summary.lines() {
            let line = line.trim_start_matches("> ").trim_end_matches('…');
            assert!(flat.contains(line), "{line}");
        }
    }
}
