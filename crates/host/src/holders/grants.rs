//! What people allowed for good: a grant names the command, the file or the address that it is for.

use std::path::{Path, PathBuf};

use quipu_store::{
    ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, Needles,
};

use super::disk;
use crate::permissions::Record;
use crate::{Failure, Home};

/// `permissions.json`. An entry that holds what is looked for is taken back.
pub(super) struct Grants {
    home: PathBuf,
}

impl Grants {
    pub(super) fn of(home: &Home) -> Self {
        Self { home: home.dir.clone() }
    }
}

/// The file, of which every project is looked at.
fn record(home: &Path) -> Record {
    Record::in_home(home, home)
}

fn failed(home: &Path, failure: Failure) -> HolderError {
    HolderError::File { path: home.join("permissions.json"), doing: "use", detail: failure.message }
}

/// Entries that hold what is looked for: their ids and bytes.
fn entries(home: &Path, needles: &Needles) -> Result<Vec<(String, u64)>, HolderError> {
    let mut found = Vec::new();
    if needles.is_empty() {
        return Ok(found);
    }
    let projects = record(home).all().map_err(|failure| failed(home, failure))?;
    for entry in projects.values().flat_map(|project| &project.entries) {
        // Made of texts alone, so it can be written.
        let text = serde_json::to_string(&entry.what).unwrap_or_default();
        if needles.are_in(text.as_bytes()) {
            found.push((entry.id.clone(), text.len() as u64));
        }
    }
    found.sort();
    Ok(found)
}

impl ContentHolder for Grants {
    fn name(&self) -> &str {
        "permissions"
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            let needles = Needles::of(&query.selection)?;
            let (home, query) = (self.home.clone(), query.clone());
            disk::apart(move || {
                let mut page = FoundPage::begin(&query);
                for (id, bytes) in entries(&home, &needles)? {
                    let place = FoundPlace::Row { table: "permissions.json".into(), key: id.clone() };
                    if !page.push(&id, FoundContent { place, bytes }) {
                        break;
                    }
                }
                Ok(page)
            })
            .await
        })
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
        Box::pin(async move {
            let needles = Needles::of(&targets.selection)?;
            let home = self.home.clone();
            disk::apart(move || {
                let mut erased = EraseReport::default();
                for (id, bytes) in entries(&home, &needles)? {
                    if record(&home).revoke(&id).map_err(|failure| failed(&home, failure))? {
                        erased.add(bytes);
                    }
                }
                Ok(erased)
            })
            .await
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        let path = self.home.join("permissions.json");
        Box::pin(disk::apart(move || Ok(disk::file_at(&path)?.map_or(0, |file| file.bytes))))
    }
}
