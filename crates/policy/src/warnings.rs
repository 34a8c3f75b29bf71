//! What people should know of a policy that can be carried out and is likely a mistake.

use std::fmt;

use crate::scope::PolicyScope;

/// A likely mistake.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyWarning {
    /// An entry means no tool that there is.
    Unknown {
        /// The step that it is in.
        scope: PolicyScope,
        /// The entry.
        entry: String,
    },
    /// None of the allow entries of a step means a tool that there is.
    OnlyUnknown {
        /// The step.
        scope: PolicyScope,
    },
    /// `allow` and `alsoAllow` stand in the same place; `alsoAllow` does not count there.
    AllowAndAlso {
        /// The step.
        scope: PolicyScope,
    },
    /// There were tools, and none is left.
    NothingLeft,
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { scope, entry } => {
                write!(f, "{scope}: {entry:?} is the name of no tool and no group")
            }
            Self::OnlyUnknown { scope } => {
                write!(
                    f,
                    "{scope}: no allow entry is the name of a tool that is offered, so all tools are removed"
                )
            }
            Self::AllowAndAlso { scope } => {
                write!(f, "{scope}: `alsoAllow` does not count next to `allow`; put its entries into `allow`")
            }
            Self::NothingLeft => f.write_str("the policy removes every tool"),
        }
    }
}
