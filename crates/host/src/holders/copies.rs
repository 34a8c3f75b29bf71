//! Whole copies of the store beside it: made before an upgrade, of what was damaged, of what was rescued.

use std::path::{Path, PathBuf};

use quipu_store::{
    ContentHolder, ContentQuery, EraseTargets, Erased, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptWhy,
};

use super::disk::{self, DiskFile};
use crate::Home;

/// Files beside the store whose names begin with its name and a point. They may hold anything that the store ever held, in
/// a form that cannot be looked through, and what the store has lost: only a person can say that they may go.
pub(super) struct StoreCopies {
    store: PathBuf,
}

impl StoreCopies {
    pub(super) fn of(home: &Home) -> Self {
        Self { store: home.store.clone() }
    }
}

fn copies(store: &Path) -> Result<Vec<DiskFile>, HolderError> {
    let (Some(dir), Some(name)) = (store.parent(), store.file_name()) else { return Ok(Vec::new()) };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if disk::is_gone(&error) => return Ok(Vec::new()),
        entries => entries.map_err(|error| HolderError::file(dir, "read", &error))?,
    };
    let begins = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| HolderError::file(dir, "read", &error))?;
        if entry.file_name().to_string_lossy().starts_with(&begins) {
            found.extend(disk::file_at(&entry.path())?);
        }
    }
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl ContentHolder for StoreCopies {
    fn name(&self) -> &str {
        "store.copies"
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            query.selection.check()?;
            let (store, query) = (self.store.clone(), query.clone());
            disk::apart(move || {
                let mut page = FoundPage::begin(&query);
                if query.selection.is_empty() {
                    return Ok(page);
                }
                for file in copies(&store)? {
                    let key = file.path.to_string_lossy().into_owned();
                    let place = FoundPlace::File { path: file.path, line: None };
                    if !page.push(&key, FoundContent { place, bytes: file.bytes }) {
                        break;
                    }
                }
                Ok(page)
            })
            .await
        })
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, Erased> {
        Box::pin(async move {
            targets.selection.check()?;
            let (store, nothing) = (self.store.clone(), targets.selection.is_empty());
            disk::apart(move || {
                let mut erased = Erased::default();
                if nothing {
                    return Ok(erased);
                }
                for file in copies(&store)? {
                    let told = "it is an earlier copy of the whole store and may contain what was erased; remove it if you do not need it";
                    erased.keep(FoundPlace::File { path: file.path, line: None }, KeptWhy::Copy, told);
                }
                Ok(erased)
            })
            .await
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        let store = self.store.clone();
        Box::pin(disk::apart(move || Ok(copies(&store)?.iter().map(|file| file.bytes).sum())))
    }
}
