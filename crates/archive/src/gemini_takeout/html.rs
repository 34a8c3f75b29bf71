//! The activity as a page: cards, and the words in them.

use std::io::{self, BufRead};

use quipu_protocol::UnixMs;

/// What a card begins with.
const CARD: &[u8] = b"<div class=\"outer-cell";
/// What a cell of it begins with.
const CELL: &str = "<div class=\"content-cell";

/// The cards of a page, one at a time.
pub(super) struct Cards<R> {
    reader: R,
    limit: usize,
    /// What was read and not given, from the beginning of a card on.
    held: Vec<u8>,
    is_begun: bool,
}

/// One of them.
pub(super) enum Card {
    Whole(Vec<u8>),
    TooLong,
}

impl<R: BufRead> Cards<R> {
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, held: Vec::new(), is_begun: false }
    }

    /// The next card; `None` after the last.
    pub(super) fn next(&mut self) -> io::Result<Option<Card>> {
        let mut from = usize::from(self.is_begun);
        let mut is_long = false;
        loop {
            let found = memchr::memmem::find(self.held.get(from..).unwrap_or_default(), CARD);
            if let Some(at) = found.map(|at| at + from) {
                let rest = self.held.split_off(at);
                let card = std::mem::replace(&mut self.held, rest);
                if std::mem::replace(&mut self.is_begun, true) {
                    return Ok(Some(if is_long { Card::TooLong } else { Card::Whole(card) }));
                }
                from = 1;
                continue;
            }
            let keep = CARD.len() - 1;
            if !self.is_begun || self.held.len() > self.limit + CARD.len() {
                is_long = self.is_begun;
                let cut = self.held.len().saturating_sub(keep);
                self.held.drain(..cut);
            }
            from = self.held.len().saturating_sub(keep).max(usize::from(self.is_begun && !is_long));
            let piece = self.reader.fill_buf()?;
            if piece.is_empty() {
                let card = std::mem::take(&mut self.held);
                let is_last = std::mem::replace(&mut self.is_begun, false) && !card.is_empty();
                return Ok(is_last.then_some(if is_long { Card::TooLong } else { Card::Whole(card) }));
            }
            self.held.extend_from_slice(piece);
            let count = piece.len();
            self.reader.consume(count);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CardContent<'a> {
    /// Whose activity it is.
    pub(super) header: String,
    pub(super) title: String,
    pub(super) time: Option<UnixMs>,
    pub(super) answer: &'a str,
    /// Names of files that stand beside it.
    pub(super) files: Vec<String>,
}

/// Takes a card apart; `None` when it has no words.
pub(super) fn card_content(card: &str) -> Option<CardContent<'_>> {
    let header = between(card, "mdl-typography--title\">", "</p>").map(text).unwrap_or_default();
    let cell = card.split(CELL).skip(1).find(|cell| {
        !cell.starts_with(" mdl-cell mdl-cell--6-col mdl-typography--body-1 mdl-typography--text-right")
    })?;
    let cell = cell.split_once('>')?.1;
    let mut title: Vec<String> = Vec::new();
    let mut files = Vec::new();
    let mut rest = cell;
    let mut time = None;
    let mut is_told = false;
    while !is_told && !rest.is_empty() {
        let (line, next) = rest.split_once("<br>").unwrap_or((rest, ""));
        let words = text(line);
        if is_time(&words) {
            time = time_of(&words);
            is_told = true;
        } else if let Some(file) = between(line, "href=\"", "\"")
            .or_else(|| between(line, "src=\"", "\""))
            .filter(|_| words.starts_with('-') || words.is_empty())
        {
            files.push(text(file));
        } else if !(words.starts_with("Attached ") && (words.ends_with("file.") || words.ends_with("files.")))
        {
            title.push(words);
        }
        rest = next;
    }
    let title = title.join("\n").trim().to_owned();
    // Without a time nothing says where the answer begins.
    let answer = if is_told { rest.trim_end().trim_end_matches("</div>").trim() } else { "" };
    (!title.is_empty() || !answer.is_empty()).then_some(CardContent { header, title, time, answer, files })
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

/// Whether a line is a time, in whatever language: short, with a year, and hours, minutes and seconds.
fn is_time(line: &str) -> bool {
    let is_number =
        |word: &str, length: usize| word.len() == length && word.bytes().all(|byte| byte.is_ascii_digit());
    let words: Vec<&str> = line.split(|letter: char| !letter.is_ascii_digit() && letter != ':').collect();
    let is_clock = |word: &&str| {
        word.matches(':').count() == 2 && word.split(':').skip(1).all(|part| is_number(part, 2))
    };
    line.len() < 60 && words.iter().any(is_clock) && words.iter().any(|word| is_number(word, 4))
}

/// Zones as these pages name them, in minutes from UTC.
const ZONES: [(&str, i64); 26] = [
    ("UTC", 0),
    ("GMT", 0),
    ("Z", 0),
    ("WET", 0),
    ("BST", 60),
    ("WEST", 60),
    ("CET", 60),
    ("MEZ", 60),
    ("CEST", 120),
    ("MESZ", 120),
    ("EET", 120),
    ("EEST", 180),
    ("MSK", 180),
    ("JST", 540),
    ("KST", 540),
    ("AEST", 600),
    ("AEDT", 660),
    ("EST", -300),
    ("EDT", -240),
    ("CST", -360),
    ("CDT", -300),
    ("MST", -420),
    ("MDT", -360),
    ("PST", -480),
    ("PDT", -420),
    ("AKST", -540),
];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// A time as English and German pages have it; `None` for any other, and for a zone that is not known.
pub(super) fn time_of(line: &str) -> Option<UnixMs> {
    let (mut day, mut month, mut year, mut clock, mut half, mut zone) = (None, None, None, None, None, None);
    for word in
        line.split(|letter: char| letter.is_whitespace() || letter == ',').filter(|word| !word.is_empty())
    {
        let small = word.to_lowercase();
        let number = word.trim_end_matches('.').parse::<i64>().ok();
        let dotted: Vec<i64> = word.split('.').filter_map(|part| part.parse().ok()).collect();
        if let ([d, m, y], 2) = (&dotted[..], word.matches('.').count()) {
            (day, month, year) = (Some(*d), Some(*m), Some(*y));
        } else if word.contains(':') && clock.is_none() {
            clock = Some(word.split(':').map(|part| part.parse::<i64>().ok()).collect::<Option<Vec<i64>>>()?);
        } else if small == "am" || small == "pm" {
            half = Some(small == "pm");
        } else if let Some(number) = number {
            if number > 31 { year = Some(number) } else { day = Some(number) }
        } else if let Some(at) =
            MONTHS.iter().position(|month| small.starts_with(month)).filter(|_| month.is_none())
        {
            month = i64::try_from(at + 1).ok();
        } else {
            zone = Some(offset(word)?);
        }
    }
    let clock = clock.filter(|clock| clock.len() == 3)?;
    let hour = match half {
        None => clock[0],
        Some(is_late) => clock[0] % 12 + if is_late { 12 } else { 0 },
    };
    let small = |number: i64| i8::try_from(number).ok();
    let date = jiff::civil::DateTime::new(
        i16::try_from(year?).ok()?,
        small(month?)?,
        small(day?)?,
        small(hour)?,
        small(clock[1])?,
        small(clock[2])?,
        0,
    );
    let utc = date.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(utc.timestamp().as_millisecond() - zone? * 60_000)
}

/// Minutes from UTC: a name that is known, or `GMT+2`, `UTC-03:30`.
fn offset(zone: &str) -> Option<i64> {
    if let Some((_, minutes)) = ZONES.iter().find(|(name, _)| *name == zone) {
        return Some(*minutes);
    }
    let rest = zone.strip_prefix("GMT").or_else(|| zone.strip_prefix("UTC"))?;
    let sign = if rest.starts_with(['-', '\u{2212}']) { -1 } else { 1 };
    let digits = rest.trim_start_matches(['+', '-', '\u{2212}']);
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    let (hours, minutes) = (hours.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?);
    (hours <= 14 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

/// Whether more than paragraphs and line breaks is lost when only the words are kept.
pub(super) fn has_more_than_words(html: &str) -> bool {
    html.split('<').skip(1).any(|tag| {
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        !matches!(name.as_str(), "p" | "br" | "div")
    })
}

/// The words of a piece of a page, with its paragraphs, lists and code as lines.
pub(super) fn text(html: &str) -> String {
    let mut out = String::with_capacity(html.len());
    let mut rest = html;
    let mut plain = 0_u32;
    while !rest.is_empty() {
        let (words, next) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
        say(words, plain > 0, &mut out);
        rest = next;
        let Some(tag) = rest.strip_prefix('<') else { continue };
        let Some((tag, next)) = tag.split_once('>') else {
            say(rest, plain > 0, &mut out);
            break;
        };
        rest = next;
        let name: String = tag
            .trim_start_matches('/')
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        let ends = tag.starts_with('/');
        match name.as_str() {
            "br" => out.push('\n'),
            "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "ul" | "ol" | "table" | "blockquote" => {
                lines(&mut out, 2);
            }
            "div" | "tr" => lines(&mut out, 1),
            "li" if !ends => {
                lines(&mut out, 1);
                out.push_str("- ");
            }
            "td" | "th" if ends => out.push('\t'),
            "pre" => {
                lines(&mut out, 2);
                plain = if ends { plain.saturating_sub(1) } else { plain + 1 };
            }
            "script" | "style" if !ends => {
                rest = rest.split_once("</").map_or("", |(_, rest)| rest);
            }
            _ => {}
        }
    }
    let out = out.trim_matches([' ', '\n', '\t']);
    out.to_owned()
}

/// Ends the line, and leaves so many line breaks at least.
fn lines(out: &mut String, count: usize) {
    if out.is_empty() {
        return;
    }
    let have = out.chars().rev().take_while(|letter| *letter == '\n').count();
    (have..count).for_each(|_| out.push('\n'));
}

/// Words without tags; white space is one blank where it is not `plain`.
fn say(words: &str, plain: bool, out: &mut String) {
    let mut rest = words;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        let letter = match letter {
            '&' => match entity(rest) {
                Some((letter, length)) => {
                    rest = &rest[length..];
                    letter
                }
                None => '&',
            },
            letter if letter.is_ascii_whitespace() && !plain => {
                if !out.is_empty() && !out.ends_with([' ', '\n', '\t']) {
                    out.push(' ');
                }
                continue;
            }
            letter => letter,
        };
        // A blank that no line may break at, or a narrow one: a blank to whoever searches for it.
        out.push(if matches!(letter, '\u{a0}' | '\u{202f}') { ' ' } else { letter });
    }
}

/// What stands behind a `&`, and how many bytes name it.
fn entity(text: &str) -> Option<(char, usize)> {
    let end = text.bytes().take(12).position(|byte| byte == b';')?;
    let name = text.get(..end)?;
    let letter = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "emsp" | "ensp" => ' ',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)?
        }
    };
    Some((letter, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_page() {
        let check = |html: &str, expect: &str| assert_eq!(text(html), expect, "{html}");
        check("", "");
        check("a &lt;b&gt; &amp;&#x41;&#66;&nope; &", "a <b> &AB&nope; &");
        check("<p>One\n  two.</p><p>Three<br>four.</p>", "One two.\n\nThree\nfour.");
        check("<ul><li>a</li><li>b <b>c</b></li></ul>", "- a\n- b c");
        check("x<pre><code>a  &lt;\n  b</code></pre>y", "x\n\na  <\n  b\n\ny");
        check("<style>p { x }</style>a <b", "style>a <b");
    }

    #[test]
    fn times_of_pages() {
        let check = |line: &str, expect: Option<&str>| {
            let told = time_of(line).map(|ms| jiff::Timestamp::from_millisecond(ms).unwrap().to_string());
            assert_eq!(told.as_deref(), expect, "{line}");
        };
        check("Jun 1, 2025, 3:04:05\u{202f}PM UTC", Some("2025-06-01T15:04:05Z"));
        check("Jun 1, 2025, 12:04:05 AM PDT", Some("2025-06-01T07:04:05Z"));
        check("1 Jun 2025, 15:04:05 CEST", Some("2025-06-01T13:04:05Z"));
        check("01.06.2025, 15:04:05 MESZ", Some("2025-06-01T13:04:05Z"));
        check("1 Sept 2025, 15:04:05 GMT+05:30", Some("2025-09-01T09:34:05Z"));
        check("1 Jun 2025, 15:04:05 XYZ", None);
        check("31 Feb 2025, 15:04:05 UTC", None);
        check("1 giu 2025, 15:04:05 CEST", None);
        assert!(is_time("1 giu 2025, 15:04:05 CEST") && !is_time("at 15:04:05") && !is_time("in 2025"));
    }

    #[test]
    fn cards_in_any_split() {
        let page = "<html><style>x</style><div class=\"outer-cell a\">one</div><div class=\"outer-cell b\">two, longer than it may be, by far and away, and then some more of it</div>\
            <div class=\"outer-cell c\">three";
        for capacity in 1..80 {
            let mut cards = Cards::new(io::BufReader::with_capacity(capacity, page.as_bytes()), 40);
            let mut seen = Vec::new();
            while let Some(card) = cards.next().unwrap() {
                seen.push(match card {
                    Card::Whole(card) => String::from_utf8(card).unwrap(),
                    Card::TooLong => "too long".into(),
                });
            }
            let middle = if capacity < 40 { "too long" } else { seen[1].as_str() };
            assert_eq!(
                seen,
                ["<div class=\"outer-cell a\">one</div>", middle, "<div class=\"outer-cell c\">three"],
                "{capacity}"
            );
        }
    }
}
