//! The figures that were asked for, beside those that a run reached.

use super::{Row, number};

/// A ratio of two rows, or one row by itself, and its bound.
struct Target {
    what: &'static str,
    /// The row above the line of the fraction.
    over: &'static str,
    /// The row below it; `None` for a figure that is no ratio.
    under: Option<&'static str>,
    asked: TargetLimit,
}

#[derive(Clone, Copy)]
enum TargetLimit {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

const fn ratio(what: &'static str, over: &'static str, under: &'static str, asked: TargetLimit) -> Target {
    Target { what, over, under: Some(under), asked }
}

const fn alone(what: &'static str, row: &'static str, asked: TargetLimit) -> Target {
    Target { what, over: row, under: None, asked }
}

use TargetLimit::{AtLeast, AtMost, Below};

const TARGETS: &[Target] = &[
    alone(
        "1,000 sessions, message to first request, 99th percentile, ms",
        "1,000 sessions, 200 messages a second, message to first request, 99th percentile",
        AtMost(50.0),
    ),
    alone(
        "1,000 sessions, peak memory, MB",
        "1,000 sessions, 200 messages a second, peak memory",
        Below(400.0),
    ),
    alone(
        "1,000 sessions, memory at rest, MB",
        "1,000 sessions, 200 messages a second, memory at rest",
        Below(100.0),
    ),
    alone(
        "1,000 sessions, messages without an answer, %",
        "1,000 sessions, 200 messages a second, messages without an answer",
        AtMost(0.0),
    ),
    ratio("`--version`, faster than Pi", "`--version` (Pi), wall", "`--version`, wall", AtLeast(40.0)),
    ratio("hello, faster than Pi", "hello (Pi), wall", "hello, wall", AtLeast(20.0)),
    ratio("hello, Pi's memory by ours", "hello (Pi), peak memory", "hello, peak memory", AtLeast(6.0)),
    ratio(
        "turn of `read`, faster than Pi",
        "200 turns of `read` (Pi), between reply and request",
        "200 turns of `read`, between reply and request",
        AtLeast(5.0),
    ),
    ratio(
        "confined turn of `bash`, faster than Pi",
        "200 turns of `bash` (Pi), between reply and request",
        "200 turns of `bash`, between reply and request",
        AtLeast(3.0),
    ),
    ratio(
        "800 turns of `read`, last tenth by first",
        "800 turns of `read`, last tenth",
        "800 turns of `read`, first tenth",
        AtMost(1.15),
    ),
    ratio(
        "800 confined turns of `bash`, last tenth by first",
        "800 turns of `bash`, last tenth",
        "800 turns of `bash`, first tenth",
        AtMost(1.15),
    ),
    ratio(
        "20,000 deltas, Pi's processor time by ours",
        "20,000 deltas (Pi), processor",
        "20,000 deltas, processor",
        AtLeast(10.0),
    ),
    ratio(
        "usable prompt on a terminal, sooner than Pi's",
        "terminal (Pi), start to a usable prompt",
        "terminal, start to a usable prompt",
        AtLeast(10.0),
    ),
    ratio(
        "usable prompt on a terminal, sooner than Codex's",
        "terminal (Codex), start to a usable prompt",
        "terminal, start to a usable prompt",
        AtLeast(2.0),
    ),
    alone(
        "a new turn's chunk in a past of 100,000 turns, ms",
        "past of 100,000 turns, a new turn's chunk",
        AtMost(1.0),
    ),
    alone("page of 100,000 turns, MB", "past of 100,000 turns, page", AtMost(20.0)),
    alone(
        "page of 100,000 turns, opened in a browser, ms",
        "past of 100,000 turns, page, opened in a browser",
        AtMost(2_000.0),
    ),
    alone(
        "search of memory among 1M nodes, p99, ms",
        "recall among 1,000,000 nodes, a question by words, p99",
        AtMost(20.0),
    ),
    alone(
        "the same with the second signal, p99, ms",
        "recall among 1,000,000 nodes, a question by words and vectors, p99",
        AtMost(200.0),
    ),
    alone("dream over 10k texts, ms", "dream over 10,000 texts, without a model", AtMost(2_000.0)),
    alone(
        "cover of 100k chunks, 8k tokens, p99, ms",
        "cover of 100,000 chunks, 8k tokens, p99",
        AtMost(50.0),
    ),
    alone("dream over 10k texts, MB", "dream over 10,000 texts, peak memory", AtMost(100.0)),
    alone("summaries of 100k turns, ms", "past of 100,000 turns, built", AtMost(60_000.0)),
    alone("summaries of 100k turns, MiB", "past of 100,000 turns, built, peak memory", Below(200.0)),
    alone("key to echo, idle, ms", "terminal, key to echo, idle, 99th percentile", Below(5.0)),
    alone("key to echo, streaming, ms", "terminal, key to echo, streaming, 99th percentile", Below(5.0)),
    ratio(
        "key to echo, end of a reply by its start",
        "terminal, key to echo, last fifth of a reply, median",
        "terminal, key to echo, first fifth of a reply, median",
        AtMost(1.15),
    ),
    ratio(
        "bytes for a character on a terminal, Pi's by ours",
        "terminal (Pi), bytes for a character of a reply",
        "terminal, bytes for a character of a reply",
        AtLeast(2.0),
    ),
    ratio(
        "processor for a reply on a terminal, Pi's by ours",
        "terminal (Pi), processor for a reply",
        "terminal, processor for a reply",
        AtLeast(10.0),
    ),
    ratio(
        "processor for a reply on a terminal, Codex's by ours",
        "terminal (Codex), processor for a reply",
        "terminal, processor for a reply",
        AtLeast(10.0),
    ),
    alone("Escape to the closed connection, ms", "terminal, Escape to the closed connection", Below(5.0)),
    alone("keeping a file of 256 KiB around an edit, ms", "what it costs to keep 256 KiB", AtMost(1.0)),
    alone(
        "found among 50,000 files: nothing changed, ms",
        "what changed among 50,000 files: nothing",
        AtMost(100.0),
    ),
    alone("found among 50,000 files: two changed, ms", "what changed among 50,000 files: two", AtMost(100.0)),
    alone("context switches of an idle terminal", "terminal, context switches while idle", AtMost(2.0)),
    alone(
        "context switches of an idle terminal after a reply",
        "terminal, context switches while idle after a reply",
        AtMost(2.0),
    ),
    alone("memory after a reply on a terminal, MB", "terminal, memory after a reply", Below(40.0)),
    alone(
        "session of 100,000 entries on a terminal, ms to its last words",
        "session of 100,000 entries on a terminal, start to its last words",
        AtMost(50.0),
    ),
    alone(
        "key in the tree of 100,000 entries, ms",
        "session of 100,000 entries on a terminal, `/tree`, key to rows, 99th percentile",
        Below(16.0),
    ),
    ratio(
        "resume 100,000 entries, first request sooner than Pi",
        "resume 100,000 entries (Pi), start to first request",
        "resume 100,000 entries, start to first request",
        AtLeast(60.0),
    ),
    ratio(
        "resume 100,000 entries, Pi's memory by ours",
        "resume 100,000 entries (Pi), peak memory",
        "resume 100,000 entries, peak memory",
        AtLeast(15.0),
    ),
    ratio(
        "first request, 100,000 entries by 1,000",
        "resume 100,000 entries, start to first request",
        "resume 1,000 entries, start to first request",
        AtMost(1.3),
    ),
    ratio(
        "list 1,000 sessions, faster than Pi",
        "list 1,000 sessions (Pi), wall",
        "list 1,000 sessions, wall",
        AtLeast(50.0),
    ),
    ratio("hello, faster than Codex", "hello (Codex), wall", "hello, wall", AtLeast(6.0)),
    ratio(
        "turn of `bash`, ours confined, faster than Codex not confined",
        "200 turns of `bash` (Codex), between reply and request",
        "200 turns of `bash`, between reply and request",
        AtLeast(20.0),
    ),
    ratio(
        "turn of `bash`, neither confined, faster than Codex",
        "200 turns of `bash` (Codex), between reply and request",
        "200 turns of `bash` (not confined), between reply and request",
        AtLeast(20.0),
    ),
    ratio(
        "turn of `bash`, both confined, faster than Codex",
        "200 turns of `bash` (Codex, confined), between reply and request",
        "200 turns of `bash`, between reply and request",
        AtLeast(20.0),
    ),
    ratio(
        "commits that survive the process, by the bare loop",
        "commits, process, one session",
        "commits, process, bare statements",
        AtLeast(0.7),
    ),
    ratio(
        "commits that survive power loss, by the bare loop",
        "commits, power, one session",
        "commits, power, bare statements",
        AtLeast(0.7),
    ),
    ratio(
        "first request, 1,000,000 entries by 1,000",
        "resume 1,000,000 entries, start to first request",
        "resume 1,000 entries, start to first request",
        AtMost(1.3),
    ),
    Target {
        what: "tree of 1,000,000 entries, ms",
        over: "session of 1,000,000 entries, `tree`",
        under: None,
        asked: AtMost(50.0),
    },
    Target {
        what: "plan a compaction of 100,000 entries, ms",
        over: "plan a compaction of 100,000 entries",
        under: None,
        asked: Below(20.0),
    },
    ratio("import of 10 MB, by the bare loop", "import 10 MB", "import 10 MB, bare statements", AtLeast(0.7)),
    ratio(
        "import of 100 MB, by the bare loop",
        "import 100 MB",
        "import 100 MB, bare statements",
        AtLeast(0.7),
    ),
    ratio("import of 1 GB, by the bare loop", "import 1 GB", "import 1 GB, bare statements", AtLeast(0.7)),
    ratio("import, MB/s of 1 GB by 100 MB", "import 1 GB", "import 100 MB", AtLeast(0.8)),
    Target {
        what: "import of 100 MB, peak memory, MB",
        over: "import 100 MB, peak memory",
        under: None,
        asked: Below(150.0),
    },
    Target {
        what: "import of 1 GB, peak memory, MB",
        over: "import 1 GB, peak memory",
        under: None,
        asked: Below(150.0),
    },
    Target {
        what: "check of 1 GB, unchanged, ms",
        over: "check 1 GB again, unchanged",
        under: None,
        asked: AtMost(2_000.0),
    },
    Target {
        what: "check of 1 GB, touched, ms",
        over: "check 1 GB again, touched",
        under: None,
        asked: AtMost(2_000.0),
    },
    ratio("export of 100 MB, by the import", "export 100 MB", "import 100 MB", AtLeast(2.0)),
    ratio("export of 1 GB, by the import", "export 1 GB", "import 1 GB", AtLeast(2.0)),
    Target {
        what: "undo among 1,000,000 nodes, 99th percentile, ms",
        over: "among 1,000,000 nodes, undo of a turn, 99th percentile",
        under: None,
        asked: AtMost(10.0),
    },
    Target {
        what: "tobe among 1,000,000 nodes, 99th percentile, ms",
        over: "among 1,000,000 nodes, tobe without files, 99th percentile",
        under: None,
        asked: AtMost(20.0),
    },
    Target {
        what: "life among 1,000,000 nodes, 99th percentile, ms",
        over: "among 1,000,000 nodes, life, 99th percentile",
        under: None,
        asked: AtMost(10.0),
    },
    Target {
        what: "recall among 1,000,000 nodes, 99th percentile, ms",
        over: "among 1,000,000 nodes, recall, 99th percentile",
        under: None,
        asked: AtMost(10.0),
    },
    Target {
        what: "trace among 1,000,000 nodes, 99th percentile, ms",
        over: "among 1,000,000 nodes, trace, 99th percentile",
        under: None,
        asked: AtMost(10.0),
    },
    Target {
        what: "diff among 1,000,000 nodes, 99th percentile, ms",
        over: "among 1,000,000 nodes, diff, sides of 239 nodes, 99th percentile",
        under: None,
        asked: AtMost(10.0),
    },
    Target {
        what: "open and first life among 1,000,000 nodes, 99th percentile, ms",
        over: "among 1,000,000 nodes, open and first life, 99th percentile",
        under: None,
        asked: AtMost(20.0),
    },
    Target {
        what: "a lineage of 100,000 among 1,000,000 nodes, ms",
        over: "among 1,000,000 nodes, a lineage of 100,000 nodes, with its rows",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "what changed among 50,000 files, ms",
        over: "what changed among 50000 files: two",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "usage among 1,000,000 nodes, ms",
        over: "among 1,000,000 nodes, usage by session",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "files of a session among 1,000,000 nodes, ms",
        over: "among 1,000,000 nodes, files of a session",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "log of a day among 1,000,000 nodes, ms",
        over: "among 1,000,000 nodes, log of a day",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "log of all time among 1,000,000 nodes, ms",
        over: "among 1,000,000 nodes, log of all time below a directory",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "blame of a file among 1,000,000 nodes, ms",
        over: "among 1,000,000 nodes, blame of a file",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "words indexed behind an import, MB/s",
        over: "search among 40,000 nodes, words indexed, by processor time",
        under: None,
        asked: AtLeast(15.0),
    },
    Target {
        what: "size of the indexes of the search, % of the text",
        over: "search among 40,000 nodes, size of the indexes",
        under: None,
        asked: AtMost(130.0),
    },
    Target {
        what: "words among 1,000,000 nodes, 99th percentile, ms",
        over: "search among 1,000,000 nodes, words, 99th percentile",
        under: None,
        asked: AtMost(20.0),
    },
    Target {
        what: "parts of words among 1,000,000 nodes, 99th percentile, ms",
        over: "search among 1,000,000 nodes, parts, 99th percentile",
        under: None,
        asked: AtMost(50.0),
    },
    Target {
        what: "the best among 1,000,000 nodes, 99th percentile, ms",
        over: "search among 1,000,000 nodes, words, best, 99th percentile",
        under: None,
        asked: AtMost(100.0),
    },
    Target {
        what: "the released program, MB",
        over: "the released program, size",
        under: None,
        asked: Below(20.0),
    },
    alone(
        "cold call of `search` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, cold `search`, 99th percentile",
        AtMost(30.0),
    ),
    alone(
        "warm call of `search` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, warm `search`, 99th percentile",
        AtMost(10.0),
    ),
    alone(
        "cold call of `read` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, cold `read`, 99th percentile",
        AtMost(15.0),
    ),
    alone(
        "warm call of `read` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, warm `read`, 99th percentile",
        AtMost(10.0),
    ),
    alone(
        "cold call of `around` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, cold `around`, 99th percentile",
        AtMost(15.0),
    ),
    alone(
        "warm call of `around` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, warm `around`, 99th percentile",
        AtMost(10.0),
    ),
    alone(
        "cold call of `how` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, cold `how`, 99th percentile",
        AtMost(15.0),
    ),
    alone(
        "warm call of `how` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, warm `how`, 99th percentile",
        AtMost(10.0),
    ),
    alone(
        "cold call of `why` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, cold `why`, 99th percentile",
        AtMost(50.0),
    ),
    alone(
        "warm call of `why` among 1M nodes, p99, ms",
        "shared among 1,000,000 nodes, warm `why`, 99th percentile",
        AtMost(10.0),
    ),
    alone(
        "MCP server among 1M nodes, cold, peak memory, MB",
        "shared among 1,000,000 nodes, cold, peak memory",
        AtMost(20.0),
    ),
    alone(
        "MCP server among 1M nodes, warm, peak memory, MB",
        "shared among 1,000,000 nodes, warm, peak memory",
        AtMost(20.0),
    ),
    alone(
        "Pi's helper among 1M nodes, peak memory, MB",
        "helper among 1,000,000 nodes, peak memory",
        AtMost(20.0),
    ),
    alone(
        "what the extension adds to a turn of Pi, ms",
        "200 turns of `read` with and without the extension (Pi), added, median",
        AtMost(5.0),
    ),
    alone("added by the proxy to a call, p99, ms", "proxy, a call, added, 99th percentile", AtMost(5.0)),
    alone("added by the proxy to a stream, p99, ms", "proxy, a stream, added, 99th percentile", AtMost(5.0)),
    alone(
        "hook among 1M nodes, start of a session, p99, ms",
        "hooks among 1,000,000 nodes, start of a session, 99th percentile",
        AtMost(15.0),
    ),
    alone(
        "hook among 1M nodes, beside a prompt, p99, ms",
        "hooks among 1,000,000 nodes, beside a prompt, 99th percentile",
        AtMost(30.0),
    ),
    alone(
        "hook among 1M nodes, before an edit of a new line, p99, ms",
        "hooks among 1,000,000 nodes, before an edit of a new line, 99th percentile",
        AtMost(50.0),
    ),
    alone(
        "hook among 1M nodes, before an edit of an old line, p99, ms",
        "hooks among 1,000,000 nodes, before an edit of an old line, 99th percentile",
        AtMost(50.0),
    ),
    alone(
        "hook among 1M nodes, after a failure, p99, ms",
        "hooks among 1,000,000 nodes, after a failure, 99th percentile",
        AtMost(30.0),
    ),
    alone(
        "hook among 1M nodes, end of a turn, p99, ms",
        "hooks among 1,000,000 nodes, end of a turn, 99th percentile",
        AtMost(15.0),
    ),
];

/// The figures of the history of another agent.
macro_rules! history {
    ($name:literal) => {
        [
            ratio(
                concat!("import of 10 MB (", $name, "), by the bare loop"),
                concat!("import 10 MB (", $name, ")"),
                concat!("import 10 MB (", $name, "), bare statements"),
                AtLeast(0.7),
            ),
            ratio(
                concat!("import of 100 MB (", $name, "), by the bare loop"),
                concat!("import 100 MB (", $name, ")"),
                concat!("import 100 MB (", $name, "), bare statements"),
                AtLeast(0.7),
            ),
            ratio(
                concat!("import of 1 GB (", $name, "), by the bare loop"),
                concat!("import 1 GB (", $name, ")"),
                concat!("import 1 GB (", $name, "), bare statements"),
                AtLeast(0.7),
            ),
            ratio(
                concat!("import (", $name, "), MB/s of 1 GB by 100 MB"),
                concat!("import 1 GB (", $name, ")"),
                concat!("import 100 MB (", $name, ")"),
                AtLeast(0.8),
            ),
            Target {
                what: concat!("import of 100 MB (", $name, "), peak memory, MB"),
                over: concat!("import 100 MB (", $name, "), peak memory"),
                under: None,
                asked: Below(150.0),
            },
            Target {
                what: concat!("import of 1 GB (", $name, "), peak memory, MB"),
                over: concat!("import 1 GB (", $name, "), peak memory"),
                under: None,
                asked: Below(150.0),
            },
            Target {
                what: concat!("words of 100 MB (", $name, ") indexed, MB/s"),
                over: concat!("import 100 MB (", $name, "), words indexed, by processor time"),
                under: None,
                asked: AtLeast(15.0),
            },
            Target {
                what: concat!("size of the indexes of 100 MB (", $name, "), % of the text"),
                over: concat!("import 100 MB (", $name, "), size of the indexes"),
                under: None,
                asked: AtMost(130.0),
            },
        ]
    };
}

/// Calls of the history for other agents, among a million nodes.
macro_rules! shared {
    ($kind:literal, $tool:literal, $most:literal) => {
        alone(
            concat!("shared, ", $kind, " `", $tool, "`, 99th percentile, ms"),
            concat!("shared among 1,000,000 nodes, ", $kind, " `", $tool, "`, 99th percentile"),
            AtMost($most),
        )
    };
}

const SHARED: [Target; 12] = [
    shared!("cold", "search", 30.0),
    shared!("cold", "read", 15.0),
    shared!("cold", "around", 15.0),
    shared!("cold", "how", 15.0),
    shared!("cold", "why", 50.0),
    shared!("warm", "search", 10.0),
    shared!("warm", "read", 10.0),
    shared!("warm", "around", 10.0),
    shared!("warm", "how", 10.0),
    shared!("warm", "why", 10.0),
    alone("shared, cold, peak memory, MB", "shared among 1,000,000 nodes, cold, peak memory", AtMost(20.0)),
    alone("shared, warm, peak memory, MB", "shared among 1,000,000 nodes, warm, peak memory", AtMost(20.0)),
];

const HISTORIES: [[Target; 8]; 3] = [history!("Claude Code"), history!("Codex"), history!("OpenCode")];

/// A second table with the figures that these rows answer; empty when they answer none.
pub(super) fn table(rows: &[Row]) -> String {
    let median = |name: &str| rows.iter().find(|row| row.what == name)?.summary().map(|(median, ..)| median);
    let mut text = String::new();
    for target in TARGETS.iter().chain(HISTORIES.as_flattened()).chain(&SHARED) {
        let over = median(target.over);
        let reached = target.under.map_or(over, |under| Some(over? / median(under)?));
        let Some(reached) = reached else { continue };
        let (asked, met) = match target.asked {
            AtLeast(bound) => (format!("at least {bound}"), reached >= bound),
            AtMost(bound) => (format!("at most {bound}"), reached <= bound),
            Below(bound) => (format!("below {bound}"), reached < bound),
        };
        let met = if met { "yes" } else { "no" };
        text.push_str(&format!("| {} | {asked} | {} | {met} |\n", target.what, number(reached)));
    }
    if text.is_empty() {
        return text;
    }
    format!("| figure | asked | reached | met |\n|---|---:|---:|---|\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, sample: f64) -> Row {
        Row { what: what.to_owned(), unit: "ms", samples: vec![sample] }
    }

    #[test]
    fn unmeasured_figures_are_not_judged() {
        let rows = [
            row("hello, wall", 10.0),
            row("hello (Pi), wall", 199.0),
            row("hello (Codex), wall", 60.0),
            row("the released program, size", 20.0),
        ];
        assert_eq!(
            table(&rows),
            "| figure | asked | reached | met |\n|---|---:|---:|---|\n\
             | hello, faster than Pi | at least 20 | 19.9 | no |\n\
             | hello, faster than Codex | at least 6 | 6.00 | yes |\n\
             | the released program, MB | below 20 | 20.0 | no |\n"
        );
        assert_eq!(table(&rows[..1]), "");
    }
}
