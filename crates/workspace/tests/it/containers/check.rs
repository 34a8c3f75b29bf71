//! What is found of what containers need; with podman, and with programs that only have its name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quipu_workspace::*;

use super::{Image, World, podman};

/// Programs that end are waited for.
const PATIENT: Duration = Duration::from_secs(60);

fn looked(settings: &Containers) -> ContainerReport {
    check_containers(settings, Helpers::of_this_process(), PATIENT)
}

#[test]
fn check_says_what_is_there_and_what_is_not() {
    let Some(image) = Image::make() else { return };
    let world = World::new();
    let right = world.settings(&image);
    let found = looked(&right);
    let program = found.program.unwrap();
    assert!(podman(&["--version"]).ends_with(&program.version), "{program:?}");
    assert!(!found.image.unwrap().unwrap().is_empty());
    found.runtime.unwrap().unwrap();

    let missing = Containers { image: "quipu-test-not-there".into(), ..right.clone() };
    let found = looked(&missing);
    assert!(matches!(found.image, Some(Err(ContainerError::NoImage { .. }))), "{found:?}");
    assert!(found.program.is_ok() && found.runtime.is_none());
    for name in ["", "--privileged"] {
        let unnamed = Containers { image: name.into(), ..right.clone() };
        assert!(matches!(looked(&unnamed).image, Some(Err(_))), "{name}");
    }
    let broken = Containers { runtime: Some("quipu-no-such-runtime".into()), ..right.clone() };
    let error = looked(&broken).runtime.unwrap().unwrap_err().to_string();
    assert!(error.contains("sandbox.runtime"), "{error}");
    let host = Containers { network: "host".into(), ..right };
    assert!(matches!(looked(&host).runtime, Some(Err(ContainerError::Network { .. }))));
    assert_eq!(image.containers(), [], "nothing is left");
}

fn fake_settings(root: &Path) -> Containers {
    Containers {
        engine: ContainerEngine::Podman,
        image: "any".into(),
        runtime: None,
        network: "none".into(),
        prefix: "quipu-check-".into(),
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
        home: None,
        hidden: Vec::new(),
    }
}

/// Looks with a program of this text in the place of podman.
fn faked(script: &str, patience: Duration) -> ContainerReport {
    let root = tempfile::tempdir().unwrap();
    let bin = root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("podman"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(bin.join("podman"), fs::Permissions::from_mode(0o755)).unwrap();
    let helpers = Arc::new(Helpers::new(Some(bin.as_os_str()), &[]));
    check_containers(&fake_settings(root.path()), helpers, patience)
}

#[test]
fn check_without_a_program_says_so() {
    let usual = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin", "/opt", "/run"].map(Into::into);
    let helpers = Arc::new(Helpers::new(None, &usual));
    let found = check_containers(&fake_settings(Path::new("/")), helpers, PATIENT);
    assert!(matches!(found.program, Err(ContainerError::NoProgram { program: "podman" })), "{found:?}");
    assert!(found.image.is_none() && found.runtime.is_none());
}

#[test]
fn check_ends_programs_that_hang_or_flood() {
    let short = Duration::from_millis(300);
    for script in ["exec sleep 1000", "exec yes", "yes & exec sleep 1000"] {
        let found = faked(script, short);
        assert!(matches!(found.program, Err(ContainerError::TimedOut { .. })), "{script}: {found:?}");
        assert!(found.image.is_none());
    }
    // What ends and leaves something behind that goes on is not waited for.
    let found = faked("echo podman version 1.2.3; yes >&2 & exit 0", short);
    assert!(!matches!(found.program, Err(ContainerError::TimedOut { .. })), "{found:?}");
}

#[test]
fn check_takes_rubbish_for_what_it_is() {
    let failed = |found: &ContainerReport| match &found.program {
        Err(error @ ContainerError::Failed { .. }) => error.to_string(),
        _ => panic!("{found:?}"),
    };
    for script in
        ["echo hello", "head -c 200000 /dev/urandom", "echo 'podman version'", "exit 3", "echo 1.2.3; exit 1"]
    {
        let found = faked(script, PATIENT);
        let error = failed(&found);
        assert!(error.chars().count() < 600 && !error.contains(char::is_control), "{script}: {error}");
    }
    assert!(failed(&faked("exit 3", PATIENT)).contains("it printed nothing"));
    let versions = [
        ("podman version 4.3.1", "4.3.1"),
        ("Docker version 20.10.24+dfsg1, build 297e128", "20.10.24+dfsg1"),
    ];
    for (said, version) in versions {
        let found =
            faked(&format!("[ $1 = --version ] && echo '{said}' && exit; echo nonsense; exit 1"), PATIENT);
        assert_eq!(found.program.unwrap().version, version);
        assert!(matches!(found.image, Some(Err(ContainerError::Failed { .. }))));
    }
    // One that says yes to everything.
    let found = faked("[ $1 = --version ] && echo podman version 4.3.1 && exit; echo sha256:abc", PATIENT);
    assert_eq!(found.image.unwrap().unwrap(), "sha256:abc");
    assert!(found.runtime.unwrap().is_ok());
}
