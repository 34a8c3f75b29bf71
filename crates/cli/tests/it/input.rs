//! What users get wrong: each time one message, the right exit code, and nothing is broken.

use crate::support::*;

#[test]
fn flags_that_are_none() {
    let world = World::new([]);
    let check = |args: &[&str], words: &[&str]| {
        world.run(args).fails(2, words);
    };
    check(&["--colour"], &["--colour", "--help"]);
    check(&["-p", "--mode", "xml", "hi"], &["xml", "json"]);
    check(&["-p", "--thinking", "wild", "hi"], &["wild", "high"]);
    check(&["-p", "--max-turns", "0", "hi"], &["--max-turns"]);
    check(&["-p", "--max-cost", "-1", "hi"], &["--max-cost", "US dollars"]);
    check(&["-p", "--max-turns", "-1", "hi"], &["--max-turns"]);
    check(&["-p", "--max-cost", "nan", "hi"], &["--max-cost", "US dollars"]);
    check(&["-p", "-c", "--session", "abcd", "hi"], &["--session", "--continue"]);
    check(&["-p", "-c", "--no-session", "hi"], &["--no-session"]);
    check(&["show", "--request"], &["NODE|SESSION"]);
    check(&["show", "a", "--json", "--request"], &["--json", "--request"]);
    check(&["auth", "set"], &["PROVIDER"]);
    check(&["-p"], &["no task"]);
    check(&["-p", "  \n"], &["no task"]);
    // Without anything at all, it says what to do.
    let ran = world.run(&[]).exits(2);
    assert!(ran.err.contains("quipu --help") && ran.err.contains("quipu demo"), "{}", ran.err);
    let help = world.run(&["--help"]).ok().text();
    assert!(help.contains("Go back:") && help.contains("quipu help all"), "{help}");
    assert_eq!(world.run(&["help"]).ok().text(), help);
    let all = world.run(&["help", "all"]).ok().text();
    assert!(
        all.contains("Exit codes:") && all.contains("--ask-on-stdin") && all.contains("bookmark"),
        "{all}"
    );
    assert!(world.run(&["help", "auth", "set"]).ok().text().contains("Usage: quipu auth set"));
    check(&["help", "serach"], &["there is no command `serach`", "`search`", "quipu help all"]);
    assert!(world.run(&["--version"]).ok().text().starts_with("quipu "));
    assert_eq!(world.requests().len(), 0);
}

#[test]
fn models_and_providers_that_nobody_knows() {
    let world = World::says("Hello.");
    world.run(&["-p", "--model", "no-such-model", "hi"]).fails(2, &["no-such-model", "quipu models"]);
    world.run(&["-p", "--model", "test-2", "hi"]).fails(2, &["test-2", "testing/test-1"]);
    world.run(&["-p", "--provider", "no-such", "hi"]).fails(2, &["no provider", "no-such", "quipu auth"]);
    world.run(&["-p", "--provider", "no-such", "--model", "x", "hi"]).fails(2, &["no-such", "quipu models"]);
    // One that speaks a wire which we do not.
    let usual = std::fs::read_to_string(world.path("home/.quipu/models.json")).unwrap();
    let mut changed: serde_json::Value = serde_json::from_str(&usual).unwrap();
    changed["providers"]["odd"] = serde_json::json!({
        "baseUrl": "http://127.0.0.1:9/v1", "api": "odd-wire", "models": [{ "id": "odd-1" }]
    });
    std::fs::write(world.path("home/.quipu/models.json"), changed.to_string()).unwrap();
    let all = world.run(&["models", "--all", "--json"]).ok().json_lines();
    let other = all.iter().find(|model| model["supported"] == false && model["provider"] == "odd").unwrap();
    let args = [
        "-p",
        "--provider",
        other["provider"].as_str().unwrap(),
        "--model",
        other["id"].as_str().unwrap(),
        "--api-key",
        KEY,
        "hi",
    ];
    let ran = world.run(&args);
    assert!(
        ran.fails(2, &["not supported yet", "quipu models"])
            .message()
            .contains(other["id"].as_str().unwrap())
    );
    std::fs::write(world.path("home/.quipu/models.json"), usual).unwrap();
    world.run(&["-p", "hi"]).ok();
    // The session keeps its model; without it, it says so, and another can be named.
    let file = std::fs::read_to_string(world.path("home/.quipu/models.json")).unwrap();
    std::fs::write(world.path("home/.quipu/models.json"), file.replace("test-1", "test-3")).unwrap();
    world.server.push(quipu_testkit::Answer::new().text("Again.").reply());
    world.run(&["-p", "-c", "--model", "test-3", "go on"]).ok();
    assert_eq!(messages(&world.requests()[1]).len(), 3);
}

#[test]
fn no_credential() {
    let world = World::new([]);
    std::fs::remove_file(world.path("home/.quipu/models.json")).unwrap();
    world.run(&["-p", "hi"]).fails(3, &["no credential is known", "quipu auth set", "quipu demo"]);
    let all = world.run(&["models", "--all", "--json"]).ok().json_lines();
    let model = all.iter().find(|model| model["supported"] == true).unwrap();
    let (provider, model) = (model["provider"].as_str().unwrap(), model["id"].as_str().unwrap());
    world.run(&["-p", "--provider", provider, "hi"]).fails(3, &[provider, "quipu auth set"]);
    world
        .run(&["-p", "--provider", provider, "--model", model, "hi"])
        .fails(3, &["no credential for", provider, "auth.json"]);
    assert_eq!(world.sessions().len(), 0);
}

#[test]
fn files_of_the_user_that_are_damaged() {
    let world = World::says("Hello.");
    let home = world.path("home/.quipu");
    for (file, content) in [
        ("auth.json", "{"),
        ("settings.json", "[1,"),
        ("settings.json", "\u{0}"),
        ("models.json", "{ \"providers\": 1 }"),
    ] {
        let before = std::fs::read(home.join(file));
        std::fs::write(home.join(file), content).unwrap();
        let ran = world.run(&["doctor"]).ok();
        assert!(ran.err.contains("warning: ") && ran.err.contains(file), "{file}: {}", ran.err);
        assert_eq!(std::fs::read_to_string(home.join(file)).unwrap(), content);
        match before {
            Ok(before) => std::fs::write(home.join(file), before).unwrap(),
            Err(_) => std::fs::remove_file(home.join(file)).unwrap(),
        }
    }
    // The key that names secrets is not made anew: the names in old sessions would mean nothing.
    std::fs::write(home.join("seal.key"), "not a key").unwrap();
    world.run(&["-p", "hi"]).fails(1, &["seal.key", "not a valid key", "restore it"]);
    std::fs::remove_file(home.join("seal.key")).unwrap();
    // Pipes in their places hang nobody.
    for file in ["seal.key", "auth.json", "AGENTS.md"] {
        nix::unistd::mkfifo(&home.join(file), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    world.run(&["-p", "hi"]).fails(1, &["seal.key", "not a regular file"]);
    std::fs::remove_file(home.join("seal.key")).unwrap();
    world.run(&["-p", "hi"]).ok();
}

#[test]
fn files_to_include_that_cannot_be() {
    let world = World::new([]);
    let pipe = world.path("work/pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.run(&["-p", "@gone.txt", "hi"]).fails(2, &["gone.txt", "not found"]);
    world.run(&["-p", "@.", "hi"]).fails(2, &["work", "not a regular file"]);
    world.run(&["-p", "@pipe", "hi"]).fails(2, &["pipe", "not a regular file"]);
    world.run(&["-p", "@/dev/zero", "hi"]).fails(2, &["/dev/zero", "not a regular file"]);
    let large = std::fs::File::create(world.path("work/large.txt")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    world.run(&["-p", "@large.txt", "hi"]).fails(2, &["large.txt", "16 MiB"]);
    world.run_with(&["-p", "hi"], vec![b'x'; (16 << 20) + 1]).fails(2, &["stdin", "16 MiB"]);
    // A flag's text that happens to name a directory or a pipe is text, and nothing hangs.
    world.server.push(quipu_testkit::Answer::new().text("Fine.").reply());
    world.run(&["-p", "--system-prompt", "pipe", "--append-system-prompt", ".", "hi"]).ok();
}

#[test]
fn no_place_for_files() {
    let world = World::new([]);
    let run = |args: &[&str], home: Option<&str>, own: Option<&str>| {
        let mut command = world.quipu(args);
        command.env_remove("HOME");
        command.envs(home.map(|home| ("HOME", home))).envs(own.map(|own| ("QUIPU_HOME", own)));
        RunningCommand::start(command).wait()
    };
    for args in [["demo"].as_slice(), &["-p", "hi"], &["sessions"], &["doctor"], &["models"], &["auth"]] {
        run(args, None, None).fails(2, &["QUIPU_HOME", "HOME", "set"]);
        run(args, Some(""), None).fails(2, &["QUIPU_HOME"]);
    }
    // A file in its place.
    world.file("taken", "");
    run(&["demo"], None, Some("taken")).fails(4, &["taken", "not a directory"]);
    let ran = run(&["doctor"], None, Some("taken")).exits(4);
    assert!(ran.text().contains("BAD") && ran.text().contains("set QUIPU_HOME"), "{}", ran.text());
    let ran = run(&["-p", "hi"], None, Some("taken"));
    assert!(matches!(ran.status.code(), Some(3 | 4)), "{}: {}", ran.status, ran.err);
    let ran = run(&["sessions"], None, Some("taken"));
    assert!(ran.status.code() == Some(4) && ran.message().contains("taken"), "{}", ran.err);
    // Relative and new is fine.
    run(&["demo"], None, Some("own/home")).ok();
    assert!(world.path("work/own/home/quipu.db").exists());
    assert_eq!(mode(&world.path("work/own/home")), 0o700);
}

#[test]
fn a_directory_that_is_gone() {
    let world = World::says("Hello.");
    std::fs::create_dir(world.path("work/gone")).unwrap();
    let away = |args: &str| {
        std::fs::create_dir_all(world.path("work/gone")).unwrap();
        let mut command = world.command("/bin/sh");
        let line = format!("cd gone && rmdir ../gone && exec {} {args}", env!("CARGO_BIN_EXE_quipu"));
        command.args(["-c", &line]);
        RunningCommand::start(command).wait()
    };
    for args in ["-p hi", "-p -c hi", "show"] {
        let ran = away(args).exits(2);
        assert!(
            ran.message().contains("current directory") || ran.message().contains("no sessions yet"),
            "{args}: {}",
            ran.err
        );
    }
    // What needs no directory works.
    away("doctor").ok();
    away("models").ok();
    away("demo").ok();
    away("sessions --all").ok();
    away(&format!("show {}", world.sessions()[0]["id"].as_str().unwrap())).ok();
    // A session whose directory is gone.
    std::fs::create_dir_all(world.path("work/gone")).unwrap();
    let mut command = world.quipu(&["-p", "hi"]);
    command.current_dir(world.path("work/gone"));
    RunningCommand::start(command).wait().ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    std::fs::remove_dir(world.path("work/gone")).unwrap();
    world.run(&["-p", "--session", &id, "go on"]).fails(2, &["gone", "no longer exists", "again"]);
    std::fs::create_dir(world.path("work/gone")).unwrap();
    world.server.push(quipu_testkit::Answer::new().text("Again.").reply());
    world.run(&["-p", "--session", &id, "go on"]).ok();
    assert_eq!(wire_text(&messages(&world.requests()[1])[0]), "hi");
}
