//! The names of a memory's files.

use jiff::civil::Date;

/// Bytes of a name at most.
const LONGEST: usize = 400;
/// Directories below `memory/` that are looked into, one in the other, and the file.
pub(crate) const DEPTH: usize = 3;

/// A path that names no file of a memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no file of a memory; a memory has MEMORY.md, USER.md, DREAMS.md and memory/*.md")]
pub struct NameError(String);

/// The path of a file within a memory, with `/` between its parts: one that belongs to a memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// The day of a note, and what stands behind it in its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteDate {
    /// The day.
    pub day: Date,
    /// What the name says behind the day; empty for the note of the day itself.
    pub slug: String,
}

impl FileName {
    /// What lasts.
    pub const MEMORY: &str = "MEMORY.md";
    /// Who the user is.
    pub const USER: &str = "USER.md";
    /// The diary of dreams.
    pub const DREAMS: &str = "DREAMS.md";

    /// A path that belongs to a memory: `MEMORY.md`, `USER.md`, `DREAMS.md`, or a Markdown file below `memory/`.
    ///
    /// # Errors
    /// For every other path, also one that leads elsewhere.
    pub fn new(path: &str) -> Result<Self, NameError> {
        let path = path.strip_prefix("./").unwrap_or(path);
        let is_top = [Self::MEMORY, Self::USER, Self::DREAMS].contains(&path);
        let is_note = || {
            let Some(below) = path.strip_prefix("memory/") else { return false };
            let parts: Vec<&str> = below.split('/').collect();
            let plain =
                |part: &&str| !part.is_empty() && !part.starts_with('.') && !part.contains(char::is_control);
            parts.len() <= DEPTH && below.ends_with(".md") && parts.iter().all(plain)
        };
        if path.len() <= LONGEST && (is_top || is_note()) {
            Ok(Self(path.to_owned()))
        } else {
            Err(NameError(path.chars().take(120).collect()))
        }
    }

    /// The note of a day.
    #[must_use]
    pub fn of_day(day: Date) -> Self {
        Self(format!("memory/{day}.md"))
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The day that the name says; `None` for one that says none, or a day that does not exist.
    #[must_use]
    pub fn date(&self) -> Option<NoteDate> {
        let name = self.0.strip_prefix("memory/")?.rsplit('/').next()?.strip_suffix(".md")?;
        let (day, rest) = (name.get(..10)?, name.get(10..)?);
        let digits = |at: std::ops::Range<usize>| {
            day.get(at).is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit()))
        };
        let is_spelled = digits(0..4) && digits(5..7) && digits(8..10);
        let day: Date = day.parse().ok().filter(|_| is_spelled)?;
        match rest {
            "" => Some(NoteDate { day, slug: String::new() }),
            _ => rest.strip_prefix('-').map(|slug| NoteDate { day, slug: slug.to_owned() }),
        }
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
