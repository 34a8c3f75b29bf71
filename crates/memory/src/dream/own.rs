//! What dreams wrote: it is never a source of another dream.

use quipu_dag::sha256;

/// How the mark begins that stands behind a line which a dream wrote.
pub const MARK: &str = "<!-- quipu:dream ";
/// How it ends.
const MARK_END: &str = "-->";
/// The first line of the block that a dream wrote into the diary.
pub const DIARY_MARK: &str = "<!-- quipu:diary ";
/// How marks and blocks of another agent's dreams begin, whose workspaces are used in place.
const FOREIGN_MARKS: [&str; 2] = ["<!-- openclaw-memory-promotion:", "<!-- openclaw:dreaming:"];
/// Members of a listing of candidates; all together are one.
const LISTING: [&str; 4] = ["confidence:", "evidence:", "status:", "recalls:"];

/// The first 12 hexadecimal digits of the hash of a text without differences of case and of white space.
#[must_use]
pub fn claim_hash(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let hash = sha256(words.join(" ").as_bytes());
    let mut hex = quipu_protocol::hex(&hash[..6]);
    hex.truncate(12);
    hex
}

/// Whether a text looks like something that a dream wrote: a promoted line, a diary, a listing of candidates, a report.
#[must_use]
pub fn is_dream_output(text: &str) -> bool {
    if text.contains(MARK)
        || text.contains(DIARY_MARK)
        || FOREIGN_MARKS.iter().any(|mark| text.contains(mark))
    {
        return true;
    }
    let lower = text.to_lowercase();
    let listing =
        lower.contains("candidate:") && LISTING.iter().filter(|word| lower.contains(**word)).count() >= 2;
    let scored = lower.contains("[score=") && lower.contains("recalls=");
    let heading = lower.lines().any(|line| {
        let title = line.trim_start_matches('#').trim();
        line.starts_with('#')
            && (["light sleep", "rem sleep", "deep sleep", "dream diary"].contains(&title)
                || title.starts_with("promoted from "))
    });
    listing || scored || heading
}

/// A line of a memory with the mark of a dream: its text, its name and the places that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedLine {
    /// Without bullet and mark.
    pub text: String,
    /// The name under which the store knows where it came from.
    pub id: String,
    /// Where it came from, as people write it.
    pub sources: Vec<String>,
}

/// Reads a line that a dream wrote.
#[must_use]
pub fn marked_line(line: &str) -> Option<MarkedLine> {
    let (text, mark) = line.split_once(MARK)?;
    let (mark, _) = mark.split_once(MARK_END)?;
    let mut words = mark.split_whitespace();
    let id = words.next()?.to_owned();
    let text = text.trim().trim_start_matches(['-', '*', '+']).trim().to_owned();
    Some(MarkedLine { text, id, sources: words.map(str::to_owned).collect() })
}

/// A line as a dream writes it. No score stands in it.
#[must_use]
pub fn write_line(text: &str, id: &str, sources: &[String]) -> String {
    let places: String = sources.iter().map(|source| format!(" {source}")).collect();
    format!("- {text} {MARK}{id}{places} {MARK_END}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_lines_are_read_back() {
        let sources = vec!["memory/2026-05-01.md#L3-L5".to_owned(), "node:abc".to_owned()];
        let line = write_line("Tabs, not spaces", "0123456789ab", &sources);
        let read = marked_line(&line).unwrap();
        assert_eq!((read.text.as_str(), read.id.as_str()), ("Tabs, not spaces", "0123456789ab"));
        assert_eq!(read.sources, sources);
        assert!(is_dream_output(&line));
        assert_eq!(marked_line("- Tabs, not spaces"), None);
    }

    #[test]
    fn dream_output_is_recognised() {
        for text in [
            "- Candidate: tabs\n  - confidence: 0.62\n  - evidence: memory/a.md:1-2\n  - status: staged",
            "- Tabs [score=0.812 recalls=4 avg=0.700 source=memory/2026-05-01.md:3-5]",
            "## Light Sleep\nnothing",
            "x <!-- openclaw-memory-promotion:memory:a -->",
            "# Dream Diary",
        ] {
            assert!(is_dream_output(text), "{text}");
        }
        for text in ["The candidate was hired.", "I dream of tabs", "- status: done", "## Sleep"] {
            assert!(!is_dream_output(text), "{text}");
        }
    }
}
