//! A home with a store, and the memory of a project in it.

use std::path::PathBuf;
use std::sync::Arc;

use quipu_memory::files::FileName;
use quipu_memory::notes::{NoteAuthor, Notebook};
use quipu_memory::{AuthorClass, MemoryHome};
use quipu_seal::Sealer;
use quipu_store::Graph;

pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) sealer: Arc<Sealer>,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
        Self { dir, store: quipu_store::in_memory().unwrap(), sealer: Arc::new(Sealer::new([7; 32])) }
    }

    pub(crate) fn home(&self) -> MemoryHome {
        MemoryHome::new(&self.dir.path().join("home"))
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// The memory of the project, as another process would open it.
    pub(crate) fn book(&self) -> Notebook {
        let home = self.home();
        let place = home.project(&self.project());
        Notebook::new(&home, place, self.store.clone(), self.sealer.clone())
    }

    /// Writes a file as an editor does.
    pub(crate) fn put(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.book().place().root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.book().place().root.join(name)).unwrap()
    }
}

pub(crate) fn name(path: &str) -> FileName {
    FileName::new(path).unwrap()
}

pub(crate) fn by(class: AuthorClass) -> NoteAuthor {
    NoteAuthor { class, by: "test".into(), sources: Vec::new() }
}

/// The class of each line of a file.
pub(crate) async fn classes(book: &Notebook, path: &str) -> Vec<&'static str> {
    let authors = book.authors(&name(path)).await.unwrap();
    authors
        .iter()
        .flat_map(|author| (author.lines.first..=author.lines.last).map(|_| author.class.name()))
        .collect()
}
