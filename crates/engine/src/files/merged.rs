//! Files that a merge brings along: each becomes what the other branch made of it.

use std::path::Path;

use quipu_protocol::{FileState, Unknown};
use quipu_workspace::FileError;

use quipu_transcript::LeftAlone;

use super::plan::{Ground, Ready, Wanted, against_disk};
use super::restore::FilesError;
use super::state::named;

/// What a merge brings along.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cargo {
    pub(crate) files: Vec<Brought>,
    /// What the branch did beside files, and cannot be brought.
    pub(crate) left: Vec<LeftAlone>,
    pub(crate) unknown: Vec<String>,
}

/// What is brought along of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Brought {
    /// Its absolute path.
    pub(crate) path: String,
    /// As the session that is merged into left it; `None` where that is not known.
    pub(crate) expect: Option<FileState>,
    /// As the other branch left it; `None` where that is not known.
    pub(crate) target: Option<FileState>,
}

/// What bringing them along would do, held against the disk.
pub(crate) async fn ready(ground: &Ground, brought: Cargo) -> Result<Ready, FilesError> {
    let (mut wanted, mut left) = (Vec::new(), Vec::new());
    for Brought { path, expect, target } in brought.files {
        let path = named(&ground.root, Path::new(&path)).unwrap_or(path);
        let Some(target) = target else {
            left.push(LeftAlone { path, why: "its state on the branch is not known".into() });
            continue;
        };
        // Nothing looks like what is not known, so it counts as changed by somebody else.
        let expect = expect.unwrap_or(FileState::unknown(Unknown::BeforeUnknown));
        wanted.push(Wanted { path, expect, target });
    }
    let mut ready = against_disk(ground, wanted).await?.ok_or(FileError::Cancelled)?;
    ready.plan.left.extend(left);
    ready.plan.left.extend(brought.left);
    ready.plan.left.sort_by(|a, b| a.path.cmp(&b.path));
    ready.plan.unknown = brought.unknown;
    Ok(ready)
}
