//! The first process of a session: makes the namespaces and the mounts, and starts the keeper. It has one thread.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::mounts::{all, attach, attach_over, close, copy, copy_exact, empty, overlay};
use super::wire::{receive, send};
use super::{EMPTY, Launcher, MAP, Setup, protected};
use crate::layers::{FILE, UPPER, WORK};

/// Where nothing of the outside is seen.
const COVERED: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/dev"];
/// What programs read in `/run`: where names of machines are resolved.
const RESOLVERS: [&str; 4] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/connman/resolv.conf",
];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What becomes of a path.
enum Fate {
    Hidden,
    /// With what it was before, and whether it is a directory.
    Readable(OwnedFd, bool, MsFlags),
    Writable(OwnedFd, bool),
}

fn failed(what: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {error}"))
}

/// Makes all of it, and waits for the keeper's end.
pub(super) fn run(socket: &OwnedFd, again: &Launcher) -> io::Result<()> {
    // Keys that interrupt the agent are not for the session.
    rustix::process::setsid().ok();
    let gone = || io::Error::other("the agent is gone");
    let (setup, _) = receive(socket.as_fd())?.ok_or_else(gone)?;
    let setup = Setup::decode(&setup)?;
    make_users(socket)?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC)
        .map_err(|error| failed("namespaces", error))?;
    make_mounts(&setup)?;
    keep_capabilities()?;
    let mut keeper = Command::new(&again.program);
    keeper.args(&again.arguments).env_clear().current_dir("/");
    let input = Stdio::from(socket.try_clone()?);
    let mut keeper = keeper.stdin(input).spawn().map_err(|error| failed("the keeper", error))?;
    keeper.wait().map(drop)
}

fn make_users(socket: &OwnedFd) -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| failed("a namespace of users", error))?;
    let is_root = user.is_root();
    if !is_root {
        let write = |name: &str, text: String| {
            fs::write(format!("/proc/self/{name}"), text).map_err(|error| failed(name, error))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{0} {0} 1\n", user.as_raw()))?;
        write("gid_map", format!("{0} {0} 1\n", group.as_raw()))?;
    }
    send(socket.as_fd(), MAP, &[])?;
    match receive(socket.as_fd())? {
        Some((why, _)) if !why.is_empty() => {
            Err(io::Error::other(String::from_utf8_lossy(&why).into_owned()))
        }
        Some(_) => Ok(()),
        None => Err(io::Error::other("the agent is gone")),
    }
}

fn is_covered(path: &Path) -> bool {
    COVERED.iter().any(|dir| path.starts_with(dir))
}

/// What is hidden, readable or writable besides, from the outside in: what lies deeper decides.
fn fates(setup: &Setup) -> io::Result<Vec<(PathBuf, Fate)>> {
    let mut fates = Vec::new();
    for path in &setup.hidden {
        if path.symlink_metadata().is_ok() {
            fates.push((path.clone(), Fate::Hidden));
        }
    }
    let path = std::env::split_paths(&setup.path).filter(|dir| dir.is_absolute());
    let resolvers = RESOLVERS.iter().map(PathBuf::from);
    let sockets = setup.sockets.iter().cloned();
    let readable =
        path.chain(sockets).chain(resolvers).chain([setup.home.clone()]).filter(|path| is_covered(path));
    for path in readable.chain(setup.visible.iter().cloned()) {
        let Ok(path) = path.canonicalize() else { continue };
        if let Ok(found) = path.metadata() {
            let forbidden = protected::forbidden(&path);
            fates.push((path.clone(), Fate::Readable(copy(&path)?, found.is_dir(), forbidden)));
        }
    }
    for (path, layer) in setup.caches.iter().zip(&setup.layers) {
        let Ok(found) = path.metadata() else { continue };
        let (upper, work) = (layer.join(UPPER), layer.join(WORK));
        // Where there can be no layers on layers, commands begin with what they wrote themselves.
        let tree = if found.is_dir() {
            overlay(path, &upper, &work).or_else(|_| copy(&upper))?
        } else {
            copy(&layer.join(FILE))?
        };
        fates.push((path.clone(), Fate::Writable(tree, found.is_dir())));
    }
    let written = setup.write.iter().filter(|path| !setup.caches.contains(path));
    for path in written.chain([&setup.temporary]) {
        if let Ok(found) = path.symlink_metadata() {
            // One that leads elsewhere by now is not written.
            let Ok(tree) = copy_exact(path) else { continue };
            fates.push((path.clone(), Fate::Writable(tree, found.is_dir())));
        }
    }
    fates.sort_by_key(|(path, fate)| {
        (
            path.components().count(),
            match fate {
                Fate::Hidden => 0,
                Fate::Readable(..) => 1,
                Fate::Writable(..) => 2,
            },
        )
    });
    Ok(fates)
}

fn make_mounts(setup: &Setup) -> io::Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(|error| failed("mounts", error))?;
    // All that is kept is taken aside before anything covers it.
    let fates = fates(setup)?;
    let own = own_tmp(&setup.temporary)?;
    let own = [copy_exact(&own)?, copy_exact(&own)?];
    let devices = DEVICES.map(|name| copy(&Path::new("/dev").join(name)));
    let links: Vec<(PathBuf, PathBuf)> = links_of("/run");
    for mount in all()? {
        if mount.at != Path::new("/proc") && !mount.at.starts_with("/proc/") {
            // One that cannot be: another mount covers it, or its server does not answer. Landlock still holds.
            close(&mount.at, mount.flags).ok();
        }
    }
    for (dir, own) in ["/tmp", "/var/tmp"].map(Path::new).iter().zip(own) {
        if dir.is_dir() && !dir.is_symlink() {
            attach(&own, dir)?;
        }
    }
    if Path::new("/run").is_dir() {
        empty(Path::new("/run"), "mode=755,size=1m")?;
        for (link, target) in links {
            std::os::unix::fs::symlink(target, link).ok();
        }
    }
    make_devices(devices)?;
    pin(&fates)?;
    let mut hidden = Vec::new();
    for (path, fate) in &fates {
        match fate {
            // Within what is hidden or covered already.
            Fate::Hidden if path.symlink_metadata().is_err() => {}
            Fate::Hidden if path.is_dir() => {
                let deeper = fates.iter().any(|(other, fate)| {
                    !matches!(fate, Fate::Hidden) && other != path && other.starts_with(path)
                });
                empty(path, if deeper { "mode=711,size=1m" } else { "mode=000,size=4k" })?;
                hidden.push(path);
            }
            Fate::Hidden => attach(&copy(Path::new(EMPTY))?, path)?,
            Fate::Readable(tree, is_dir, forbidden) => {
                attach_over(tree, path, *is_dir)?;
                close(path, *forbidden)?;
            }
            Fate::Writable(tree, is_dir) => attach_over(tree, path, *is_dir)?,
        }
    }
    for path in hidden.into_iter().map(PathBuf::as_path).chain(["/run", "/dev"].map(Path::new)) {
        // One that is covered again by what may be written is left.
        if super::mounts::is_mounted(path) && !setup.write.iter().any(|write| write == path) {
            close(path, MsFlags::MS_NODEV).ok();
        }
    }
    Ok(())
}

/// What commands see as `/tmp`. They can write beside it, so what they left in its place in an earlier set of namespaces is no
/// directory to be followed or opened up.
fn own_tmp(temporary: &Path) -> io::Result<PathBuf> {
    let own = temporary.join("tmp");
    if own.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
        fs::remove_file(&own)?;
    }
    fs::create_dir_all(&own)?;
    fs::set_permissions(&own, fs::Permissions::from_mode(0o1777))?;
    Ok(own)
}

/// What is made only to hold what is attached below it cannot be written: what a command left there would be lost.
fn pin(fates: &[(PathBuf, Fate)]) -> io::Result<()> {
    let mut tops = std::collections::BTreeSet::new();
    for (path, fate) in fates {
        let (Fate::Readable(_, is_dir, _) | Fate::Writable(_, is_dir)) = fate else { continue };
        let Some(cover) = COVERED.map(Path::new).into_iter().find(|dir| path.starts_with(dir)) else {
            continue;
        };
        super::mounts::make(path, *is_dir)?;
        let top = path.ancestors().find(|above| above.parent() == Some(cover));
        if let Some(top) = top.filter(|top| *top != path) {
            tops.insert(top.to_owned());
        }
    }
    for top in tops {
        let is_kept = fates.iter().any(|(path, fate)| *path == top && !matches!(fate, Fate::Hidden));
        if !is_kept {
            attach(&copy(&top)?, &top)?;
            close(&top, protected::forbidden(&top))?;
        }
    }
    Ok(())
}

/// The links directly in a directory.
fn links_of(dir: &str) -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter_map(|path| fs::read_link(&path).ok().map(|target| (path, target))).collect()
}

fn make_devices(devices: [io::Result<OwnedFd>; DEVICES.len()]) -> io::Result<()> {
    let dev = Path::new("/dev");
    empty(dev, "mode=755,size=1m")?;
    for (name, device) in DEVICES.iter().zip(devices) {
        // A container may lack one.
        if let Ok(device) = device {
            attach_over(&device, &dev.join(name), false)?;
        }
    }
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ];
    for (name, target) in links {
        std::os::unix::fs::symlink(target, dev.join(name))?;
    }
    fs::write(EMPTY, "")?;
    for name in ["shm", "pts"] {
        fs::create_dir(dev.join(name))?;
    }
    empty(&dev.join("shm"), "mode=1777")?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = Some("newinstance,ptmxmode=0666,mode=620");
    mount(Some("devpts"), &dev.join("pts"), Some("devpts"), flags, options)
        .map_err(|error| failed("/dev/pts", error))
}

/// Those that the keeper needs stay its own beyond its start, also for a user without any.
fn keep_capabilities() -> io::Result<()> {
    let all = rustix::thread::capabilities(None)?.permitted;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: all, permitted: all, inheritable: all },
    )?;
    let needed = [
        CapabilitySet::SYS_ADMIN,
        CapabilitySet::NET_ADMIN,
        CapabilitySet::SETPCAP,
        CapabilitySet::SYS_CHROOT,
        CapabilitySet::SYS_RESOURCE,
        CapabilitySet::DAC_OVERRIDE,
    ];
    for capability in needed {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}
