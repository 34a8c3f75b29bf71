//! Where the file of a store lies. SQLite's WAL needs memory that all its users share and locks that hold, and file
//! systems on other machines give neither reliably.

use std::path::Path;

/// The numbers by which Linux tells file systems that lie on other machines.
#[cfg(target_os = "linux")]
const NETWORK: [(i128, &str); 11] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x1983_0326, "BeeGFS"),
    (0x564c, "NCP"),
];

/// The name of the network file system that `path` (or, while there is nothing, its directory) lies on; `None` for
/// a local one, and where that cannot be known.
#[cfg(target_os = "linux")]
pub fn network_file_system(path: &Path) -> Option<&'static str> {
    let found = path.ancestors().find_map(|path| nix::sys::statfs::statfs(path).ok())?;
    // Its type differs between systems; negative where it has 32 bits.
    let kind = i128::from(found.filesystem_type().0) & 0xffff_ffff;
    NETWORK.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

/// The name of the network file system that `path` lies on; not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}
