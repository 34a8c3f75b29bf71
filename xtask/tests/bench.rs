//! `cargo xtask bench` interrupted: what it measures dies, and its files are gone.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkfifo};

#[test]
fn an_interrupted_run_leaves_nothing_behind() -> Result<(), Box<dyn Error>> {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let directory = tempfile::tempdir()?;
        let scratch = directory.path().join("tmp");
        std::fs::create_dir(&scratch)?;
        // Open for as long as the program or a child of it lives.
        let alive = directory.path().join("alive");
        mkfifo(&alive, nix::sys::stat::Mode::S_IRWXU)?;
        let program = directory.path().join("quipu");
        let text = format!("#!/bin/sh\nexec >'{}'\necho started\nsleep 1000 &\nwait\n", alive.display());
        std::fs::write(&program, text)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;

        let mut bench = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["bench", "--smoke", "version", "--quipu"])
            .arg(&program)
            .env("TMPDIR", &scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut output = BufReader::new(std::fs::File::open(&alive)?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        assert_eq!(line, "started\n");
        assert_eq!(std::fs::read_dir(&scratch)?.count(), 1);

        kill(Pid::from_raw(i32::try_from(bench.id())?), signal)?;
        let status = bench.wait()?;
        assert_eq!((status.code(), status.signal()), (Some(128 + signal as i32), None));
        // Ends when nobody has it open any more.
        output.read_to_string(&mut line)?;
        assert_eq!(std::fs::read_dir(&scratch)?.count(), 0);
    }
    Ok(())
}
