//! Finding nodes by what they say.

use std::ops::Range;

use quipu_protocol::{NodeId, SessionId, UnixMs};
use serde::Deserialize;

use crate::Withdrawal;

/// Bytes of a query's words at most.
pub const QUERY_LIMIT: usize = 4 << 10;
/// Bytes of a node's text that are indexed by words at most; the rest of a longer one is not found.
pub const INDEXED_WORDS: usize = 256 << 10;
/// Bytes of a node's paths, arguments and code that are indexed by substrings at most.
pub const INDEXED_SUBSTRINGS: usize = 64 << 10;
/// Hits that [`Order::Best`] ranks: the newest so many.
pub const RANKED: usize = 200;
/// Characters that one of the substrings must have at least.
pub const SHORTEST_SUBSTRING: usize = 3;

/// What is looked for. All conditions hold together.
///
/// `words` is plain text: words between spaces all have to be there, in any order; what stands between double quotes
/// has to be there as it is. Case and diacritics do not matter, and no character has another meaning. Without words,
/// everything that the other conditions allow is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchQuery {
    /// The words, at most [`QUERY_LIMIT`] bytes.
    pub words: String,
    /// How the words are matched.
    pub matching: MatchMode,
    /// Only what this program wrote, such as `quipu`.
    pub agent: Option<String>,
    /// Only sessions that work in this directory or below it.
    pub project: Option<String>,
    /// Only what one of these said; empty for all.
    pub speakers: Vec<Speaker>,
    /// Only calls of this tool and their results.
    pub tool: Option<String>,
    /// No calls of these tools, and none of their results.
    pub without_tools: Vec<String>,
    /// Only what was written since then.
    pub since: Option<UnixMs>,
    /// Only calls that name this file, and their results: a path or the end of one, compared by its words.
    pub file: Option<String>,
    /// Only nodes on the lineage of this one.
    pub branch: Option<NodeId>,
    /// The sessions that are searched.
    pub sessions: Sessions,
    /// Which hits come first.
    pub order: Order,
    /// At most so many hits.
    pub limit: usize,
    /// At most so many hits of one session; the others are counted in [`Hit::more`].
    pub per_session: Option<usize>,
    /// Also what was taken back, or what others stand in the place of. It is marked.
    pub withdrawn: bool,
}

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// The user.
    User,
    /// The model, with its calls.
    Assistant,
    /// Tools, with their results.
    Tool,
    /// Commands that the user ran.
    Shell,
    /// Summaries.
    Summary,
}

impl Speaker {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::User, Self::Assistant, Self::Tool, Self::Shell, Self::Summary];

    /// As people say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Shell => "shell",
            Self::Summary => "summary",
        }
    }

    /// The roles that nodes have.
    pub fn roles(self) -> &'static [&'static str] {
        match self {
            Self::User => &["user"],
            Self::Assistant => &["assistant"],
            Self::Tool => &["toolResult"],
            Self::Shell => &["bashExecution"],
            Self::Summary => &["compactionSummary", "branchSummary"],
        }
    }
}

/// Which sessions are looked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sessions {
    /// All, and what belongs to none.
    #[default]
    All,
    /// Those that were not removed, and what belongs to none. Of a removed one what a session that was forked from it
    /// goes on from.
    Standing,
}

/// How the words are matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MatchMode {
    /// Words; where they give fewer hits than asked for, substrings as well.
    #[default]
    Any,
    /// Whole words, in all text.
    Words,
    /// Any part of a path, of a tool's arguments or of code.
    Substrings,
}

/// Which hits come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The last written.
    #[default]
    Newest,
    /// Of the newest [`RANKED`] hits, or as many as are asked for, those that say most about the words (BM25); equal ones by time.
    Best,
}

/// The results of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchHits {
    /// In the order asked.
    pub hits: Vec<Hit>,
    /// Nodes that are not in the indexes yet: the newest, which were not searched.
    pub behind: IndexBacklog,
    /// Whether the search stopped before it examined everything, which only common words under narrow conditions
    /// can cause, or thousands of hits that are shown to nobody: older hits may be missing.
    pub cut: bool,
    /// The words, when they were not looked for as parts of others: none has [`SHORTEST_SUBSTRING`] characters.
    pub too_short: Vec<String>,
}

/// A node that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The node.
    pub node: NodeId,
    /// Its session; `None` for a node of none.
    pub session: Option<SessionId>,
    /// Its role.
    pub role: String,
    /// The tool that was called, or gave the result.
    pub tool: Option<String>,
    /// When it was written.
    pub at: UnixMs,
    /// The kind of match.
    pub by: MatchKind,
    /// What it says around the words.
    pub excerpt: Excerpt,
    /// How well it fits, for [`Order::Best`].
    pub score: Option<f64>,
    /// On the last hit of its session: how many more there are that were seen and left out.
    pub more: u64,
    /// What became of its words, where they are not to be taken for true any more.
    pub withdrawn: Option<Withdrawal>,
}

/// Which kind of match found a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchKind {
    /// By whole words.
    Words,
    /// By a part of a path, of arguments or of code.
    Substring,
    /// By its vector, and by no word.
    Semantic,
}

/// A piece of a node's text, on one line, without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The piece, with its control characters replaced.
    pub text: String,
    /// Where the words stand in it, in bytes, in order.
    pub marks: Vec<Range<usize>>,
    /// Whether there is more before it.
    pub cut_before: bool,
    /// Whether there is more after it.
    pub cut_after: bool,
}

/// The number of nodes that the search indexes lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexBacklog {
    /// Nodes that the index of words lacks.
    pub words: u64,
    /// Nodes that the index of substrings lacks.
    pub substrings: u64,
}
