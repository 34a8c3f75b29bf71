//! Lines of a file by the commits that git names, for the tool `why` and for programs that show the same.

use std::path::Path;

use quipu_history::{
    Blame, LineAuthor, LineCommits, NODE_TRAILER, NamedCommit, TrailerReport, credit_commits, sibling_file,
};
use quipu_store::{Graph, StoreError};
use quipu_transcript::one_line;
use quipu_workspace::committed_lines;
use tokio_util::sync::CancellationToken;

/// Characters of what git says is wrong.
const COMPLAINT: usize = 300;

/// What came of the commits of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitReport {
    /// What came of their trailers.
    pub trailers: TrailerReport,
    /// Why git did not tell the commits, on one line.
    pub not_examined: Option<String>,
}

impl CommitReport {
    /// What is to be told, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let TrailerReport { lines: _, unknown, malformed, unfit, is_cut } = self.trailers;
        let mut notes = Vec::new();
        if let Some(why) = &self.not_examined {
            notes.push(format!("The commits of the file were not examined: {why}."));
        }
        if unknown > 0 {
            notes.push(format!(
                "{unknown} {NODE_TRAILER} trailers of commits name no answer of a model in this store."
            ));
        }
        if malformed > 0 {
            notes.push(format!("{malformed} {NODE_TRAILER} trailers of commits are no nodes."));
        }
        if unfit > 0 {
            notes.push(format!(
                "{unfit} {NODE_TRAILER} trailers name an answer that is newer than the commit, or that runs no command."
            ));
        }
        if is_cut {
            notes.push("Some trailers of commits were not examined: there are too many.".to_owned());
        }
        notes
    }
}

/// Gives lines that no known call wrote to the turns that their commits name. Who drops this stops git.
///
/// # Errors
/// What the store says.
pub async fn credit_committed_lines(
    store: &dyn Graph,
    found: &mut Blame,
    path: &Path,
    content: &str,
) -> Result<CommitReport, StoreError> {
    let mut report = CommitReport::default();
    if found.lines.iter().all(|line| matches!(line, LineAuthor::Turn(_))) {
        return Ok(report);
    }
    let Ok(path) = path.canonicalize() else { return Ok(report) };
    let (file, text) = (path.clone(), content.to_owned());
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    let asked =
        tokio::task::spawn_blocking(move || committed_lines(&file, &text, NODE_TRAILER, &cancel)).await;
    let committed = match asked {
        Ok(Ok(Some(committed))) => committed,
        Ok(Ok(None)) => return Ok(report),
        Ok(Err(error)) => {
            report.not_examined = Some(one_line(&error.to_string(), COMPLAINT));
            return Ok(report);
        }
        Err(error) => {
            report.not_examined = Some(error.to_string());
            return Ok(report);
        }
    };
    let is_cut = committed.is_cut || committed.commits.iter().any(|commit| commit.is_cut);
    let commits = committed.commits.into_iter();
    let commits: Vec<NamedCommit> =
        commits.map(|commit| NamedCommit { id: commit.id, at: commit.at, nodes: commit.values }).collect();
    let from = LineCommits { lines: &committed.lines, commits: &commits, path: &path };
    report.trailers = credit_commits(store, found, content, from, &sibling_file).await?;
    report.trailers.is_cut |= is_cut;
    Ok(report)
}
