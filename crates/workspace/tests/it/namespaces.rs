//! Commands in namespaces: what they share, what is closed to them, what is hidden, and how all of it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use quipu_workspace::*;

use crate::confined::{Way, World, is_installed, namespaces, world};

const NETWORK: CommandNeeds = CommandNeeds { network: true, protected: false };
const PROTECTED: CommandNeeds = CommandNeeds { network: false, protected: true };

/// A world in namespaces; none where the system cannot confine.
pub(crate) fn inside() -> Option<World> {
    SandboxSupport::of_this_system().is_full().then(|| world(Way::Namespaces))
}

/// Waits for what another process does.
fn until(done: impl Fn() -> bool) {
    let since = std::time::Instant::now();
    while !done() {
        assert!(since.elapsed() < std::time::Duration::from_secs(20));
        std::thread::yield_now();
    }
}

async fn works(world: &World, command: &str) -> String {
    let (end, output) = world.run(command).await.unwrap();
    assert_eq!(end, ShellEnd::Exited(0), "{command}: {output}");
    output
}

async fn fails(world: &World, command: &str) -> String {
    let (end, output) = world.run(command).await.unwrap();
    assert_ne!(end, ShellEnd::Exited(0), "{command}: {output}");
    output
}

#[tokio::test]
async fn server_is_reached_by_a_later_command() {
    let Some(world) = inside() else { return };
    let serve = "import socket,sys\ns=socket.create_server((sys.argv[1],0),family=socket.AF_INET6 if \":\" in sys.argv[1] else socket.AF_INET)\nopen(\"port\",\"w\").write(str(s.getsockname()[1]))\nwhile 1:\n c,_=s.accept()\n c.sendall(b\"hello\")\n c.close()\n";
    fs::write(world.path("ws/serve.py"), serve).unwrap();
    for address in ["127.0.0.1", "localhost"] {
        works(
            &world,
            &format!("rm -f port; python3 serve.py {address} & while ! test -s port; do sleep 0.01; done"),
        )
        .await;
        let said = works(&world, &format!("cat < /dev/tcp/{address}/$(cat port)")).await;
        assert_eq!(said, "hello");
    }
    // Neither is it seen by others, nor by a command in the network of the user.
    let port: u16 = fs::read_to_string(world.path("ws/port")).unwrap().parse().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    let (end, _) =
        world.run_in(Some(&world.sandbox), NETWORK, "cat < /dev/tcp/127.0.0.1/$(cat port)").await.unwrap();
    assert_ne!(end, ShellEnd::Exited(0));
    let local = "python3 -c 'import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\nopen(\"up\",\"w\")\nwhile 1:\n c,_=s.accept()\n c.sendall(b\"local\")\n c.close()'";
    let ask = "python3 -c 'import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint(s.recv(9))'";
    for name in ["sock", "$TMPDIR/sock", "/tmp/sock"] {
        works(&world, &format!("rm -f up; {local} {name} & while ! test -e up; do sleep 0.01; done")).await;
        assert!(works(&world, &format!("{ask} {name}")).await.contains("local"));
    }
}

#[tokio::test]
async fn closed_network_reaches_nothing_outside() {
    use std::os::linux::net::SocketAddrExt as _;
    let Some(world) = inside() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = format!("quipu-namespaces-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let hidden = UnixListener::bind_addr(&address).unwrap();
    let path = world.path("out/service");
    let service = UnixListener::bind(&path).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let other = UnixListener::bind(temporary.path().join("s")).unwrap();
    for listener in [&hidden, &service, &other] {
        listener.set_nonblocking(true).unwrap();
    }
    let tcp = format!("echo x > /dev/tcp/127.0.0.1/{port}");
    let connect =
        |name: &str| format!("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{name}\")'");
    let abstract_name = format!("\\0{name}");
    let named =
        [connect(&path.display().to_string()), connect(&temporary.path().join("s").display().to_string())];
    let vsock = "python3 -c 'import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)'".to_owned();
    let raw = "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'".to_owned();
    let ring = "python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(425,8,ctypes.create_string_buffer(256)) < 0)'".to_owned();
    for command in [&tcp, &connect(&abstract_name), &vsock, &raw, &ring].into_iter().chain(&named) {
        fails(&world, command).await;
    }
    assert!(hidden.accept().is_err() && service.accept().is_err() && other.accept().is_err());
    // What was allowed opens the network, and nothing that has a name on this machine.
    let run = async |needs: CommandNeeds, command: &str| {
        world.run_in(Some(&world.sandbox), needs, command).await.unwrap().0
    };
    assert_eq!(run(NETWORK, &tcp).await, ShellEnd::Exited(0));
    for command in [&connect(&abstract_name), &vsock, &raw].into_iter().chain(&named) {
        assert_ne!(run(NETWORK, command).await, ShellEnd::Exited(0), "{command}");
    }
    assert_ne!(run(CommandNeeds::default(), &tcp).await, ShellEnd::Exited(0), "it held for one command");
    let open = Sandbox::new(vec![world.path("ws")])
        .with_network(Network::Open)
        .with_namespaces(Some(namespaces(&world.path(""))));
    let (end, output) = world.run_in(Some(&open), CommandNeeds::default(), &tcp).await.unwrap();
    assert_eq!(end, ShellEnd::Exited(0), "{output}");
}

#[tokio::test]
async fn socket_bound_later_is_covered_before_the_next_command() {
    let Some(world) = inside() else { return };
    works(&world, "true").await;
    let service = UnixListener::bind(world.path("out/late")).unwrap();
    service.set_nonblocking(true).unwrap();
    let connect = format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{}\")'",
        world.path("out/late").display()
    );
    fails(&world, &connect).await;
    assert!(service.accept().is_err());
}

#[tokio::test]
async fn outside_is_read_only_for_what_landlock_does_not_know() {
    let Some(world) = inside() else { return };
    let file = world.path("out/file");
    fs::write(&file, "content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&file).unwrap();
    for command in [
        "chmod 777",
        "chown 1:1",
        "chgrp 1",
        "touch -d 2001-01-01",
        "touch -a",
        "setfattr -n user.x -v y",
        "chattr +i",
    ] {
        if is_installed(command.split(' ').next().unwrap()) {
            fails(&world, &format!("{command} \"$OUT/file\"")).await;
        }
    }
    use std::os::unix::fs::MetadataExt as _;
    let after = fs::metadata(&file).unwrap();
    assert_eq!((before.mode(), before.uid(), before.mtime()), (after.mode(), after.uid(), after.mtime()));
    for command in [
        "mount --bind . $OUT",
        "mount -o remount,rw /",
        "umount /tmp",
        "unshare -Ur true",
        "unshare -m true",
        "nsenter -t 1 -m true",
        "chroot . true",
        "mknod n b 7 0",
    ] {
        if is_installed(command.split(' ').next().unwrap()) {
            fails(&world, command).await;
        }
    }
}

/// A repository in the workspace, as it is there before a command.
fn repository(world: &World) {
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"])
            .args(args)
            .current_dir(world.path("ws"))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["config", "user.name", "T"]);
    git(&["config", "user.email", "t@example.com"]);
    fs::write(world.path("ws/f"), "one\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
}

#[tokio::test]
async fn configuration_files_stay_unchanged() {
    let Some(world) = inside() else { return };
    world.fresh();
    repository(&world);
    for name in ["AGENTS.md", ".envrc", ".mcp.json"] {
        fs::write(world.path("ws").join(name), "mine\n").unwrap();
    }
    fs::create_dir(world.path("ws/.vscode")).unwrap();
    fs::write(world.path("ws/.vscode/tasks.json"), "{}").unwrap();
    fs::create_dir(world.path("ws/docs")).unwrap();
    fs::write(world.path("ws/docs/rules.md"), "rules\n").unwrap();
    std::os::unix::fs::symlink("docs/rules.md", world.path("ws/CLAUDE.md")).unwrap();
    let state = || {
        let names = [
            ".git/config",
            "AGENTS.md",
            ".envrc",
            ".mcp.json",
            ".vscode/tasks.json",
            "CLAUDE.md",
            "docs/rules.md",
        ];
        let mut state: Vec<String> =
            names.map(|name| fs::read_to_string(world.path("ws").join(name)).unwrap()).into();
        state.extend(
            fs::read_dir(world.path("ws/.git/hooks"))
                .unwrap()
                .map(|entry| entry.unwrap().path().display().to_string()),
        );
        state.sort();
        state
    };
    let before = state();
    for command in [
        "echo x > .git/hooks/pre-commit",
        "cp f .git/hooks/post-checkout",
        "mv .git/hooks .git/old",
        "rm -rf .git/hooks",
        "mv .git gone",
        "rm -rf .git/hooks .git/config",
        "echo x >> .git/config",
        "git config core.fsmonitor ./f",
        "git config core.hooksPath .",
        "mv f .git/config",
        "ln -sf ../f .git/config",
        "echo x > AGENTS.md",
        "mv f AGENTS.md",
        "rm -f .envrc",
        "sed -i s/mine/yours/ .mcp.json",
        "echo x > .vscode/tasks.json",
        "mv .vscode old",
        "echo x > .vscode/settings.json",
        "rm -f CLAUDE.md",
        "echo x > docs/rules.md",
        "mv docs old",
        "chmod 777 .git/hooks",
        "umount .git/config",
    ] {
        fails(&world, command).await;
        assert_eq!(state(), before, "{command}");
    }
    // Git takes settings and hooks from nowhere else.
    fs::remove_dir_all(world.path("ws/.git/hooks")).unwrap();
    fails(&world, "mkdir .git/hooks; echo x > .git/hooks/pre-commit").await;
    for command in [
        "cp -r .git evil; echo ../evil > .git/commondir; git config core.fsmonitor x",
        "ln -s ../evil/commondir .git/commondir",
        "(while :; do echo ../evil > .git/commondir; done) & sleep 0.2",
    ] {
        works(&world, &format!("{command}; true")).await;
        let commondir = world.path("ws/.git/commondir");
        if !command.contains("while") {
            until(|| !commondir.exists() && !commondir.is_symlink());
        }
    }
    let pid = outer_keeper(&world).await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    works(&world, "rm -rf evil .git/commondir.disabled").await;
    assert!(!world.path("ws/.git/commondir").exists());
    let contents = |state: &[String]| -> Vec<String> {
        state.iter().filter(|one| !one.contains("/hooks/")).cloned().collect()
    };
    assert_eq!(contents(&state()), contents(&before));
    // What is done all day works.
    works(&world, "echo two >> f && git add f && git commit -qm two && git checkout -qb b && git stash list && git tag v && git gc -q").await;
    works(&world, "git init -q sub && cd sub && git config user.name X && echo x > .git/hooks/post-commit")
        .await;
    // A person can open it for one command.
    let (end, output) = world
        .run_in(Some(&world.sandbox), PROTECTED, "git remote add o ../o && git config x.y z && echo x > .git/hooks/h && echo y > AGENTS.md && mv .vscode v")
        .await
        .unwrap();
    assert_eq!(end, ShellEnd::Exited(0), "{output}");
    assert_eq!(fs::read_to_string(world.path("ws/AGENTS.md")).unwrap(), "y\n");
    fails(&world, "git config x.y w").await;
    fails(&world, "echo z > AGENTS.md").await;
}

#[tokio::test]
async fn configuration_replaced_from_outside_is_protected_again() {
    let Some(world) = inside() else { return };
    world.fresh();
    repository(&world);
    fs::write(world.path("ws/AGENTS.md"), "one").unwrap();
    fails(&world, "echo x >> .git/config").await;
    for round in 0..3 {
        let new = world.path("ws/new");
        fs::write(&new, format!("[user]\n\tname = R{round}\n")).unwrap();
        fs::rename(&new, world.path("ws/.git/config")).unwrap();
        fs::write(&new, "other").unwrap();
        fs::rename(&new, world.path("ws/AGENTS.md")).unwrap();
        let said = works(
            &world,
            "git config user.name; ! echo x >> .git/config; ! echo x > AGENTS.md; cat AGENTS.md",
        )
        .await;
        assert!(said.starts_with(&format!("R{round}\n")) && said.ends_with("other"), "{said}");
    }
    fs::rename(world.path("ws/.git"), world.path("ws/moved")).unwrap();
    fs::create_dir_all(world.path("ws/.git/hooks")).unwrap();
    fails(&world, "echo x > .git/hooks/new").await;
}

/// Replaced by its owner while a command runs, it is protected again, soon.
#[tokio::test]
async fn configuration_replaced_during_a_command_is_protected_again() {
    let Some(world) = inside() else { return };
    world.fresh();
    repository(&world);
    fs::write(world.path("ws/AGENTS.md"), "one").unwrap();
    let world = Arc::new(world);
    let inner = world.clone();
    let wait = "touch up; while ! test -e replaced; do sleep 0.01; done; sleep 0.3; ! echo x >> .git/config && ! echo x > AGENTS.md && ! mv .git away";
    let command = tokio::spawn(async move { inner.run(wait).await.unwrap() });
    while !world.path("ws/up").exists() {
        tokio::task::yield_now().await;
    }
    for name in [".git/config", "AGENTS.md"] {
        fs::write(world.path("ws/new"), "two").unwrap();
        fs::rename(world.path("ws/new"), world.path("ws").join(name)).unwrap();
    }
    fs::write(world.path("ws/replaced"), "").unwrap();
    let (end, said) = command.await.unwrap();
    assert_eq!(end, ShellEnd::Exited(0), "{said}");
    assert_eq!(fs::read_to_string(world.path("ws/AGENTS.md")).unwrap(), "two");
}

#[tokio::test]
async fn repository_that_is_made_is_not_closed_by_another_command() {
    let Some(world) = inside() else { return };
    world.fresh();
    let world = Arc::new(world);
    let inner = world.clone();
    let makes = "git init -q new && cp -r new/.git .git && touch up; while ! test -e go; do sleep 0.01; done; git config a.b c && \
                 touch .git/hooks/mine && mv .git/config .git/other && mv .git/other .git/config";
    let command = tokio::spawn(async move { inner.run(makes).await.unwrap() });
    while !world.path("ws/up").exists() {
        tokio::task::yield_now().await;
    }
    works(&world, "true").await;
    fs::write(world.path("ws/go"), "").unwrap();
    let (end, said) = command.await.unwrap();
    assert_eq!(end, ShellEnd::Exited(0), "{said}");
    fails(&world, "git config a.b d").await;
    fails(&world, "touch .git/hooks/theirs").await;
}

#[tokio::test]
async fn socket_bound_during_a_command_is_covered() {
    let Some(world) = inside() else { return };
    works(&world, "sleep 1000 & true").await;
    let path = world.path("out/during");
    let service = UnixListener::bind(&path).unwrap();
    let listed = format!("while test -S {0}; do sleep 0.01; done; test -f {0}", path.display());
    works(&world, &listed).await;
    drop(service);
}

#[tokio::test]
async fn secrets_and_processes_are_hidden() {
    let Some(world) = inside() else { return };
    fs::write(world.path("home/.ssh/id"), "the-key").unwrap();
    fs::write(world.path("home/.netrc"), "the-key").unwrap();
    fs::write(world.path("home/.quipu/auth.json"), "the-key").unwrap();
    fs::create_dir_all(world.path("home/.quipu/outputs")).unwrap();
    fs::write(world.path("home/.quipu/outputs/kept"), "an output").unwrap();
    fs::write(world.path("home/notes"), "notes").unwrap();
    let mut shown = namespaces(&world.path(""));
    shown.visible.push(world.path("home/.quipu/outputs"));
    // A workspace that holds the secrets does not show them either.
    for write in [world.path("ws"), world.path("home")] {
        let sandbox = Sandbox::new(vec![write]).with_namespaces(Some(shown.clone()));
        assert_eq!(sandbox.isolation().unwrap(), Ok(()));
        let run = async |command: &str| {
            world.run_in(Some(&sandbox), CommandNeeds::default(), command).await.unwrap()
        };
        let (_, said) = run("cat $HOME/.ssh/id $HOME/.netrc $HOME/.quipu/auth.json; ls -la $HOME/.ssh $HOME/.quipu; grep -r the-key $HOME; true").await;
        assert!(!said.contains("the-key"), "{said}\n{}", run("cat /proc/self/mountinfo").await.1);
        let (end, said) = run("cat $HOME/notes $HOME/.quipu/outputs/kept").await;
        assert_eq!((end, said.as_str()), (ShellEnd::Exited(0), "notesan output"));
        assert_ne!(run("echo x > $HOME/.quipu/outputs/kept").await.0, ShellEnd::Exited(0));
        assert_ne!(run("echo x > $HOME/.ssh/config").await.0, ShellEnd::Exited(0));
        let (_, said) = run("ls /proc | grep -c '^[0-9]'; cat /proc/1/environ /proc/1/maps; ls /proc/1/fd; kill -9 1; kill -STOP 1; kill -9 -1").await;
        assert!(said.lines().next().unwrap().parse::<u32>().unwrap() < 10, "{said}");
        assert!(!said.contains("quipu-sandbox\n"), "{said}");
        assert_eq!(run("true").await.0, ShellEnd::Exited(0));
        let (_, said) = run("grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status").await;
        assert!(said.contains("NoNewPrivs:\t1") && said.contains("Seccomp:\t2"), "{said}");
        let forbidden: [u32; 6] = [12, 13, 19, 21, 24, 27];
        for line in said.lines().filter(|line| line.starts_with("Cap")) {
            let set = u64::from_str_radix(line.split('\t').nth(1).unwrap(), 16).unwrap();
            assert!(forbidden.iter().all(|bit| set & (1 << bit) == 0), "{line}");
        }
    }
    if fs::File::open("/etc/shadow").is_ok() {
        let said = works(&world, "cat /etc/shadow || true").await;
        assert!(!said.contains("root:"), "{said}");
    }
}

#[tokio::test]
async fn temporary_directories_are_one_private_one() {
    let Some(world) = inside() else { return };
    let mark = tempfile::NamedTempFile::new().unwrap();
    fails(&world, &format!("test -e {}", mark.path().display())).await;
    works(&world, "echo a > /tmp/a; echo b > /var/tmp/b; echo c > /dev/shm/c; echo d > $TMPDIR/d").await;
    assert_eq!(
        works(&world, "cat /tmp/a /tmp/b /var/tmp/a /dev/shm/c $TMPDIR/d; stat -c %a /tmp").await,
        "a\nb\na\nc\nd\n1777\n"
    );
    let kept = world.sandbox.temporary().unwrap();
    assert_eq!(fs::read_to_string(kept.join("tmp/a")).unwrap(), "a\n");
    assert!(!Path::new("/tmp/a").exists());
}

#[tokio::test]
async fn large_command_and_its_limit_are_as_outside() {
    let Some(mut world) = inside() else { return };
    let long = "x".repeat(100_000);
    let said = works(&world, &format!("a={long}; echo ${{#a}}")).await;
    assert_eq!(said, "100000\n");
    for number in 0..8 {
        world.env.push((format!("LONG{number}"), Some(long.clone())));
    }
    assert_eq!(works(&world, "echo ${#LONG7}").await, "100000\n");
    let error = world.run(&"y".repeat(3_000_000)).await.unwrap_err();
    assert!(matches!(error, ShellError::TooLong(_)), "{error}");
    works(&world, "true").await;
}

#[tokio::test]
async fn many_commands_run_side_by_side() {
    let Some(world) = inside() else { return };
    let world = Arc::new(world);
    let tasks: Vec<_> = (0..24)
        .map(|number| {
            let world = world.clone();
            tokio::spawn(async move { world.run(&format!("sleep 0.05; exit {number}")).await.unwrap().0 })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), ShellEnd::Exited(i32::try_from(number).unwrap()));
    }
    assert_eq!(world.run("kill -TERM $$").await.unwrap().0, ShellEnd::Signalled(15));
}

#[tokio::test]
async fn keeper_that_was_killed_is_replaced() {
    let Some(world) = inside() else { return };
    works(&world, "echo x > $TMPDIR/kept; sleep 1000 & true").await;
    let pid = outer_keeper(&world).await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let said = works(&world, "cat $TMPDIR/kept; ls /proc | grep -c '^[0-9]'").await;
    let (kept, count) = said.split_once('\n').unwrap();
    assert_eq!(kept, "x");
    assert!(count.trim().parse::<u32>().unwrap() < 6, "what ran before is gone: {said}");
}

/// What a command leaves for the next namespaces to be made of leads them nowhere.
#[tokio::test]
async fn links_left_for_later_namespaces_lead_nowhere() {
    use std::os::unix::fs::symlink;
    let Some(world) = inside() else { return };
    let outside = || {
        (
            fs::metadata(world.path("out")).unwrap().permissions(),
            fs::read_dir(world.path("out")).unwrap().count(),
        )
    };
    let before = outside();
    let reach = "echo x > /tmp/through; echo x > /var/tmp/through2; echo x > $TMPDIR/tmp/through3; echo x > $ADDED/through4; true";
    for swap in [
        "mv $TMPDIR/tmp $TMPDIR/tmp.1; ln -s $OUT $TMPDIR/tmp",
        "mv $TMPDIR/tmp $TMPDIR/tmp.2; echo x > $TMPDIR/tmp",
        "true",
    ] {
        works(&world, swap).await;
        if swap == "true" {
            // As another session may, whose workspace holds this directory.
            fs::remove_dir_all(world.path("added")).unwrap();
            symlink(world.path("out"), world.path("added")).unwrap();
        }
        let pid = outer_keeper(&world).await;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        works(&world, reach).await;
        assert_eq!(outside(), before, "{swap}");
    }
    // Nor where there are no namespaces.
    let sandbox = Sandbox::new(vec![world.path("ws"), world.path("added")]);
    world.run_in(Some(&sandbox), CommandNeeds::default(), reach).await.unwrap();
    assert_eq!(outside(), before);
}

/// The keeper's number outside: the parent of a command.
async fn outer_keeper(world: &World) -> i32 {
    works(world, "sleep 4321 & true").await;
    let parent = |pid: &str| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        (line == b"sleep\x004321\x00").then(|| parent(entry.file_name().to_str().unwrap())).flatten()
    });
    found.unwrap()
}

#[tokio::test]
async fn end_of_the_sandbox_ends_every_process() {
    let Some(world) = inside() else { return };
    works(
        &world,
        "setsid sleep 5432 & (setsid -f sleep 5432); nohup sleep 5432 & env -i setsid -f sleep 5432; true",
    )
    .await;
    let alive = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == b"sleep\x005432\x00")
        })
        .count()
    };
    assert!(alive() >= 3);
    drop(world);
    assert_eq!(alive(), 0);
}

#[tokio::test]
async fn missing_namespaces_are_told_and_landlock_holds() {
    let Some(world) = inside() else { return };
    let mut broken = namespaces(&world.path(""));
    for (program, arguments) in [
        ("/nowhere/launcher", vec![]),
        ("/bin/false", vec![]),
        ("/bin/sh", vec!["-c".into(), "exit 3".into()]),
    ] {
        broken.launcher = Launcher { program: program.into(), arguments };
        let sandbox = Sandbox::new(vec![world.path("ws")]).with_namespaces(Some(broken.clone()));
        assert_eq!(sandbox.lacks_namespaces(), None, "nothing was started");
        assert!(sandbox.isolation().unwrap().is_err(), "{program}");
        assert!(sandbox.lacks_namespaces().is_some() && sandbox.lacks_namespaces().is_none(), "told once");
        let (end, _) = world.run_in(Some(&sandbox), CommandNeeds::default(), "echo x > made").await.unwrap();
        assert_eq!(end, ShellEnd::Exited(0));
        let (end, _) =
            world.run_in(Some(&sandbox), CommandNeeds::default(), "echo x > $OUT/made").await.unwrap();
        assert_ne!(end, ShellEnd::Exited(0));
    }
}

/// What attacks are aimed at, outside.
struct Targets {
    victim: std::process::Child,
    tcp: std::net::TcpListener,
    udp: std::net::UdpSocket,
    sockets: Vec<UnixListener>,
    _temporary: tempfile::TempDir,
    shared: tempfile::NamedTempFile,
}

impl Drop for Targets {
    fn drop(&mut self) {
        self.victim.kill().ok();
        self.victim.wait().ok();
    }
}

impl Targets {
    fn new(world: &mut World) -> Self {
        use std::os::linux::net::SocketAddrExt as _;
        let tcp = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = format!("quipu-attacks-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let (socket, other) = (world.path("out/service"), temporary.path().join("service"));
        let sockets = vec![
            UnixListener::bind_addr(&address).unwrap(),
            UnixListener::bind(&socket).unwrap(),
            UnixListener::bind(&other).unwrap(),
        ];
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let shared = tempfile::Builder::new().prefix("quipu-attack").tempfile_in("/dev/shm").unwrap();
        let victim = Command::new("sleep").arg("1000").env("SECRET", "secret-of-the-victim").spawn().unwrap();
        for (name, value) in [
            ("PORT", tcp.local_addr().unwrap().port().to_string()),
            ("UDP", udp.local_addr().unwrap().port().to_string()),
            ("ABSTRACT", name),
            ("SOCK", socket.display().to_string()),
            ("TSOCK", other.display().to_string()),
            ("SSH_AUTH_SOCK", other.display().to_string()),
            ("DOCKER_HOST", format!("unix://{}", socket.display())),
            ("PID", victim.id().to_string()),
            ("HOST", world.path("out/file").display().to_string()),
            ("SHARED", shared.path().display().to_string()),
        ] {
            world.env.push((name.into(), Some(value)));
        }
        Self { victim, tcp, udp, sockets, _temporary: temporary, shared }
    }

    fn are_untouched(&mut self, attack: &str) {
        assert!(self.victim.try_wait().unwrap().is_none(), "killed by: {attack}");
        let state = fs::read_to_string(format!("/proc/{}/stat", self.victim.id())).unwrap();
        assert!(!state.contains(") T "), "stopped by: {attack}");
        assert!(self.tcp.accept().is_err() && self.udp.recv(&mut [0; 9]).is_err(), "reached by: {attack}");
        assert!(self.sockets.iter().all(|socket| socket.accept().is_err()), "reached by: {attack}");
        assert!(self.shared.path().exists(), "removed by: {attack}");
    }
}

/// The workspace as each attack finds it: a repository, and what configures programs.
fn prepared(world: &World) {
    world.fresh();
    let at = |name: &str| world.path("ws").join(name);
    for dir in [".git/hooks", ".git/objects", ".git/refs", ".vscode"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    for (name, text) in [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n\tbare = false\n"),
        ("AGENTS.md", "mine\n"),
        (".envrc", "mine\n"),
        (".vscode/tasks.json", "{}\n"),
        (".mcp.json", "{}\n"),
    ] {
        fs::write(at(name), text).unwrap();
    }
}

#[tokio::test]
async fn no_attack_gets_through() {
    let Some(mut world) = inside() else { return };
    for (name, text) in
        [(".ssh/id", "the-secret-key"), (".netrc", "the-secret-key"), (".quipu/auth.json", "the-secret-key")]
    {
        fs::write(world.path("home").join(name), text).unwrap();
    }
    fs::write(world.path("out/file"), "content\n").unwrap();
    // As if the agent had been started with it.
    let _inherited = nix::unistd::dup(fs::File::open(world.path("out/file")).unwrap()).unwrap();
    let mut targets = Targets::new(&mut world);
    let outside = |world: &World| {
        let mut all = crate::confined::snapshot(&world.path("out"));
        all.extend(crate::confined::snapshot(&world.path("home")).into_iter().filter(|(path, _)| {
            [".cache", ".npm"].iter().all(|free| !path.starts_with(world.path("home").join(free)))
        }));
        for name in [".git/hooks", ".vscode"] {
            all.extend(crate::confined::snapshot(&world.path("ws").join(name)));
        }
        for name in [".git/config", "AGENTS.md", ".envrc", ".mcp.json"] {
            let path = world.path("ws").join(name);
            all.insert(path.clone(), fs::read_to_string(path).unwrap_or_else(|error| error.to_string()));
        }
        all
    };
    prepared(&world);
    let before = outside(&world);
    let (mut tried, mut missing, mut kinds) = (0, Vec::new(), std::collections::BTreeSet::new());
    for (kind, rest) in crate::confined::lines(include_str!("attacks.txt")) {
        let (program, attack) = rest.split_once(' ').unwrap();
        if !is_installed(program) {
            missing.push(program);
            continue;
        }
        // As it is, from a process that left its parents, and from below a directory.
        for way in ["{}", "( {} ) & wait", "mkdir -p deep; cp -r . deep/ 2>/dev/null; {}"] {
            prepared(&world);
            let command = way.replace("{}", attack);
            let (_, said) = world.run(&command).await.unwrap();
            for word in ["ESCAPED", "the-secret", "secret-of-the-victim"] {
                assert!(!said.contains(word), "{kind}: {command}\n{said}");
            }
            assert_eq!(outside(&world), before, "{kind}: {command}\n{said}");
            targets.are_untouched(&command);
            tried += 1;
        }
        kinds.insert(kind);
    }
    assert_eq!(works(&world, "echo alive").await, "alive\n");
    eprintln!("{tried} attacks of {} kinds tried; not installed: {missing:?}", kinds.len());
    assert!(tried >= 200 && kinds.len() >= 40, "{tried} of {} kinds", kinds.len());
}
