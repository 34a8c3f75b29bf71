//! Which files belong to a memory, and what is wrong with others.

use quipu_memory::files::{FILE_BYTES, FileProblem, list_files, read_file};

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
