//! Other agents, as `cargo xtask peers` installs them for tests that compare with them.

use std::io::Write as _;
use std::path::PathBuf;

/// Where their packages are: below `target/peers`, or below the directory that `QUIPU_PEERS` names.
pub fn peer_modules() -> PathBuf {
    let usual = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    std::env::var_os("QUIPU_PEERS").map_or(usual, PathBuf::from).join("node_modules")
}

/// Whether a test must not go without them, which CI asks for with `QUIPU_REQUIRE_PEERS=1`.
pub fn needs_peers() -> bool {
    std::env::var_os("QUIPU_REQUIRE_PEERS").is_some_and(|value| value == "1")
}

/// Says that a test is skipped because a part of the peers is missing.
pub fn skip_without(part: &str) {
    let place = peer_modules();
    let hint = "`cargo xtask peers` installs the peers, QUIPU_PEERS names another place";
    // Where nobody reads it, nobody misses it.
    drop(writeln!(std::io::stdout(), "skipped: no {part} in {}: {hint}", place.display()));
}

/// These places among their packages. `None`, and a line that says so, where one is not there.
///
/// # Panics
/// Where one is missing that must be there.
pub fn peer_files<const N: usize>(places: [&str; N]) -> Option<[PathBuf; N]> {
    let modules = peer_modules();
    let found = places.map(|place| modules.join(place));
    if found.iter().all(|path| path.exists()) {
        return Some(found);
    }
    assert!(!needs_peers(), "one of {places:?} is missing in {}", modules.display());
    skip_without(&places.join(", "));
    None
}

/// The directory of Python packages that has this one. `None`, and a line that says so, where it is not there.
///
/// # Panics
/// Where it must be there and is missing.
pub fn peer_python(package: &str) -> Option<PathBuf> {
    let packages = peer_modules().with_file_name("python");
    if packages.join(package).exists() {
        return Some(packages);
    }
    assert!(!needs_peers(), "{package} is missing in {}", packages.display());
    skip_without(&format!("Python package {package}"));
    None
}
