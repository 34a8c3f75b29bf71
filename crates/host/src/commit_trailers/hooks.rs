//! The files by which git finds our hooks: settings and scripts below `git` in the home.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use quipu_workspace::Git;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::consented_repository::ConsentedRepository;
use super::script_files::{ScriptFiles, close, open, remove};
use crate::Home;
use crate::state_file::replace;

const FORWARD: &str = include_str!("forward.sh");
const MESSAGE: &str = include_str!("message.sh");
/// Hooks that see the message of a commit.
const OF_MESSAGES: [&str; 2] = ["prepare-commit-msg", "commit-msg"];
/// Other hooks, which git runs once for a command.
const FORWARDED: [&str; 17] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "post-rewrite",
    "pre-auto-gc",
    "sendemail-validate",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
];
/// Hooks that git runs many times, so that they are forwarded only where a repository has one.
const FREQUENT: [&str; 2] = ["reference-transaction", "post-index-change"];
/// Worktrees of a repository whose hooks are looked for.
const WORKTREES: usize = 64;
/// How long git may take to say where hooks are.
const LONGEST: Duration = Duration::from_secs(5);

/// Settings of one repository, as the last look at them found.
#[derive(Debug, Clone, PartialEq)]
struct SeenSettings {
    stamp: Option<(i64, i64, u64)>,
    hooks: Vec<PathBuf>,
}

/// The files, and what is known of the repositories that they are for.
#[derive(Debug)]
pub(super) struct HookFiles {
    directory: PathBuf,
    seen: Mutex<HashMap<PathBuf, SeenSettings>>,
}

impl HookFiles {
    pub(super) fn of(home: &Home) -> Self {
        Self { directory: directory(home), seen: Mutex::default() }
    }

    /// The settings that commands are led to.
    pub(super) fn config(&self) -> PathBuf {
        self.directory.join("config")
    }

    /// Writes what is not as it should be for these repositories. Git is asked about the one that a command begins in, and
    /// about those that are new; the others stay as they were seen last.
    pub(super) fn write(
        &self,
        repositories: &[ConsentedRepository],
        begins: Option<&Path>,
    ) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let scripts = self.scripts()?;
        let there = fs::read_to_string(self.config()).unwrap_or_default();
        let own = begins.and_then(common_directory);
        let mut text = String::new();
        for one in repositories.iter().filter(|one| one.is_there()) {
            let Some(path) = one.directory.to_str() else { continue };
            let section = |kind: &str| -> io::Result<String> {
                let config = quoted(&scripts.join(kind).with_extension("config"))?;
                let include = |pattern: &str| {
                    let pattern = escaped(&(literal(path) + pattern));
                    format!("[includeIf \"gitdir:{pattern}\"]\n\tpath = {config}\n")
                };
                Ok(["", "/worktrees/**"].map(include).concat())
            };
            let (plain, all) = (section("plain")?, section("all")?);
            let is_own = own.as_deref() == Some(&*one.directory);
            let has_frequent = match (there.contains(&plain), there.contains(&all)) {
                (true, false) if !is_own => false,
                (false, true) if !is_own => true,
                _ => self.has_frequent(&one.directory),
            };
            text.push_str(if has_frequent { &all } else { &plain });
        }
        if there == text && self.config().exists() {
            return Ok(());
        }
        replace(&self.config(), &text)
    }

    /// The directory of our scripts, made again when it is not as it was made: programs that install hooks may have been there.
    fn scripts(&self) -> io::Result<PathBuf> {
        let mut hash = Sha256::new();
        for part in [FORWARD, MESSAGE].into_iter().chain(OF_MESSAGES).chain(FORWARDED).chain(FREQUENT) {
            hash.update(part);
            hash.update([0]);
        }
        let name: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let scripts = self.directory.join(name);
        let files = Self::script_files(&scripts)?;
        if !files.are_in(&scripts) {
            let aside = tempfile::Builder::new()
                .prefix(".hooks-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(&self.directory)?;
            files.make(aside.path())?;
            let made = aside.keep();
            let placed = close(&made).and_then(|()| self.place(&made, &scripts, &files));
            if placed.is_err() || made.exists() {
                remove(&made)?;
            }
            placed?;
        }
        // Git leaves out hooks that it cannot execute, those of the user with them.
        access(&scripts.join("plain").join(OF_MESSAGES[0]), AccessFlags::X_OK)?;
        Ok(scripts)
    }

    /// What stands in the directory of our scripts.
    fn script_files(scripts: &Path) -> io::Result<ScriptFiles> {
        let mut files = ScriptFiles::default();
        for (kind, more) in [("plain", &[][..]), ("all", &FREQUENT[..])] {
            let config = format!("[core]\n\thooksPath = {}\n", quoted(&scripts.join(kind))?);
            files.add_text(format!("{kind}.config"), config);
            for name in OF_MESSAGES {
                files.add_script(kind, name, MESSAGE);
            }
            for name in FORWARDED.iter().chain(more) {
                files.add_script(kind, name, FORWARD);
            }
        }
        Ok(files)
    }

    /// Puts the made files where git looks for them, in place of what is there.
    fn place(&self, made: &Path, scripts: &Path, files: &ScriptFiles) -> io::Result<()> {
        if files.are_in(scripts) {
            return Ok(());
        }
        if scripts.symlink_metadata().is_ok() {
            let was = tempfile::Builder::new().prefix(".was-").tempdir_in(&self.directory)?;
            let old = was.path().join("hooks");
            match open(scripts).and_then(|()| fs::rename(scripts, &old)) {
                Ok(()) => remove(&old)?,
                // Another process may have been quicker.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        match fs::rename(made, scripts) {
            Err(error) if !files.are_in(scripts) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether a repository has a hook that git runs many times.
    fn has_frequent(&self, common: &Path) -> bool {
        let stamp = fs::metadata(common.join("config"))
            .ok()
            .map(|found| (found.mtime(), found.mtime_nsec(), found.len()));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.get(common).filter(|known| known.stamp == stamp).cloned();
        let known = known.unwrap_or_else(|| SeenSettings { stamp, hooks: hook_directories(common) });
        let is_hook = |path: PathBuf| access(&path, AccessFlags::X_OK).is_ok();
        let found = known.hooks.iter().any(|hooks| FREQUENT.iter().any(|name| is_hook(hooks.join(name))));
        seen.insert(common.to_owned(), known);
        found
    }
}

/// The directory of these files in a home.
pub(super) fn directory(home: &Home) -> PathBuf {
    home.dir.join("git")
}

/// Where the hooks of a repository may be: in it, and where settings say.
fn hook_directories(common: &Path) -> Vec<PathBuf> {
    let mut found = vec![common.join("hooks")];
    let own = std::env::home_dir().map(|home| home.join(".gitconfig"));
    let shared = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let shared = shared.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
    let shared = shared.map(|config| config.join("git/config"));
    let global = own.filter(|path| path.exists()).or(shared);
    let mut git = Git::reading(common, &CancellationToken::new())
        .within(LONGEST)
        .with("GIT_DIR", common)
        .with("GIT_CONFIG_NOSYSTEM", "0");
    if let Some(global) = global {
        git = git.with("GIT_CONFIG_GLOBAL", global);
    }
    let named = ["config", "--null", "--type=path", "--get-regexp", r"^core\.(hookspath|worktree)$"];
    let named = git.run(&named).unwrap_or_default();
    let named: Vec<(&str, &str)> = named
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('\n'))
        .collect();
    let of = |name: &'static str| named.iter().filter(move |entry| entry.0 == name).map(|entry| entry.1);
    // Relative ones begin at the top of the worktree that git runs in; a submodule names its own.
    let worktree = of("core.worktree").next_back().map(|path| common.join(path));
    let mut tops = vec![common.to_owned()];
    tops.extend(worktree.or_else(|| Some(common.parent()?.to_owned())));
    tops.extend(linked_worktrees(common));
    // The one that turns hooks off is our own.
    for path in of("core.hookspath").filter(|path| !matches!(*path, "" | "/dev/null")) {
        found.extend(tops.iter().map(|top| top.join(path)));
    }
    found.sort();
    found.dedup();
    found
}

/// The other worktrees of a repository.
fn linked_worktrees(common: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().take(WORKTREES);
    let links = entries.filter_map(|entry| fs::read_to_string(entry.path().join("gitdir")).ok());
    links.filter_map(|link| Some(Path::new(link.trim_end()).parent()?.to_owned())).collect()
}

/// The directory that all worktrees of a repository share, of the one that a directory lies in.
fn common_directory(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let git = directory.ancestors().map(|above| above.join(".git")).find(|git| git.exists())?;
    if git.is_dir() {
        return git.canonicalize().ok();
    }
    let link = fs::read_to_string(&git).ok()?;
    let own = git.parent()?.join(link.strip_prefix("gitdir:")?.trim());
    let shared = fs::read_to_string(own.join("commondir")).unwrap_or_else(|_| ".".to_owned());
    own.join(shared.trim_end()).canonicalize().ok()
}

/// A path as a pattern that matches nothing else.
fn literal(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    for letter in path.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Text between quotes of git's settings.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// A path as a value of git's settings.
fn quoted(path: &Path) -> io::Result<String> {
    let path = path.to_str().filter(|path| !path.contains('\n'));
    let path =
        path.ok_or_else(|| io::Error::other("the path of the home is not UTF-8 or has several lines"))?;
    Ok(format!("\"{}\"", escaped(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_were_changed_are_made_again() {
        let root = tempfile::tempdir().unwrap();
        let hooks = HookFiles { directory: root.path().join("git"), seen: Mutex::default() };
        hooks.write(&[], None).unwrap();
        let scripts = hooks.scripts().unwrap();
        let files = HookFiles::script_files(&scripts).unwrap();
        let (plain, hook) = (scripts.join("plain"), scripts.join("plain/pre-commit"));
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let inode = scripts.metadata().unwrap().ino();
        hooks.write(&[], None).unwrap();
        assert_eq!(scripts.metadata().unwrap().ino(), inode, "what is right stays");
        let damages: [&dyn Fn(); 6] = [
            &|| fs::rename(&hook, plain.join("pre-commit.old")).unwrap(),
            &|| fs::write(plain.join("extra"), "").unwrap(),
            &|| {
                set(&hook, 0o700);
                fs::write(&hook, FORWARD.replace("exec", "true")).unwrap();
                set(&hook, 0o500);
            },
            &|| set(&hook, 0o400),
            &|| {
                fs::remove_file(&hook).unwrap();
                std::os::unix::fs::symlink("/dev/zero", &hook).unwrap();
            },
            &|| {
                remove(&scripts).unwrap();
                fs::write(&scripts, "").unwrap();
            },
        ];
        for (at, damage) in damages.iter().enumerate() {
            open(&scripts).unwrap();
            damage();
            if scripts.is_dir() {
                close(&scripts).unwrap();
            }
            assert!(!files.are_in(&scripts), "{at}");
            hooks.write(&[], None).unwrap();
            assert!(files.are_in(&scripts), "{at}");
        }
        let left: Vec<_> =
            fs::read_dir(root.path().join("git")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the settings and the scripts: {left:?}");
        open(&scripts).unwrap();
    }

    fn git(directory: &Path, args: &[&str]) {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "protocol.file.allow=always", "-c", "user.name=n", "-c", "user.email=e"]);
        let ran = git.args(args).current_dir(directory).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    fn consented(directory: &Path) -> ConsentedRepository {
        let inode = directory.metadata().unwrap().ino();
        ConsentedRepository { directory: directory.to_owned(), inode, since: 0 }
    }

    #[test]
    fn frequent_hooks_are_found_by_relative_paths() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (inner, outer, other) = (root.join("inner"), root.join("outer"), root.join("other"));
        for directory in [&inner, &outer] {
            fs::create_dir(directory).unwrap();
            git(directory, &["init", "-q"]);
            git(directory, &["commit", "-q", "--allow-empty", "-m", "x"]);
        }
        git(&outer, &["submodule", "add", "-q", inner.to_str().unwrap(), "sub"]);
        git(&outer, &["worktree", "add", "-q", other.to_str().unwrap()]);
        let sub = outer.join("sub");
        let place = |top: &Path| {
            fs::create_dir(top.join("own-hooks")).unwrap();
            let hook = top.join("own-hooks/reference-transaction");
            fs::write(&hook, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&hook, Permissions::from_mode(0o700)).unwrap();
        };
        let modules = outer.join(".git/modules/sub");
        assert_eq!(common_directory(&sub), Some(modules.clone()));
        assert_eq!(common_directory(&other), Some(outer.join(".git")));
        let has = |common: &Path| {
            let hooks = HookFiles { directory: root.join("files"), seen: Mutex::default() };
            hooks.has_frequent(common)
        };
        git(&sub, &["config", "core.hooksPath", "own-hooks"]);
        assert!(!has(&modules));
        place(&sub);
        assert!(has(&modules), "in the worktree of the submodule");
        git(&outer, &["config", "core.hooksPath", "own-hooks"]);
        assert!(!has(&outer.join(".git")));
        place(&other);
        assert!(has(&outer.join(".git")), "in another worktree");
    }

    #[test]
    fn repository_of_a_command_alone_is_looked_at_again() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let all: Vec<PathBuf> = ["one", "two"].map(|name| root.join(name)).to_vec();
        for directory in &all {
            fs::create_dir(directory).unwrap();
            git(directory, &["init", "-q"]);
        }
        let consents: Vec<_> = all.iter().map(|one| consented(&one.join(".git"))).collect();
        let files = || HookFiles { directory: root.join("files"), seen: Mutex::default() };
        files().write(&consents, None).unwrap();
        let count = |kind: &str| fs::read_to_string(files().config()).unwrap().matches(kind).count();
        assert_eq!((count("plain.config"), count("all.config")), (4, 0));
        for directory in &all {
            let hook = directory.join(".git/hooks/reference-transaction");
            fs::create_dir_all(hook.parent().unwrap()).unwrap();
            fs::write(&hook, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&hook, Permissions::from_mode(0o700)).unwrap();
        }
        let hooks = files();
        hooks.write(&consents, Some(&all[1])).unwrap();
        assert_eq!((count("plain.config"), count("all.config")), (2, 2));
        let asked: Vec<PathBuf> = hooks.seen.lock().unwrap().keys().cloned().collect();
        assert_eq!(asked, [all[1].join(".git")]);
        files().write(&consents, Some(&all[0])).unwrap();
        assert_eq!((count("plain.config"), count("all.config")), (0, 4));
        open(&files().scripts().unwrap()).unwrap();
    }

    #[test]
    fn paths_are_patterns_and_values_of_settings() {
        assert_eq!(literal(r"/a*b/[c]\d?"), r"/a\*b/\[c\]\\d\?");
        assert_eq!(escaped(r#"a\"b"#), r#"a\\\"b"#);
        assert_eq!(quoted(Path::new("/a b\"c")).unwrap(), r#""/a b\"c""#);
        assert!(quoted(Path::new("/a\nb")).is_err());
    }
}
