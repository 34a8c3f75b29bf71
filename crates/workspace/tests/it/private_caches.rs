//! What commands leave in caches of tools stays with their project.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use quipu_workspace::*;

use crate::confined::{UNPRIVILEGED, Way, World, is_installed, namespaces, snapshot, worlds};

/// Caches that tools find without a variable.
const USUAL: [&str; 6] = [
    "home/.cache",
    "home/.cargo/registry",
    "home/.cargo/git",
    "home/.npm",
    "home/go/pkg",
    "home/.m2/repository",
];

/// A home in which every tool was used.
fn used(world: &World) {
    for cache in USUAL.iter().chain(&["named/pip", "named/target"]) {
        fs::create_dir_all(world.path(cache).join("dir")).unwrap();
        fs::write(world.path(cache).join("dir/users"), "the user's\n").unwrap();
    }
    fs::write(world.path("home/.cargo/.package-cache"), "").unwrap();
}

/// A session in a project, with the variables that the user has set.
fn session(world: &World, project: &str, shares: &[&str]) -> World {
    let named = [("PIP_CACHE_DIR", "named/pip"), ("CARGO_TARGET_DIR", "named/target")];
    let variable = |name: &str| {
        named.iter().find(|(known, _)| *known == name).map(|(_, path)| world.path(path).into_os_string())
    };
    let mut all = caches(Some(&world.path("home")), &variable);
    for cache in &mut all {
        cache.shared = cache.variable.is_some_and(|variable| shares.contains(&variable));
    }
    let root = world.path(".");
    let isolated = (world.way == Way::Namespaces).then(|| namespaces(&root));
    let layers = world.path("layers").join(project);
    let sandbox = Sandbox::new(vec![world.path("ws")])
        .with_caches(all)
        .with_cache_layers(Some(layers))
        .with_namespaces(isolated);
    let mut env = world.env.clone();
    env.extend(named.map(|(name, path)| (name.to_owned(), Some(world.path(path).display().to_string()))));
    world.with(Arc::new(sandbox), env)
}

async fn works(world: &World, command: &str) -> String {
    let (end, output) = world.run(&format!("set -e; {command}")).await.unwrap();
    assert_eq!(end, ShellEnd::Exited(0), "{command}: {output}");
    output
}

#[tokio::test]
async fn files_of_one_project_reach_no_other_and_nothing_outside() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        used(&world);
        let outside = |world: &World| {
            let all = snapshot(&world.path("home")).into_iter().chain(snapshot(&world.path("named")));
            all.filter(|(path, _)| !path.starts_with(world.path("home/.quipu")))
                .collect::<std::collections::BTreeMap<PathBuf, String>>()
        };
        // Without namespaces, those that a variable names.
        let mut places = vec![r#""$PIP_CACHE_DIR""#.to_owned(), r#""$CARGO_TARGET_DIR""#.to_owned()];
        if world.way == Way::Namespaces {
            places.extend(USUAL.map(|cache| world.path(cache).display().to_string()));
        }
        let (first, second) = (session(&world, "first", &[]), session(&world, "second", &[]));
        works(&first, "true").await;
        works(&second, "true").await;
        let before = outside(&world);
        for place in &places {
            let command = format!(
                "cd {place}; mkdir -p dir; echo planted > dir/planted; echo changed > dir/users; rm dir/users; echo x > top; chmod 700 dir"
            );
            works(&first, &command).await;
            assert_eq!(works(&first, &format!("cat {place}/dir/planted")).await, "planted\n");
            assert_eq!(outside(&world), before, "{place}");
            works(&second, &format!("cd {place}; ! test -e dir/planted; ! test -e top")).await;
        }
        if world.way == Way::Namespaces {
            for place in &places {
                assert_eq!(
                    works(&second, &format!("cat {place}/dir/users")).await,
                    "the user's\n",
                    "{place}"
                );
            }
            works(&first, &format!("echo x > {}", world.path("home/.cargo/.package-cache").display())).await;
            assert_eq!(outside(&world), before);
        }
        // It is there for the next session of the project, and one beside it has its own.
        let beside = session(&world, "first", &[]);
        works(&beside, "! test -e \"$PIP_CACHE_DIR/dir/planted\"").await;
        drop((first, beside));
        let again = session(&world, "first", &[]);
        assert_eq!(works(&again, "cat \"$PIP_CACHE_DIR/dir/planted\"").await, "planted\n");
    }
}

#[tokio::test]
async fn shared_cache_is_written_as_it_is() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        used(&world);
        let session = session(&world, "first", &["CARGO_TARGET_DIR"]);
        works(&session, "echo x > \"$CARGO_TARGET_DIR/made\"; echo x > \"$PIP_CACHE_DIR/made\"").await;
        assert!(world.path("named/target/made").exists() && !world.path("named/pip/made").exists());
    }
}

/// The kernel takes no layer that lies in what it lies over.
#[tokio::test]
async fn cache_over_which_nothing_can_lie_begins_empty() {
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        if world.way == Way::Landlock {
            continue;
        }
        used(&world);
        let first = session(&world, "../home/.cache/layers", &[]);
        let cache = world.path("home/.cache");
        let command = format!("cd {}; ! test -e dir; echo x > made; cat made", cache.display());
        assert_eq!(works(&first, &command).await, "x\n");
        assert!(!cache.join("made").exists() && cache.join("dir/users").exists());
    }
}

#[tokio::test]
async fn build_works_in_a_directory_that_a_variable_names() {
    if !is_installed("cargo") {
        eprintln!("note: cargo is not installed; not tested");
        return;
    }
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        used(&world);
        let before = snapshot(&world.path("named"));
        let session = session(&world, "first", &[]);
        works(&session, "cargo init -q --name c; cargo build -q --offline; \"$CARGO_TARGET_DIR/debug/c\"")
            .await;
        works(&session, "cargo build -q --offline; ! test -e target").await;
        assert_eq!(snapshot(&world.path("named")), before);
    }
}

/// With the registry of whoever runs this, in which what we are built of is.
#[tokio::test]
async fn downloads_of_the_user_are_used_without_a_network() {
    let home = std::env::home_dir().filter(|_| std::env::var_os(UNPRIVILEGED).is_none());
    let Some(home) = home.filter(|_| is_installed("cargo")) else { return };
    for world in tokio::task::spawn_blocking(worlds).await.unwrap() {
        if world.way == Way::Landlock {
            continue;
        }
        let mut isolated = namespaces(&world.path("."));
        isolated.home = Some(home.clone());
        let sandbox = Sandbox::new(vec![world.path("ws")])
            .with_caches(caches(Some(&home), &|name| std::env::var_os(name)))
            .with_cache_layers(Some(world.path("layers")))
            .with_namespaces(Some(isolated));
        let session = world.with(Arc::new(sandbox), vec![("CARGO_TARGET_DIR".to_owned(), None)]);
        works(
            &session,
            "cargo init -q --name c; echo 'cfg-if = \"1\"' >> Cargo.toml; cargo build --offline 2>&1",
        )
        .await;
        assert!(world.path("ws/target/debug/c").exists());
    }
}
