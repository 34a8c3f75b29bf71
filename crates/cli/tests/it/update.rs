//! `quipu update` of the real program, where installers put it.

use std::path::PathBuf;

use serde_json::json;

use crate::support::*;

/// The program at another place of the world.
fn program_at(world: &World, place: &str) -> PathBuf {
    let program = world.path(place);
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    if std::fs::hard_link(&world.program, &program).is_err() {
        std::fs::copy(&world.program, &program).unwrap();
    }
    program
}

#[test]
fn update_says_how_npm_installed_and_what_to_run() {
    let mut world = World::new([]);
    let package = "prefix/lib/node_modules/quipu-agent";
    world.program = program_at(&world, &format!("{package}/x86_64/quipu"));
    let manifest = json!({ "name": "quipu-agent", "bin": { "quipu": "quipu" } });
    std::fs::write(world.path(&format!("{package}/package.json")), manifest.to_string()).unwrap();
    // The file that starts the program is on the PATH.
    let starter = world.path(&format!("{package}/quipu"));
    std::fs::write(&starter, "#!/bin/sh\n").unwrap();
    set_mode(&starter, 0o755);
    std::fs::create_dir(world.path("prefix/bin")).unwrap();
    std::os::unix::fs::symlink(&starter, world.path("prefix/bin/quipu")).unwrap();
    let run = |args: &[&str], path: &str| {
        let mut command = world.quipu(args);
        command.env("PATH", format!("{}:/usr/bin:/bin", world.path(path).display()));
        RunningCommand::start(command).wait().ok()
    };
    let prefix = world.path("prefix").display().to_string();
    let command = format!("npm install --global --prefix {prefix} NEW.tgz");
    let found = run(&["update", "--json"], "prefix/bin").json();
    assert_eq!(
        found,
        json!({
            "version": env!("CARGO_PKG_VERSION"), "program": world.program.display().to_string(), "method": "npm",
            "place": world.path(package).display().to_string(), "source": null, "commands": [command],
            "firstOnPath": null,
        })
    );
    let other = program_at(&world, "other/quipu");
    let shown = run(&["update"], "other").text();
    for words in [
        format!("It was installed by npm, in {prefix}/lib/node_modules/quipu-agent."),
        "compare its checksum with SHA256SUMS".to_owned(),
        format!("\n  {command}\n"),
        "downloads nothing by itself".to_owned(),
        format!("Another `quipu` comes first on your PATH: {}", other.display()),
    ] {
        assert!(shown.contains(&words), "{words:?} is not in: {shown}");
    }
    // Nothing was made, and nobody asked.
    assert!(!world.store().exists());
    assert!(world.requests().is_empty());
}

#[test]
fn update_of_a_plain_file_names_it() {
    let mut world = World::new([]);
    world.program = program_at(&world, "my tools/quipu");
    let shown = world.run(&["update"]).ok().text();
    let place = world.program.display();
    assert!(shown.contains(&format!("install -m 755 NEW '{place}'")), "{shown}");
    assert!(shown.contains("It is a plain file"), "{shown}");
}

#[test]
fn update_of_a_build_says_how_to_build_again() {
    let world = World::new([]);
    let found = world.run(&["update", "--json"]).ok().json();
    assert_eq!(found["method"], "checkout", "{found}");
    let commands = found["commands"].as_array().unwrap();
    assert!(commands.iter().any(|command| command.as_str().unwrap().starts_with("cargo build")), "{found}");
}
