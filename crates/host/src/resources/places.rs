//! The directories in which a user and a project keep files for agents: a table of data, and what it comes to here.

use std::path::{Path, PathBuf};

/// Scope, kind, base, path and forms of each place.
const TABLE: &str = include_str!("places.txt");
/// The base of our own files.
const OWN: &str = "QUIPU";

/// Whose files lie in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceScope {
    /// The user's own.
    User,
    /// Those of a project, which a person has to trust.
    Project,
    /// Those of a package, which a person accepted.
    Package,
}

impl ResourceScope {
    /// Its word: `user`, `project`, `package`.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Package => "package",
        }
    }
}

/// What lies in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// One file of rules, by the names that count.
    Rules,
    /// Files of rules, each `.md` file.
    RuleFiles,
    Skills,
    Templates,
    /// Files of agents.
    Agents,
    /// A file with tables of agents.
    AgentTables,
}

/// A directory to look into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: PlaceKind,
    pub(super) scope: ResourceScope,
    pub(super) path: PathBuf,
    /// Nothing of it may lie outside of this directory.
    pub(super) within: Option<PathBuf>,
    /// Directories are part of a name.
    pub(super) nested: bool,
    /// Whether `$$` stands for one `$` there.
    pub(super) dollars: bool,
    /// A `.md` file is a skill, too.
    pub(super) files: bool,
}

/// The directories of other agents that belong to a user, by the bases of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserBases(Vec<(&'static str, PathBuf)>);

impl UserBases {
    /// Those of an environment.
    pub(crate) fn of_environment(env: &dyn Fn(&str) -> Option<PathBuf>, home: Option<&Path>) -> Self {
        let mut bases: Vec<(&'static str, PathBuf)> = Vec::new();
        for (base, default) in rows().filter_map(|row| Some((row.base, row.base.split_once('=')?))) {
            let (variable, default) = default;
            if bases.iter().any(|(known, _)| *known == base) {
                continue;
            }
            let default = || default.strip_prefix("~/").and_then(|rest| Some(home?.join(rest)));
            let named = (!variable.is_empty()).then(|| env(variable)).flatten();
            if let Some(path) = named.or_else(default).filter(|path| path.is_absolute()) {
                bases.push((base, path));
            }
        }
        Self(bases)
    }
}

/// A line of the table.
struct Row {
    scope: ResourceScope,
    kind: PlaceKind,
    base: &'static str,
    path: &'static str,
    forms: &'static str,
}

fn rows() -> impl Iterator<Item = Row> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        let scope = match words.next()? {
            "user" => ResourceScope::User,
            _ => ResourceScope::Project,
        };
        let kind = match words.next()? {
            "rules" => PlaceKind::Rules,
            "rule-files" => PlaceKind::RuleFiles,
            "skills" => PlaceKind::Skills,
            "agents" => PlaceKind::Agents,
            "agent-tables" => PlaceKind::AgentTables,
            _ => PlaceKind::Templates,
        };
        let (base, path) = (words.next()?, words.next()?);
        Some(Row { scope, kind, base, path, forms: words.next().unwrap_or_default() })
    })
}

impl Row {
    fn place(&self, base: &Path, within: Option<&Path>) -> Place {
        let has = |form: &str| self.forms.split(',').any(|word| word == form);
        Place {
            kind: self.kind,
            scope: self.scope,
            path: if self.path == "." { base.to_owned() } else { base.join(self.path) },
            within: within.map(Path::to_owned),
            nested: has("nested"),
            dollars: has("dollars"),
            files: has("files"),
        }
    }
}

/// The places of a user, in the order in which the first of a name counts.
pub(super) fn user_places(own: &Path, bases: &UserBases) -> Vec<Place> {
    let base_of = |row: &Row| match row.base {
        OWN => Some(own),
        base => bases.0.iter().find(|(known, _)| *known == base).map(|(_, path)| &**path),
    };
    let of_user = rows().filter(|row| row.scope == ResourceScope::User);
    of_user.filter_map(|row| Some(row.place(base_of(&row)?, None))).collect()
}

/// The places of the project with this root, from `cwd` up to it; none of them is one of `own`.
pub(super) fn project_places(root: &Path, cwd: &Path, own: &[Place]) -> Vec<Place> {
    let is_own = |place: &Place| own.iter().any(|one| one.path == place.path);
    let levels = cwd.ancestors().take_while(|level| level.starts_with(root));
    let of_level = |level: &Path| {
        let of_project = rows().filter(|row| row.scope == ResourceScope::Project);
        of_project.map(|row| row.place(level, Some(root))).collect::<Vec<_>>()
    };
    levels.flat_map(of_level).filter(|place| !is_own(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_becomes_a_place() {
        let env = |name: &str| (name == "CODEX_HOME").then(|| PathBuf::from("/elsewhere"));
        let bases = UserBases::of_environment(&env, Some(Path::new("/home/u")));
        let user = user_places(Path::new("/own"), &bases);
        let paths: Vec<_> = user.iter().map(|place| place.path.to_str().unwrap()).collect();
        for expect in
            ["/own/skills", "/home/u/.agents/skills", "/elsewhere/skills", "/home/u/.claude/commands"]
        {
            assert!(paths.contains(&expect), "{expect} in {paths:?}");
        }
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        let project = project_places(Path::new("/p"), Path::new("/p"), &[]);
        assert_eq!(user.len() + project.len(), lines);
        assert!(user.iter().any(|place| place.nested) && user.iter().any(|place| place.dollars));
        // Without an environment there are our own alone.
        let alone = user_places(Path::new("/own"), &UserBases::default());
        assert!(alone.iter().all(|place| place.path.starts_with("/own")) && alone.len() == 3);
    }

    #[test]
    fn places_of_a_project_reach_up_to_its_root() {
        let own = user_places(Path::new("/p/.quipu"), &UserBases::default());
        let places = project_places(Path::new("/p"), Path::new("/p/a/b"), &own);
        assert_eq!(places[0].path, Path::new("/p/a/b/.quipu/skills"));
        assert!(places.iter().any(|place| place.path == Path::new("/p/.agents/skills")));
        assert!(places.iter().all(|place| place.path.starts_with("/p") && place.path != own[0].path));
    }
}
