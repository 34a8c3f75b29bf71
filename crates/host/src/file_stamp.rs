//! Tells one state of a file from another without reading it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The device, the number, the size and the times of a file; the default where there is none that can be seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileStamp(Option<(u64, u64, u64, [i64; 4])>);

impl FileStamp {
    pub(crate) fn of(path: &Path) -> Self {
        let times = |found: &std::fs::Metadata| {
            [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()]
        };
        let found = std::fs::metadata(path).ok();
        Self(found.map(|found| (found.dev(), found.ino(), found.size(), times(&found))))
    }
}
