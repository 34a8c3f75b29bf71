//! What a package gives: by the member `pi` of its `package.json`, else by the names of its directories.

use serde::Deserialize;

use super::tree::PackageFile;
use crate::globs::PathGlob;

/// The file of a skill in its directory.
const SKILL_FILE: &str = "SKILL.md";
/// The file that makes a directory a plugin.
const PLUGIN: &str = include_str!("plugin.txt").trim_ascii_end();
/// The directory of agents.
pub(crate) const AGENTS: &str = "agents";
/// The file of MCP servers.
const SERVERS: &str = ".mcp.json";
/// Patterns of a kind that are used.
const MOST_PATTERNS: usize = 100;
/// What other agents read in packages and Quipu does not: where it lies, and what it is called.
const NOT_USED: &[(&str, &str)] =
    &[("extensions", "extension"), ("themes", "theme"), ("hooks", "hook"), (".lsp.json", "language server")];

/// A template of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFile {
    /// Its path in the package.
    pub path: String,
    /// Its name, of which directories are a part.
    pub name: String,
}

/// What a package gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackageContent {
    /// Files of skills, by their paths in the package.
    pub skills: Vec<String>,
    /// Its templates.
    pub templates: Vec<TemplateFile>,
    /// Files of agents, by their paths in the package.
    pub agents: Vec<String>,
    /// The file of its MCP servers.
    pub servers: Option<String>,
    /// What Quipu does not use: what it is, and its path.
    pub not_used: Vec<(String, String)>,
    /// What a person should know beside it.
    pub notes: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Manifest {
    pi: Option<Resources>,
    #[serde(default)]
    scripts: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    dependencies: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Resources {
    #[serde(default)]
    skills: Vec<String>,
    #[serde(default)]
    prompts: Vec<String>,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(default)]
    themes: Vec<String>,
}

impl PackageContent {
    /// Of these files and the `package.json` among them.
    pub(super) fn of(files: &[PackageFile], manifest: Option<&str>) -> Result<Self, String> {
        let manifest: Manifest = match manifest {
            Some(text) => serde_json::from_str(text.trim_start_matches('\u{feff}'))
                .map_err(|error| format!("its package.json is not valid: {error}"))?,
            None => Manifest::default(),
        };
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let is_plugin = paths.contains(&PLUGIN);
        let mut content = Self::default();
        match &manifest.pi {
            Some(named) => content.named(named, &paths),
            None => content.usual(&paths, is_plugin),
        }
        content.skills.retain({
            let skills = content.skills.clone();
            move |path| !lies_in_another(path, &skills)
        });
        let installs = ["preinstall", "install", "postinstall", "prepare"];
        if installs.iter().any(|name| manifest.scripts.contains_key(*name)) {
            content.notes.push("its install scripts are not run".to_owned());
        }
        if !manifest.dependencies.is_empty() {
            let count = manifest.dependencies.len();
            content.notes.push(format!("its {count} dependencies are not installed"));
        }
        Ok(content)
    }

    fn named(&mut self, named: &Resources, paths: &[&str]) {
        let skills = Patterns::new(&named.skills);
        let is_skill = |path: &&&str| match path.strip_suffix(SKILL_FILE) {
            Some(directory) => skills.choose_below(path, directory.trim_end_matches('/')),
            None => path.ends_with(".md") && skills.choose_in(path) && !in_a_skill(path, paths),
        };
        self.skills.extend(paths.iter().filter(is_skill).map(|path| (*path).to_owned()));
        let prompts = Patterns::new(&named.prompts);
        let templates = paths.iter().filter(|path| path.ends_with(".md") && prompts.choose_in(path));
        self.templates.extend(templates.map(|path| template(path, parent(path))));
        for (kind, patterns) in [("extension", &named.extensions), ("theme", &named.themes)] {
            let patterns = Patterns::new(patterns);
            let chosen = paths.iter().filter(|path| patterns.choose_below(path, parent(path)));
            self.not_used.extend(chosen.map(|path| (kind.to_owned(), (*path).to_owned())));
        }
    }

    fn usual(&mut self, paths: &[&str], is_plugin: bool) {
        let below = |path: &str, directory: &str| {
            path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned)
        };
        for path in paths {
            let is_page = path.ends_with(".md");
            if let Some(rest) = below(path, "skills") {
                let is_alone = is_page && !rest.contains('/') && !is_plugin;
                if rest.ends_with(&format!("/{SKILL_FILE}")) || is_alone {
                    self.skills.push((*path).to_owned());
                }
            } else if is_page && below(path, "prompts").is_some_and(|rest| !rest.contains('/')) {
                self.templates.push(template(path, "prompts"));
            } else if is_plugin && is_page && below(path, "commands").is_some() {
                self.templates.push(template(path, "commands"));
            }
            if below(path, AGENTS).is_some() && (is_page || path.ends_with(".toml")) {
                self.agents.push((*path).to_owned());
            }
            if *path == SERVERS {
                self.servers = Some((*path).to_owned());
            }
            let other = NOT_USED.iter().find(|(place, _)| path == place || below(path, place).is_some());
            if let Some((_, kind)) = other {
                self.not_used.push(((*kind).to_owned(), (*path).to_owned()));
            }
        }
        if self.not_used.iter().any(|(kind, _)| kind == "hook") {
            let text = "its hooks are not used: to take one over, read it and add it to `hooks` in your settings.json";
            self.notes.push(text.to_owned());
        }
        if self.skills.is_empty() && paths.contains(&SKILL_FILE) {
            self.skills.push(SKILL_FILE.to_owned());
        }
    }

    /// Whether Quipu uses nothing of it.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
            && self.templates.is_empty()
            && self.agents.is_empty()
            && self.servers.is_none()
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn template(path: &str, base: &str) -> TemplateFile {
    let below = path.strip_prefix(base).unwrap_or(path).trim_start_matches('/');
    let name = below.strip_suffix(".md").unwrap_or(below).replace('/', ":");
    TemplateFile { path: path.to_owned(), name }
}

/// Whether the directory of a skill lies in that of another.
fn lies_in_another(path: &str, skills: &[String]) -> bool {
    let own = parent(path);
    skills.iter().filter(|other| other.ends_with(&format!("/{SKILL_FILE}"))).any(|other| {
        let directory = parent(other);
        other.as_str() != path && own.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
    })
}

/// Whether a page lies in the directory of a skill.
fn in_a_skill(path: &str, paths: &[&str]) -> bool {
    let mut place = parent(path);
    while !place.is_empty() {
        if paths.contains(&format!("{place}/{SKILL_FILE}").as_str()) {
            return true;
        }
        place = parent(place);
    }
    false
}

/// What a manifest chooses: patterns, and those that leave out (`!`) or decide in any case (`+`, `-`).
struct Patterns {
    chosen: Vec<PathGlob>,
    left_out: Vec<PathGlob>,
    forced: Vec<PathGlob>,
    forbidden: Vec<PathGlob>,
}

impl Patterns {
    fn new(texts: &[String]) -> Self {
        let mut patterns =
            Self { chosen: Vec::new(), left_out: Vec::new(), forced: Vec::new(), forbidden: Vec::new() };
        for text in texts.iter().take(MOST_PATTERNS) {
            let rest = || PathGlob::new(text.get(1..).unwrap_or_default().trim_end_matches('/'));
            match text.chars().next() {
                Some('!') => patterns.left_out.push(rest()),
                Some('+') => patterns.forced.push(rest()),
                Some('-') => patterns.forbidden.push(rest()),
                _ => patterns.chosen.push(PathGlob::new(text.trim_end_matches('/'))),
            }
        }
        patterns
    }

    /// What fits a file, its directory or one above that.
    fn choose_below(&self, path: &str, directory: &str) -> bool {
        let mut places = vec![path, directory];
        let mut place = directory;
        while !place.is_empty() {
            place = parent(place);
            places.push(place);
        }
        self.choose(&places)
    }

    /// What fits a file, or the directory that it lies in.
    fn choose_in(&self, path: &str) -> bool {
        self.choose(&[path, parent(path)])
    }

    fn choose(&self, places: &[&str]) -> bool {
        let has = |globs: &[PathGlob]| globs.iter().any(|glob| places.iter().any(|place| glob.fits(place)));
        !has(&self.forbidden) && (has(&self.forced) || (has(&self.chosen) && !has(&self.left_out)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{PackageTree, TreeWriter};
    use super::*;

    fn content(paths: &[&str], manifest: Option<&str>) -> Result<PackageContent, String> {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = TreeWriter::new(dir.path());
        for path in paths {
            writer.put(path, 0o644, &mut &b"x"[..]).unwrap();
        }
        PackageContent::of(&PackageTree::read(dir.path()).unwrap().files, manifest)
    }

    fn names(content: &PackageContent) -> Vec<&str> {
        content.templates.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn directories_of_usual_names_are_used() {
        let paths = [
            "skills/a/SKILL.md",
            "skills/a/inner/SKILL.md",
            "skills/a/notes.md",
            "skills/b.md",
            "prompts/fix.md",
            "prompts/deep/no.md",
            "commands/no.md",
            "extensions/index.ts",
            "README.md",
        ];
        let found =
            content(&paths, Some(r#"{"scripts":{"postinstall":"x"},"dependencies":{"a":"1"}}"#)).unwrap();
        assert_eq!(found.skills, ["skills/a/SKILL.md", "skills/b.md"]);
        assert_eq!(names(&found), ["fix"]);
        assert_eq!(found.not_used, [("extension".to_owned(), "extensions/index.ts".to_owned())]);
        assert_eq!(found.notes.len(), 2);
        let plugin = [
            ".claude-plugin/plugin.json",
            "commands/git/commit.md",
            "agents/x.md",
            "hooks/hooks.json",
            ".mcp.json",
            "skills/s/SKILL.md",
        ];
        let found = content(&plugin, None).unwrap();
        assert_eq!((names(&found), found.skills.len(), found.not_used.len()), (vec!["git:commit"], 1, 1));
        assert_eq!(
            (found.agents, found.servers),
            (vec!["agents/x.md".to_owned()], Some(".mcp.json".to_owned()))
        );
        assert_eq!(content(&["SKILL.md", "x"], None).unwrap().skills, ["SKILL.md"]);
        assert!(content(&["README.md"], None).unwrap().is_empty());
        assert!(content(&["a"], Some("{")).is_err());
    }

    #[test]
    fn manifest_chooses_with_patterns() {
        let paths = [
            "s/a/SKILL.md",
            "s/b/SKILL.md",
            "s/c/SKILL.md",
            "loose/one.md",
            "p/x.md",
            "p/y.md",
            "q/z.md",
            "e/i.ts",
        ];
        let manifest = r#"{"pi":{"skills":["./s","!s/b","-s/c","loose/*.md"],"prompts":["p/","!p/y.md","q/*.md"],"extensions":["./e"]}}"#;
        let found = content(&paths, Some(manifest)).unwrap();
        assert_eq!(found.skills, ["loose/one.md", "s/a/SKILL.md"]);
        assert_eq!(names(&found), ["x", "z"]);
        assert_eq!(found.not_used.len(), 1);
        let forced = r#"{"pi":{"skills":["s/*","!s/*","+s/c"]}}"#;
        assert_eq!(content(&paths, Some(forced)).unwrap().skills, ["s/c/SKILL.md"]);
    }
}
