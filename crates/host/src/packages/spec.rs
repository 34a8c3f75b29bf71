//! Where a package is from, as a person writes it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Characters of a name of an npm package, of a version and of a name in a repository at most.
const MOST_NAME: usize = 214;
/// Characters of an address at most.
const MOST_ADDRESS: usize = 2_000;
const FORMS: &str = "a package is `npm:NAME[@VERSION]`, `git:HOST/PATH[@REF]`, the address of a Git repository, or a path that begins with `.`, `/` or `~/`";

/// Where a package is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageSource {
    /// A registry of npm packages.
    Npm {
        /// Its name there.
        name: String,
        /// A version or a tag; `None` for the newest.
        version: Option<String>,
    },
    /// A Git repository.
    Git {
        /// Its address.
        address: String,
        /// A branch, tag or commit; `None` for its default branch.
        reference: Option<String>,
    },
    /// A directory of this machine.
    Directory(PathBuf),
}

impl PackageSource {
    /// Reads what a person wrote in the directory `cwd`.
    ///
    /// # Errors
    /// Where it is none of the forms.
    pub fn parse(text: &str, cwd: &Path) -> Result<Self, Failure> {
        let shown = || text.chars().filter(|letter| !letter.is_control()).take(120).collect::<String>();
        let wrong = |why: &str| Failure::request(format!("`{}` names no package: {why}", shown()));
        if text.len() > MOST_ADDRESS || text.contains(char::is_control) {
            return Err(wrong("it is too long, or has control characters"));
        }
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("npm:") {
            return npm(rest).map_err(wrong);
        }
        if let Some(rest) = text.strip_prefix("git:") {
            return git(rest).map_err(wrong);
        }
        if text.contains("://") {
            return git(text).map_err(wrong);
        }
        let path = match text.strip_prefix("~/") {
            Some(below) => std::env::home_dir().map(|home| home.join(below)),
            None if text.starts_with(['.', '/']) => Some(cwd.join(text)),
            None => None,
        };
        let path = path.ok_or_else(|| wrong(FORMS))?;
        let path = path.canonicalize().map_err(|error| wrong(&error.to_string()))?;
        if path.to_str().is_none() {
            return Err(wrong("the path is not text (UTF-8)"));
        }
        if path.is_dir() { Ok(Self::Directory(path)) } else { Err(wrong("it is not a directory")) }
    }

    /// The same for every version of a package.
    pub fn identity(&self) -> String {
        match self {
            Self::Npm { name, .. } => format!("npm:{name}"),
            Self::Git { address, .. } => format!("git:{address}"),
            Self::Directory(path) => path.display().to_string(),
        }
    }

    /// What it is called here.
    pub fn name(&self) -> String {
        match self {
            Self::Npm { name, .. } => name.clone(),
            Self::Git { address, .. } => {
                let last = address.rsplit(['/', ':']).next().unwrap_or_default();
                last.strip_suffix(".git").unwrap_or(last).to_owned()
            }
            Self::Directory(path) => {
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            }
        }
    }
}

impl fmt::Display for PackageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.identity())?;
        match self {
            Self::Npm { version: Some(wanted), .. } | Self::Git { reference: Some(wanted), .. } => {
                write!(f, "@{wanted}")
            }
            Self::Npm { .. } | Self::Git { .. } | Self::Directory(_) => Ok(()),
        }
    }
}

fn npm(text: &str) -> Result<PackageSource, &'static str> {
    let scope = text.find('/').filter(|_| text.starts_with('@')).map_or(0, |at| at + 1);
    let (name, version) = match text[scope..].split_once('@') {
        Some((name, version)) => (&text[..scope + name.len()], Some(version)),
        None => (text, None),
    };
    let is_part = |part: &str| {
        let is_letter =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-_.".contains(letter);
        !part.is_empty() && !part.starts_with(['.', '_']) && part.chars().all(is_letter)
    };
    let is_name = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
        None => is_part(name),
    };
    if !is_name || name.len() > MOST_NAME {
        return Err(
            "an npm package has lower-case letters, digits, `-`, `_` and `.` in its name, as in `npm:@scope/name@1.2.3`",
        );
    }
    let is_version = |version: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.+".contains(letter);
        (1..=MOST_NAME).contains(&version.len())
            && !version.starts_with(['.', '-'])
            && version.chars().all(is_letter)
    };
    match version {
        Some(version) if !is_version(version) => Err("name one version or a tag; ranges are not supported"),
        version => Ok(PackageSource::Npm { name: name.to_owned(), version: version.map(str::to_owned) }),
    }
}

fn git(text: &str) -> Result<PackageSource, &'static str> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    // `user@host:path` is a form of its own.
    let colon = rest.find(':').filter(|at| scheme.is_none() && !rest[..*at].contains('/'));
    let path = match (scheme, colon) {
        (_, Some(colon)) => colon + 1,
        (Some("file"), None) => 0,
        (_, None) => rest.find('/').ok_or(FORMS)? + 1,
    };
    let (place, reference) = match rest[path..].find(['@', '#']) {
        Some(at) => (&rest[..path + at], Some(&rest[path + at + 1..])),
        None => (rest, None),
    };
    let host = place.split(['/', ':']).next().unwrap_or_default();
    let bare = host.rsplit('@').next().unwrap_or_default();
    let has_host = scheme == Some("file") || !bare.is_empty();
    if !has_host || place.len() == path || place.starts_with('-') || bare.starts_with('-') {
        return Err(FORMS);
    }
    if place.contains(char::is_whitespace) {
        return Err("the address has spaces");
    }
    let is_secret = scheme.is_some_and(|scheme| scheme != "file")
        && place
            .split('/')
            .next()
            .unwrap_or_default()
            .rsplit_once('@')
            .is_some_and(|(user, _)| user.contains(':'));
    if is_secret {
        return Err("the address is kept in a file, so it may not contain a password; let Git keep it");
    }
    let address = match scheme {
        Some("http") if !quipu_providers::net::is_loopback(bare) => {
            return Err("anybody on the way could change it; use an address that begins with https://");
        }
        Some(scheme @ ("https" | "http" | "ssh" | "file")) => format!("{scheme}://{place}"),
        Some(_) => return Err("only https, ssh and file addresses are used for Git repositories"),
        None if colon.is_some() && host.contains('@') => place.to_owned(),
        None if colon.is_some() => return Err(FORMS),
        None => format!("https://{place}"),
    };
    let is_reference = |name: &str| {
        (1..=MOST_NAME).contains(&name.len())
            && !name.starts_with(['-', '/', '+'])
            && !name.contains("..")
            && !name.contains(|letter: char| letter.is_whitespace() || ":?*[\\^~".contains(letter))
    };
    match reference {
        Some(reference) if !is_reference(reference) => Err("behind `@` is no branch, tag or commit"),
        reference => Ok(PackageSource::Git {
            address: address.trim_end_matches('/').to_owned(),
            reference: reference.map(str::to_owned),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_source_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().canonicalize().unwrap();
        std::fs::create_dir(cwd.join("own")).unwrap();
        let read =
            |text: &str| PackageSource::parse(text, &cwd).map(|source| (source.to_string(), source.name()));
        for (text, whole, name) in [
            ("npm:pi-skills", "npm:pi-skills", "pi-skills"),
            ("npm:@scope/pi-skills@1.2.3-rc.1", "npm:@scope/pi-skills@1.2.3-rc.1", "@scope/pi-skills"),
            ("git:example.com/user/repo", "git:https://example.com/user/repo", "repo"),
            (
                "git:example.com/user/repo.git@feature/x",
                "git:https://example.com/user/repo.git@feature/x",
                "repo",
            ),
            ("https://example.com/user/repo@v1", "git:https://example.com/user/repo@v1", "repo"),
            ("git:git@example.com:user/repo@v1", "git:git@example.com:user/repo@v1", "repo"),
            ("ssh://git@example.com/user/repo", "git:ssh://git@example.com/user/repo", "repo"),
            ("http://127.0.0.1:8000/repo#main", "git:http://127.0.0.1:8000/repo@main", "repo"),
        ] {
            let found = read(text).unwrap();
            assert_eq!(found, (whole.to_owned(), name.to_owned()), "{text}");
            assert_eq!(read(whole).unwrap(), found, "{whole}");
        }
        assert_eq!(read("./own").unwrap(), (cwd.join("own").display().to_string(), "own".to_owned()));
        for text in [
            "pi-skills",
            "npm:",
            "npm:../x",
            "npm:Upper",
            "npm:a@^1.2",
            "npm:a@1 || 2",
            "git:ext::sh -c x",
            "ext::sh/x",
            "git:-oProxyCommand=x/y",
            "git:ssh://-oProxyCommand=x/y",
            "git://example.com/x",
            "http://example.com/x",
            "https://user:password@example.com/x",
            "git:example.com/x@--upload-pack=y",
            "git:example.com/x@a..b",
            "git:example.com/",
            "./missing",
            "npm:a\u{1b}",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
