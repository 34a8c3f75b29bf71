//! Modules of a crate use each other in one direction only, at each level: a file and the folder of its name are one
//! module, and what stands in `a/mod.rs` belongs to whoever is inside `a`.
//!
//! Edges are read from paths that begin with `crate`, `super` or `self`, in `use` and elsewhere; a name that a parent
//! takes in from one of its modules leads to that module. Tests are left out.

use super::Finding;
use crate::repo::{Repo, Role};
use std::collections::{BTreeMap, BTreeSet};

/// A module by the names that lead to it from the root of its crate.
type Module = Vec<String>;

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<File>> = BTreeMap::new();
    for (path, file) in repo.rust.iter().filter(|(_, file)| file.role != Role::Test) {
        let Some((root, within)) = path.split_once("src/") else { continue };
        let text: String = (file.source.lines())
            .map(|(line, code)| if file.is_test(line) { "\n".to_owned() } else { format!("{code}\n") })
            .collect();
        crates.entry(root).or_default().push(File::read(path, within, &text));
    }
    crates.values().flat_map(|files| Crate::of(files).circles()).collect()
}

/// One file: where it stands, the paths in it, and the names that it defines.
struct File {
    path: String,
    module: Module,
    /// Each with its line; spelled from the root of the crate.
    paths: Vec<(usize, Vec<String>)>,
    /// What `use` takes in: the name that it has here, and what it is. `*` for all.
    taken: Vec<(String, Vec<String>)>,
    defined: BTreeSet<String>,
}

impl File {
    fn read(path: &str, within: &str, code: &str) -> Self {
        let mut module: Module = within.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            module.pop();
        }
        let mut file =
            Self { path: path.to_owned(), module, paths: vec![], taken: vec![], defined: BTreeSet::new() };
        let tokens = tokens(code);
        for (at, (line, word)) in tokens.iter().enumerate() {
            let before = at.checked_sub(1).map_or("", |at| tokens[at].1);
            if ["struct", "enum", "trait", "fn", "type", "const", "static", "union"].contains(&before) {
                file.defined.insert((*word).to_owned());
            }
            if *word == "use" {
                let mut found = Vec::new();
                tree(&tokens, at + 1, &[], &mut found);
                for (name, path) in found {
                    file.taken.push((name, file.spelled(&path)));
                }
            }
            if ["crate", "super", "self"].contains(word) && before != "::" && before != "(" {
                let mut found = Vec::new();
                tree(&tokens, at, &[], &mut found);
                for (_, path) in found {
                    file.paths.push((*line, file.spelled(&path)));
                }
            }
        }
        file
    }

    /// A path as it would be spelled at the root, without `crate`.
    fn spelled(&self, path: &[String]) -> Vec<String> {
        let up = path.iter().take_while(|word| *word == "super").count();
        let rest = &path[up..];
        match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("self") => self.module.iter().chain(&path[1..]).cloned().collect(),
            Some("super") => {
                let kept = self.module.len().saturating_sub(up);
                self.module[..kept].iter().chain(rest).cloned().collect()
            }
            _ => self.module.iter().chain(rest).cloned().collect(),
        }
    }
}

/// Words, `::` and other signs, each with its line.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if word(first) {
                rest.find(|c| !word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                found.push((index + 1, &rest[..length]));
            }
            rest = &rest[length..];
        }
    }
    found
}

/// Reads a path, or a tree of them, from `at`: each with the name that it ends in. Gives where it went on to.
fn tree(
    tokens: &[(usize, &str)],
    mut at: usize,
    before: &[String],
    found: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let mut path = before.to_vec();
    let word = |at: usize| tokens.get(at).map_or("", |(_, word)| *word);
    loop {
        let next = word(at);
        if next == "{" {
            at += 1;
            while !word(at).is_empty() && word(at) != "}" {
                at = if word(at) == "," { at + 1 } else { tree(tokens, at, &path, found).max(at + 1) };
            }
            return at + 1;
        }
        if next == "*" || next.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            // `a::{self}` is `a`.
            if next != "self" || path.is_empty() {
                path.push(next.to_owned());
            }
            at += 1;
        } else {
            return at;
        }
        if word(at) != "::" {
            break;
        }
        at += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if word(at) == "as" {
        name = word(at + 1).to_owned();
        at += 2;
    }
    found.push((name, path));
    at
}

struct Crate<'a> {
    files: &'a [File],
    by_module: BTreeMap<&'a [String], &'a File>,
}

impl<'a> Crate<'a> {
    fn of(files: &'a [File]) -> Self {
        Self { files, by_module: files.iter().map(|file| (file.module.as_slice(), file)).collect() }
    }

    /// The module of ours that a path leads to, names that were taken in followed.
    fn target(&self, path: &[String], depth: usize) -> Option<Module> {
        let module = (0..=path.len())
            .rev()
            .map(|length| &path[..length])
            .find(|part| self.by_module.contains_key(part))?;
        let file = self.by_module[module];
        // What the root takes in is the face of the crate, which whoever is inside may use as others do.
        let is_face = module.is_empty();
        let Some(name) =
            path.get(module.len()).filter(|name| depth < 8 && !is_face && !file.defined.contains(*name))
        else {
            return Some(module.to_vec());
        };
        let named = file.taken.iter().filter(|(taken, _)| taken == name);
        let all = file.taken.iter().filter(|(taken, path)| {
            let source = &path[..path.len().saturating_sub(1)];
            taken == "*" && self.by_module.get(source).is_some_and(|file| file.defined.contains(name))
        });
        let next = named.chain(all).map(|(_, path)| path).find(|next| next.as_slice() != path);
        Some(next.and_then(|next| self.target(next, depth + 1)).unwrap_or_else(|| module.to_vec()))
    }

    /// For each level, which of its modules uses which other, with the place of the first use.
    fn edges(&self) -> BTreeMap<Module, BTreeMap<String, BTreeMap<String, String>>> {
        let mut edges: BTreeMap<Module, BTreeMap<String, BTreeMap<String, String>>> = BTreeMap::new();
        for file in self.files {
            for (line, path) in &file.paths {
                let Some(target) = self.target(path, 0) else { continue };
                let shared = file.module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (file.module.get(shared), target.get(shared)) {
                    let level = edges.entry(target[..shared].to_vec()).or_default();
                    let uses = level.entry(from.clone()).or_default();
                    uses.entry(to.clone()).or_insert_with(|| format!("{}:{line}", file.path));
                }
            }
        }
        edges
    }

    /// The shortest circle through each first module that has one; as notes, every use that is part of one.
    fn circles(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for level in self.edges().values() {
            for (from, uses) in level {
                for (to, place) in uses.iter().filter(|(to, _)| leads(level, to, from)) {
                    findings.push(Finding::note(
                        file_of(place),
                        0,
                        format!("in a circle: {from} uses {to} ({place})"),
                    ));
                }
            }
            let mut seen = BTreeSet::new();
            for start in level.keys() {
                let Some(circle) = circle(level, start) else { continue };
                if circle.iter().any(|name| seen.contains(name)) {
                    continue;
                }
                seen.extend(circle.iter().copied());
                let steps: Vec<String> = (circle.iter().zip(circle.iter().cycle().skip(1)))
                    .map(|(from, to)| format!("{from} uses {to} ({})", level[*from][*to]))
                    .collect();
                let place = &level[circle[0]][circle[circle.len().min(2) - 1]];
                let path = file_of(place);
                findings.push(Finding::fault(path, 0, format!("modules in a circle: {}", steps.join(", "))));
            }
        }
        findings
    }
}

/// The file of a place, which is a file and a line.
fn file_of(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(path, _)| path)
}

/// Whether `from` uses `to`, itself or through others.
fn leads(level: &BTreeMap<String, BTreeMap<String, String>>, from: &str, to: &str) -> bool {
    let (mut open, mut reached) = (vec![from], BTreeSet::new());
    while let Some(next) = open.pop() {
        if next == to {
            return true;
        }
        if reached.insert(next) {
            open.extend(level.get(next).into_iter().flat_map(BTreeMap::keys).map(String::as_str));
        }
    }
    false
}

/// The shortest way from `start` back to it.
fn circle<'a>(level: &'a BTreeMap<String, BTreeMap<String, String>>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![start]];
    let mut reached = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in level.get(*way.last()?).into_iter().flat_map(BTreeMap::keys) {
                if next == start {
                    return Some(way);
                }
                if reached.insert(next) {
                    longer.push(way.iter().copied().chain([next.as_str()]).collect());
                }
            }
        }
        ways = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn two_modules_that_use_each_other_are_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod one;\nmod two;\nmod three;\npub use two::Two;\n"),
            ("crates/a/src/one.rs", "use crate::{three::Three, two::Two};\npub struct One;\n"),
            ("crates/a/src/two.rs", "pub struct Two;\nfn f() { super::one::g() }\n"),
            (
                "crates/a/src/three.rs",
                "pub struct Three;\n#[cfg(test)]\nmod tests { use crate::one::One; }\n",
            ),
        ];
        expect(
            check,
            &files,
            &[
                "crates/a/src/one.rs: in a circle: one uses two (crates/a/src/one.rs:1)",
                "crates/a/src/one.rs: modules in a circle: one uses two (crates/a/src/one.rs:1), two uses one (crates/a/src/two.rs:2)",
                "crates/a/src/two.rs: in a circle: two uses one (crates/a/src/two.rs:2)",
            ],
        );
    }

    #[test]
    fn a_folder_is_one_module_and_its_own_level() {
        let files = [
            ("crates/a/src/lib.rs", "mod far;\nmod near;\n"),
            (
                "crates/a/src/far/mod.rs",
                "mod left;\nmod right;\npub use left::*;\npub(crate) fn common() {}\n",
            ),
            ("crates/a/src/far/left.rs", "use super::{common, right::{self, Right}};\npub struct Left;\n"),
            ("crates/a/src/far/right.rs", "use super::Left;\nuse crate::near::Near;\npub struct Right;\n"),
            (
                "crates/a/src/near.rs",
                "pub struct Near;\npub fn visible(self: &Near) -> crate::far::Left { todo() }\n",
            ),
        ];
        expect(
            check,
            &files,
            &[
                "crates/a/src/far/left.rs: in a circle: left uses right (crates/a/src/far/left.rs:1)",
                "crates/a/src/far/left.rs: modules in a circle: left uses right (crates/a/src/far/left.rs:1), right uses left (crates/a/src/far/right.rs:1)",
                "crates/a/src/far/right.rs: in a circle: far uses near (crates/a/src/far/right.rs:2)",
                "crates/a/src/far/right.rs: in a circle: right uses left (crates/a/src/far/right.rs:1)",
                "crates/a/src/far/right.rs: modules in a circle: far uses near (crates/a/src/far/right.rs:2), near uses far (crates/a/src/near.rs:2)",
                "crates/a/src/near.rs: in a circle: near uses far (crates/a/src/near.rs:2)",
            ],
        );
    }

    #[test]
    fn one_direction_and_the_face_of_the_crate_are_fine() {
        let files = [
            ("crates/a/src/lib.rs", "mod one;\nmod two;\npub use two::Two;\n"),
            (
                "crates/a/src/one.rs",
                "use crate::Two;\npub(crate) struct One;\nimpl One { fn f(&self) { self.g() } }\n",
            ),
            ("crates/a/src/two.rs", "use crate::one::One;\nfn f() -> One { crate::one::One }\n"),
        ];
        expect(check, &files, &[]);
    }
}
