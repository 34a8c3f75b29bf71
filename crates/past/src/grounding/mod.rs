//! Whether what a summary says occurs in its sources: each number, date, path, identifier, quote and name. It finds what was made
//! up or changed, not what was confused: a value that stands elsewhere in the sources counts as grounded.

mod claim;
mod common_table;
mod date;
mod number;
mod sources;
mod token;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub(crate) use claim::{Claim, ClaimValue, claims};
pub(crate) use date::{DateParts, month_name};
pub(crate) use number::is_unit;
pub use sources::{GroundingSources, SourceText};

/// What a summary may claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimKind {
    /// A number, also in words, with its unit; a time of day; a count.
    Number,
    /// A day, a month or a day of the week.
    Date,
    /// A file or a folder.
    Path,
    /// A name of code, a version, an id.
    Identifier,
    /// Something in quotation marks.
    Quote,
    /// A name of somebody or something.
    Name,
}

/// A claim that does not occur in the sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it claims.
    pub kind: ClaimKind,
    /// The words of the summary.
    pub text: String,
    /// Where they stand in the summary, in bytes.
    pub place: Range<usize>,
}

/// What was found in a summary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroundingReport {
    /// How many claims it makes.
    pub claims: usize,
    /// Those that do not occur in the sources, by place.
    pub findings: Vec<Finding>,
}

impl GroundingReport {
    /// Whether everything occurs in the sources.
    #[must_use]
    pub fn is_grounded(&self) -> bool {
        self.findings.is_empty()
    }
}

impl GroundingSources {
    /// Looks for each claim of the summary in these sources.
    #[must_use]
    pub fn check(&self, summary: &str) -> GroundingReport {
        let claims = claims(summary);
        let count = claims.len();
        let ungrounded = claims.into_iter().filter(|claim| !self.knows(claim));
        let findings = ungrounded.map(|claim| Finding {
            kind: claim.kind,
            text: summary.get(claim.place.clone()).unwrap_or_default().to_owned(),
            place: claim.place,
        });
        GroundingReport { claims: count, findings: findings.collect() }
    }
}
