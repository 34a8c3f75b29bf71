//! Notices to the front while something is done.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::Advice;
use crate::job_notice::JobNotice;

/// Something that a person should know.
#[derive(Debug, Clone, PartialEq)]
pub struct HostNotice {
    /// Whether something is wrong.
    pub is_warning: bool,
    /// What, without what to do about it.
    pub text: String,
    /// What to do, where the front knows how.
    pub advice: Option<Advice>,
}

impl From<&JobNotice> for HostNotice {
    fn from(notice: &JobNotice) -> Self {
        let advice = match notice {
            JobNotice::Failed { key, retry: None, .. } => Some(Advice::RetryJob(key.to_string())),
            _ => None,
        };
        Self { is_warning: notice.is_warning(), text: notice.to_string(), advice }
    }
}

/// Gets notices. What it does must not wait.
pub trait Observer: Send + Sync {
    /// Something that a person should know; the same may come more than once.
    fn notice(&self, notice: HostNotice);

    /// A notice of a runner of jobs. Where this is not implemented, warnings become notices, and the rest is dropped.
    fn job(&self, notice: &JobNotice) {
        if notice.is_warning() {
            self.notice(notice.into());
        }
    }

    /// How far a session file is taken in.
    fn importing(&self, file: &Path, progress: quipu_archive::Progress) {
        let _ = (file, progress);
    }

    /// How far old states of files are dropped.
    fn dropping(&self, progress: quipu_store::FileDropProgress) {
        let _ = progress;
    }
}

/// An observer that clones share.
#[derive(Clone)]
pub(crate) struct SharedObserver(pub(crate) Arc<dyn Observer>);

impl fmt::Debug for SharedObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// An observer that drops all notices.
#[derive(Debug, Clone, Copy, Default)]
pub struct SilentObserver;

impl Observer for SilentObserver {
    fn notice(&self, _: HostNotice) {}
}
