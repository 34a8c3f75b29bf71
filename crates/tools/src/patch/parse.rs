//! The text of a patch: sections of files, and what changes in each.

/// Bytes of a patch at most.
const MAX_PATCH: usize = 4 << 20;
/// Files of a patch at most.
const MAX_SECTIONS: usize = 256;
/// Hunks of a patch at most.
const MAX_HUNKS: usize = 10_000;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    /// The file as the patch names it.
    pub(super) path: String,
    pub(super) action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// A new file with this content.
    Add(String),
    Delete,
    Update {
        /// The name that the file gets.
        move_to: Option<String>,
        hunks: Vec<Hunk>,
    },
}

/// A change at one place of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Hunk {
    /// Lines that stand above the place, one below the other, such as the names of a class and a method.
    pub(super) anchors: Vec<String>,
    pub(super) lines: Vec<HunkLine>,
    /// The lines are the last ones of the file.
    pub(super) is_at_end: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HunkLine {
    Same(String),
    Removed(String),
    Added(String),
}

impl Hunk {
    /// The lines that the file has at the place.
    pub(super) fn old(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Same(text) | HunkLine::Removed(text) => Some(text.as_str()),
            HunkLine::Added(_) => None,
        })
    }
}

impl Section {
    /// The paths that the section names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let moved = match &self.action {
            Action::Update { move_to, .. } => move_to.as_deref(),
            Action::Add(_) | Action::Delete => None,
        };
        std::iter::once(self.path.as_str()).chain(moved)
    }
}

/// The sections of a patch.
///
/// # Errors
/// The text for the model: the line, and what is wrong with it.
pub(super) fn parse(patch: &str) -> Result<Vec<Section>, String> {
    if patch.len() > MAX_PATCH {
        let (bytes, limit) = (patch.len(), MAX_PATCH >> 20);
        return Err(format!("The patch has {bytes} bytes. The limit is {limit} MiB. Make several calls."));
    }
    let text = patch.replace("\r\n", "\n");
    let mut lines: Vec<(usize, &str)> =
        text.split('\n').enumerate().map(|(at, line)| (at + 1, line)).collect();
    // Some models write the command of a shell around it.
    let begin = lines
        .iter()
        .position(|(_, line)| line.trim() == BEGIN)
        .filter(|at| lines[..*at].iter().all(|(_, line)| line.trim().is_empty() || line.contains("<<")));
    let begin = begin.ok_or_else(|| format!("The patch must begin with the line `{BEGIN}`."))?;
    let end = lines.iter().skip(begin).position(|(_, line)| line.trim_end() == END);
    let end =
        end.ok_or_else(|| format!("The patch has no line `{END}`. It may be cut; send all of it."))? + begin;
    if let Some((number, _)) = lines[end + 1..].iter().find(|(_, line)| line.trim().contains("***")) {
        return Err(format!("Line {number} of the patch stands behind `{END}`. Send one patch in a call."));
    }
    lines.truncate(end);
    let mut parser = Parser { sections: Vec::new(), hunks: 0 };
    for (number, line) in lines.into_iter().skip(begin + 1) {
        parser.take(line).map_err(|what| format!("Line {number} of the patch: {what}"))?;
    }
    parser.finish()
}

struct Parser {
    sections: Vec<Section>,
    /// Hunks of all sections.
    hunks: usize,
}

impl Parser {
    fn take(&mut self, line: &str) -> Result<(), String> {
        if let Some((what, path)) = header(line) {
            return self.header(&what, path);
        }
        let Some(Section { path, action }) = self.sections.last_mut() else {
            if line.trim().is_empty() {
                return Ok(());
            }
            return Err("expected `*** Add File: `, `*** Update File: ` or `*** Delete File: `.".into());
        };
        match action {
            Action::Add(content) => {
                let Some(added) = line.strip_prefix('+') else {
                    if line.trim().is_empty() {
                        return Ok(());
                    }
                    return Err(format!("each line of the new file {path} must begin with `+`."));
                };
                content.push_str(added);
                content.push('\n');
                Ok(())
            }
            Action::Delete if line.trim().is_empty() => Ok(()),
            Action::Delete => Err(format!("a section that deletes {path} has no more lines.")),
            Action::Update { hunks, .. } => change(hunks, &mut self.hunks, line),
        }
    }

    fn header(&mut self, what: &Header, path: &str) -> Result<(), String> {
        let path = path.trim();
        if path.is_empty() {
            return Err("the name of the file is missing.".into());
        }
        let action = match what {
            Header::Add => Action::Add(String::new()),
            Header::Delete => Action::Delete,
            Header::Update => Action::Update { move_to: None, hunks: Vec::new() },
            Header::Move => {
                return match self.sections.last_mut().map(|section| &mut section.action) {
                    Some(Action::Update { move_to: move_to @ None, hunks }) if hunks.is_empty() => {
                        *move_to = Some(path.to_owned());
                        Ok(())
                    }
                    _ => Err("`*** Move to: ` must stand directly behind `*** Update File: `.".into()),
                };
            }
        };
        if self.sections.len() == MAX_SECTIONS {
            return Err(format!("a patch has at most {MAX_SECTIONS} files. Make several calls."));
        }
        self.sections.push(Section { path: path.to_owned(), action });
        Ok(())
    }

    fn finish(self) -> Result<Vec<Section>, String> {
        if self.sections.is_empty() {
            return Err("The patch changes no file.".into());
        }
        for Section { path, action } in &self.sections {
            if let Action::Update { move_to, hunks } = action {
                let nothing = |hunk: &Hunk| hunk.lines.is_empty();
                if hunks.iter().any(nothing) || (hunks.is_empty() && move_to.is_none()) {
                    return Err(format!("The patch has a change of {path} without lines."));
                }
            }
        }
        Ok(self.sections)
    }
}

enum Header {
    Add,
    Update,
    Delete,
    Move,
}

fn header(line: &str) -> Option<(Header, &str)> {
    let rest = line.strip_prefix("*** ")?;
    let named = |name: &str| rest.strip_prefix(name)?.strip_prefix(':');
    None.or_else(|| Some((Header::Add, named("Add File")?)))
        .or_else(|| Some((Header::Update, named("Update File")?)))
        .or_else(|| Some((Header::Delete, named("Delete File")?)))
        .or_else(|| Some((Header::Move, named("Move to")?)))
}

/// A line of a section that changes a file.
fn change(hunks: &mut Vec<Hunk>, count: &mut usize, line: &str) -> Result<(), String> {
    let mut begin = |hunks: &mut Vec<Hunk>| {
        *count += 1;
        if *count > MAX_HUNKS {
            return Err(format!("a patch has at most {MAX_HUNKS} changes. Make several calls."));
        }
        hunks.push(Hunk::default());
        Ok(())
    };
    if let Some(anchor) = line.strip_prefix("@@") {
        // Several of them, one below the other, lead to one place.
        if hunks.last().is_none_or(|hunk| !hunk.lines.is_empty() || hunk.anchors.is_empty()) {
            begin(hunks)?;
        }
        let anchor = anchor.strip_prefix(' ').unwrap_or(anchor);
        let anchor = anchor.strip_suffix("@@").unwrap_or(anchor);
        let is_range = anchor.trim().starts_with('-') && anchor.contains(" +");
        if let Some(hunk) = hunks.last_mut()
            && !anchor.trim().is_empty()
            && !is_range
        {
            hunk.anchors.push(anchor.to_owned());
        }
        return Ok(());
    }
    if line.trim_end() == END_OF_FILE {
        let hunk = hunks.last_mut().filter(|hunk| !hunk.lines.is_empty());
        hunk.ok_or_else(|| format!("`{END_OF_FILE}` must stand behind the lines of a change."))?.is_at_end =
            true;
        return Ok(());
    }
    if hunks.last().is_none_or(|hunk| hunk.is_at_end) {
        begin(hunks)?;
    }
    let Some(hunk) = hunks.last_mut() else { return Ok(()) };
    let parsed = match (line.strip_prefix(' '), line.strip_prefix('-'), line.strip_prefix('+')) {
        (Some(same), _, _) => HunkLine::Same(same.to_owned()),
        (_, Some(removed), _) => HunkLine::Removed(removed.to_owned()),
        (_, _, Some(added)) => HunkLine::Added(added.to_owned()),
        // The space before an empty line is easily lost.
        _ if line.is_empty() => HunkLine::Same(String::new()),
        _ => {
            return Err(
                "a line of a change begins with a space, `-` or `+`, and a new place with `@@`.".into()
            );
        }
    };
    hunk.lines.push(parsed);
    Ok(())
}
