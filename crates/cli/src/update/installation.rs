//! How a program was installed, by what the installers leave beside it.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// What installed a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Npm,
    Pip,
    Uv,
    Pipx,
    Cargo,
    /// Nothing: it lies where it was built.
    Checkout,
    /// Nothing that left a trace.
    File,
    /// A package manager that keeps packages in folders of npm's form.
    OtherManager,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pip => "pip",
            Self::Uv => "uv",
            Self::Pipx => "pipx",
            Self::Cargo => "cargo",
            Self::Checkout => "checkout",
            Self::File => "file",
            Self::OtherManager => "other",
        }
    }
}

/// Where the installer had it from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Registry,
    File,
    Git,
    Checkout,
}

impl Source {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::File => "file",
            Self::Git => "git",
            Self::Checkout => "checkout",
        }
    }
}

/// Folders that decide how a command has to name others.
#[derive(Debug, Default)]
pub(crate) struct UserFolders {
    pub(crate) home: Option<PathBuf>,
    /// Where `cargo install` puts programs that nobody names another place for.
    pub(crate) cargo: Option<PathBuf>,
}

impl UserFolders {
    pub(crate) fn of_environment() -> Self {
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        let named = ["CARGO_INSTALL_ROOT", "CARGO_HOME"].iter().find_map(std::env::var_os).map(PathBuf::from);
        let cargo = named.or_else(|| Some(home.as_ref()?.join(".cargo")));
        let cargo = cargo.map(|cargo| cargo.canonicalize().unwrap_or(cargo));
        Self { home, cargo }
    }
}

/// How a program was installed, and the commands that replace it by a newer version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    pub(crate) method: Method,
    pub(crate) source: Option<Source>,
    /// The package, environment, checkout or folder that it belongs to.
    pub(crate) place: PathBuf,
    /// In this order. `NEW`, `NEW.tgz` and `NEW.whl` stand for a file of the newer version.
    pub(crate) commands: Vec<String>,
}

impl Installation {
    /// Of the program at this path, which has no links in it.
    pub(crate) fn of(program: &Path, folders: &UserFolders) -> Self {
        of_npm(program)
            .or_else(|| of_python(program, folders))
            .or_else(|| of_cargo(program, folders))
            .or_else(|| of_checkout(program))
            .unwrap_or_else(|| of_file(program))
    }

    /// Whether this file, of which all links are resolved, starts the program.
    pub(crate) fn is_started_by(&self, program: &Path, first: &Path) -> bool {
        let is_package = matches!(self.method, Method::Npm | Method::OtherManager);
        first == program || (is_package && first.starts_with(&self.place))
    }
}

/// A path as a word of a shell.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@:,=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn json_of(file: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

/// A package in a folder `node_modules` that has this program.
fn of_npm(program: &Path) -> Option<Installation> {
    let (package, manifest) = program.ancestors().skip(1).find_map(|folder| {
        let manifest = json_of(&folder.join("package.json"))?;
        manifest["bin"]["quipu"].is_string().then_some((folder, manifest))
    })?;
    let name = manifest["name"].as_str()?;
    let modules = package.ancestors().find(|folder| folder.ends_with("node_modules"))?;
    let above = modules.parent()?;
    let has = |part: &str| package.iter().any(|one| one == part);
    let other = Installation {
        method: Method::OtherManager,
        source: None,
        place: package.to_owned(),
        commands: Vec::new(),
    };
    // Where pnpm, Bun and Yarn keep theirs.
    let locks = ["pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"];
    if [".pnpm", ".bun", ".yarn"].into_iter().any(has) || locks.iter().any(|lock| above.join(lock).exists()) {
        return Some(other);
    }
    let lock = json_of(&modules.join(".package-lock.json"));
    let key = format!("node_modules/{name}");
    let resolved = lock.as_ref().and_then(|lock| lock["packages"][key]["resolved"].as_str());
    // npm notes nothing of what it installs globally.
    let source = resolved.map(|from| if from.starts_with("http") { Source::Registry } else { Source::File });
    let what = if source == Some(Source::Registry) { format!("{name}@latest") } else { "NEW.tgz".to_owned() };
    let command = if has("_npx") {
        format!("npm exec --yes -- {what}")
    } else if above.ends_with("lib") && !above.join("package.json").exists() {
        format!("npm install --global --prefix {} {what}", word(above.parent()?))
    } else {
        format!("npm install --prefix {} {what}", word(above))
    };
    Some(Installation { method: Method::Npm, source, commands: vec![command], ..other })
}

/// A package of a Python environment that has this program.
fn of_python(program: &Path, folders: &UserFolders) -> Option<Installation> {
    let binaries = program.parent().filter(|folder| folder.ends_with("bin"))?;
    let environment = binaries.parent()?;
    let (python, info) = [environment.join("lib"), environment.join("local").join("lib")]
        .iter()
        .flat_map(|folder| entries(folder))
        .flat_map(|python| ["site-packages", "dist-packages"].map(|site| (python.clone(), python.join(site))))
        .flat_map(|(python, site)| entries(&site).into_iter().map(move |info| (python.clone(), info)))
        .find(|(_, info)| has_recorded(info, program))?;
    let read = |name: &str| std::fs::read_to_string(info.join(name)).ok();
    let metadata = read("METADATA")?;
    let name = metadata.lines().find_map(|line| line.strip_prefix("Name: "))?.trim().to_owned();
    let source = if info.join("direct_url.json").exists() { Source::File } else { Source::Registry };
    let is_file = source == Source::File;
    let what = if is_file { "NEW.whl" } else { &name };
    let own = environment.join("bin").join("python");
    let python = match (own.exists(), python.file_name()) {
        (true, _) => word(&own),
        (false, Some(name)) => name.to_string_lossy().into_owned(),
        (false, None) => "python3".to_owned(),
    };
    let by_uv = read("INSTALLER").is_some_and(|installer| installer.trim() == "uv");
    let (method, command) = if environment.join("uv-receipt.toml").exists() {
        let command = if is_file {
            "uv tool install --force NEW.whl".to_owned()
        } else {
            format!("uv tool upgrade {name}")
        };
        (Method::Uv, command)
    } else if environment.join("pipx_metadata.json").exists() {
        let command =
            if is_file { "pipx install --force NEW.whl".to_owned() } else { format!("pipx upgrade {name}") };
        (Method::Pipx, command)
    } else if by_uv {
        (Method::Uv, format!("uv pip install --python {} --upgrade {what}", word(&own)))
    } else {
        let is_users = folders.home.as_ref().is_some_and(|home| environment == home.join(".local"));
        let user = if is_users { " --user" } else { "" };
        (Method::Pip, format!("{python} -m pip install{user} --upgrade {what}"))
    };
    Some(Installation {
        method,
        source: Some(source),
        place: environment.to_owned(),
        commands: vec![command],
    })
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Whether the files of an installed package, as its `RECORD` lists them, have this program.
fn has_recorded(info: &Path, program: &Path) -> bool {
    let name = info.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with("quipu") || !name.ends_with(".dist-info") {
        return false;
    }
    let Ok(record) = std::fs::read_to_string(info.join("RECORD")) else { return false };
    let site = info.parent().unwrap_or(info);
    record.lines().filter_map(|line| line.split(',').next()).any(|path| {
        path.ends_with("bin/quipu") && site.join(path).canonicalize().is_ok_and(|path| path == program)
    })
}

/// A program that `cargo install` noted.
fn of_cargo(program: &Path, folders: &UserFolders) -> Option<Installation> {
    let root = program.parent().filter(|folder| folder.ends_with("bin"))?.parent()?;
    let noted = json_of(&root.join(".crates2.json"))?;
    let name = program.file_name()?.to_str()?;
    let (key, _) = noted["installs"].as_object()?.iter().find(|(_, install)| {
        install["bins"].as_array().is_some_and(|bins| bins.iter().any(|bin| *bin == name))
    })?;
    // `quipu-cli 0.1.0 (git+https://example.com/quipu?branch=main#0123456)`
    let (package, rest) = key.split_once(' ')?;
    let from = rest.split_once('(')?.1.trim_end_matches(')');
    let is_usual = folders.cargo.as_deref() == Some(root);
    let end = if is_usual { String::new() } else { format!(" --root {}", word(root)) };
    let install = "cargo install --locked";
    let (source, place, commands) = if let Some(path) = from.strip_prefix("path+file://") {
        let path = PathBuf::from(decoded(path));
        let place = word(&path);
        let pull = format!("git -C {place} pull --ff-only");
        (Source::Checkout, path, vec![pull, format!("{install} --path {place}{end}")])
    } else if let Some(git) = from.strip_prefix("git+") {
        let git = git.split('#').next().unwrap_or(git);
        let (url, query) = git.split_once('?').unwrap_or((git, ""));
        let at: String = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .filter(|(name, _)| ["branch", "tag", "rev"].contains(name))
            .map(|(name, value)| format!(" --{name} {}", word(Path::new(&decoded(value)))))
            .collect();
        let command = format!("{install} --git {}{at}{end} {package}", word(Path::new(url)));
        (Source::Git, root.to_owned(), vec![command])
    } else {
        (Source::Registry, root.to_owned(), vec![format!("{install}{end} {package}")])
    };
    Some(Installation { method: Method::Cargo, source: Some(source), place, commands })
}

/// The text without its escapes (`%20`), as they stand in addresses.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after
            .get(..2)
            .filter(|_| first == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A program in the folder of a build.
fn of_checkout(program: &Path) -> Option<Installation> {
    let build = program
        .ancestors()
        .skip(1)
        .find(|folder| folder.join("CACHEDIR.TAG").exists() && folder.join(".rustc_info.json").exists())?;
    let checkout = build.parent().filter(|folder| folder.join("crates/cli/Cargo.toml").exists());
    let below = program.strip_prefix(build).ok()?;
    let has = |part: &str| below.iter().any(|one| one == part);
    let build_command = if has("dist") {
        "cargo xtask dist"
    } else if has("release") {
        "cargo build --release"
    } else {
        "cargo build"
    };
    let place = checkout.unwrap_or(build).to_owned();
    let enter = checkout.map(|checkout| format!("cd {}", word(checkout)));
    let rest = ["git pull --ff-only", build_command].map(str::to_owned);
    let commands = enter.into_iter().chain(rest).collect();
    Some(Installation { method: Method::Checkout, source: None, place, commands })
}

/// A program that nothing else is known of.
fn of_file(program: &Path) -> Installation {
    let place = program.parent().unwrap_or(program).to_owned();
    let commands = vec![format!("install -m 755 NEW {}", word(program))];
    Installation { method: Method::File, source: None, place, commands }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files; the program is one of them.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (path, content) in files {
                let file = tree.path(path);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, content.replace("TREE", &tree.path("").display().to_string())).unwrap();
            }
            tree
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        /// The method, the source, and the commands with the folder as `TREE/`.
        fn found(&self, program: &str) -> (Method, Option<Source>, Vec<String>) {
            let folders =
                UserFolders { home: Some(self.path("home")), cargo: Some(self.path("home/.cargo")) };
            let found = Installation::of(&self.path(program), &folders);
            let tree = self.path("").display().to_string();
            let commands = found.commands.iter().map(|command| command.replace(&tree, "TREE/")).collect();
            (found.method, found.source, commands)
        }
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], method: Method, source: Option<Source>, commands: &[&str]) {
        let (program, _) = files[0];
        let found = Tree::new(files).found(program);
        let commands: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
        assert_eq!(found, (method, source, commands));
    }

    const PACKAGE: &str = r#"{ "name": "quipu-agent", "bin": { "quipu": "quipu" } }"#;

    #[test]
    fn npm_packages_are_global_of_a_project_or_of_npx() {
        let global = [
            ("pre fix/lib/node_modules/quipu-agent/x86_64/quipu", ""),
            ("pre fix/lib/node_modules/quipu-agent/package.json", PACKAGE),
        ];
        check(&global, Method::Npm, None, &["npm install --global --prefix 'TREE/pre fix' NEW.tgz"]);
        for (from, source, what) in [
            ("https://example.com/quipu-agent-0.1.0.tgz", Source::Registry, "quipu-agent@latest"),
            ("file:../quipu-agent-0.1.0.tgz", Source::File, "NEW.tgz"),
        ] {
            let lock =
                format!(r#"{{ "packages": {{ "node_modules/quipu-agent": {{ "resolved": "{from}" }} }} }}"#);
            let project = [
                ("shop/node_modules/quipu-agent/x86_64/quipu", ""),
                ("shop/node_modules/quipu-agent/package.json", PACKAGE),
                ("shop/node_modules/.package-lock.json", &lock),
            ];
            check(&project, Method::Npm, Some(source), &[&format!("npm install --prefix TREE/shop {what}")]);
            let npx = [
                (".npm/_npx/0123/node_modules/quipu-agent/x86_64/quipu", ""),
                (".npm/_npx/0123/node_modules/quipu-agent/package.json", PACKAGE),
                (".npm/_npx/0123/node_modules/.package-lock.json", &lock),
            ];
            check(&npx, Method::Npm, Some(source), &[&format!("npm exec --yes -- {what}")]);
        }
        let pnpm = [
            ("shop/node_modules/.pnpm/quipu-agent@0.1.0/node_modules/quipu-agent/x86_64/quipu", ""),
            ("shop/node_modules/.pnpm/quipu-agent@0.1.0/node_modules/quipu-agent/package.json", PACKAGE),
        ];
        check(&pnpm, Method::OtherManager, None, &[]);
    }

    #[test]
    fn python_packages_are_of_pip_uv_or_pipx() {
        const INFO: &str = "env/lib/python3.11/site-packages/quipu_agent-0.1.0.dist-info";
        let installed = |more: &[(&str, &str)]| -> Vec<(String, String)> {
            let mut files = vec![
                ("env/bin/quipu".to_owned(), String::new()),
                (format!("{INFO}/RECORD"), "../../../bin/quipu,sha256=x,1\n".to_owned()),
                (format!("{INFO}/METADATA"), "Metadata-Version: 2.4\nName: quipu-agent\n".to_owned()),
            ];
            files.extend(more.iter().map(|(path, text)| (path.replace("INFO", INFO), (*text).to_owned())));
            files
        };
        type Files = &'static [(&'static str, &'static str)];
        let cases: &[(Files, Method, Source, &str)] = &[
            (&[], Method::Pip, Source::Registry, "python3.11 -m pip install --upgrade quipu-agent"),
            (
                &[("env/bin/python", ""), ("INFO/direct_url.json", "{}"), ("INFO/INSTALLER", "pip\n")],
                Method::Pip,
                Source::File,
                "TREE/env/bin/python -m pip install --upgrade NEW.whl",
            ),
            (
                &[("env/bin/python", ""), ("INFO/INSTALLER", "uv")],
                Method::Uv,
                Source::Registry,
                "uv pip install --python TREE/env/bin/python --upgrade quipu-agent",
            ),
            (
                &[("env/uv-receipt.toml", ""), ("INFO/INSTALLER", "uv")],
                Method::Uv,
                Source::Registry,
                "uv tool upgrade quipu-agent",
            ),
            (
                &[("env/uv-receipt.toml", ""), ("INFO/direct_url.json", "{}")],
                Method::Uv,
                Source::File,
                "uv tool install --force NEW.whl",
            ),
            (&[("env/pipx_metadata.json", "{}")], Method::Pipx, Source::Registry, "pipx upgrade quipu-agent"),
        ];
        for (more, method, source, command) in cases {
            let files = installed(more);
            let files: Vec<(&str, &str)> =
                files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            check(&files, *method, Some(*source), &[command]);
        }
        // Of the user, without an environment.
        let files = installed(&[]);
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(path, text)| (path.replacen("env", "home/.local", 1), text.as_str()))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let command = "python3.11 -m pip install --user --upgrade quipu-agent";
        check(&files, Method::Pip, Some(Source::Registry), &[command]);
        // A file that was put into an environment is none of its packages.
        check(
            &[("env/bin/quipu", ""), ("env/pyvenv.cfg", "")],
            Method::File,
            None,
            &["install -m 755 NEW TREE/env/bin/quipu"],
        );
    }

    #[test]
    fn installs_of_cargo_name_their_source() {
        let noted = |from: &str| {
            format!(r#"{{ "installs": {{ "quipu-cli 0.1.0 ({from})": {{ "bins": ["quipu"] }} }} }}"#)
        };
        let at = |root: &str, from: &str| {
            let files = [
                (format!("{root}/bin/quipu"), String::new()),
                (format!("{root}/.crates2.json"), noted(from)),
            ];
            let plain = files.each_ref().map(|(path, text)| (path.as_str(), text.as_str()));
            Tree::new(&plain).found(plain[0].0)
        };
        let (method, source, commands) = at("home/.cargo", "path+file:///src/my%20quipu/crates/cli");
        assert_eq!((method, source), (Method::Cargo, Some(Source::Checkout)));
        assert_eq!(
            commands,
            [
                "git -C '/src/my quipu/crates/cli' pull --ff-only",
                "cargo install --locked --path '/src/my quipu/crates/cli'"
            ]
        );
        let git = "git+https://example.com/quipu?branch=next#0123456789abcdef";
        let (_, source, commands) = at("opt", git);
        assert_eq!(source, Some(Source::Git));
        assert_eq!(
            commands,
            [
                "cargo install --locked --git https://example.com/quipu --branch next --root TREE/opt quipu-cli"
            ]
        );
        let (_, source, commands) = at("home/.cargo", "registry+https://example.com/index");
        assert_eq!(
            (source, commands),
            (Some(Source::Registry), vec!["cargo install --locked quipu-cli".to_owned()])
        );
    }

    #[test]
    fn builds_are_made_again_and_files_are_replaced() {
        for (program, command) in [
            ("shop/target/release/quipu", "cargo build --release"),
            ("shop/target/debug/quipu", "cargo build"),
            ("shop/target/dist/quipu-0.1.0-x86_64-unknown-linux-musl", "cargo xtask dist"),
        ] {
            let mut files =
                vec![(program, ""), ("shop/target/CACHEDIR.TAG", ""), ("shop/target/.rustc_info.json", "")];
            check(&files, Method::Checkout, None, &["git pull --ff-only", command]);
            files.push(("shop/crates/cli/Cargo.toml", ""));
            check(&files, Method::Checkout, None, &["cd TREE/shop", "git pull --ff-only", command]);
        }
        check(&[("usr/bin/quipu", "")], Method::File, None, &["install -m 755 NEW TREE/usr/bin/quipu"]);
    }
}
