//! Files by a part of their names, also of hundreds of thousands of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::editor::Candidate;
use crate::fuzzy::Fuzzy;

/// Names that are kept, and their bytes. What a walk finds beyond is not offered.
const MOST_NAMES: usize = 1_000_000;
const MOST_BYTES: usize = 64 << 20;
/// Names that a walk keeps to itself before it passes them on.
const BLOCK: usize = 4_096;
/// Names that are looked at before a newer question is.
const SLICE: usize = 2_048;
/// The best, which are given.
const BEST: usize = 100;
/// Names that are looked at before an answer that is not complete is given.
const NEWS: usize = 32_768;

/// What was found for a question, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFiles {
    /// Of the question.
    pub id: u64,
    /// Paths relative to the root; those of directories end with a slash.
    pub files: Vec<Candidate>,
    /// More may come: it has not seen everything.
    pub more: bool,
}

/// Finds files below a directory. Two threads of its own do the work: one walks, one compares; neither runs before
/// the first question, and both end when this is dropped. A newer question ends the work on an older one, and one that
/// goes on where the last ended looks only at what was found for that.
#[derive(Debug)]
pub struct FileFinder {
    root: PathBuf,
    shared: Arc<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    question: Option<(u64, String)>,
    /// Counts questions and lists of names: who works on an older one stops.
    age: u64,
    names: Names,
    /// A walk that will take the place of the names when it has ended.
    walking: bool,
    ended: bool,
}

/// Names in blocks that do not change any more.
#[derive(Debug, Default, Clone)]
struct Names {
    blocks: Vec<Arc<Block>>,
    /// Which list it is: another one has other names.
    list: u64,
    /// All are there.
    complete: bool,
}

#[derive(Debug, Default)]
struct Block {
    text: String,
    ends: Vec<u32>,
}

impl Block {
    fn get(&self, at: usize) -> &str {
        let from = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.text[from..self.ends[at] as usize]
    }

    /// Of all its names, when it is the one at this place.
    fn places(&self, block: u32) -> impl Iterator<Item = NamePosition> + use<> {
        (0..index(self.ends.len())).map(move |at| (block, at))
    }
}

impl Names {
    fn get(&self, (block, at): NamePosition) -> &str {
        self.blocks[block as usize].get(at as usize)
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileFinder {
    /// A finder of files below a directory; answers go to `found`, on a thread of its own.
    pub fn new(root: &Path, found: impl Fn(FoundFiles) + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(SharedState::default());
        let theirs = shared.clone();
        std::thread::Builder::new().name("files".into()).spawn(move || compare(&theirs, &found))?;
        Ok(Self { root: root.to_path_buf(), shared })
    }

    /// Asks for files that are like a text; all are like an empty one. With `fresh`, what is there is looked at anew,
    /// while the names of the last walk serve.
    pub fn find(&self, id: u64, text: &str, fresh: bool) {
        let mut state = self.shared.lock();
        state.question = Some((id, text.to_owned()));
        state.age += 1;
        let start = (fresh || state.names.list == 0) && !state.walking;
        if start {
            state.walking = true;
        }
        drop(state);
        self.shared.news.notify_all();
        if start {
            let (root, shared) = (self.root.clone(), self.shared.clone());
            let spawned = std::thread::Builder::new().name("walk".into()).spawn(move || walk(&root, &shared));
            if spawned.is_err() {
                let mut state = self.shared.lock();
                state.walking = false;
                state.names.complete = true;
                self.shared.news.notify_all();
            }
        }
    }
}

impl Drop for FileFinder {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.news.notify_all();
    }
}

fn walk(root: &Path, shared: &SharedState) {
    let mut list = Names { list: shared.lock().names.list + 1, ..Names::default() };
    // The first walk is watched; a later one takes its place when it has ended.
    let first = list.list == 1;
    let (mut block, mut names, mut bytes) = (Block::default(), 0, 0);
    let mut pass_on = |block: &mut Block, complete: bool| {
        if !block.ends.is_empty() {
            list.blocks.push(Arc::new(std::mem::take(block)));
        }
        list.complete = complete;
        let mut state = shared.lock();
        // At once with its names: who asks anew behind them gets another walk.
        state.walking = !complete;
        if first || complete {
            state.names = list.clone();
            shared.news.notify_all();
        }
        if state.ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut passed = 0;
    let walked = quipu_workspace::walk(root, &mut |found| {
        let Some(found) = found else {
            // Soon at first, so that something is seen, and in larger blocks later.
            let enough = block.ends.len() >= (passed / 4).clamp(1, BLOCK);
            if !enough {
                return ControlFlow::Continue(());
            }
            passed += block.ends.len();
            return pass_on(&mut block, false);
        };
        // Who writes a prompt cannot write other names.
        let Some(name) = found.path.to_str().filter(|name| !name.contains('\n')) else {
            return ControlFlow::Continue(());
        };
        names += 1;
        bytes += name.len() + 1;
        if names > MOST_NAMES || bytes > MOST_BYTES {
            return ControlFlow::Break(());
        }
        block.text.push_str(name);
        if found.is_directory {
            block.text.push('/');
        }
        block.ends.push(u32::try_from(block.text.len()).unwrap_or(u32::MAX));
        if block.ends.len() < BLOCK {
            return ControlFlow::Continue(());
        }
        passed += block.ends.len();
        pass_on(&mut block, false)
    });
    // What cannot be read has no files.
    drop(walked);
    let _ended = pass_on(&mut block, true);
}

/// The position of a name: its block, and its index there.
type NamePosition = (u32, u32);

/// Better is greater: a higher score, then a shorter name, then one that was found earlier.
type Rank = (u32, Reverse<usize>, Reverse<NamePosition>);

/// The names that match a text, out of the blocks searched so far.
#[derive(Default)]
struct FittingNames {
    text: String,
    list: u64,
    /// Blocks that were seen.
    blocks: usize,
    /// Empty for an empty text, which all fit.
    places: Vec<NamePosition>,
    /// The worst of them first.
    best: BinaryHeap<Reverse<Rank>>,
}

impl FittingNames {
    fn of(text: &str, names: &Names, blocks: usize) -> Self {
        Self { text: text.to_owned(), list: names.list, blocks, ..Self::default() }
    }

    fn look_at(&mut self, fuzzy: &mut Fuzzy, names: &Names, place: NamePosition) {
        let name = names.get(place);
        let Some(score) = fuzzy.score(name) else { return };
        if !self.text.is_empty() {
            self.places.push(place);
        }
        self.best.push(Reverse((score, Reverse(name.len()), Reverse(place))));
        if self.best.len() > BEST {
            self.best.pop();
        }
    }

    /// What fits a longer text, of what fits this; `None` when a newer question came.
    fn narrowed(
        &self,
        fuzzy: &mut Fuzzy,
        text: &str,
        names: &Names,
        is_old: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let mut narrower = Self::of(text, names, self.blocks);
        let all = names.blocks[..self.blocks].iter().zip(0..).flat_map(|(block, at)| block.places(at));
        let places: &mut dyn Iterator<Item = NamePosition> =
            if self.text.is_empty() { &mut { all } } else { &mut self.places.iter().copied() };
        for (count, place) in places.enumerate() {
            if count % SLICE == 0 && is_old() {
                return None;
            }
            narrower.look_at(fuzzy, names, place);
        }
        Some(narrower)
    }

    fn candidates(&self, fuzzy: &mut Fuzzy, names: &Names) -> Vec<Candidate> {
        let mut ranked: Vec<&Reverse<Rank>> = self.best.iter().collect();
        ranked.sort_unstable();
        let candidate = |Reverse((_, _, Reverse(place))): &Reverse<Rank>| {
            let name = names.get(*place);
            Candidate { text: name.to_owned(), matched: fuzzy.matched(name), ..Candidate::default() }
        };
        ranked.into_iter().map(candidate).collect()
    }
}

fn compare(shared: &SharedState, found: &dyn Fn(FoundFiles)) {
    let mut fuzzy = Fuzzy::paths();
    let mut fitting = FittingNames::default();
    let mut answered = None;
    loop {
        let mut state = shared.lock();
        let (id, text, age, names) = loop {
            if state.ended {
                return;
            }
            if let Some((id, text)) = &state.question {
                let names = &state.names;
                let at = (*id, names.list, names.blocks.len(), names.complete);
                if answered != Some(at) && (names.list > 0 || names.complete) {
                    answered = Some(at);
                    break (*id, text.clone(), state.age, names.clone());
                }
            }
            state = shared.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let is_old = || {
            let state = shared.lock();
            state.age != age || state.ended
        };
        fuzzy.look_for(&text);
        if fitting.list != names.list || !narrows(&fitting.text, &text) {
            fitting = FittingNames::of(&text, &names, 0);
        } else if fitting.text != text {
            // What fits the shorter text is kept until what fits this one is known.
            let Some(narrower) = fitting.narrowed(&mut fuzzy, &text, &names, &is_old) else { continue };
            fitting = narrower;
        }
        let mut since = 0;
        while fitting.blocks < names.blocks.len() && !is_old() {
            let block = &names.blocks[fitting.blocks];
            for place in block.places(index(fitting.blocks)) {
                fitting.look_at(&mut fuzzy, &names, place);
            }
            fitting.blocks += 1;
            since += block.ends.len();
            if since >= NEWS && fitting.blocks < names.blocks.len() {
                since = 0;
                found(FoundFiles { id, files: fitting.candidates(&mut fuzzy, &names), more: true });
            }
        }
        if fitting.blocks == names.blocks.len() {
            let more = !names.complete;
            found(FoundFiles { id, files: fitting.candidates(&mut fuzzy, &names), more });
        }
    }
}

/// Whether what fits the second text fits the first: it goes on where that ended, and does not begin to mind case.
fn narrows(first: &str, second: &str) -> bool {
    let minds = |text: &str| text.chars().any(char::is_uppercase);
    second.starts_with(first) && minds(first) == minds(second) && !second.ends_with('\\')
}

fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn finder(root: &Path) -> (FileFinder, Receiver<FoundFiles>) {
        let (sender, receiver) = channel();
        let finder = FileFinder::new(root, move |found| drop(sender.send(found))).unwrap();
        (finder, receiver)
    }

    /// The last answer to a question.
    fn answer(answers: &Receiver<FoundFiles>, id: u64) -> Vec<String> {
        loop {
            let found = answers.recv().unwrap();
            if found.id == id && !found.more {
                return found.files.into_iter().map(|file| file.text).collect();
            }
        }
    }

    #[test]
    fn files_are_found_by_parts_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["src/main.rs", "src/editor/mod.rs", "README.md", ".github/ci.yml", ".git/config", "a b/c.txt"]
        {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let (finder, answers) = finder(dir.path());
        finder.find(1, "", true);
        let all = answer(&answers, 1);
        assert_eq!(all.len(), 9, "{all:?}");
        assert!(!all[0].trim_end_matches('/').contains('/'), "near ones first: {all:?}");
        let check = |id, text, expect: &[&str]| {
            finder.find(id, text, false);
            assert_eq!(answer(&answers, id), expect, "{text}");
        };
        check(2, "edmod", &["src/editor/mod.rs"]);
        check(3, "edmodx", &[]);
        check(4, "main", &["src/main.rs"]);
        check(5, "readme", &["README.md"]);
        check(6, "Readme", &[]);
        check(7, "ciyml", &[".github/ci.yml"]);
        check(8, "abc", &["a b/c.txt"]);
        check(9, "config", &[]);
        std::fs::write(dir.path().join("config"), "").unwrap();
        check(10, "config", &[]);
        finder.find(11, "config", true);
        while !answers.recv().unwrap().files.iter().any(|file| file.text == "config") {}
    }

    fn many() -> Names {
        let mut names = Names { list: 1, complete: true, ..Names::default() };
        for from in (0..100_000).step_by(BLOCK) {
            let mut block = Block::default();
            for at in from..(from + BLOCK).min(100_000) {
                block.text += &format!("crates/part{}/src/module_{}/file_{at}.rs", at % 97, at % 1_009);
                block.ends.push(index(block.text.len()));
            }
            names.blocks.push(Arc::new(block));
        }
        names
    }

    #[test]
    fn answers_come_while_it_walks_and_newer_questions_first() {
        let shared = Arc::new(SharedState::default());
        let (theirs, (sender, answers)) = (shared.clone(), channel());
        let worker = std::thread::spawn(move || compare(&theirs, &|found| drop(sender.send(found))));
        let block = |names: &[&str]| {
            let mut block = Block::default();
            for name in names {
                block.text += name;
                block.ends.push(index(block.text.len()));
            }
            Arc::new(block)
        };
        let tell = |change: &dyn Fn(&mut State)| {
            change(&mut shared.lock());
            shared.news.notify_all();
        };
        let next = || {
            let found = answers.recv().unwrap();
            let names: Vec<String> = found.files.into_iter().map(|file| file.text).collect();
            (found.id, names, found.more)
        };
        tell(&|state| state.question = Some((1, "a".into())));
        tell(&|state| state.names = Names { blocks: vec![block(&["xa", "b"])], list: 1, complete: false });
        assert_eq!(next(), (1, vec!["xa".to_owned()], true));
        tell(&|state| state.names.blocks.push(block(&["a"])));
        assert_eq!(next(), (1, vec!["a".to_owned(), "xa".to_owned()], true));
        tell(&|state| {
            state.question = Some((2, "b".into()));
            state.age += 1;
        });
        assert_eq!(next(), (2, vec!["b".to_owned()], true));
        tell(&|state| state.names.complete = true);
        assert_eq!(next(), (2, vec!["b".to_owned()], false));
        // Another walk has ended: the same question is answered from its names.
        tell(&|state| state.names = Names { blocks: vec![block(&["bb"])], list: 2, complete: true });
        assert_eq!(next(), (2, vec!["bb".to_owned()], false));
        tell(&|state| state.ended = true);
        worker.join().unwrap();
    }

    #[test]
    fn a_question_that_goes_on_looks_at_what_fitted_before() {
        let names = many();
        let mut fuzzy = Fuzzy::paths();
        let asked = std::cell::Cell::new(0);
        let is_old = || {
            asked.set(asked.get() + 1);
            false
        };
        let all = FittingNames::of("", &names, names.blocks.len());
        fuzzy.look_for("file_9");
        let first = all.narrowed(&mut fuzzy, "file_9", &names, &is_old).unwrap();
        assert!(asked.take() > 100_000 / SLICE, "it can be stopped on its way");
        fuzzy.look_for("file_99999");
        let second = first.narrowed(&mut fuzzy, "file_99999", &names, &is_old).unwrap();
        assert!(asked.take() <= first.places.len() / SLICE + 1 && first.places.len() < 70_000);
        let found = second.candidates(&mut fuzzy, &names);
        assert_eq!(found[0].text, "crates/part89/src/module_108/file_99999.rs");
        assert_eq!(found[0].matched.len(), 10);
        let fresh = all.narrowed(&mut fuzzy, "file_99999", &names, &is_old).unwrap();
        assert_eq!(fresh.places, second.places);
        assert!(first.narrowed(&mut fuzzy, "file_99999", &names, &|| true).is_none());
    }

    #[test]
    fn longer_query_narrows_the_matches() {
        assert!(narrows("", "a") && narrows("a", "ab") && narrows("a", "a b"));
        assert!(!narrows("ab", "a") && !narrows("a", "aB") && !narrows("x", "a"));
    }
}
