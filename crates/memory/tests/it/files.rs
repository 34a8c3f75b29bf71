//! Which files belong to a memory, and what is wrong with others.

use quipu_memory::files::{FILE_BYTES, FILES, FileProblem, list_files, read_file};

use crate::support::{World, name};

#[test]
fn dates_in_names_are_days_that_exist() {
    let day = |path: &str| name(path).date().map(|date| (date.day.to_string(), date.slug));
    let check = |path: &str, date: &str, slug: &str| {
        assert_eq!(day(path), Some((date.to_owned(), slug.to_owned())), "{path}");
    };
    check("memory/2026-11-27.md", "2026-11-27", "");
    check("memory/2026-11-27-a-b.md", "2026-11-27", "a-b");
    check("memory/old/2024-02-29.md", "2024-02-29", "");
    for path in [
        "MEMORY.md",
        "memory/2026-02-30.md",
        "memory/2026-13-01.md",
        "memory/2026-11-27x.md",
        "memory/20261127.md",
        "memory/+026-11-27.md",
        "memory/2026-1-27.md",
        "memory/ä026-11-27.md",
    ] {
        assert_eq!(day(path), None, "{path}");
    }
}

#[test]
fn names_outside_of_a_memory_are_refused() {
    use quipu_memory::files::FileName;
    for path in [
        "",
        "notes.md",
        "../MEMORY.md",
        "/MEMORY.md",
        "memory/../x.md",
        "memory//x.md",
        "memory/.x.md",
        "memory/x.txt",
        "memory/a/b/c/d.md",
        "memory/a\nb.md",
    ] {
        let error = FileName::new(path).expect_err(path).to_string();
        assert!(error.contains("names no file of a memory"), "{error}");
    }
    assert!(FileName::new(&format!("memory/{}.md", "x".repeat(500))).is_err());
}

#[test]
fn bad_files_are_reported_and_stay_as_they_are() {
    let world = World::new();
    let root = world.book().place().root.clone();
    let outside = world.dir.path().join("outside.md");
    std::fs::write(&outside, "a secret of somebody else").unwrap();
    let large = usize::try_from(FILE_BYTES).unwrap() + 1;
    world.put("memory/large.md", "x".repeat(large));
    world.put("memory/binary.md", b"a\0b");
    world.put("memory/wide.md", [0xff, 0xfe, b'a', 0, b'b', 0]);
    world.put("memory/latin.md", b"caf\xe9");
    world.put("memory/conflict.md", "a\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n");
    world.put("memory/good.md", "good\n");
    std::os::unix::fs::symlink(&outside, root.join("memory/link.md")).unwrap();
    std::os::unix::fs::symlink(world.dir.path(), root.join("memory/dir")).unwrap();
    nix::unistd::mkfifo(&root.join("memory/fifo.md"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let list = list_files(&root);
    let names: Vec<_> = list.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(
        names,
        ["memory/binary.md", "memory/conflict.md", "memory/good.md", "memory/latin.md", "memory/wide.md"]
    );
    let problems: Vec<_> = list.problems.iter().map(|(_, problem)| problem.clone()).collect();
    for expected in [FileProblem::TooLarge(large as u64), FileProblem::Link, FileProblem::NotAFile] {
        assert!(problems.contains(&expected), "{expected:?} in {problems:?}");
    }
    let problem = |path: &str| read_file(&root, &name(path)).unwrap_err();
    assert_eq!(problem("memory/binary.md"), FileProblem::Binary);
    assert_eq!(problem("memory/wide.md"), FileProblem::Encoding(0));
    assert_eq!(problem("memory/latin.md"), FileProblem::Encoding(3));
    assert_eq!(problem("memory/link.md"), FileProblem::Link);
    assert_eq!(problem("memory/dir/work.md"), FileProblem::Link);
    assert_eq!(problem("memory/fifo.md"), FileProblem::NotAFile);
    assert_eq!(problem("MEMORY.md"), FileProblem::Missing);
    assert_eq!(read_file(&root, &name("memory/conflict.md")).unwrap().conflict, Some(2));
    assert_eq!(std::fs::read(root.join("memory/latin.md")).unwrap(), b"caf\xe9");
}

#[test]
fn entries_that_are_left_out_are_reported() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let root = world.book().place().root.clone();
    for good in ["memory/good.md", "memory/a/b/good.md"] {
        world.put(good, "good\n");
    }
    // What is not the memory's is not reported: hidden files, and those that are no notes.
    for other in ["memory/.hidden.md", "memory/.dreams/x.md", "memory/picture.png"] {
        world.put(other, "x");
    }
    world.put("memory/a/b/c/deep.md", "deep\n");
    world.put("memory/a\nb.md", "odd\n");
    world.put(&format!("memory/{}.md", "x".repeat(240)), "good\n");
    world.put(&format!("memory/{0}/{0}.md", "y".repeat(240)), "long\n");
    std::fs::write(root.join("memory").join(std::ffi::OsStr::from_bytes(b"caf\xe9.md")), "odd\n").unwrap();
    std::os::unix::fs::symlink(world.dir.path(), root.join("memory/elsewhere")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("memory/dangling")).unwrap();
    let list = list_files(&root);
    let names: Vec<_> = list.files.iter().map(|file| file.name.as_str().len()).collect();
    assert_eq!(names.len(), 3, "{:?}", list.files);
    let mut found: Vec<String> = list
        .problems
        .iter()
        .map(|(path, problem)| {
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            format!("{}: {problem:?}", name.chars().take(20).collect::<String>())
        })
        .collect();
    found.sort();
    let expected = [
        "memory/a\nb.md: Name".to_owned(),
        "memory/a/b/c: TooDeep".to_owned(),
        "memory/caf\u{fffd}.md: Name".to_owned(),
        "memory/elsewhere: Link".to_owned(),
        format!("memory/{}: Name", "y".repeat(13)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn files_beyond_the_most_are_reported_and_stay() {
    let world = World::new();
    let root = world.book().place().root.clone();
    std::fs::create_dir_all(root.join("memory")).unwrap();
    for number in 0..=FILES {
        std::fs::write(root.join(format!("memory/n{number}.md")), "").unwrap();
    }
    let list = list_files(&root);
    assert_eq!(list.files.len(), FILES);
    assert!(matches!(&list.problems[..], [(_, FileProblem::TooMany)]), "{:?}", list.problems);
    assert_eq!(std::fs::read_dir(root.join("memory")).unwrap().count(), FILES + 1);
}
