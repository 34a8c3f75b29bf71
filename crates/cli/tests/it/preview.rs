//! The list that is shown before files go along is what is written: the kernel watches the directories meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use quipu_testkit::{Answer, Reply};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::support::*;

/// Notices every write below some directories, such as none that changes nothing.
struct Watch {
    queue: OwnedFd,
    roots: Vec<PathBuf>,
    watched: HashMap<i32, PathBuf>,
}

impl Watch {
    fn of(roots: &[&Path]) -> Self {
        let queue = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let roots: Vec<PathBuf> = roots.iter().map(|root| root.to_path_buf()).collect();
        let mut watched = HashMap::new();
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        for directory in roots.iter().flat_map(|root| below(root).0) {
            watched.insert(add_watch(&queue, directory.as_path(), wanted).unwrap(), directory);
        }
        Self { queue, roots, watched }
    }

    /// The files that were written, made, replaced or removed, or whose mode changed, as a node of a session in the
    /// first directory names them.
    fn end(self) -> BTreeSet<String> {
        let (mut files, mut directories) = (BTreeSet::new(), BTreeSet::new());
        let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
        let mut events = Reader::new(&self.queue, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(error) => panic!("{error}"),
            };
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW), "nothing is missed");
            let Some(name) = event.file_name().map(|name| name.to_str().unwrap()) else { continue };
            let path = self.watched[&event.wd()].join(name);
            if event.events().contains(ReadFlags::ISDIR) {
                // What came to be in it is new, too, and was moved there before anybody could watch it.
                if path.is_dir() {
                    let (within, new) = below(&path);
                    directories.extend(within);
                    files.extend(new);
                }
                directories.insert(path);
            } else if !(name.starts_with(".quipu-") && name.ends_with(".tmp")) {
                files.insert(path);
            }
        }
        for directory in directories {
            assert!(files.iter().any(|file| file.starts_with(&directory)), "{}", directory.display());
        }
        for root in &self.roots {
            let left =
                below(root).1.into_iter().find(|file| file.extension().is_some_and(|end| end == "tmp"));
            assert_eq!(left, None, "nothing waits beside its target any more");
        }
        let named = |file: PathBuf| file.strip_prefix(&self.roots[0]).unwrap_or(&file).display().to_string();
        files.into_iter().map(named).collect()
    }
}

/// A directory with those in it, and the files in all of them.
fn below(root: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut directories, mut files) = (vec![root.to_path_buf()], Vec::new());
    let mut next = 0;
    while let Some(directory) = directories.get(next).cloned() {
        next += 1;
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is_directory = path.symlink_metadata().unwrap().is_dir();
            if is_directory { directories.push(path) } else { files.push(path) }
        }
    }
    (directories, files)
}

/// What a list names; the files that stay are not among them.
fn listed(plan: &Value) -> BTreeSet<String> {
    let changes = plan["changes"].as_array().unwrap();
    changes.iter().map(|change| change["path"].as_str().unwrap().to_owned()).collect()
}

/// Shows what a move would do to files, makes it, and gives the list, which is what was seen to be written.
fn goes(world: &World, roots: &[&Path], args: &[&str]) -> BTreeSet<String> {
    let looking = Watch::of(roots);
    let plan = world.run(&[args, &["--dry-run", "--json"]].concat()).ok().json();
    assert_eq!(looking.end(), BTreeSet::new(), "looking writes nothing");
    let plan = listed(&plan["files"]);
    let moving = Watch::of(roots);
    world.run(&[args, &["--yes"]].concat()).ok();
    assert_eq!(moving.end(), plan, "{args:?}");
    plan
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

fn head(world: &World) -> String {
    world.sessions()[0]["head"].as_str().unwrap().to_owned()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Content, modes, links, names, binary files, directories in the place of files, files that are ignored; and what stays:
/// files with two names, files that are only touched.
const FIRST: &str = "printf one > a; printf s > script; ln -s a link; printf '\\377\\0' > bin; printf m > from; printf same > \
                     same; mkdir dir; printf d > dir/d; printf t > twin; ln twin other; printf old > place; printf x > \
                     lib.so; printf '*.so' > .gitignore";
const SECOND: &str = "printf two > a; chmod 755 script; ln -sfn script link; printf '\\376' > bin; mv from to; touch same; rm \
                      -r dir; mkdir -p new/deep; printf n > new/deep/n; printf T > twin; rm place; mkdir place; printf p > \
                      place/p; rm lib.so";

#[test]
fn preview_lists_the_files_a_jump_writes() {
    let world =
        World::new([bash("c1", FIRST), says("One."), bash("c2", SECOND), says("Two."), says("Back.")]);
    world.file("mine", "nobody's");
    let work = world.path("work");
    let roots = [work.as_path()];
    world.run(&["-p", "first"]).ok();
    let first = head(&world);
    world.run(&["-p", "-c", "second"]).ok();
    let second = head(&world);

    let all = names(&[
        "a",
        "bin",
        "dir/d",
        "from",
        "lib.so",
        "link",
        "new/deep/n",
        "place",
        "place/p",
        "script",
        "to",
    ]);
    assert_eq!(goes(&world, &roots, &["branch", &first, "--files"]), all);
    assert_eq!(std::fs::read_link(work.join("link")).unwrap(), Path::new("a"));
    assert_eq!((mode(&work.join("script")) & 0o111, work.join("new").exists()), (0, false));
    assert_eq!(goes(&world, &roots, &["branch", &second, "--files"]), all);
    assert_eq!(goes(&world, &roots, &["tobe", "--files", &first, "Look."]), all);
    assert_eq!(goes(&world, &roots, &["undo", "--files"]), all);
    assert_eq!(goes(&world, &roots, &["redo", "--files"]), all);

    // What is as it will be is not written again, and neither is what somebody else wrote.
    std::fs::write(work.join("a"), "two").unwrap();
    std::fs::write(work.join("same"), "by hand").unwrap();
    std::fs::remove_file(work.join("bin")).unwrap();
    let there = goes(&world, &roots, &["branch", &second, "--files", "--overwrite"]);
    assert_eq!(there, &all - &names(&["a"]));
    assert_eq!(goes(&world, &roots, &["branch", &second, "--files"]), BTreeSet::new());
    assert_eq!(std::fs::read(work.join("same")).unwrap(), b"by hand");
}

#[test]
fn preview_lists_the_files_a_merge_writes() {
    let world = World::new([bash("c1", FIRST), says("One."), bash("c2", SECOND), says("Two.")]);
    let work = world.path("work");
    let roots = [work.as_path()];
    world.run(&["-p", "first"]).ok();
    let (first, ours) = (head(&world), world.sessions()[0]["id"].as_str().unwrap().to_owned());
    world.run(&["-p", "--fork", &first, "second"]).ok();
    let (theirs, end) = (world.sessions()[0]["id"].as_str().unwrap().to_owned(), head(&world));
    // The files are as they were before that branch; its end is named by its node.
    let back = goes(&world, &roots, &["undo", &theirs, "--files"]);
    assert!(back.contains("place/p") && back.contains("link"), "{back:?}");
    let merge = ["merge", end.as_str(), "--into", ours.as_str(), "--files"];
    assert_eq!(goes(&world, &roots, &merge), back);
    assert_eq!(goes(&world, &roots, &["undo", &ours, "--files"]), back);
    assert_eq!(goes(&world, &roots, &["redo", &ours, "--files"]), back);
}

/// The model goes back by itself: also in a directory beside the session's own that was permitted, and in no other.
#[test]
fn model_jump_writes_the_files_its_preview_listed() {
    let beside = tempfile::tempdir().unwrap();
    let added = beside.path().canonicalize().unwrap();
    let at = |name: &str| added.join(name).display().to_string();
    let write = |path: &str, content: &str| call("c1", "write", &json!({ "path": path, "content": content }));
    let mut world = World::new([
        write(&at("a"), "one"),
        says("One."),
        write(&at("a"), "two"),
        write(&at("new/b"), "b"),
        write("here", "h"),
        says("Two."),
    ]);
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "travel": { "tools": true, "tobe": "allow" } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.run(&["-p", "--add-dir", added.to_str().unwrap(), "first"]).ok();
    let first = head(&world);
    world.run(&["-p", "-c", "second"]).ok();
    let second = head(&world);
    let work = world.path("work");
    let roots = [work.as_path(), added.as_path()];
    let all = names(&[&at("a"), &at("new/b"), "here"]);
    let plan = world.run(&["tobe", "--files", "--dry-run", "--json", &first, "Look."]).ok().json();
    assert_eq!(listed(&plan["files"]), all);

    let tobe = json!({ "target_node_hash": first, "carryover_message": "Not this way.", "files": true });
    world.another_server([call("c1", "tobe", &tobe), says("Here I am.")]);
    let moving = Watch::of(&roots);
    assert_eq!(world.run(&["-p", "-c", "third"]).ok().text(), "Here I am.\n");
    assert_eq!(moving.end(), all);
    assert_eq!(std::fs::read(added.join("a")).unwrap(), b"one");
    assert!(added.is_dir() && !added.join("new").exists() && !work.join("here").exists());
    assert_eq!(goes(&world, &roots, &["undo", "--files"]), all);

    // A directory that is not permitted any more is left alone, and the model is told so.
    std::fs::remove_file(world.path("home/.quipu/permissions.json")).unwrap();
    world.run(&["branch", &second]).ok();
    world.another_server([call("c1", "tobe", &tobe), says("Here again.")]);
    let moving = Watch::of(&roots);
    world.run(&["-p", "-c", "fourth"]).ok();
    assert_eq!(moving.end(), names(&["here"]));
    assert_eq!(std::fs::read(added.join("a")).unwrap(), b"two");
}
