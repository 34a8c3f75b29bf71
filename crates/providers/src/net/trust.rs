//! Whose certificates are believed, and what is wrong with one that is not.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, RootCertStore};

const FILE: &str = "SSL_CERT_FILE";
const DIRECTORY: &str = "SSL_CERT_DIR";
/// Bytes of one file at most. The bundles of systems have a quarter of a megabyte.
const MAX_BYTES: u64 = 16 << 20;
/// Entries of one directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// The certificates that the environment names, in place of the system's; `None` when it names none.
///
/// # Errors
/// Says what is wrong with `SSL_CERT_FILE`, or with the directories of `SSL_CERT_DIR` when nothing else was found:
/// those often name some that are not there.
pub(super) fn named(
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<Vec<reqwest::Certificate>>, String> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let (file, directories) = (set(FILE), set(DIRECTORY));
    if file.is_none() && directories.is_none() {
        return Ok(None);
    }
    let mut found = BTreeSet::new();
    if let Some(file) = &file {
        let path = Path::new(file);
        read(path, &mut found).map_err(|why| {
            format!(
                "{FILE} names {}, {why}. Set it to a PEM file with the certificates of authorities, or unset it to \
                 use the system's.",
                path.display()
            )
        })?;
    }
    let mut problems = Vec::new();
    for directory in directories.iter().flat_map(std::env::split_paths).filter(|path| path != Path::new("")) {
        match std::fs::read_dir(&directory) {
            Ok(entries) => {
                for entry in entries.take(MAX_ENTRIES).flatten().filter(|entry| entry.path().is_file()) {
                    if let Err(why) = read(&entry.path(), &mut found) {
                        problems.push(format!("{}, {why}", entry.path().display()));
                    }
                }
            }
            Err(error) => problems.push(format!("{}, which cannot be read ({error})", directory.display())),
        }
    }
    if found.is_empty() {
        let names = directories.unwrap_or_default();
        let first = problems.into_iter().next();
        let why = first.map_or_else(
            || Path::new(&names).display().to_string(),
            |why| format!("{} ({why})", Path::new(&names).display()),
        );
        return Err(format!(
            "{DIRECTORY} names {why}, where no certificate was found. Set it to a directory of PEM files with the \
             certificates of authorities, or unset it to use the system's."
        ));
    }
    let certificates = found.iter().map(|der| reqwest::Certificate::from_der(der));
    certificates.collect::<Result<_, _>>().map(Some).map_err(|error| super::describe(&error))
}

/// Adds the certificates of a PEM file.
fn read(path: &Path, found: &mut BTreeSet<Vec<u8>>) -> Result<(), String> {
    let unreadable = |error: std::io::Error| format!("which cannot be read ({error})");
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err("which is not a regular file".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("which is larger than {MAX_BYTES} bytes"));
    }
    let mut usable = 0;
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| format!("which is damaged ({error})"))?;
        // One of a kind that is not understood is passed over, as among the system's.
        if RootCertStore::empty().add(certificate.clone()).is_ok() {
            usable += 1;
            found.insert(certificate.to_vec());
        }
    }
    if usable == 0 { Err("which holds no certificate that can be used".into()) } else { Ok(()) }
}

/// The failure of TLS in an error, however deep.
pub(super) fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // What an I/O error wraps is not among its causes.
        cause = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

/// What is wrong and what to do, for those failures of TLS that somebody can do something about.
pub(super) fn explain(error: &rustls::Error) -> Option<String> {
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => {
            return Some(
                "it does not speak TLS. Check whether the base URL should begin with http://, and the port."
                    .into(),
            );
        }
        _ => return None,
    };
    Some(match certificate {
        CertificateError::UnknownIssuer => {
            let set: Vec<_> =
                [FILE, DIRECTORY].into_iter().filter(|name| std::env::var_os(name).is_some()).collect();
            let here = if set.is_empty() {
                "the certificates of this system".to_owned()
            } else {
                format!("the certificates that {} names", set.join(" or "))
            };
            format!(
                "its certificate is of an authority that is not among {here}. If it is a private one, set {FILE} to a \
                 PEM file that holds its certificate (and all others that are needed)."
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!(
                "its certificate has expired ({certificate}). Check the clock of this machine; else its operator must renew it."
            )
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet ({certificate}). Check the clock of this machine.")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is for another name ({certificate}). Check the host in the base URL.")
        }
        other => {
            format!("its certificate cannot be trusted ({other}). Check whether a proxy is in between.")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_no_certificates_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let good = quipu_testkit::Authority::new("one").pem();
        let both = good.clone() + &quipu_testkit::Authority::new("two").pem();
        let pem = at("good.pem", &both);
        let empty = at("empty.pem", "no certificate\n");
        let cut = at("cut.pem", &both[..both.len() - 40]);
        let der = at("der.pem", "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n");
        let large = at("large.pem", &"#\n".repeat(9 << 20));
        let here = dir.path().display().to_string();
        let hollow = dir.path().join("hollow");
        std::fs::create_dir(&hollow).unwrap();
        let hollow = hollow.display().to_string();
        let check = |file: Option<&str>, directory: Option<&str>, expect: Result<Option<usize>, &str>| {
            let env = |name: &str| if name == FILE { file } else { directory }.map(OsString::from);
            match (named(&env), expect) {
                (Ok(found), Ok(expect)) => assert_eq!(found.map(|all| all.len()), expect),
                (Err(why), Err(word)) => {
                    let variable = if file.is_some() { FILE } else { DIRECTORY };
                    assert!(why.contains(word) && why.starts_with(variable), "{why} says {word}");
                }
                (got, expect) => panic!("{file:?} {directory:?}: {:?}, not {expect:?}", got.map(|_| ())),
            }
        };
        check(None, None, Ok(None));
        check(Some(""), Some(""), Ok(None));
        check(Some(&pem), None, Ok(Some(2)));
        check(Some(&pem), Some("/nowhere/at/all"), Ok(Some(2)));
        check(Some("/nowhere/ca.pem"), Some(&here), Err("/nowhere/ca.pem"));
        check(Some(&here), None, Err("not a regular file"));
        check(Some("/dev/zero"), None, Err("not a regular file"));
        check(Some(&empty), None, Err("holds no certificate"));
        check(Some(&cut), None, Err("damaged"));
        check(Some(&der), None, Err("holds no certificate"));
        check(Some(&large), None, Err("larger than"));
        // In a directory, what cannot be used is passed over.
        check(None, Some(&here), Ok(Some(2)));
        check(None, Some(&format!("{hollow}::{here}")), Ok(Some(2)));
        check(None, Some(&hollow), Err("no certificate was found"));
        check(None, Some("/nowhere/at/all"), Err("/nowhere/at/all"));
    }
}
