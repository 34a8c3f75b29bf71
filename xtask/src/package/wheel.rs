//! The wheel for PyPI: one for each machine, with the binary itself as its script.

use anyhow::{Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::npm::NAME;
use super::zip::zip;
use super::{Binary, PackedFile, Project};

/// The name and the bytes of the wheel.
///
/// # Errors
/// When the version is none that Python has.
pub(crate) fn wheel(project: &Project, binary: &Binary) -> Result<(String, Vec<u8>)> {
    let version = python_version(&project.version)?;
    let base = format!("{}-{version}", NAME.replace('-', "_"));
    let info = format!("{base}.dist-info");
    let tags: String =
        binary.platform.wheel.iter().map(|platform| format!("Tag: py3-none-{platform}\n")).collect();
    let licences: String =
        project.licences.iter().map(|(name, _)| format!("License-File: {name}\n")).collect();
    let metadata = format!(
        "Metadata-Version: 2.4\nName: {NAME}\nVersion: {version}\nSummary: {}\nLicense-Expression: {}\n{licences}\
         Project-URL: Source, {}\nRequires-Python: >=3.7\nDescription-Content-Type: text/markdown\n\n{}",
        super::DESCRIPTION,
        project.license,
        project.repository,
        super::README
    );
    let mut files = vec![
        PackedFile::program(&format!("{base}.data/scripts/quipu"), &binary.bytes),
        PackedFile::text(&format!("{info}/METADATA"), metadata),
        PackedFile::text(
            &format!("{info}/WHEEL"),
            format!("Wheel-Version: 1.0\nGenerator: quipu-xtask\nRoot-Is-Purelib: false\n{tags}"),
        ),
    ];
    for (name, text) in &project.licences {
        files.push(PackedFile::text(&format!("{info}/licenses/{name}"), text));
    }
    let record = format!("{info}/RECORD");
    let mut lines: String = files.iter().map(recorded).collect();
    lines.push_str(&format!("{record},,\n"));
    files.push(PackedFile::text(&record, lines));
    let name = format!("{base}-py3-none-{}.whl", binary.platform.wheel.join("."));
    Ok((name, zip(&files)?))
}

/// The line of a file in `RECORD`.
fn recorded(file: &PackedFile) -> String {
    let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(&file.bytes));
    format!("{},sha256={digest},{}\n", file.path, file.bytes.len())
}

/// The version as Python writes it: `0.2.0-rc.1` is `0.2.0rc1` there.
fn python_version(version: &str) -> Result<String> {
    let Some((release, before)) = version.split_once('-') else { return Ok(version.to_owned()) };
    for (ours, theirs) in [("alpha.", "a"), ("beta.", "b"), ("rc.", "rc")] {
        if let Some(number) = before.strip_prefix(ours).filter(|number| number.parse::<u32>().is_ok()) {
            return Ok(format!("{release}{theirs}{number}"));
        }
    }
    bail!("Python has no version {version:?}: name it like 0.2.0-alpha.1, -beta.1 or -rc.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_python() {
        for (ours, theirs) in
            [("0.1.0", Some("0.1.0")), ("1.2.0-rc.1", Some("1.2.0rc1")), ("1.2.0-next", None)]
        {
            assert_eq!(python_version(ours).ok().as_deref(), theirs, "{ours}");
        }
    }
}
