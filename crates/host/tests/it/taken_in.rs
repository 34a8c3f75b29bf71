//! Sessions of another agent through the whole of the host: found, imported, listed, searched, written again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use quipu_archive::{Progress, Report};
use quipu_host::export::{self, ExportError, ExportFormat};
use quipu_host::import::{
    ImportError, ImportObserver, ImportPlan, ImportProblem, ImportRequest, ImportSource, Importer,
};
use quipu_host::search::{self, SearchRequest};
use quipu_host::{Home, SilentObserver, TreeKind, list_sessions, tail, tree_rows};
use quipu_store::MatchMode;

/// Records what an import reports.
#[derive(Default)]
struct ImportLog(Mutex<Vec<String>>);

impl ImportLog {
    fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl ImportObserver for ImportLog {
    fn progress(&self, _: &Path, _: Progress) {}

    fn imported(&self, report: &Report) -> io::Result<()> {
        self.add(format!("{} added", report.added));
        Ok(())
    }

    fn failed(&self, _: &Path, problem: &ImportProblem) -> io::Result<()> {
        self.add(match problem {
            ImportProblem::Directory(_) => "directory".to_owned(),
            ImportProblem::File(_) => "file".to_owned(),
        });
        Ok(())
    }

    fn is_store(&self, _: &Path) {
        self.add("store".to_owned());
    }
}

/// An observer whose reader is gone.
struct BrokenObserver;

impl ImportObserver for BrokenObserver {
    fn progress(&self, _: &Path, _: Progress) {}

    fn imported(&self, _: &Report) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn failed(&self, _: &Path, _: &ImportProblem) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn is_store(&self, _: &Path) {}
}

/// A session of one prompt and its answer, in a file of Pi.
fn session_file(dir: &Path, id: &str, said: &str) -> PathBuf {
    let time = "2026-01-02T03:04:05.000Z";
    let user = serde_json::json!({ "role": "user", "content": said, "timestamp": 1 });
    let lines = [
        serde_json::json!({ "type": "session", "version": 3, "id": id, "timestamp": time, "cwd": "/project" }),
        serde_json::json!({ "type": "message", "id": "a1", "parentId": null, "timestamp": time, "message": user }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let path = dir.join(format!("{id}.jsonl"));
    std::fs::write(&path, text).unwrap();
    path
}

fn request(path: &Path) -> ImportRequest {
    let source = ImportSource::named(Some("pi"), Some(path)).unwrap();
    ImportRequest { source, follows: false, dry_run: false }
}

fn words(words: &str) -> SearchRequest {
    SearchRequest {
        words: words.to_owned(),
        matching: MatchMode::Any,
        agent: None,
        project: None,
        speakers: Vec::new(),
        tool: None,
        since: None,
        file: None,
        branch: None,
        best: false,
        limit: 10,
        semantic: false,
        wait: true,
    }
}

#[tokio::test]
async fn two_places_of_one_process_keep_their_sessions_apart() {
    let dir = tempfile::tempdir().unwrap();
    for said in ["a red button", "a green lamp"] {
        let name = said.split(' ').next_back().unwrap();
        let home = dir.path().join(name);
        std::fs::create_dir_all(&home).unwrap();
        let file = session_file(&home, &format!("session-of-the-{name}"), said);
        let home = Home::at(&home, Arc::new(SilentObserver));
        assert!(search::find(&home, &words("a"), &|_| ()).await.unwrap().is_none());

        let plan = ImportPlan::make(request(&file)).unwrap();
        let projects = plan.projects();
        assert_eq!((projects.len(), projects[0].agent, projects[0].sessions), (1, "pi", 1));
        assert_eq!(projects[0].project.as_deref(), Some("/project"));
        let mut importer = Importer::open(&home, plan).await.unwrap();
        let heard = ImportLog::default();
        importer.run(&heard).await.unwrap();
        let sum = importer.sum();
        assert_eq!((sum.files, sum.failures, sum.left_out), (1, 0, 0));
        assert_eq!(*heard.0.lock().unwrap(), [format!("{} added", sum.added)]);

        let found = search::find(&home, &words(name), &|_| ()).await.unwrap().unwrap();
        let items = search::found_items(&found, 0);
        assert_eq!(items.len(), 1, "{items:?}");
        assert!(items[0].text.contains(said), "{items:?}");

        let store = home.store().await.unwrap();
        let listed = list_sessions(&*store, 10).await.unwrap();
        assert_eq!(listed.iter().map(|item| item.title.as_str()).collect::<Vec<_>>(), [said]);
        let row = export::find(&*store, listed[0].id.as_str()).await.unwrap().unwrap();
        let end = tail(&*store, &row.id, row.head.unwrap()).await.unwrap();
        assert_eq!(end.earlier, 0);
        let rows = tree_rows(&*store, &row.id, None, true).await.unwrap();
        let user: Vec<_> = rows.iter().filter(|row| row.kind == TreeKind::User).collect();
        assert_eq!(user.len(), 1);
        assert_eq!((user[0].text.as_str(), user[0].head), (format!("user {said}").as_str(), true));

        let page = home.dir.join("page.md");
        let done = export::write_file(&*store, &row, ExportFormat::Markdown, &page).await.unwrap();
        let written = std::fs::read_to_string(&page).unwrap();
        assert!(written.contains(said) && !done.exported.more, "{written}");
        assert_eq!(done.bytes, written.len() as u64);
        let again = export::write_file(&*store, &row, ExportFormat::Json, &page).await;
        assert!(
            matches!(&again, Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::AlreadyExists)
        );
        assert_eq!(std::fs::read_to_string(&page).unwrap(), written);
    }
}

#[tokio::test]
async fn an_import_ends_when_nobody_listens_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = session_file(dir.path(), "a-session", "hello");
    let home = Home::at(dir.path(), Arc::new(SilentObserver));
    let mut importer = Importer::open(&home, ImportPlan::make(request(&file)).unwrap()).await.unwrap();
    let failure = importer.run(&BrokenObserver).await.unwrap_err();
    assert_eq!(failure.kind, quipu_host::FailureKind::OutputClosed);
}

#[test]
fn import_source_is_an_agent_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let named = |name: &Path, path| ImportSource::named(name.to_str(), path);
    assert!(matches!(ImportSource::named(None, None), Ok(ImportSource::All)));
    assert!(matches!(named(dir.path(), None), Ok(ImportSource::Exports(_))));
    let nobody = named(Path::new("nobody"), None);
    assert!(matches!(nobody, Err(ImportError::NoAgent(name)) if name == "nobody"));
    let source = ImportSource::Exports(dir.path().to_owned());
    let empty = ImportPlan::make(ImportRequest { source, follows: false, dry_run: false });
    assert!(matches!(empty, Err(ImportError::NoExport(_))));
}
