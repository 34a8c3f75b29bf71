//! Our own program, as other programs are to start it.

use std::path::PathBuf;

use crate::Failure;

/// The file of the program that runs now, without links on the way to it.
///
/// # Errors
/// When it was replaced or removed since it was started, or the system does not say.
pub fn running_program() -> std::io::Result<PathBuf> {
    std::env::current_exe()?.canonicalize()
}

/// The path by which other programs start this one. A `quipu` on the `PATH` that is this program comes first: its path
/// stays when a new version is put behind it.
///
/// # Errors
/// When the program is gone, or its path is no text.
pub fn program_path() -> Result<String, Failure> {
    let gone = || Failure::request("the program file of Quipu is gone or cannot be found; install it again");
    let own = running_program().map_err(|_| gone())?;
    let name = own.file_name().ok_or_else(gone)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|target| target == own);
    let entry = std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(is_own);
    let program = entry.unwrap_or_else(|| own.clone());
    let text = program.to_str().filter(|text| !text.contains(|c: char| c.is_control()));
    text.map(str::to_owned).ok_or_else(|| {
        Failure::request(format!(
            "the path of the program, {}, cannot be written into settings; move it to another directory",
            program.display()
        ))
    })
}
