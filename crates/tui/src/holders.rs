//! What the terminal keeps, as places that hold content: what was sent, and what is being written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_host::holders::{
    ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptReason, LinesHolder, Needles,
};

use crate::{draft, private_file};

/// What the terminal keeps in a home of Quipu.
pub fn holders(home: &Path) -> Vec<Arc<dyn ContentHolder>> {
    vec![
        Arc::new(LinesHolder::new("history", vec![home.join("history.jsonl")])),
        Arc::new(Drafts { dir: home.join("drafts") }),
    ]
}

/// `drafts/`. A draft goes with its pastes; one that a terminal has now stays with it.
struct Drafts {
    dir: PathBuf,
}

/// A draft with its pastes, by what their names begin with: `KEY-N`.
struct StoredDraft {
    name: String,
    files: Vec<PathBuf>,
    bytes: u64,
    /// Why nobody can say what is in it.
    unread: Option<HolderError>,
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> HolderError {
    move |error| HolderError::file(path, doing, &error)
}

/// All drafts, and among them those that hold what is looked for, and those that cannot be read.
fn drafts(dir: &Path, needles: Option<&Needles>) -> Result<Vec<StoredDraft>, HolderError> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(dir, "read"))?,
    };
    let mut all = std::collections::BTreeMap::<String, (StoredDraft, bool)>::new();
    for entry in entries {
        let entry = entry.map_err(failed(dir, "read"))?;
        let (path, file) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let Some((name, kind)) = file.split_once('.') else { continue };
        let Ok(about) = entry.metadata() else { continue };
        if !about.is_file() || kind == "lock" {
            continue;
        }
        let mut unread = None;
        let holds = match (needles, draft::whole(&path)) {
            (Some(needles), Ok(bytes)) => needles.are_in(&bytes),
            (None, _) => true,
            // It was sent meanwhile.
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            (Some(_), Err(error)) => {
                unread = Some(HolderError::file(&path, "read", &error));
                false
            }
        };
        let of = || (StoredDraft { name: name.to_owned(), files: Vec::new(), bytes: 0, unread: None }, false);
        let (kept, found) = all.entry(name.to_owned()).or_insert_with(of);
        kept.unread = unread.or(kept.unread.take());
        kept.files.push(path);
        kept.bytes += about.len();
        *found |= holds;
    }
    let goes = |(mut kept, found): (StoredDraft, bool)| {
        // It goes as a whole, whatever else is in it.
        kept.unread = kept.unread.filter(|_| !found);
        (found || kept.unread.is_some()).then_some(kept)
    };
    Ok(all.into_values().filter_map(goes).collect())
}

impl StoredDraft {
    fn place(&self, dir: &Path) -> FoundPlace {
        FoundPlace::File { path: dir.join(format!("{}.json", self.name)), line: None }
    }
}

fn erase(dir: &Path, needles: &Needles) -> Result<EraseReport, HolderError> {
    let mut erased = EraseReport::default();
    for kept in drafts(dir, Some(needles))? {
        let removed = match &kept.unread {
            None => remove(dir, &kept),
            Some(error) => Err(error.clone()),
        };
        match removed {
            Ok(true) => erased.add(kept.bytes),
            Ok(false) => {
                let told =
                    "a terminal is using it; empty its editor or close that terminal, then erase again";
                erased.keep(kept.place(dir), KeptReason::InUse, told);
            }
            Err(error) => erased.keep(kept.place(dir), KeptReason::Failed, error.to_string()),
        }
    }
    Ok(erased)
}

/// Removes a draft, unless a terminal has it.
fn remove(dir: &Path, kept: &StoredDraft) -> Result<bool, HolderError> {
    let path = dir.join(format!("{}.lock", kept.name));
    let Some(lock) = private_file::lock(&path, false).map_err(failed(&path, "lock"))? else {
        return Ok(false);
    };
    // Pastes first: without the draft, nobody would find them again.
    let (drafts, pastes): (Vec<_>, Vec<_>) = kept
        .files
        .iter()
        .partition(|file| file.extension().is_some_and(|kind| kind == "json" || kind == "unreadable"));
    for file in pastes.into_iter().chain(drafts) {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(failed(file, "remove"))?,
        }
    }
    std::fs::remove_file(&path).map_err(failed(&path, "remove"))?;
    drop(lock);
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed(dir, "write"))?;
    Ok(true)
}

impl ContentHolder for Drafts {
    fn name(&self) -> &str {
        "drafts"
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            let needles = Needles::of(&query.selection)?;
            let mut page = FoundPage::begin(query);
            if needles.is_empty() {
                return Ok(page);
            }
            for kept in drafts(&self.dir, Some(&needles))? {
                let content = FoundContent { place: kept.place(&self.dir), bytes: kept.bytes };
                if !page.push(&kept.name, content) {
                    break;
                }
            }
            Ok(page)
        })
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
        Box::pin(async move {
            let needles = Needles::of(&targets.selection)?;
            if needles.is_empty() { Ok(EraseReport::default()) } else { erase(&self.dir, &needles) }
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        Box::pin(async move { Ok(drafts(&self.dir, None)?.iter().map(|kept| kept.bytes).sum()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor::Editor;
    use crate::{DraftFile, SentFile};
    use futures_util::FutureExt as _;
    use quipu::Sealer;

    fn query(needle: &str) -> ContentQuery {
        ContentQuery::of(EraseTargets::of_needle(needle, "").selection)
    }

    fn now<T>(answer: HolderFut<'_, T>) -> T {
        answer.now_or_never().expect("nothing is waited for").unwrap()
    }

    #[test]
    fn draft_and_its_pastes_go_unless_a_terminal_has_them() {
        let home = tempfile::tempdir().unwrap();
        let sealer = Arc::new(Sealer::new([7; 32]));
        let drafts = &holders(home.path())[1];
        let claim = |dir: &str| DraftFile::claim(home.path(), Path::new(dir), &sealer).unwrap();
        let (mut open, _) = claim("/open");
        let (mut left, _) = claim("/left");
        let (mut other, _) = claim("/other");
        let mut editor = Editor::default();
        editor.insert("the kumquat is ripe");
        open.save(&editor.draft()).unwrap();
        other
            .save(&{
                let mut editor = Editor::default();
                editor.insert("nothing of it");
                editor.draft()
            })
            .unwrap();
        let mut editor = Editor::default();
        editor.paste(&format!("{} kumquat", "long ".repeat(5_000)));
        left.save(&editor.draft()).unwrap();
        drop((left, other));
        assert_eq!(now(drafts.find(&query("kumquat"))).found.len(), 2);
        let before = now(drafts.bytes());

        let erased = now(drafts.erase(&EraseTargets::of_needle("kumquat", "a test")));
        assert_eq!((erased.count, erased.kept_count), (1, 1));
        assert_eq!(erased.kept[0].why, KeptReason::InUse);
        assert_eq!(now(drafts.find(&query("kumquat"))).found.len(), 1);
        drop(open);
        assert_eq!(now(drafts.erase(&EraseTargets::of_needle("kumquat", "a test"))).count, 1);
        assert_eq!(now(drafts.find(&query("kumquat"))).found, []);
        assert!(claim("/left").1.is_none(), "it was left empty");
        assert!(claim("/other").1.is_some(), "and the others are as they were");
        assert!(now(drafts.bytes()) < before);
    }

    #[test]
    fn draft_that_cannot_be_removed_is_told_and_the_others_go() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("drafts");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("good.json"), "the kumquat").unwrap();
        std::fs::write(dir.join("bad.json"), "the kumquat").unwrap();
        // Who removes it needs its lock, and a directory is none.
        std::fs::create_dir(dir.join("bad.lock")).unwrap();
        let drafts = &holders(home.path())[1];
        let erased = now(drafts.erase(&EraseTargets::of_needle("kumquat", "a test")));
        assert_eq!((erased.count, erased.kept_count, erased.kept[0].why), (1, 1, KeptReason::Failed));
        assert!(!dir.join("good.json").exists() && dir.join("bad.json").exists());
    }

    #[tokio::test]
    async fn sent_text_goes_and_the_history_goes_on() {
        let home = tempfile::tempdir().unwrap();
        let sealer = Arc::new(Sealer::new([7; 32]));
        let sent = SentFile::new(home.path(), &sealer);
        for text in ["first", "the kumquat\n\"is\" ripe", "last"] {
            sent.append(text).unwrap();
        }
        let history = &holders(home.path())[0];
        let size = history.bytes().await.unwrap();
        assert_eq!(history.find(&query("kumquat\n\"is\" ripe")).await.unwrap().found.len(), 1);
        let erased = history.erase(&EraseTargets::of_needle("kumquat", "a test")).await.unwrap();
        assert_eq!((erased.count, erased.kept_count), (1, 0));
        assert_eq!(history.find(&query("kumquat")).await.unwrap().found, []);
        assert!(!std::fs::read_to_string(sent.path()).unwrap().contains("kumquat"));
        assert_eq!(history.bytes().await.unwrap(), size);
        sent.append("later").unwrap();
        assert_eq!(sent.load().unwrap(), ["first", "last", "later"]);
    }
}
