//! The catalogue of models that a person takes from a file or a URL.

use std::io::ErrorKind;
use std::path::PathBuf;

use quipu_providers::{CATALOGUE_FILE, NewCatalogue, fetch_catalogue};

use crate::state_file::replace;
use crate::{Failure, Home, iso, now};

/// A catalogue that is kept now.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptCatalogue {
    /// Where it is kept.
    pub path: PathBuf,
    /// What it has.
    pub catalogue: NewCatalogue,
}

/// Takes the catalogue from `from`, a URL or a file, or from where it was taken the last time. Sessions that begin later
/// know its models.
///
/// # Errors
/// `Request` where nothing says from where; otherwise that it cannot be had, is none, or cannot be written. What was kept
/// before stays then.
pub async fn refresh_catalogue(home: &Home, from: Option<&str>) -> Result<KeptCatalogue, Failure> {
    if let Some(scheme) = from.and_then(scheme).filter(|scheme| !matches!(*scheme, "http" | "https")) {
        return Err(Failure::request(format!(
            "an address of a catalogue begins with https://, or with http:// on this machine, not with {scheme}://"
        )));
    }
    let from = match from {
        Some(from) if from.starts_with("http://") || from.starts_with("https://") => from.to_owned(),
        // It is found again from any directory.
        Some(file) => {
            let whole =
                std::path::absolute(file).map_err(|error| Failure::request(format!("{file}: {error}")))?;
            whole.to_str().ok_or_else(|| Failure::request("the path is not UTF-8 text"))?.to_owned()
        }
        None => home.settings().catalogue().from.ok_or_else(|| {
            Failure::request(
                "the built-in catalogue comes with the program; name the file or URL of another one",
            )
        })?,
    };
    let today: String = iso(now()).chars().take(10).collect();
    let catalogue = fetch_catalogue(&from, &today).await.map_err(Failure::failed)?;
    let path = home.dir.join(CATALOGUE_FILE);
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    replace(&path, &catalogue.text).map_err(failed)?;
    Ok(KeptCatalogue { path, catalogue })
}

/// The scheme of what looks like an address.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    (!scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(scheme)
}

/// Goes back to the built-in catalogue. Whether there was another.
///
/// # Errors
/// The file cannot be removed.
pub fn remove_catalogue(home: &Home) -> Result<bool, Failure> {
    let path = home.dir.join(CATALOGUE_FILE);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::failed(format!("{}: {error}", path.display()))),
    }
}
