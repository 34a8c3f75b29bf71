//! The tool that applies a patch to several files.

mod find;
mod parse;

use std::collections::HashSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use quipu_protocol::{Json, ToolSpec};
use quipu_workspace::{Access, FileError, FileStamp, file_key, resolve, resolve_existing};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::parse::{Action, Section};
use crate::edit::{View, details};
use crate::file_call::run_blocking;
use crate::{Invocation, Tool, ToolContext, ToolOutput, Touches, arguments, spec};

/// Bytes of a file that can be changed.
const FILE_LIMIT: u64 = 32 << 20;
/// Bytes of all files that a call reads or writes.
const CALL_LIMIT: u64 = 128 << 20;

/// `apply_patch {input}`: adds, changes, moves and deletes files by a patch. All of it is made, or nothing.
#[derive(Debug)]
pub struct ApplyPatch {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Arguments {
    input: String,
}

impl ApplyPatch {
    /// Its name.
    pub const NAME: &str = "apply_patch";

    /// The tool.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "input": { "type": "string", "description": "The whole patch" } },
            "required": ["input"],
        });
        Self { spec: spec(Self::NAME, include_str!("description.md").trim_end(), &parameters) }
    }
}

impl Default for ApplyPatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for ApplyPatch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// All files that the patch names. One that cannot be read names none, and changes nothing.
    fn touches(&self, args: &serde_json::Value, cx: &ToolContext) -> Touches {
        let input = args.get("input").and_then(serde_json::Value::as_str).unwrap_or_default();
        let mut sections = parse::parse(input).unwrap_or_default();
        sections.iter_mut().for_each(|section| place(section, cx));
        let mut files = Vec::new();
        for section in &sections {
            files.push(file_key(&source(&cx.cwd, section)));
            files.extend(target(&cx.cwd, section).map(|path| file_key(&path)));
        }
        files.dedup();
        Touches::Writes(files)
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let Arguments { input } = match arguments(&call.args) {
                Ok(arguments) => arguments,
                Err(text) => return ToolOutput::error(text),
            };
            let (cwd, access, cancel) = (cx.cwd.clone(), cx.access.clone(), cx.cancel.clone());
            let cx = cx.clone();
            run_blocking(move || {
                let mut sections = match parse::parse(&input) {
                    Ok(sections) => sections,
                    Err(text) => return Ok(ToolOutput::error(text)),
                };
                sections.iter_mut().for_each(|section| place(section, &cx));
                let plan = match plan(&cwd, sections, &access, &cancel) {
                    Ok(plan) => plan,
                    Err(text) => return Ok(ToolOutput::error(format!("{text} No file was changed."))),
                };
                if cancel.is_cancelled() {
                    return Err(FileError::Cancelled);
                }
                Ok(write(&plan, &access))
            })
            .await
        })
    }
}

/// Names the files of a section as this machine does.
fn place(section: &mut Section, cx: &ToolContext) {
    section.path = cx.outside(&section.path).into_owned();
    if let Action::Update { move_to: Some(name), .. } = &mut section.action {
        *name = cx.outside(name).into_owned();
    }
}

/// The file that a section works on. A new one has the name that is written.
fn source(cwd: &Path, section: &Section) -> PathBuf {
    match section.action {
        Action::Add(_) => resolve(cwd, &section.path),
        Action::Delete | Action::Update { .. } => resolve_existing(cwd, &section.path),
    }
}

/// The name that a section moves its file to.
fn target(cwd: &Path, section: &Section) -> Option<PathBuf> {
    match &section.action {
        Action::Update { move_to, .. } => move_to.as_deref().map(|name| resolve(cwd, name)),
        Action::Add(_) | Action::Delete => None,
    }
}

/// A file before and after, where each is there.
struct FilePlan {
    /// As the patch names it, with the new name behind it.
    name: String,
    from: Option<(PathBuf, Vec<u8>, FileStamp)>,
    to: Option<(PathBuf, Vec<u8>)>,
}

/// Reads and checks all files, and makes their new contents.
fn plan(
    cwd: &Path,
    sections: Vec<Section>,
    access: &Access,
    cancel: &CancellationToken,
) -> Result<Vec<FilePlan>, String> {
    let mut taken = HashSet::new();
    let mut plans = Vec::with_capacity(sections.len());
    let mut bytes: u64 = 0;
    for section in sections {
        let (source, target) = (source(cwd, &section), target(cwd, &section));
        for (path, shown) in [&source].into_iter().chain(&target).zip(section.paths()) {
            if !taken.insert(file_key(path)) {
                return Err(format!("The patch has several sections for {shown}. Put its changes into one."));
            }
        }
        let Section { path: name, action } = section;
        let plan = match action {
            Action::Add(content) => {
                let hint = "Change it with `*** Update File: `.";
                let to = Some((must_be_free(&source, &name, access, hint)?, content.into_bytes()));
                FilePlan { name, from: None, to }
            }
            Action::Delete => {
                let from = Some(read(&source, &name, access, cancel)?);
                FilePlan { name, from, to: None }
            }
            Action::Update { hunks, .. } => {
                let (path, old, stamp) = read(&source, &name, access, cancel)?;
                if old.contains(&0) {
                    return Err(format!("{name} is a binary file, which a patch cannot change."));
                }
                let new = find::apply(&old, &hunks, &name, cancel)?;
                if new == old && target.is_none() {
                    return Err(format!("The patch changes nothing in {name}."));
                }
                let (to, name) = match target {
                    Some(target) => {
                        let shown = target.strip_prefix(cwd).unwrap_or(&target).display().to_string();
                        let hint = "Delete it first, or choose another name.";
                        (must_be_free(&target, &shown, access, hint)?, format!("{name} -> {shown}"))
                    }
                    None => (path.clone(), name),
                };
                FilePlan { name, from: Some((path, old, stamp)), to: Some((to, new)) }
            }
        };
        let sizes = plan.from.iter().map(|from| from.1.len()).chain(plan.to.iter().map(|to| to.1.len()));
        bytes = sizes.fold(bytes, |sum, size| sum.saturating_add(size as u64));
        if bytes > CALL_LIMIT {
            return Err(format!(
                "The files of the patch have more than {} MiB. Make several calls.",
                CALL_LIMIT >> 20
            ));
        }
        plans.push(plan);
    }
    Ok(plans)
}

fn read(
    path: &Path,
    name: &str,
    access: &Access,
    cancel: &CancellationToken,
) -> Result<(PathBuf, Vec<u8>, FileStamp), String> {
    let (bytes, stamp) = access.read_to_change(path, FILE_LIMIT, cancel).map_err(|error| match error {
        FileError::NotFound { .. } => format!("There is no file {name}."),
        error => format!("{error}."),
    })?;
    Ok((path.to_path_buf(), bytes, stamp))
}

/// A name that nothing has yet, and that may be written.
fn must_be_free(path: &Path, name: &str, access: &Access, hint: &str) -> Result<PathBuf, String> {
    access.check_write(path).map_err(|error| format!("{error}."))?;
    match path.symlink_metadata() {
        Ok(_) => Err(format!("{name} exists already. {hint}")),
        Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            Err(format!("{name} is no name of a file."))
        }
        Err(_) => Ok(path.to_path_buf()),
    }
}

/// What was done to a file, to be taken back.
enum Step<'a> {
    Written(&'a FilePlan, &'a Path),
    Removed(&'a FilePlan, &'a Path),
}

/// Makes all changes. When one fails, those before it are taken back.
fn write(plans: &[FilePlan], access: &Access) -> ToolOutput {
    let mut done: Vec<Step<'_>> = Vec::new();
    for plan in plans {
        if let Err(error) = write_one(plan, access, &mut done) {
            let lost = take_back(&done, access);
            let state = if lost.is_empty() {
                "No file was changed.".to_owned()
            } else {
                format!("These files could not be put back; look at them: {}.", lost.join(", "))
            };
            return ToolOutput::error(format!("{error}. {state}"));
        }
    }
    report(plans)
}

fn write_one<'a>(plan: &'a FilePlan, access: &Access, done: &mut Vec<Step<'a>>) -> Result<(), FileError> {
    let same = |from: &Path, to: &Path| from == to;
    if let Some((to, bytes)) = &plan.to {
        let stamp = plan.from.as_ref().filter(|(from, ..)| same(from, to)).map(|(_, _, stamp)| stamp);
        access.write_file(to, bytes, stamp)?;
        done.push(Step::Written(plan, to));
    }
    if let Some((from, _, stamp)) = &plan.from
        && plan.to.as_ref().is_none_or(|(to, _)| !same(from, to))
    {
        access.remove_file(from, stamp)?;
        done.push(Step::Removed(plan, from));
    }
    Ok(())
}

/// Takes the steps back, the last one first. The files where that failed.
fn take_back(done: &[Step<'_>], access: &Access) -> Vec<String> {
    let mut lost = Vec::new();
    for step in done.iter().rev() {
        let (path, taken) = match step {
            Step::Written(FilePlan { from: Some((from, old, _)), .. }, path) if from == *path => {
                (path, access.write_file(path, old, None).map(drop))
            }
            Step::Written(_, path) => {
                let stamp = path.metadata().map(|found| FileStamp::from(&found));
                let removed = stamp.ok().map_or(Ok(()), |stamp| access.remove_file(path, &stamp));
                (path, removed)
            }
            Step::Removed(FilePlan { from: Some((_, old, _)), .. }, path) => {
                (path, access.write_file(path, old, None).map(drop))
            }
            Step::Removed(_, path) => (path, Ok(())),
        };
        if taken.is_err() {
            lost.push(path.display().to_string());
        }
    }
    lost
}

/// What was done, for the model; and the changes, for people.
fn report(plans: &[FilePlan]) -> ToolOutput {
    let mut text = String::from("Success. Updated the following files:");
    let (mut diffs, mut patches, mut first) = (Vec::new(), Vec::new(), None);
    for FilePlan { name, from, to } in plans {
        let sign = match (from, to) {
            (None, _) => 'A',
            (Some(_), None) => 'D',
            (Some(_), Some(_)) => 'M',
        };
        text.push_str(&format!("\n{sign} {name}"));
        let view = |bytes: Option<&[u8]>| bytes.map(|bytes| View::new(bytes).text).unwrap_or_default();
        let old = from.as_ref().map(|(_, bytes, _)| bytes.as_slice());
        let new = to.as_ref().map(|(_, bytes)| bytes.as_slice());
        if old.is_some_and(|bytes| bytes.contains(&0)) {
            continue;
        }
        if let Some(changes) = details(&view(old), &view(new), name) {
            if plans.len() > 1 {
                diffs.push(format!("    {sign} {name}"));
            }
            diffs.push(changes.diff);
            patches.push(changes.patch);
            first = first.or(changes.first_changed_line);
        }
    }
    let details = json!({ "diff": diffs.join("\n"), "patch": patches.concat(), "firstChangedLine": first });
    ToolOutput { details: Some(Json::from(details)), ..ToolOutput::text(text) }
}
