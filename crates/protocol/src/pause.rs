//! Why a credential is not used for a while.

/// Why a credential rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseReason {
    /// It was refused.
    Refused,
    /// It was revoked.
    Revoked,
    /// Its quota is exhausted.
    Quota,
    /// A limit of use was reached.
    UsageLimit,
    /// There were too many requests.
    RateLimited,
    /// The server had too much to do.
    Overloaded,
}
