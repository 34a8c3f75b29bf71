//! Commands in containers of podman, each run for real.

mod check;
mod image;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quipu_workspace::*;
use tokio_util::sync::CancellationToken;

use image::{Image, podman, processes, runtime};

fn settings(image: &Image, root: &std::path::Path) -> Containers {
    Containers {
        engine: ContainerEngine::Podman,
        image: image.name.clone(),
        runtime: runtime(),
        network: "none".into(),
        prefix: image.prefix.clone(),
        scope: "test".into(),
        workspace: ContainerMount {
            source: root.join("ws"),
            target: "/workspace".into(),
            access: AccessMode::Write,
        },
        mounts: Vec::new(),
        variables: Vec::new(),
        limits: ContainerLimits::default(),
        prune: PruneLimits::default(),
        end: ContainerEnd::Stopped,
        state: root.join("state"),
        home: Some(root.join("home")),
        hidden: vec![root.join("home/.quipu"), root.join("state")],
    }
}

struct World {
    dir: tempfile::TempDir,
    registry: Arc<ProcessRegistry>,
    env: Vec<(String, Option<String>)>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for made in ["ws/sub", "home/.ssh", "home/.quipu", "added"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        Self { dir, registry: Arc::default(), env: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn settings(&self, image: &Image) -> Containers {
        settings(image, &self.path(""))
    }

    fn sandbox(&self, containers: Containers) -> Sandbox {
        Sandbox::new(vec![self.path("ws")]).with_containers(Some(containers))
    }

    async fn run(&self, sandbox: &Sandbox, command: &str) -> (ShellEnd, String) {
        let ended = self.try_run(sandbox, command, "ws", None, &CancellationToken::new()).await;
        let (end, output) = ended.unwrap();
        (end, output.tail().to_owned())
    }

    async fn try_run(
        &self,
        sandbox: &Sandbox,
        command: &str,
        cwd: &str,
        timeout: Option<Duration>,
        cancel: &CancellationToken,
    ) -> Result<(ShellEnd, OutputBuffer), ShellError> {
        let limits = OutputLimits { lines: 2000, bytes: 50 * 1024, spill_bytes: 1 << 20 };
        let mut output = OutputBuffer::new(limits, &OutputPlace::as_printed(self.path("spill")));
        let cwd = self.path(cwd);
        let shell = ShellCommand {
            owner: "run",
            command,
            cwd: &cwd,
            env: &self.env,
            timeout,
            sandbox: Some(sandbox),
            needs: CommandNeeds::default(),
        };
        let stop = |printed: &OutputBuffer| {
            if printed.tail().contains("stop me") {
                cancel.cancel();
            }
        };
        let end = run_shell(shell, &self.registry, cancel, &mut output, &stop).await?;
        Ok((end, output))
    }
}

fn succeeds(ran: &(ShellEnd, String)) -> &str {
    assert_eq!(ran.0, ShellEnd::Exited(0), "{}", ran.1);
    &ran.1
}

#[tokio::test]
async fn commands_in_a_container_have_the_workspace_and_no_more() {
    let Some(image) = Image::make() else { return };
    let mut world = World::new();
    fs::write(world.path("secret"), "of the machine").unwrap();
    fs::write(world.path("ws/given"), "given\n").unwrap();
    world.env = [("GIVEN", "a b"), ("MY_TOKEN", "t"), ("LD_PRELOAD", "x"), ("PATH", "/nowhere")]
        .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
        .into();
    let sandbox = world.sandbox(world.settings(&image));
    let ran = world.run(&sandbox, "pwd; cat given; echo made > made; echo $GIVEN; exit 3").await;
    assert_eq!(ran, (ShellEnd::Exited(3), "/workspace\ngiven\na b\n".into()));
    assert_eq!(fs::read_to_string(world.path("ws/made")).unwrap(), "made\n");
    let ran = world.run(&sandbox, &format!("cat {}", world.path("secret").display())).await;
    assert_eq!(ran.0, ShellEnd::Exited(1), "{}", ran.1);
    for closed in ["/x", "/etc/x", "/bin/x", "/home/x"] {
        let ran = world.run(&sandbox, &format!("touch {closed}")).await;
        assert!(
            ran.0 == ShellEnd::Exited(1) && ran.1.contains("Read-only file system"),
            "{closed}: {}",
            ran.1
        );
    }
    for open in ["/tmp/x", "/var/tmp/x", "/run/x", "$HOME/x"] {
        succeeds(&world.run(&sandbox, &format!("echo x > {open} && cat {open}")).await);
    }
    let env = world.run(&sandbox, "env").await;
    let env = succeeds(&env);
    assert!(env.contains("GIVEN=a b"), "{env}");
    for closed in ["MY_TOKEN", "LD_PRELOAD", "/nowhere", "CARGO", "QUIPU_GATE"] {
        assert!(!env.contains(closed), "{closed} in {env}");
    }
    let status = world.run(&sandbox, "grep -E '^(Cap(Eff|Prm|Bnd)|NoNewPrivs)' /proc/self/status").await;
    let status: Vec<&str> = succeeds(&status).split_ascii_whitespace().skip(1).step_by(2).collect();
    assert_eq!(status, ["0000000000000000", "0000000000000000", "0000000000000000", "1"]);
    let network = world.run(&sandbox, "grep -c : /proc/net/dev; grep -c lo: /proc/net/dev").await;
    assert_eq!(succeeds(&network), "1\n1\n", "no network but its own");
    let sub = world.try_run(&sandbox, "pwd", "ws/sub", None, &CancellationToken::new()).await.unwrap();
    assert_eq!((sub.0, sub.1.tail()), (ShellEnd::Exited(0), "/workspace/sub\n"));
    let outside = world.try_run(&sandbox, "pwd", "added", None, &CancellationToken::new()).await;
    assert!(
        matches!(&outside, Err(ShellError::Sandbox(error)) if error.to_string().contains("not in the container"))
    );
    assert_eq!(sandbox.path_outside("/workspace/a/b".as_ref()), Some(world.path("ws/a/b")));
    assert_eq!(sandbox.path_outside("/etc/a".as_ref()), None);
}

#[tokio::test]
async fn configuration_files_are_read_only_in_a_container() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    for made in ["ws/.git/objects", "ws/.git/refs", "ws/.claude"] {
        fs::create_dir_all(world.path(made)).unwrap();
    }
    for file in ["ws/.git/HEAD", "ws/.git/config", "ws/AGENTS.md", "ws/.claude/settings.json"] {
        fs::write(world.path(file), "as it was").unwrap();
    }
    let sandbox = world.sandbox(world.settings(&image));
    for closed in [".git/config", ".git/hooks/post-commit", "AGENTS.md", ".claude/settings.json"] {
        let ran = world.run(&sandbox, &format!("echo x > {closed}")).await;
        assert!(ran.0 == ShellEnd::Exited(1) && ran.1.contains("Read-only"), "{closed}: {ran:?}");
    }
    succeeds(&world.run(&sandbox, "echo x > .git/index; echo x > src.rs").await);
    assert_eq!(fs::read_to_string(world.path("ws/.git/config")).unwrap(), "as it was");
}

#[tokio::test]
async fn stopped_command_ends_inside_of_its_container() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    let sandbox = world.sandbox(world.settings(&image));
    let mark = format!("86{}", std::process::id());
    let cancel = CancellationToken::new();
    let command = format!("setsid sleep 1{mark} & sleep 2{mark} & echo stop me; sleep 3{mark}");
    let (end, _) = world.try_run(&sandbox, &command, "ws", None, &cancel).await.unwrap();
    assert_eq!(end, ShellEnd::Cancelled);
    assert_eq!(processes(&mark), 0);
    let soon = Some(Duration::from_millis(300));
    let command = format!("sleep 4{mark}");
    let ended = world.try_run(&sandbox, &command, "ws", soon, &CancellationToken::new()).await.unwrap();
    assert_eq!(ended.0, ShellEnd::TimedOut);
    assert_eq!(processes(&mark), 0);
    // What is left in the background lives on, and ends with its owner.
    let ran = world.run(&sandbox, &format!("sleep 5{mark} & echo begun")).await;
    assert_eq!(succeeds(&ran), "begun\n");
    assert_eq!(processes(&format!("sleep 5{mark}")), 1);
    world.registry.kill_owned("run");
    assert_eq!(processes(&mark), 0);
    // The same with output that somebody may still hold open; and with the end of all.
    succeeds(&world.run(&sandbox, &format!("setsid sleep 6{mark} >/dev/null 2>&1 & echo begun")).await);
    assert_eq!(processes(&format!("sleep 6{mark}")), 1);
    drop(sandbox);
    assert_eq!(processes(&mark), 0, "the container stops");
}

#[tokio::test]
async fn output_of_a_container_is_limited_as_elsewhere() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    let sandbox = world.sandbox(world.settings(&image));
    let command = "echo first; head -c 3000000 /dev/zero; echo; echo last";
    let run = || async {
        let (end, output) =
            world.try_run(&sandbox, command, "ws", None, &CancellationToken::new()).await.unwrap();
        assert_eq!(end, ShellEnd::Exited(0));
        output
    };
    let mut output = run().await;
    // Podman on a busy machine does not always hand over the end of so much.
    for _ in 0..3 {
        if !output.tail().ends_with("\nlast\n") {
            output = run().await;
        }
    }
    assert!(output.tail().ends_with("\nlast\n") && output.tail().len() < 200_000, "{} bytes", output.bytes());
    assert!(matches!(output.spill(), SpillState::Limited(_)));
}

#[tokio::test]
async fn workspace_of_a_container_is_read_only_where_it_should_be() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    fs::write(world.path("ws/given"), "given\n").unwrap();
    let sandbox = world.sandbox(world.settings(&image));
    succeeds(&world.run(&sandbox, "echo x > made").await);
    let reading = sandbox.reading();
    let ran = world.run(&reading, "cat given; echo y > made").await;
    assert!(
        ran.0 == ShellEnd::Exited(1) && ran.1.contains("given") && ran.1.contains("Read-only"),
        "{ran:?}"
    );
    assert_eq!(fs::read_to_string(world.path("ws/made")).unwrap(), "x\n");
    assert_eq!(image.containers().len(), 2);
}

#[tokio::test]
async fn container_that_cannot_be_had_runs_nothing() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    let right = world.settings(&image);
    let mount = |source: &str, target: &str| ContainerMount {
        source: source.into(),
        target: target.into(),
        access: AccessMode::Read,
    };
    let ssh = world.path("home/.ssh").display().to_string();
    let cases = [
        (Containers { image: "quipu-test-not-there".into(), ..right.clone() }, "podman import"),
        (Containers { image: " ".into(), ..right.clone() }, "sandbox.image"),
        (Containers { image: "--privileged".into(), ..right.clone() }, "name of an image"),
        (Containers { runtime: Some("quipu-no-such-runtime".into()), ..right.clone() }, "sandbox.runtime"),
        (Containers { network: "host".into(), ..right.clone() }, "no network `host`"),
        (Containers { network: "container:x".into(), ..right.clone() }, "no network `container:x`"),
        (Containers { network: "not-there".into(), ..right.clone() }, "not-there"),
        (Containers { mounts: vec![mount("/etc", "/data")], ..right.clone() }, "belongs to the system"),
        (
            Containers { mounts: vec![mount("/run/podman/podman.sock", "/s")], ..right.clone() },
            "is not mounted",
        ),
        (Containers { mounts: vec![mount(&ssh, "/ssh")], ..right.clone() }, "keep secrets"),
        (Containers { mounts: vec![mount("/usr", "/proc/x")], ..right.clone() }, "container itself"),
    ];
    for (containers, says) in cases {
        let sandbox = world.sandbox(containers);
        let ran = world.try_run(&sandbox, "echo x > ran", "ws", None, &CancellationToken::new()).await;
        let Err(ShellError::Sandbox(error)) = ran else { panic!("{says}: it ran") };
        assert!(error.to_string().contains(says), "{says} is not in {error}");
        assert!(!world.path("ws/ran").exists());
    }
    assert_eq!(image.containers(), [], "nothing is left in the way");
    // Docker is not there, or has no such image.
    let sandbox = world.sandbox(Containers { engine: ContainerEngine::Docker, ..right });
    let ran = world.try_run(&sandbox, "echo x > ran", "ws", None, &CancellationToken::new()).await;
    assert!(matches!(ran, Err(ShellError::Sandbox(_))));
    assert!(!world.path("ws/ran").exists());
}

#[tokio::test]
async fn container_is_made_again_when_its_settings_change() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    let first = world.sandbox(world.settings(&image));
    succeeds(&world.run(&first, "echo x > /tmp/kept").await);
    let id = |image: &Image| {
        let [(name, _)] = image.containers().try_into().unwrap();
        podman(&["container", "inspect", "--format", "{{.Id}}", &name])
    };
    let made = id(&image);
    // Another user of the same one sees the same.
    let same = world.sandbox(world.settings(&image));
    assert_eq!(succeeds(&world.run(&same, "cat /tmp/kept").await), "x\n");
    drop(first);
    assert_eq!(
        succeeds(&world.run(&same, "cat /tmp/kept").await),
        "x\n",
        "it runs for as long as one uses it"
    );
    let limits = ContainerLimits { processes: Some(64), memory: Some(64 << 20), processors: Some(1) };
    let other = world.sandbox(Containers { limits, ..world.settings(&image) });
    let ran = world.run(&other, "cat /tmp/kept").await;
    assert_eq!(ran.0, ShellEnd::Exited(1), "{}", ran.1);
    assert_ne!(id(&image), made);
    drop((same, other));
    let [(_, state)] = image.containers().try_into().unwrap();
    assert_eq!(state, "Exited");
    let made = id(&image);
    let again = world.sandbox(Containers { limits, ..world.settings(&image) });
    succeeds(&world.run(&again, "echo $$").await);
    assert_eq!(id(&image), made, "the same one starts again");
    // Somebody removes it while it is in use.
    let [(name, _)] = image.containers().try_into().unwrap();
    podman(&["rm", "-f", "-t", "0", &name]);
    succeeds(&world.run(&again, "echo $$").await);
    assert_ne!(id(&image), made);
}

#[tokio::test]
async fn container_that_somebody_left_running_is_emptied() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    drop({
        let sandbox = world.sandbox(world.settings(&image));
        succeeds(&world.run(&sandbox, "echo $$").await);
        sandbox
    });
    let [(name, _)] = image.containers().try_into().unwrap();
    let mark = format!("87{}", std::process::id());
    podman(&["start", &name]);
    podman(&["exec", "--detach", &name, "sleep", &mark]);
    assert_eq!(processes(&format!("sleep {mark}")), 1);
    let sandbox = world.sandbox(world.settings(&image));
    succeeds(&world.run(&sandbox, "echo $$").await);
    assert_eq!(processes(&format!("sleep {mark}")), 0);
}

#[tokio::test]
async fn containers_that_nobody_uses_are_removed_in_time() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    let scope = |scope: &str, prune: PruneLimits| {
        world.sandbox(Containers { scope: scope.into(), prune, ..world.settings(&image) })
    };
    let usual = PruneLimits::default();
    let at_once = PruneLimits { idle: Duration::ZERO, age: Duration::MAX };
    let unused = scope("unused", usual);
    succeeds(&world.run(&unused, "echo $$").await);
    drop(unused);
    let used = scope("used", usual);
    succeeds(&world.run(&used, "echo $$").await);
    assert_eq!(image.containers().len(), 2);
    let other = scope("other", at_once);
    succeeds(&world.run(&other, "echo $$").await);
    let states: Vec<String> = image.containers().into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, ["Up", "Up"], "the one that nobody uses is gone");
    let removed = world.sandbox(Containers {
        scope: "removed".into(),
        end: ContainerEnd::Removed,
        ..world.settings(&image)
    });
    succeeds(&world.run(&removed, "echo $$").await);
    drop(removed);
    assert_eq!(image.containers().len(), 2);
}
