//! Against the real machine: processes that resist, disks that fill up, memory that is measured. What needs a
//! process of its own runs this binary again (`helper`).

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quipu_workspace::*;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

const LIMITS: OutputLimits = OutputLimits { lines: 2000, bytes: 50 * 1024, spill_bytes: 1 << 30 };
/// Only how long a failing test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How to leave the group and session, where we follow.
const SETSID: &str = if cfg!(target_os = "linux") { "setsid" } else { "" };

struct Bench {
    dir: tempfile::TempDir,
    registry: Arc<ProcessRegistry>,
    cancel: CancellationToken,
    output: OutputBuffer,
    timeout: Option<Duration>,
    env: Vec<(String, Option<String>)>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let output = OutputBuffer::new(LIMITS, &OutputPlace::as_printed(dir.path().join("spill")));
        Self {
            dir,
            registry: Arc::default(),
            cancel: CancellationToken::new(),
            output,
            timeout: None,
            env: vec![],
        }
    }

    async fn run(&mut self, command: &str) -> Result<ShellEnd, ShellError> {
        let command = ShellCommand {
            owner: "run",
            command,
            cwd: self.dir.path(),
            env: &self.env,
            timeout: self.timeout,
            sandbox: None,
            needs: CommandNeeds::default(),
        };
        run_shell(command, &self.registry, &self.cancel, &mut self.output, &|_| ()).await
    }
}

/// Reads a fifo that the processes of a test hold open: their lines, then `None` when the last is gone.
struct Witness {
    path: PathBuf,
    lines: UnboundedReceiver<String>,
}

impl Witness {
    fn new(dir: &Path) -> Self {
        let path = dir.join("witness");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (send, lines) = unbounded_channel();
        let opened = path.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(fs::File::open(opened).unwrap()).lines() {
                if send.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { path, lines }
    }

    async fn next(&mut self) -> Option<String> {
        tokio::time::timeout(PATIENCE, self.lines.recv()).await.expect("processes should be gone by now")
    }

    async fn sees(&mut self, count: usize) {
        for _ in 0..count {
            self.next().await.expect("a process should have come up");
        }
    }

    async fn sees_the_end(&mut self) {
        assert_eq!(self.next().await, None);
    }

    /// A command whose processes ignore what can be ignored, three of them outside its group where we follow
    /// them there; and how many they are.
    fn stubborn(&self) -> (String, usize) {
        let stay = r#"trap "" TERM HUP INT; echo up >&9; while :; do sleep 1000; done"#;
        let (outside, count) = if cfg!(target_os = "linux") {
            (format!("setsid sh -c '{stay}' & setsid env -i sh -c '{stay}' & (setsid sh -c '{stay}' &)"), 5)
        } else {
            (String::new(), 2)
        };
        let fifo = self.path.display();
        let command = format!("exec 9>'{fifo}'; trap '' TERM HUP INT\nsh -c '{stay}' &\n{outside}\n{stay}");
        (command, count)
    }
}

#[tokio::test]
async fn ends_and_output() {
    let check = async |command: &str, end: ShellEnd, text: &str| {
        let mut bench = Bench::new();
        assert_eq!(bench.run(command).await.unwrap(), end, "{command}");
        assert_eq!(bench.output.tail(), text, "{command}");
        assert_eq!(bench.registry.alive(), 0, "{command}");
    };
    use ShellEnd::*;
    check("true", Exited(0), "").await;
    check("exit 7", Exited(7), "").await;
    check("kill -9 $$", Signalled(9), "").await;
    check("echo a; echo b >&2; echo c; echo d >&2", Exited(0), "a\nb\nc\nd\n").await;
    check("cat; [ -t 0 ] || echo no", Exited(0), "no\n").await;
    check("printf 'a\\xe2\\x82'", Exited(0), "a\u{fffd}").await;
    check("(exec </dev/tty) 2>/dev/null || echo no terminal", Exited(0), "no terminal\n").await;
    check("[[ -n $BASH_VERSION ]] && echo bash", Exited(0), "bash\n").await;
}

#[tokio::test]
async fn environment_is_given_and_taken() {
    let mut bench = Bench::new();
    bench.env = vec![("QUIPU_TEST_GIVEN".into(), Some("yes".into())), ("HOME".into(), None)];
    bench.run("echo $QUIPU_TEST_GIVEN${HOME-none}; pwd -P").await.unwrap();
    let cwd = bench.dir.path().canonicalize().unwrap();
    assert_eq!(bench.output.tail(), format!("yesnone\n{}\n", cwd.display()));
}

#[tokio::test]
async fn impossible_command_is_refused_with_a_reason() {
    let mut bench = Bench::new();
    assert!(matches!(bench.run("a\0b").await, Err(ShellError::Nul)));
    assert!(matches!(bench.run(&format!(": {}", "x".repeat(3 << 20))).await, Err(ShellError::TooLong(_))));
    fs::remove_dir_all(bench.dir.path()).unwrap();
    let error = bench.run("true").await.unwrap_err().to_string();
    let dir = bench.dir.path().display();
    assert_eq!(error, format!("Working directory does not exist: {dir}\nCannot execute bash commands."));
}

#[tokio::test]
async fn background_processes_do_not_hang_and_die_with_the_registry() {
    for kill_all in [true, false] {
        let mut bench = Bench::new();
        let mut witness = Witness::new(bench.dir.path());
        let fifo = witness.path.display().to_string();
        // It holds the output open, prints into it later, and must survive that.
        let server = "while read -r line; do echo \"$line\"; echo \"got $line\" >&9; done";
        nix::unistd::mkfifo(&bench.dir.path().join("in"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let command =
            format!("exec 9>'{fifo}'; (exec 8<>in; {server} <&8) & ({SETSID} sleep 1000 &); echo started");
        assert_eq!(bench.run(&command).await.unwrap(), ShellEnd::Exited(0));
        assert_eq!(bench.output.tail(), "started\n");
        assert_eq!(bench.registry.alive(), 1);
        for line in ["1", "2", "3"] {
            assert_eq!(bench.run(&format!("echo {line} >in")).await.unwrap(), ShellEnd::Exited(0));
            assert_eq!(witness.next().await.unwrap(), format!("got {line}"));
        }
        if kill_all {
            bench.registry.kill_all();
        } else {
            bench.registry = Arc::default();
        }
        witness.sees_the_end().await;
        assert_eq!(bench.registry.alive(), 0);
    }
}

#[tokio::test]
async fn endless_background_output_does_not_hold_the_command() {
    let mut bench = Bench::new();
    assert_eq!(bench.run("yes & echo done").await.unwrap(), ShellEnd::Exited(0));
    bench.registry.kill_all();
}

#[tokio::test]
async fn child_processes_die_on_cancel() {
    let mut bench = Bench::new();
    let mut witness = Witness::new(bench.dir.path());
    let cancel = bench.cancel.clone();
    let (command, count) = witness.stubborn();
    let (end, ()) = tokio::join!(bench.run(&command), async {
        witness.sees(count).await;
        cancel.cancel();
    });
    assert_eq!(end.unwrap(), ShellEnd::Cancelled);
    witness.sees_the_end().await;
}

#[tokio::test]
async fn child_processes_die_at_the_timeout() {
    let mut bench = Bench::new();
    let mut witness = Witness::new(bench.dir.path());
    bench.timeout = Some(Duration::from_millis(500));
    assert_eq!(
        bench.run(&format!("echo before; {}", witness.stubborn().0)).await.unwrap(),
        ShellEnd::TimedOut
    );
    assert_eq!(bench.output.tail(), "before\n");
    while witness.next().await.is_some() {}
}

#[tokio::test]
async fn child_processes_die_when_the_future_is_dropped() {
    let mut bench = Bench::new();
    let mut witness = Witness::new(bench.dir.path());
    let (command, count) = witness.stubborn();
    tokio::select! {
        end = bench.run(&command) => panic!("{end:?}"),
        () = witness.sees(count) => {}
    }
    witness.sees_the_end().await;
    if cfg!(target_os = "linux") {
        assert_eq!(bench.registry.alive(), 0);
    }
}

#[tokio::test]
async fn a_command_that_prints_without_end_can_be_cancelled() {
    let mut bench = Bench::new();
    let (cancel, seen) = (bench.cancel.clone(), Arc::new(tokio::sync::Notify::new()));
    let command = ShellCommand {
        owner: "run",
        command: "trap '' TERM; yes",
        cwd: bench.dir.path(),
        env: &[],
        timeout: None,
        sandbox: None,
        needs: CommandNeeds::default(),
    };
    let notify = seen.clone();
    let progress = move |output: &OutputBuffer| {
        if output.bytes() > 10 << 20 {
            notify.notify_one();
        }
    };
    let (end, ()) = tokio::join!(
        run_shell(command, &bench.registry, &bench.cancel, &mut bench.output, &progress),
        async {
            seen.notified().await;
            cancel.cancel();
        }
    );
    assert_eq!(end.unwrap(), ShellEnd::Cancelled);
    assert!(bench.output.tail().len() < 256 * 1024);
}

#[tokio::test]
async fn child_processes_die_with_a_killed_agent() {
    let dir = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(dir.path());
    let (command, count) = witness.stubborn();
    let mut agent = rerun("agent", dir.path(), &command).spawn().unwrap();
    witness.sees(count).await;
    agent.kill().unwrap();
    agent.wait().unwrap();
    witness.sees_the_end().await;
}

#[tokio::test]
async fn background_processes_die_with_an_agent_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(dir.path());
    let command = format!(
        "exec 9>'{}'; (trap '' HUP; sleep 1000) & ({SETSID} sleep 1000 &) ; echo up >&9",
        witness.path.display()
    );
    let mut agent = rerun("agent", dir.path(), &command).spawn().unwrap();
    witness.sees(1).await;
    // The helper says so when the command is over.
    let mut said = String::new();
    BufReader::new(agent.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("over"))
        .unwrap()
        .clone_into(&mut said);
    agent.kill().unwrap();
    agent.wait().unwrap();
    witness.sees_the_end().await;
}

#[test]
fn memory_stays_small_for_huge_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge");
    let mut text = fs::File::create(&path).unwrap();
    std::io::Write::write_all(&mut text, "é\n".repeat(20).as_bytes()).unwrap();
    text.set_len(2 << 30).unwrap();
    drop(text);
    succeeds(rerun("read huge", dir.path(), "10"));
    fs::File::create(&path).unwrap().set_len(if full() { 5 << 30 } else { 1 << 30 }).unwrap();
    succeeds(rerun("read huge", dir.path(), ""));
}

#[test]
fn memory_stays_small_for_huge_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: u64 = if full() { 5_000_000_000 } else { 1_000_000_000 };
    succeeds(rerun("print", dir.path(), &format!("head -c {bytes} /dev/zero")));
    succeeds(rerun("print", dir.path(), "yes 'é — a line of some length' | head -c 100000000"));
}

#[test]
fn a_full_disk_leaves_the_old_content() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = rerun("full disk", dir.path(), "");
    // A limit of 8 blocks of 512 bytes; without the trap its signal would end the process.
    let program = command.get_program().to_owned();
    let mut limited = Command::new("/bin/sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"])
        .arg(program)
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap());
    }
    command = limited;
    succeeds(command);
}

fn full() -> bool {
    std::env::var_os("QUIPU_FULL").is_some()
}

fn rerun(what: &str, dir: &Path, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "machine::helper", "--nocapture", "--test-threads=1"]);
    command.env("QUIPU_TEST_HELPER", what).env("QUIPU_TEST_DIR", dir).env("QUIPU_TEST_ARGUMENT", argument);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

fn succeeds(mut command: Command) {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// The part that runs in a process of its own; does nothing in a normal run of the tests.
#[test]
fn helper() {
    let Ok(what) = std::env::var("QUIPU_TEST_HELPER") else { return };
    let dir = PathBuf::from(std::env::var("QUIPU_TEST_DIR").unwrap());
    let argument = std::env::var("QUIPU_TEST_ARGUMENT").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match what.as_str() {
        "agent" => runtime.block_on(async {
            let mut bench = Bench::new();
            bench.run(&argument).await.unwrap();
            println!("over");
            std::future::pending::<()>().await;
        }),
        "read huge" => {
            let (mut file, _) = open_for_reading(&dir.join("huge")).unwrap();
            let range = LineRange { start: 0, count: argument.parse().ok() };
            let limits = ReadLimits { lines: 2000, bytes: 50 * 1024, skip: u64::MAX, count: u64::MAX };
            let window =
                read_lines(&mut file, &dir.join("huge"), range, limits, &CancellationToken::new()).unwrap();
            if argument.is_empty() {
                assert_eq!((window.total_lines, window.lines, window.complete), (1, 1, false));
            } else {
                assert_eq!(window.text, "é\n".repeat(10).trim_end());
                assert_eq!((window.total_lines, window.lines, window.complete), (21, 10, true));
            }
            memory_was_small();
        }
        "print" => runtime.block_on(async {
            let mut bench = Bench::new();
            bench.output = OutputBuffer::new(
                OutputLimits { spill_bytes: 64 << 20, ..LIMITS },
                &OutputPlace::as_printed(&dir),
            );
            assert_eq!(bench.run(&argument).await.unwrap(), ShellEnd::Exited(0));
            assert!(bench.output.bytes() >= 99_999_000);
            let SpillState::Limited(path) = bench.output.spill() else {
                panic!("{:?}", bench.output.spill())
            };
            assert_eq!(fs::metadata(path).unwrap().len(), 64 << 20);
            memory_was_small();
        }),
        "full disk" => {
            if nix::unistd::geteuid().is_root() {
                let nobody = nix::unistd::Uid::from_raw(65534);
                std::os::unix::fs::chown(&dir, Some(65534), None).unwrap();
                nix::unistd::setuid(nobody).unwrap();
            }
            full_disk(&dir);
        }
        other => panic!("{other}?"),
    }
}

fn full_disk(dir: &Path) {
    let at = |name: &str| dir.join(name);
    let big = vec![b'x'; 100_000];
    let old = vec![b'o'; 3000];
    let names = || {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let fails = |name: &str| {
        let before = names();
        let error = write_file(&at(name), &big, None).unwrap_err();
        assert_eq!(error.code(), "EFBIG", "{error}");
        assert_eq!(names(), before, "nothing is left behind");
        error.to_string()
    };
    fails("new");
    fs::write(at("old"), &old).unwrap();
    assert!(fails("old").contains("unchanged"));
    assert_eq!(fs::read(at("old")).unwrap(), old);
    // With a second name the file is written in place, and put back.
    fs::hard_link(at("old"), at("twin")).unwrap();
    assert!(fails("old").contains("restored"));
    assert_eq!(fs::read(at("twin")).unwrap(), old);

    // A directory that takes no new files.
    fs::create_dir(at("shut")).unwrap();
    fs::write(at("shut/f"), "old").unwrap();
    let mode =
        |mode| fs::set_permissions(at("shut"), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o500);
    assert_eq!(write_file(&at("shut/f"), b"new", None).unwrap(), WriteKind::InPlace);
    assert_eq!(fs::read(at("shut/f")).unwrap(), b"new");
    assert_eq!(write_file(&at("shut/g"), b"new", None).unwrap_err().code(), "EACCES");
    fs::set_permissions(at("shut/f"), std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    assert_eq!(write_file(&at("shut/f"), b"newer", None).unwrap_err().code(), "EACCES");
    mode(0o700);
    assert_eq!(write_file(&at("shut/f"), b"newer", None).unwrap_err().code(), "EACCES", "write-protected");
    assert_eq!(fs::read(at("shut/f")).unwrap(), b"new");
}

/// The peak of this process's memory, as the kernel counted it.
fn memory_was_small() {
    if cfg!(target_os = "linux") {
        let memory = quipu_testkit::process_memory(std::process::id()).unwrap();
        println!("peak {} KiB", memory.peak);
        assert!(memory.peak < 64 << 10, "{memory:?}");
    }
}
