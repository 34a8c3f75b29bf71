//! `quipu serve install`: a file for the system, which is removed again byte for byte.

use super::*;

fn run(world: &World, args: &[&str], path: &str) -> CommandOutput {
    let mut command = world.quipu(args);
    command.env("PATH", path);
    RunningCommand::start(command).wait()
}

#[cfg(not(target_os = "macos"))]
#[test]
fn installed_service_serves_and_is_removed() {
    let world = world([]);
    let bin = world.path("home/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("systemctl"), "#!/bin/sh\necho \"$@\" >> \"$HOME/called\"\n").unwrap();
    set_mode(&bin.join("systemctl"), 0o755);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let shown = run(&world, &["serve", "install"], &path).fails(2, &["--yes"]);
    assert!(
        shown.err.contains("quipu-serve.service") && shown.err.contains("+ Restart=on-failure"),
        "{}",
        shown.err
    );
    assert!(!world.path("home/.config").exists(), "nothing was written");
    let listen = ["serve", "install", "--listen", "127.0.0.1:0", "--yes"];
    run(&world, &["serve", "install", "--listen", "192.0.2.1:1", "--yes"], &path)
        .fails(2, &["other machines"]);
    let long = format!("/tmp/{}.sock", "s".repeat(120));
    run(&world, &["serve", "install", "--socket", &long, "--yes"], &path).fails(2, &["is too long"]);
    run(&world, &listen, &path).ok();
    let file = world.path("home/.config/systemd/user/quipu-serve.service");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("QUIPU_HOME=") && text.contains("WantedBy=default.target"), "{text}");
    assert!(run(&world, &listen, &path).ok().err.contains("installed already"));
    // What the service runs, a shell reads the same way.
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut command = world.command("/bin/sh");
    command.args(["-c", &format!("exec {line}")]);
    let mut service = RunningCommand::start(command);
    service.says("Serving http://127.0.0.1:");
    service.signal(Signal::SIGTERM);
    service.wait().exits(0);
    // The schedule has units of its own.
    assert!(run(&world, &["schedule", "uninstall"], &path).ok().err.contains("Nothing is installed"));
    let removed = run(&world, &["serve", "uninstall", "--yes", "--json"], &path).ok().json();
    assert_eq!((&removed["change"], &removed["files"]), (&json!("removed"), &json!([file])), "{removed}");
    assert!(!world.path("home/.config").exists());
    assert!(run(&world, &["serve", "uninstall"], &path).ok().err.contains("Nothing is installed"));
    let called = std::fs::read_to_string(world.path("home/called")).unwrap();
    assert!(called.contains("--user enable --now quipu-serve.service"), "{called}");
    assert!(called.contains("--user disable --now quipu-serve.service"), "{called}");
}

#[cfg(not(target_os = "macos"))]
#[test]
fn installed_service_has_the_place_that_is_named() {
    let world = world([]);
    let none = world.path("home/none").display().to_string();
    let socket = world.path("tmp/q.sock").display().to_string();
    let args = ["serve", "install", "--socket", &socket, "--no-token", "--store", "named.db", "--yes"];
    let said = run(&world, &args, &none).ok().err;
    assert!(said.contains("the service could not be started: "), "{said}");
    let file = world.path("home/.config/systemd/user/quipu-serve.service");
    let text = std::fs::read_to_string(&file).unwrap();
    for word in [
        format!("--socket {socket} --no-token --cwd "),
        format!("--store {}", world.path("work/named.db").display()),
    ] {
        assert!(text.contains(&word), "{word}\n{text}");
    }
    run(&world, &["serve", "uninstall", "--yes"], &none).ok();
}
