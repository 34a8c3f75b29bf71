//! What bash itself runs, beside what is said of it.

use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use quipu_rules::{Effect, Verdict};

use crate::commands::{judged, rules};

/// The programs that bash looked for while it ran a command line, none of which is there.
fn programs_of(bash: &Path, command: &str) -> Vec<String> {
    let dir = tempfile_dir();
    let log = dir.join("log");
    let prepared = format!(
        "exec 9>>'{}'; command_not_found_handle() {{ echo \"$1\" >&9; return 127; }}\n{command}",
        log.display()
    );
    let work = dir.join("work");
    std::fs::create_dir_all(&work).unwrap();
    Command::new(bash)
        .args(["--norc", "--noprofile", "-c", &prepared])
        .env_clear()
        .env("PATH", "/nonexistent")
        .env("x", "evil evil")
        .current_dir(&work)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let ran = std::fs::read_to_string(&log).unwrap_or_default();
    std::fs::remove_dir_all(&dir).unwrap();
    ran.lines().map(str::to_owned).collect()
}

fn tempfile_dir() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    let dir = std::env::temp_dir().join(format!("quipu-rules-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn bash() -> Option<&'static Path> {
    ["/bin/bash", "/usr/bin/bash"].map(Path::new).into_iter().find(|path| path.exists())
}

fn soup() -> impl Strategy<Value = String> {
    // `good` is allowed, `evil` is not; nothing of this can run for ever.
    let piece = prop::sample::select(vec![
        "good",
        "good",
        "good",
        "evil",
        "evil",
        " ",
        " ",
        " ",
        " ",
        "\n",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "(",
        ")",
        "{ ",
        " }",
        "$(",
        ")",
        "`",
        "'",
        "'",
        "\"",
        "\"",
        "\\",
        "$x",
        "${x}",
        "<<E\n",
        "<<'E'\n",
        "<<-E\n",
        "\nE\n",
        "\n\tE\n",
        "E",
        "<<<",
        "<",
        "#",
        "*",
        "~",
        "=",
        "a=1 ",
        "if ",
        "; then ",
        "; fi",
        "for a in ",
        "; do ",
        "; done",
        "$((1))",
        "$'",
        "{a,evil}",
        "2>&1",
        "<(",
        "echo ",
        "[ -f good ]",
        "true",
        "\t",
        "\\\n",
        "env ",
        "\"$x\"",
    ]);
    prop::collection::vec(piece, 1..14).prop_map(|pieces| pieces.concat())
}

#[test]
fn bash_runs_nothing_beyond_what_was_allowed() {
    let Some(bash) = bash() else { return };
    let rules = rules(&[(Effect::Allow, "bash(good *)")]);
    assert_eq!(programs_of(bash, "good; evil x"), ["good", "evil"]);
    let config = ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let allowed = std::cell::Cell::new(0_usize);
    runner
        .run(&soup(), |command| {
            // Enough of them; each starts a shell.
            if judged(&rules, &command).verdict == Verdict::Allow && allowed.get() < 1_500 {
                allowed.set(allowed.get() + 1);
                let ran = programs_of(bash, &command);
                let known = |program: &String| ["good", "env"].contains(&program.as_str());
                prop_assert!(ran.iter().all(known), "{command:?} ran {ran:?}");
            }
            Ok(())
        })
        .unwrap();
    assert!(allowed.get() > 200, "{}", allowed.get());
}
