//! A chunk of a past, and what is done with chunks: the form in which nodes hold them.

use std::fmt;
use std::str::FromStr;

use quipu_dag::sha256;
use quipu_protocol::{AuthorClass, NodeId, SessionId, UnixMs, hex};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::proof_record::{ChunkVerdict, ProofRecord};
use crate::{PastScope, TimeRange};

/// The type of messages that hold a chunk, and the name of what their nodes say beside the summary.
pub const PAST_CHUNK: &str = "quipu.past";
/// Bytes of a summary at most.
pub const SUMMARY_LIMIT: usize = 64 << 10;
/// Children of a chunk at most that are read.
pub const CHILD_LIMIT: usize = 1_024;
/// Sources of a chunk at most that are read.
pub const SOURCE_LIMIT: usize = 1 << 20;
/// Digits of an id that people are shown.
const SHORT: usize = 12;

/// The id of a chunk: the hash of all that it says. The same summary of the same sources has the same id in every store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PastId(pub [u8; 32]);

/// What a chunk was made of: the hash of its sorted sources, or of what its children were made of. Work that was done is found by it
/// and not done again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub [u8; 32]);

macro_rules! as_digits {
    ($name:ident) => {
        impl $name {
            /// All 64 hexadecimal digits.
            #[must_use]
            pub fn digits(&self) -> String {
                hex(&self.0)
            }

            /// The first twelve.
            #[must_use]
            pub fn short(&self) -> String {
                self.digits().chars().take(SHORT).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.digits())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.short())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                // Sixty-four hexadecimal digits, as those of nodes.
                NodeId::from_str(&text).map(|id| Self(id.0)).map_err(de::Error::custom)
            }
        }
    };
}

as_digits!(PastId);
as_digits!(WorkId);

/// How a summary was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum SummaryMethod {
    /// Of sentences of its sources, without a model.
    Extractive {
        /// Of the rules by which they were chosen.
        version: u32,
        /// The model that was asked first, and whose answer is no summary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead: Option<AskedModel>,
        /// Why it gave none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refusal: Option<RefusedSummary>,
    },
    /// By a model.
    Model(AskedModel),
    /// By a person.
    Person,
    /// By a model that was at work, with a tool.
    Agent,
}

/// A model, and what it was told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AskedModel {
    /// Provider and model.
    pub model: String,
    /// SHA-256 of the prompt, hexadecimal.
    pub prompt: String,
}

/// How often a model is asked for a summary of a chunk whose request it refuses as invalid: once in a build.
pub const SUMMARY_TRIES: u32 = 3;
/// Bytes of a reason at most.
const REASON: usize = 200;

/// Why a model gave no summary.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefusedSummary {
    /// In one line.
    pub why: String,
    /// How often it was asked, where it is asked again: up to [`SUMMARY_TRIES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
}

impl RefusedSummary {
    pub(crate) fn new(why: &str, tries: Option<u32>) -> Self {
        let line = quipu_tools::stripped(why).split_whitespace().collect::<Vec<_>>().join(" ");
        Self { why: line[..line.floor_char_boundary(REASON)].to_owned(), tries }
    }
}

impl SummaryMethod {
    /// How often this model was asked for the summary in whose place it stands, and refused the request as invalid.
    pub(crate) fn tries_of(&self, model: &AskedModel) -> u32 {
        match self {
            Self::Extractive { instead: Some(asked), refusal: Some(refusal), .. } if asked == model => {
                refusal.tries.unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether the model is asked again.
    fn is_asked_again(&self, wanted: &AskedModel) -> bool {
        let Self::Extractive { refusal: Some(RefusedSummary { tries: Some(_), .. }), .. } = self else {
            return false;
        };
        self.tries_of(wanted) < SUMMARY_TRIES
    }

    /// How well a summary that was made in this way serves who wants one made in another; `None` where it does not. What a person
    /// wrote or a model was paid for is not made again, by whichever model.
    pub(crate) fn serves(&self, wanted: &Self) -> Option<u8> {
        match (self, wanted) {
            (Self::Person, _) => Some(3),
            (Self::Model(_), _) => Some(2),
            (Self::Extractive { instead: Some(_), .. }, Self::Model(asked)) => {
                (!self.is_asked_again(asked)).then_some(1)
            }
            (Self::Extractive { version, .. }, Self::Extractive { version: other, .. }) => {
                (version == other).then_some(0)
            }
            (Self::Extractive { .. } | Self::Agent, _) => None,
        }
    }
}

/// What a chunk has of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChunkSource {
    /// The node.
    pub node: NodeId,
    /// The blocks of its message, counted from 0; empty for all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<u32>,
}

impl ChunkSource {
    /// All of a node.
    #[must_use]
    pub const fn whole(node: NodeId) -> Self {
        Self { node, blocks: Vec::new() }
    }
}

/// A summary of a stretch of the past, and what it is a summary of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryChunk {
    /// Whose past it is of.
    pub scope: PastScope,
    /// 0 for a summary of nodes, and one more than the highest of its children.
    pub level: u32,
    /// From its first source to behind its last.
    pub span: TimeRange,
    /// The words.
    pub summary: String,
    /// The chunks that it sums up, by time.
    pub children: Vec<PastId>,
    /// The nodes that it sums up itself, in their order.
    pub sources: Vec<ChunkSource>,
    /// The session of its sources; `None` where they are of several.
    pub session: Option<SessionId>,
    /// The class of its author: for a summary, that of its least trusted source.
    pub class: AuthorClass,
    /// How it was made.
    pub method: SummaryMethod,
    /// What it was made of; `None` for a chunk that no compiler made.
    pub work: Option<WorkId>,
    /// Chunks in whose place it stands.
    pub supersedes: Vec<PastId>,
}

impl MemoryChunk {
    /// Its id. What it supersedes is no part of it: that depends on what was there before.
    #[must_use]
    pub fn id(&self) -> PastId {
        let said = (
            (&self.scope, self.level, self.span.start(), self.span.end()),
            (&self.summary, &self.children, &self.sources),
            (&self.session, class_name(self.class), &self.method, self.work),
        );
        PastId(sha256(&serde_json::to_vec(&said).unwrap_or_default()))
    }
}

/// How trusted an author is, the most trusted first.
pub(crate) const fn rank(class: AuthorClass) -> u8 {
    match class {
        AuthorClass::Owner => 0,
        AuthorClass::System => 1,
        AuthorClass::Agent => 2,
        AuthorClass::Untrusted => 3,
    }
}

/// The less trusted of two.
pub(crate) fn worse(a: AuthorClass, b: AuthorClass) -> AuthorClass {
    if rank(b) > rank(a) { b } else { a }
}

/// Its name in JSON and on screens.
#[must_use]
pub const fn class_name(class: AuthorClass) -> &'static str {
    match class {
        AuthorClass::Owner => "owner",
        AuthorClass::Agent => "agent",
        AuthorClass::Untrusted => "untrusted",
        AuthorClass::System => "system",
    }
}

/// What people made of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReviewState {
    /// Nobody looked at it.
    Made,
    /// A person found it good.
    Reviewed,
    /// A person took it back: nothing shows it but who asks for it by its id.
    Retracted,
}

/// What the node of a chunk says beside the summary, which is its text; or what a node does with other chunks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum PastRecord {
    Chunk(Box<ChunkRecord>),
    /// A person looked at a chunk.
    Review {
        of: PastId,
        state: ReviewState,
    },
    /// Chunks whose place others have taken.
    Supersede {
        of: Vec<PastId>,
    },
    /// What was found when the words of chunks were looked for in their sources, by these rules.
    Grounding {
        rules: u32,
        of: Vec<ChunkVerdict>,
    },
    /// What came of a proof.
    Proof(Box<ProofRecord>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChunkRecord {
    pub(crate) scope: PastScope,
    pub(crate) level: u32,
    pub(crate) start: UnixMs,
    pub(crate) end: UnixMs,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) children: Vec<PastId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<ChunkSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<SessionId>,
    pub(crate) method: SummaryMethod,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) work: Option<WorkId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) supersedes: Vec<PastId>,
}

/// What is wrong with a chunk that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkFault {
    /// It is in no form that is known.
    #[error("it cannot be read")]
    Unreadable,
    /// It takes chunks back or puts others in their place, and nobody who may do that wrote it.
    #[error("its author may not decide on chunks")]
    NoAuthority,
    /// It claims the work of a build, and was not made of what it names.
    #[error("it claims to be of a build, and is not: it counts as another program's")]
    ForeignWork,
    /// It ends before it begins, or lies at no time at all.
    #[error("its span is none: {start} to {end}")]
    Span {
        /// Its first millisecond.
        start: UnixMs,
        /// The first after it.
        end: UnixMs,
    },
    /// It is of another past than the one it stands in.
    #[error("it is of another scope: {0}")]
    Scope(String),
    /// It has more of something than a chunk has.
    #[error("it has {count} {what}, and a chunk has at most {limit}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// The most that is read.
        limit: usize,
    },
    /// A child is not there; the chunk is used without it.
    #[error("its child {} is missing", .0.short())]
    MissingChild(PastId),
    /// A child reaches beyond it; the chunk is used without it.
    #[error("its child {} reaches beyond it", .0.short())]
    WideChild(PastId),
    /// A child has another parent already; the chunk is used without it.
    #[error("its child {} has another parent", .0.short())]
    SharedChild(PastId),
    /// A chunk that is superseded or reviewed is not there.
    #[error("there is no chunk {}", .0.short())]
    NoChunk(PastId),
}

impl MemoryChunk {
    pub(crate) fn record(&self) -> PastRecord {
        PastRecord::Chunk(Box::new(ChunkRecord {
            scope: self.scope.clone(),
            level: self.level,
            start: self.span.start(),
            end: self.span.end(),
            children: self.children.clone(),
            sources: self.sources.clone(),
            session: self.session.clone(),
            method: self.method.clone(),
            work: self.work,
            supersedes: self.supersedes.clone(),
        }))
    }

    /// A chunk that a node holds, wherever it came from.
    pub(crate) fn read(
        record: ChunkRecord,
        summary: String,
        class: AuthorClass,
        scope: &PastScope,
    ) -> Result<Self, ChunkFault> {
        let within = |what, count, limit| match count > limit {
            true => Err(ChunkFault::TooLarge { what, count, limit }),
            false => Ok(()),
        };
        within("bytes of summary", summary.len(), SUMMARY_LIMIT)?;
        within("children", record.children.len(), CHILD_LIMIT)?;
        within("sources", record.sources.len(), SOURCE_LIMIT)?;
        within("chunks to supersede", record.supersedes.len(), SOURCE_LIMIT)?;
        let ChunkRecord { start, end, .. } = record;
        if record.scope != *scope {
            let name: String = record.scope.name().chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(ChunkFault::Scope(name));
        }
        // What happened at no known time has the first one of all.
        let span = TimeRange::new(start, end).filter(|_| start > 0).ok_or(ChunkFault::Span { start, end })?;
        Ok(Self {
            scope: record.scope,
            level: record.level,
            span,
            summary,
            children: record.children,
            sources: record.sources,
            session: record.session,
            class,
            method: record.method,
            work: record.work,
            supersedes: record.supersedes,
        })
    }
}
