//! Blame of the files that were asked for last: it takes as long as a file has changes, and stays so while nothing is stored.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use quipu_history::{Blame, LineAuthor, blame, blame_lines, sibling_file};
use quipu_store::{Graph, Revision, StoreError};
use sha2::{Digest as _, Sha256};

/// Files that are remembered, and lines of all of them.
const FILES: usize = 8;
const LINES: usize = 100_000;

type Digest = [u8; 32];

/// Blame of one file, and what it was made of.
struct KnownBlame {
    paths: Vec<String>,
    content: Digest,
    revision: Revision,
    /// Other files that were read for it.
    others: Vec<(PathBuf, Option<Digest>)>,
    blame: Arc<Blame>,
}

/// Blame of files, the newest first.
#[derive(Default)]
pub(crate) struct BlameMemory {
    known: Mutex<VecDeque<KnownBlame>>,
    /// A file of which one line was asked for, its content and the store then: who asks for another one asks for more.
    one_asked: Mutex<Option<(Vec<String>, Digest, Revision)>>,
}

impl BlameMemory {
    /// Whose the lines of a file are.
    pub(crate) async fn blame(
        &self,
        store: &dyn Graph,
        paths: &[String],
        content: &str,
    ) -> Result<Arc<Blame>, StoreError> {
        let digest: Digest = Sha256::digest(content).into();
        let revision = store.revision().await?;
        if let Some(known) = self.find(paths, &digest, revision) {
            return Ok(known);
        }
        let others: Mutex<Vec<(PathBuf, Option<Digest>)>> = Mutex::default();
        let read = |path: &Path| {
            let bytes = sibling_file(path);
            let digest = bytes.as_ref().map(|bytes| Sha256::digest(bytes).into());
            others.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), digest));
            bytes
        };
        let blame = Arc::new(blame(store, paths, content, &read).await?);
        let others = others.into_inner().unwrap_or_else(PoisonError::into_inner);
        let known = KnownBlame {
            paths: paths.to_vec(),
            content: digest,
            revision,
            others,
            blame: Arc::clone(&blame),
        };
        self.keep(known);
        Ok(blame)
    }

    /// Whose one line of a file is, counted from 0, where a known call wrote it: what is older than that call is not looked at.
    pub(crate) async fn line(
        &self,
        store: &dyn Graph,
        paths: &[String],
        content: &str,
        line: usize,
    ) -> Result<Option<Blame>, StoreError> {
        let digest: Digest = Sha256::digest(content).into();
        let revision = store.revision().await?;
        let asked = Some((paths.to_vec(), digest, revision));
        let is_second = {
            let mut one = self.one_asked.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *one, asked.clone()) == asked
        };
        let known = match self.find(paths, &digest, revision) {
            None if is_second => Some(self.blame(store, paths, content).await?),
            known => known,
        };
        let found = match known {
            Some(known) => {
                let mut one = Blame::clone(&known);
                one.lines = one.lines.get(line).copied().into_iter().collect();
                one
            }
            None => blame_lines(store, paths, content, line..line + 1, &sibling_file).await?,
        };
        Ok(Some(found).filter(is_known))
    }

    fn find(&self, paths: &[String], content: &Digest, revision: Revision) -> Option<Arc<Blame>> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.revision == revision);
        let at = all.iter().position(|known| known.paths == paths && known.content == *content)?;
        let known = all.remove(at)?;
        let is_same = |(path, digest): &(PathBuf, Option<Digest>)| {
            sibling_file(path).map(|bytes| Digest::from(Sha256::digest(bytes))) == *digest
        };
        if !known.others.iter().all(is_same) {
            return None;
        }
        let blame = Arc::clone(&known.blame);
        all.push_front(known);
        Some(blame)
    }

    fn keep(&self, known: KnownBlame) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.paths != known.paths && other.revision == known.revision);
        all.push_front(known);
        let mut lines = 0;
        let fits = all.iter().take_while(|known| {
            lines += known.blame.lines.len();
            lines <= LINES
        });
        let fits = fits.count().min(FILES);
        all.truncate(fits);
    }
}

/// Whether a call is known to have written each line.
fn is_known(blame: &Blame) -> bool {
    !blame.lines.is_empty() && blame.lines.iter().all(|line| matches!(line, LineAuthor::Turn(_)))
}
