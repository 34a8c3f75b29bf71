//! Tokens of servers, in files of the user.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use quipu_host::Home;
use quipu_mcp_server::BearerToken;

use crate::exit::Failure;

/// The token in a file of the user's directory, which is made once, so that clients can keep it in their settings.
pub(crate) fn bearer_token(home: &Home, file: &str) -> Result<(PathBuf, BearerToken), Failure> {
    let path = home.dir.join(file);
    let found = std::fs::metadata(&path);
    if found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o077 != 0) {
        return Err(Failure::failed(format!(
            "{path} is open to other users, who may know the token; run `chmod 600 {path}`, or remove it to get another one",
            path = path.display()
        )));
    }
    let token = quipu::seal_key(&path).map_err(|error| {
        Failure::failed(format!("{} cannot be used: {error}; remove it to get another token", path.display()))
    })?;
    let token = quipu_protocol::hex(&token);
    if !path.is_file() {
        return Err(Failure::failed(format!(
            "{} cannot be written, so no client would know the token; make its directory writable",
            path.display()
        )));
    }
    let token = BearerToken::new(&token).ok_or_else(|| {
        Failure::failed(format!("{} holds no token; remove it to get another one", path.display()))
    })?;
    Ok((path, token))
}
