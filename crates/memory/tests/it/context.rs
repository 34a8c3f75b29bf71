//! What a session reads of its memories.

use quipu_memory::AuthorClass;
use quipu_memory::context::visible;

use crate::support::{World, name};

#[test]
fn hidden_characters_are_shown_by_their_numbers() {
    assert_eq!(visible("a\u{200b}b\u{e0041}\tc"), "a\u{27e8}U+200B\u{27e9}b\u{27e8}U+E0041\u{27e9}\tc");
    assert_eq!(visible("plain ä 漢"), "plain ä 漢");
}

#[test]
fn memories_are_open_where_a_person_switched_them_on() {
    let world = World::new();
    let (home, project) = (world.home(), world.project());
    let below = project.join("src");
    std::fs::create_dir_all(project.join(".git")).unwrap();
    std::fs::create_dir_all(&below).unwrap();
    assert!(home.open(&below).unwrap().is_empty() && !home.root().exists());
    home.choose(&project, |choice| choice.on = true).unwrap();
    let ids =
        |cwd: &std::path::Path| home.open(cwd).unwrap().into_iter().map(|place| place.id).collect::<Vec<_>>();
    let own = home.project(&project).id;
    assert_eq!(ids(&below), [own.as_str(), "user"]);
    assert!(ids(world.dir.path()).is_empty(), "another project has none");
    std::fs::create_dir_all(project.join(".quipu/memory")).unwrap();
    assert_eq!(ids(&below), [own.clone(), format!("{own}.repository"), "user".to_owned()]);
    let elsewhere = world.dir.path().join("workspace");
    home.choose(&project, |choice| choice.workspace = Some(elsewhere.clone())).unwrap();
    assert_eq!(home.open(&below).unwrap()[0].root, elsewhere);
    home.choose(&project, |choice| choice.on = false).unwrap();
    assert!(ids(&below).is_empty());
    std::fs::write(home.choices_path(), "{").unwrap();
    let error = home.open(&below).unwrap_err().to_string();
    assert!(error.contains("memory.json cannot be used"), "{error}");
}

#[test]
fn linked_directory_is_no_memory_of_a_repository() {
    let world = World::new();
    let (home, project) = (world.home(), world.project());
    std::fs::create_dir_all(project.join(".git")).unwrap();
    home.choose(&project, |choice| choice.on = true).unwrap();
    let elsewhere = world.dir.path().join("elsewhere/memory");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let kinds = |home: &quipu_memory::MemoryHome| -> Vec<_> {
        home.open(&project).unwrap().into_iter().map(|place| place.kind).collect()
    };
    let own = [quipu_memory::MemoryKind::Project, quipu_memory::MemoryKind::User];
    // The directory itself, and the one above it.
    std::fs::create_dir(project.join(".quipu")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, project.join(".quipu/memory")).unwrap();
    assert_eq!(kinds(&home), own);
    assert_eq!(home.repository_problem(&project), Some(quipu_memory::files::FileProblem::Link));
    std::fs::remove_dir_all(project.join(".quipu")).unwrap();
    std::os::unix::fs::symlink(elsewhere.parent().unwrap(), project.join(".quipu")).unwrap();
    assert_eq!(kinds(&home), own);
    std::fs::remove_file(project.join(".quipu")).unwrap();
    std::fs::create_dir_all(project.join(".quipu/memory")).unwrap();
    assert_eq!(kinds(&home).len(), 3);
    assert_eq!(home.repository_problem(&project), None);
}

#[tokio::test]
async fn repository_counts_once_accepted_and_until_it_changes() {
    let world = World::new();
    let (home, project) = (world.home(), world.project());
    let place = quipu_memory::MemoryHome::repository(&project);
    std::fs::create_dir_all(&place.root).unwrap();
    std::fs::write(place.root.join("MEMORY.md"), "from the repository\n").unwrap();
    let book = || {
        quipu_memory::notes::Notebook::new(&home, place.clone(), world.store.clone(), world.sealer.clone())
    };
    let class = async || book().authors(&name("MEMORY.md")).await.unwrap()[0].class;
    assert_eq!(class().await, AuthorClass::Untrusted);
    let content = book().content();
    home.choose(&project, |choice| choice.accepted = Some(content)).unwrap();
    assert_eq!(class().await, AuthorClass::Owner);
    std::fs::write(place.root.join("MEMORY.md"), "from the repository!\n").unwrap();
    assert_eq!(class().await, AuthorClass::Untrusted);
}
