//! Where the usual tools keep their caches: what confined commands may write by default, and what is made of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::path::{FileKeys, LINKS};

/// A directory or file in which programs keep what they can get again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Where it is; absolute.
    pub path: PathBuf,
    /// A file, and no directory.
    is_file: bool,
    /// What must be there, or nothing is made: the user's home.
    below: PathBuf,
    /// The directory of the tool: where it is, the tool was used.
    home: PathBuf,
    /// The tool itself; where it is installed, it will be used.
    programs: &'static [&'static str],
    /// The variable of the user's environment that names it, if one does.
    pub variable: Option<&'static str>,
    /// Whether that variable names no more than this, so that a tool can be led elsewhere by it.
    alone: bool,
    /// Written by commands as it is, because the user said so: nothing lies over it.
    pub shared: bool,
}

/// How [`TABLE`] names a place.
struct Row {
    /// A variable that names the base.
    variable: Option<&'static str>,
    /// Where the base is otherwise, below the user's home.
    base: Option<&'static str>,
    /// Below the base; empty for the base itself.
    names: &'static [&'static str],
    /// Below the base.
    files: &'static [&'static str],
    programs: &'static [&'static str],
}

const fn at(base: &'static str, names: &'static [&'static str], programs: &'static [&'static str]) -> Row {
    Row { variable: None, base: Some(base), names, files: &[], programs }
}

const fn named(variable: &'static str, programs: &'static [&'static str]) -> Row {
    Row { variable: Some(variable), base: None, names: &[], files: &[], programs }
}

/// `docs/security.md` tells people of it.
const TABLE: &[Row] = &[
    Row {
        variable: Some("CARGO_HOME"),
        base: Some(".cargo"),
        names: &["registry", "git"],
        files: &[".package-cache", ".package-cache-mutate", ".global-cache"],
        programs: &["cargo"],
    },
    Row { variable: Some("GOPATH"), base: Some("go"), names: &["pkg"], files: &[], programs: &["go"] },
    // Everybody's, so `sh` stands for any program.
    Row { variable: Some("XDG_CACHE_HOME"), base: Some(".cache"), names: &[], files: &[], programs: &["sh"] },
    named("CARGO_TARGET_DIR", &["cargo"]),
    named("CARGO_BUILD_BUILD_DIR", &["cargo"]),
    named("GOCACHE", &["go"]),
    named("GOMODCACHE", &["go"]),
    named("npm_config_cache", &["npm"]),
    named("NPM_CONFIG_CACHE", &["npm"]),
    named("YARN_CACHE_FOLDER", &["yarn"]),
    named("BUN_INSTALL_CACHE_DIR", &["bun"]),
    named("DENO_DIR", &["deno"]),
    named("PIP_CACHE_DIR", &["pip", "pip3"]),
    named("UV_CACHE_DIR", &["uv"]),
    named("POETRY_CACHE_DIR", &["poetry"]),
    named("CCACHE_DIR", &["ccache"]),
    named("SCCACHE_DIR", &["sccache"]),
    named("COMPOSER_CACHE_DIR", &["composer"]),
    named("NUGET_PACKAGES", &["dotnet"]),
    named("COURSIER_CACHE", &["sbt", "cs"]),
    Row {
        variable: Some("GRADLE_USER_HOME"),
        base: Some(".gradle"),
        names: &["caches", "daemon", "wrapper"],
        files: &[],
        programs: &["gradle"],
    },
    at(".npm", &[], &["npm"]),
    at(".local/share/pnpm", &["store"], &["pnpm"]),
    at(".yarn", &["berry/cache"], &["yarn"]),
    at(".bun", &["install/cache"], &["bun"]),
    at(".m2", &["repository"], &["mvn"]),
    at(".ivy2", &["cache"], &["sbt"]),
    at(".nuget", &["packages"], &["dotnet"]),
    at(".composer", &["cache"], &["composer"]),
    at("Library/Caches", &[], &[]),
];

/// The caches of the usual tools, for a user whose home this is and who has set these variables.
pub fn caches(home: Option<&Path>, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<Cache> {
    let mut found = Vec::new();
    for Row { variable: name, base, names, files, programs } in TABLE {
        // `GOPATH` may be a list; what is downloaded goes to its first.
        let named = name.and_then(variable).and_then(|value| std::env::split_paths(&value).next());
        // One that names the usual place names nothing else: some tools set theirs for what they start.
        let usual = home.zip(*base).map(|(home, base)| home.join(base));
        let named = named.filter(|path| Some(path) != usual.as_ref());
        let (below, variable, place) = match (named.filter(|path| path.is_absolute()), home, base) {
            (Some(named), ..) => (Path::new("/"), *name, named),
            (None, Some(home), Some(base)) if home.is_absolute() => (home, None, home.join(base)),
            (None, ..) => continue,
        };
        let alone = base.is_none();
        let base = place;
        let mut add = |path: PathBuf, is_file| {
            let (below, home) = (below.to_owned(), base.clone());
            found.push(Cache { path, is_file, below, home, programs, variable, alone, shared: false });
        };
        if names.is_empty() {
            add(base.clone(), false);
        }
        names.iter().for_each(|name| add(base.join(name), false));
        files.iter().for_each(|name| add(base.join(name), true));
    }
    found
}

/// The list that was made last, as long as a sandbox has it.
static LATEST: Mutex<Option<Weak<[Cache]>>> = Mutex::new(None);

/// These caches, or the list that was made last where that equals them: a process with many sessions has it once.
pub(crate) fn shared(caches: Vec<Cache>) -> Arc<[Cache]> {
    let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = latest.as_ref().and_then(Weak::upgrade).filter(|there| **there == *caches) {
        return there;
    }
    let caches: Arc<[Cache]> = caches.into();
    *latest = Some(Arc::downgrade(&caches));
    caches
}

impl Cache {
    /// Whether it is a file, and no directory.
    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    /// The variable by which a tool can be led to another one.
    pub(crate) fn led_by(&self) -> Option<&'static str> {
        self.variable.filter(|_| self.alone)
    }

    /// Makes it, private, when it is missing and its tool was used or is installed. What cannot be made stays missing:
    /// the tool that wants it says so. Where commands may `write` nothing is looked up and nothing is made, so that
    /// they do not choose what is.
    pub(crate) fn make(&self, write: &[PathBuf]) {
        if self.path.symlink_metadata().is_ok() || leads_through(&self.path, write) {
            return;
        }
        if !self.below.is_dir() {
            return;
        }
        if !self.home.is_dir() && !self.programs.iter().any(|program| is_installed(program, write)) {
            return;
        }
        let mut missing = Vec::new();
        let mut below = self.path.as_path();
        while let Some(parent) = below.parent().filter(|_| below.symlink_metadata().is_err()) {
            missing.push(below);
            below = parent;
        }
        // Somebody else's home must not fill with what is ours.
        let ours =
            |path: &Path| path.metadata().is_ok_and(|found| found.uid() == nix::unistd::geteuid().as_raw());
        if !ours(below) {
            return;
        }
        for path in missing.into_iter().rev() {
            let made = if self.is_file && path == self.path {
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
            } else {
                std::fs::DirBuilder::new().mode(0o700).create(path)
            };
            if made.is_err() {
                return;
            }
        }
    }
}

/// Whether looking a path up passes through a directory that commands may `write` (true paths): then it leads where
/// they choose. The last name is not asked: what may be written itself leads nowhere else.
pub fn leads_through(path: &Path, write: &[PathBuf]) -> bool {
    FileKeys::default().leads_through(path, write)
}

impl FileKeys {
    /// What [`leads_through`] says.
    pub fn leads_through(&mut self, path: &Path, write: &[PathBuf]) -> bool {
        let names =
            |path: &Path| path.components().map(|name| name.as_os_str().to_owned()).rev().collect::<Vec<_>>();
        let mut at = PathBuf::from("/");
        let mut rest: Vec<OsString> = names(path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            if next != at && write.iter().any(|root| at.starts_with(root)) {
                return true;
            }
            match self.link(&next) {
                Some(target) => {
                    links += 1;
                    if links > LINKS {
                        return true;
                    }
                    rest.extend(names(&target));
                }
                None => at = next,
            }
        }
        false
    }
}

/// Whether a program is on the `PATH`, in a directory that commands cannot write to.
fn is_installed(program: &str, write: &[PathBuf]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").to_owned());
    std::env::split_paths(&path)
        .filter_map(|dir| dir.is_absolute().then(|| dir.canonicalize().ok())?)
        .any(|dir| !write.iter().any(|root| dir.starts_with(root)) && dir.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn cache_paths_follow_home_and_environment() {
        let paths = |home: Option<&str>, variables: &[(&str, &str)]| -> Vec<String> {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
            };
            let found = caches(home.map(Path::new), &variable).into_iter();
            found.map(|cache| cache.path.to_str().unwrap().to_owned()).collect()
        };
        let usual = paths(Some("/h"), &[]);
        for path in ["/h/.cargo/registry", "/h/.cargo/.package-cache", "/h/go/pkg", "/h/.cache", "/h/.npm"] {
            assert!(usual.contains(&path.to_owned()), "{path}: {usual:?}");
        }
        assert!(usual.iter().all(|path| path != "/h/.cargo" && path != "/h/go"));
        assert_eq!(paths(None, &[]), Vec::<String>::new());
        assert_eq!(paths(Some("relative"), &[]), Vec::<String>::new());
        let own = [
            ("GOPATH", "/one:/two"),
            ("XDG_CACHE_HOME", "relative"),
            ("UV_CACHE_DIR", "/uv"),
            ("GOCACHE", ""),
        ];
        assert_eq!(paths(None, &own), ["/one/pkg", "/uv"]);
        assert!(paths(Some("/h"), &own).contains(&"/h/.cache".to_owned()));
        let variable = |name: &str| match name {
            "CARGO_HOME" => Some("/h/.cargo".into()),
            "GOPATH" => Some("/elsewhere".into()),
            _ => None,
        };
        let found = caches(Some(Path::new("/h")), &variable);
        let named: Vec<_> =
            found.iter().filter_map(|cache| cache.variable.zip(cache.path.to_str())).collect();
        assert_eq!(named, [("GOPATH", "/elsewhere/pkg")]);
        assert!(found.iter().any(|cache| cache.path == Path::new("/h/.cargo/registry")));
    }

    #[test]
    fn links_in_writable_directories_are_never_caches() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for made in ["work/sub", "home/.cache", "secret"] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        symlink(root.join("secret"), root.join("work/link")).unwrap();
        symlink("../work/link", root.join("home/chain")).unwrap();
        symlink("../work", root.join("home/to-work")).unwrap();
        symlink("round", root.join("home/round")).unwrap();
        let write = [root.join("work"), root.join("home/.cache")];
        let mut keys = FileKeys::default();
        let mut check = |path: &str, expect| {
            assert_eq!(leads_through(&root.join(path), &write), expect, "{path}");
            assert_eq!(keys.leads_through(&root.join(path), &write), expect, "{path}");
        };
        for path in
            ["home/.cache", "home/.npm", "home/new/er", "secret", "work", "home/to-work", "work/../secret"]
        {
            check(path, false);
        }
        for path in [
            "home/.cache/x",
            "work/sub",
            "work/link",
            "work/link/x",
            "home/chain",
            "home/chain/x",
            "home/to-work/x",
        ] {
            check(path, true);
        }
        check("home/round", true);
    }

    #[test]
    fn missing_caches_are_made_for_installed_tools() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let home = root.join("home");
        std::fs::create_dir_all(home.join(".yarn")).unwrap();
        std::fs::create_dir_all(root.join("work/bin")).unwrap();
        let cache = |path: &str, is_file, tool: &str, programs| Cache {
            path: home.join(path),
            is_file,
            below: home.clone(),
            home: home.join(tool),
            programs,
            variable: None,
            alone: false,
            shared: false,
        };
        let made = |cache: Cache, write: &[PathBuf]| {
            cache.make(write);
            cache.path.symlink_metadata().ok().map(|found| found.mode() & 0o777)
        };
        let write = [root.join("work")];
        assert_eq!(made(cache(".tool/a/b", false, ".tool", &["sh"]), &write), Some(0o700));
        assert_eq!(made(cache(".tool/lock", true, ".tool", &[]), &write), Some(0o600));
        assert_eq!(
            made(cache(".yarn/cache", false, ".yarn", &["quipu-no-such-program"]), &write),
            Some(0o700)
        );
        assert_eq!(made(cache(".none", false, ".none", &["quipu-no-such-program"]), &write), None);
        // Commands choose neither where it is made nor what counts as installed.
        symlink(root.join("work"), home.join(".linked")).unwrap();
        assert_eq!(made(cache(".linked/cache", false, ".linked", &["sh"]), &write), None);
        symlink(root.join("nowhere"), home.join(".dangling")).unwrap();
        assert_eq!(made(cache(".dangling/cache", false, ".dangling", &["sh"]), &write), None);
        assert!(!root.join("nowhere").exists());
        let all = [PathBuf::from("/")];
        assert!(!is_installed("sh", &all) && is_installed("sh", &write));
        let nobodys = Cache { below: root.join("nobody"), ..cache(".other", false, ".other", &["sh"]) };
        assert_eq!(made(nobodys, &write), None);
        // What is there stays as it is.
        std::fs::write(home.join(".file"), "x").unwrap();
        cache(".file", true, ".file", &["sh"]).make(&write);
        assert_eq!(std::fs::read_to_string(home.join(".file")).unwrap(), "x");
    }
}
