//! The files of an export: in an archive, or in the folder that it was unpacked to.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use nix::fcntl::OFlag;
use quipu_protocol::{Content, ImageContent, Json};
use quipu_seal::Sealer;

use super::zip::{Packed, Unpacked, Zip, is_zip};
use crate::key::Key;
use crate::pi::files_with;
use crate::{ProblemKind, Report};

/// Bytes of a file that a message names, at most.
pub(crate) const ASSET: u64 = 32 << 20;
/// Files of a folder that are looked at for those that messages name, at most.
const BESIDE: usize = 200_000;

/// Where the files of an export are.
pub(crate) struct Files {
    source: Source,
    /// Files that messages may name, by what they are called there.
    names: OnceCell<HashMap<Key, usize>>,
    used: HashSet<usize>,
}

enum Source {
    Archive(Zip),
    /// The file that was named, and those beside it, which are looked for when the first is asked for.
    Folder {
        main: PathBuf,
        beside: OnceCell<Vec<PathBuf>>,
    },
}

/// The bytes of one of them.
pub(crate) enum Bytes {
    Packed(Box<Unpacked>),
    File(File),
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Packed(bytes) => bytes.read(buffer),
            Self::File(file) => file.read(buffer),
        }
    }
}

/// Opens a regular file that is no link.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW).bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

impl Files {
    /// Opens an archive, or a file of a folder.
    ///
    /// # Errors
    /// It cannot be read, or is a damaged archive.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let source = match is_zip(&file) {
            true => Source::Archive(Zip::open(file)?),
            false => Source::Folder { main: path.to_owned(), beside: OnceCell::new() },
        };
        Ok(Self { source, names: OnceCell::new(), used: HashSet::new() })
    }

    /// The files that hold conversations, by name; of a folder the one that was opened.
    pub(crate) fn mains(&self, is_main: fn(&str) -> bool) -> Vec<String> {
        let mut names: Vec<String> = match &self.source {
            Source::Archive(zip) => {
                zip.files.iter().filter(|file| is_main(&file.name)).map(|file| file.name.clone()).collect()
            }
            Source::Folder { main, .. } => vec![main.display().to_string()],
        };
        names.sort();
        names
    }

    /// Bytes of these files.
    pub(crate) fn size(&self, names: &[String]) -> u64 {
        match &self.source {
            Source::Archive(zip) => {
                zip.files.iter().filter(|file| names.contains(&file.name)).map(|file| file.size).sum()
            }
            Source::Folder { main, .. } => std::fs::metadata(main).map_or(0, |data| data.len()),
        }
    }

    /// The bytes of one of the files that hold conversations.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn main(&mut self, name: &str) -> io::Result<Bytes> {
        match &self.source {
            Source::Archive(zip) => {
                let found = zip.files.iter().position(|file| file.name == name);
                let at = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                self.used.insert(at);
                Ok(Bytes::Packed(Box::new(zip.read(&zip.files[at])?)))
            }
            Source::Folder { main, .. } => Ok(Bytes::File(File::open(main)?)),
        }
    }

    fn name(&self, at: usize) -> Option<&str> {
        match &self.source {
            Source::Archive(zip) => zip.files.get(at).map(|file| file.name.as_str()),
            Source::Folder { main, beside } => {
                let beside = beside.get_or_init(|| {
                    let found = main.parent().and_then(|parent| files_with(parent, &[]).ok());
                    let mut files = found.map(|found| found.files).unwrap_or_default();
                    files.truncate(BESIDE);
                    files
                });
                beside.get(at).map(|path| path.to_str().unwrap_or_default())
            }
        }
    }

    /// The file that messages call `id`: by its name, by that without its end, or by the id that its name begins with.
    fn find(&self, id: &str) -> Option<usize> {
        let names = self.names.get_or_init(|| {
            let mut names = HashMap::new();
            for at in 0.. {
                let Some(name) = self.name(at) else { break };
                let name = name.rsplit('/').next().unwrap_or_default();
                let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
                for key in [name, stem, beginning(name)] {
                    names.entry(Key::of(key)).or_insert(at);
                }
            }
            names
        });
        let id = id.rsplit('/').next().unwrap_or_default();
        names.get(&Key::of(id)).copied().filter(|_| !id.is_empty())
    }

    /// What a message names by `id`, as it is shown and kept: an image, a text behind its name, or the bytes of anything else;
    /// `None` when the export does not have it, which is counted.
    pub(crate) fn asset(
        &mut self,
        id: &str,
        name: &str,
        line: u64,
        sealer: &Sealer,
        report: &mut Report,
    ) -> Option<Content> {
        let Some(at) = self.find(id) else {
            report.skip("file missing from the export");
            return None;
        };
        let bytes = match self.bytes(at) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.used.insert(at);
                report.problem(line, ProblemKind::Unreadable, &format!("{name}: {error}"));
                return None;
            }
        };
        self.used.insert(at);
        if let Some(kind) = ImageContent::kind_of(&bytes) {
            let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
            return Some(Content::Image(ImageContent { data, mime_type: kind.into() }));
        }
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => {
                let sealed = sealer.seal(&text);
                report.sealed += u64::from(*sealed != text);
                Some(Content::text(format!("{name}:\n\n{sealed}")))
            }
            Ok(text) => Some(other(name, text.as_bytes())),
            Err(error) => Some(other(name, error.as_bytes())),
        }
    }

    fn bytes(&self, at: usize) -> io::Result<Vec<u8>> {
        let mut from = match &self.source {
            Source::Archive(zip) => {
                let packed: &Packed = zip.files.get(at).ok_or(io::ErrorKind::NotFound)?;
                Bytes::Packed(Box::new(zip.read(packed)?))
            }
            Source::Folder { beside, .. } => {
                let path = beside.get().and_then(|files| files.get(at)).ok_or(io::ErrorKind::NotFound)?;
                Bytes::File(open(path)?)
            }
        };
        let mut bytes = Vec::new();
        (&mut from).take(ASSET + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > ASSET {
            return Err(io::Error::other("it is larger than 32 MiB"));
        }
        Ok(bytes)
    }

    /// Tells of what could not be read, and counts what nobody asked for.
    pub(crate) fn end(&mut self, report: &mut Report) {
        let Source::Archive(zip) = &mut self.source else { return };
        for (name, why) in std::mem::take(&mut zip.faults) {
            report.problem(0, ProblemKind::Unreadable, &format!("{name}: {why}"));
        }
        for (_, file) in zip.files.iter().enumerate().filter(|(at, _)| !self.used.contains(at)) {
            let name = file.name.rsplit('/').next().unwrap_or_default();
            let is_about = [".json", ".html"].iter().any(|end| name.ends_with(end));
            report.skip(if is_about { name } else { "file that no message refers to" });
        }
    }
}

/// The id that the name of a file begins with, where it is one: `file-` or `file_`, and what follows up to another sign.
fn beginning(name: &str) -> &str {
    let Some(rest) = name.strip_prefix("file-").or_else(|| name.strip_prefix("file_")) else { return name };
    let length = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
    &name[..5 + length]
}

/// What no model is shown.
fn other(name: &str, bytes: &[u8]) -> Content {
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    let name = quipu_dag::quoted(name);
    Content::Other(
        Json::parse(&format!("{{\"type\":\"file\",\"name\":{name},\"data\":\"{data}\"}}"))
            .unwrap_or_default(),
    )
}
