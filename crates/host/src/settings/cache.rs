//! Settings as they were read last. They are read again when a file has changed, which one look at it tells.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::layer::{Layer, Problem, ProblemKind, Source, bytes_of};
use super::project::{Decision, is_accepted, project_file, project_root};
use super::{Origin, Settings};
use crate::Record;
use crate::file_stamp::FileStamp;

/// Projects that are remembered at most; a front goes from one to the other.
const PROJECTS: usize = 16;

/// What was read, for all clones of a place.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    environment: Layer,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    user: Option<(FileStamp, Arc<Layer>)>,
    alone: Option<Arc<Settings>>,
    projects: BTreeMap<PathBuf, CachedSettings>,
    /// What hooks decided of projects' files.
    decided: BTreeMap<PathBuf, Decision>,
    /// What is wrong with the environment was told.
    told: bool,
}

/// The settings of a project, and the states of the files that they were read from.
#[derive(Debug)]
struct CachedSettings {
    stamps: [FileStamp; 3],
    layer: Arc<Layer>,
    settings: Arc<Settings>,
}

/// What was read, and what of its problems is new.
pub(crate) struct Read {
    pub(crate) settings: Arc<Settings>,
    pub(crate) new: Vec<Problem>,
}

impl Cache {
    /// With variables of the environment.
    pub(crate) fn of_environment(env: &dyn Fn(&str) -> Option<String>) -> Self {
        Self { environment: Layer::of_environment(env), ..Self::default() }
    }

    /// What hooks say of a project's file; `None` where they leave it to a person.
    pub(crate) fn decide(&self, file: PathBuf, decision: Option<Decision>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.decided.get(&file) == decision.as_ref() {
            return;
        }
        // It is read again.
        if let Some(known) = inner.projects.get_mut(&file) {
            known.stamps = Default::default();
        }
        match decision {
            Some(decision) => drop(inner.decided.insert(file, decision)),
            None => drop(inner.decided.remove(&file)),
        }
    }

    /// The settings of the user whose files are in `home`, and of the project that `cwd` is in.
    pub(crate) fn read(&self, home: &Path, cwd: Option<&Path>) -> Read {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Vec::new();
        if !std::mem::replace(&mut inner.told, true) {
            new.extend(self.environment.problems.iter().cloned());
        }
        let path = home.join("settings.json");
        // Before it is read: what is written meanwhile is read again.
        let stamp = FileStamp::of(&path);
        let (user, alone) = match (&inner.user, &inner.alone) {
            (Some((known, user)), Some(alone)) if *known == stamp => (user.clone(), alone.clone()),
            (before, _) => {
                let (source, bytes) = (Source::User(path.clone()), bytes_of(&path));
                let before = before.as_ref().map(|(_, layer)| &**layer);
                let is_empty = matches!(&bytes, Ok(Some(bytes)) if bytes.trim_ascii().is_empty());
                let mut layer = match before {
                    // Some programs empty a file before they write it.
                    Some(before) if is_empty && !before.values.is_empty() => Layer::emptied(source),
                    _ => Layer::of_file(&source, bytes),
                };
                new.extend(take_in(&mut layer, before));
                let user = Arc::new(layer);
                let layers = [(Origin::User(path.clone()), &*user), (Origin::Environment, &self.environment)];
                let alone = Arc::new(Settings::of_layers(&layers));
                inner.user = Some((stamp, user.clone()));
                inner.alone = Some(alone.clone());
                (user, alone)
            }
        };
        let Some(file) = cwd.and_then(|cwd| project_file(home, cwd)) else {
            return Read { settings: alone, new };
        };
        let of_project = FileStamp::of(&file);
        if of_project == FileStamp::default() && !inner.projects.contains_key(&file) {
            return Read { settings: alone, new };
        }
        let stamps = [stamp, of_project, FileStamp::of(&home.join("permissions.json"))];
        let before = match inner.projects.get(&file) {
            Some(known) if known.stamps == stamps => return Read { settings: known.settings.clone(), new },
            known => known.map(|known| known.layer.clone()),
        };
        let source = Source::Project(file.clone());
        let root = project_root(cwd.unwrap_or(home));
        let decision = inner.decided.get(&file);
        let mut layer = of_project_file(home, root, &file, &source, decision);
        new.extend(take_in(&mut layer, before.as_deref()));
        let layers = [
            (Origin::User(path), &*user),
            (Origin::Project(file.clone()), &layer),
            (Origin::Environment, &self.environment),
        ];
        let settings = Arc::new(Settings::of_layers(&layers));
        if inner.projects.len() >= PROJECTS {
            inner.projects.clear();
        }
        inner
            .projects
            .insert(file, CachedSettings { stamps, layer: Arc::new(layer), settings: settings.clone() });
        Read { settings, new }
    }
}

/// What the file of a project says, as far as it counts.
fn of_project_file(
    home: &Path,
    root: &Path,
    file: &Path,
    source: &Source,
    decision: Option<&Decision>,
) -> Layer {
    let bytes = bytes_of(file);
    let decided = match &bytes {
        Ok(Some(bytes)) => decision.and_then(|decision| decision.on(bytes)),
        Ok(None) | Err(_) => None,
    };
    if decided == Some(false) {
        // Who distrusts it has said so.
        return Layer::default();
    }
    let is_trusted = match &bytes {
        Ok(Some(bytes)) => decided.is_some() || is_accepted(&Record::in_home(home, root), file, bytes),
        // What is not there, or cannot be read, says nothing that would have to be trusted.
        Ok(None) | Err(_) => true,
    };
    if is_trusted {
        return Layer::of_file(source, bytes).of_project(source);
    }
    let problem = Problem { source: source.clone(), line: None, kind: ProblemKind::Untrusted };
    Layer { problems: vec![problem], ..Layer::default() }
}

/// Keeps what could be read before and cannot be any more. The problems that are new.
fn take_in(layer: &mut Layer, before: Option<&Layer>) -> Vec<Problem> {
    let Some(before) = before else { return layer.problems.clone() };
    layer.keep_from(before);
    layer.problems.iter().filter(|problem| !before.problems.contains(problem)).cloned().collect()
}
