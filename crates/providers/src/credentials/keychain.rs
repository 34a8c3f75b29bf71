//! The keychain of the operating system, through the program that the system has for it. Only who asks for it gets it:
//! `auth.json` then holds the command that reads the key, as any other `!command`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use serde::Deserialize;

use super::{AuthEntry, AuthFile, AuthFileError, Keys};
use crate::logins::{LoginError, random};
use crate::values::{self, Shell, Vars};

/// How long the program may take; it may ask a person to unlock the keychain.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of its complaints that are read.
const MAX_COMPLAINT: u64 = 4 << 10;

/// The keychain cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeychainError {
    /// There is no program for it.
    #[error("{program} was not found: {remedy}")]
    NoProgram {
        /// The name of the program.
        program: &'static str,
        /// What to install.
        remedy: &'static str,
    },
    /// There is a program, and it failed.
    #[error("{program} could not {what}: {why}")]
    Failed {
        /// The name of the program.
        program: &'static str,
        /// What it was to do.
        what: &'static str,
        /// Why it did not.
        why: String,
    },
    /// The system gives no random numbers.
    #[error(transparent)]
    Random(#[from] LoginError),
    /// `auth.json` cannot be used.
    #[error(transparent)]
    File(#[from] AuthFileError),
    /// The entry of `auth.json` has changed as it should, and its old key is still in the keychain.
    #[error("the old key is still in the keychain: {source}; remove it with `{command}`")]
    Left {
        /// Why it could not be removed.
        source: Box<KeychainError>,
        /// What removes it.
        command: String,
    },
}

/// The keychain of the operating system.
#[derive(Clone)]
pub struct Keychain {
    shell: Arc<Shell>,
    tool: &'static Tool,
}

impl fmt::Debug for Keychain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keychain").field("program", &self.tool.program).finish_non_exhaustive()
    }
}

/// The program of a system. The lines end where the name of an item goes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    program: String,
    #[expect(dead_code, reason = "for those who read the data; a test looks at it")]
    source: String,
    #[expect(dead_code, reason = "for those who read the data; a test looks at it")]
    date: String,
    remedy: String,
    store: String,
    /// What it reads from its stdin to store a key, with `{item}` and the key as `{hex}`; without it, the key.
    store_input: Option<String>,
    look_up: String,
    remove: String,
}

static ROWS: &str = include_str!("../../data/keychains.json");
const SECRET_SERVICE: &str = "secret-service";
const APPLE: &str = "macos";

fn tools() -> &'static BTreeMap<String, Tool> {
    static PARSED: OnceLock<BTreeMap<String, Tool>> = OnceLock::new();
    PARSED.get_or_init(|| serde_json::from_str(ROWS).unwrap_or_default())
}

fn tool(name: &str) -> &'static Tool {
    static NONE: OnceLock<Tool> = OnceLock::new();
    tools().get(name).unwrap_or_else(|| NONE.get_or_init(Tool::default))
}

impl Keychain {
    pub(crate) fn new(shell: Arc<Shell>) -> Self {
        Self { shell, tool: tool(if cfg!(target_os = "macos") { APPLE } else { SECRET_SERVICE }) }
    }

    /// Keeps `key` in the keychain, and the command that reads it as the entry `id` of the file, in place of what was
    /// there. A key that the entry before had in the keychain is removed from it. Blocks.
    ///
    /// # Errors
    /// When the key cannot be stored and read again, or the file cannot be written; then nothing has changed. When the
    /// key before cannot be removed.
    pub fn set_key(&self, file: &AuthFile, id: &str, key: &str) -> Result<(), KeychainError> {
        let plain = |c: char| if is_plain(c) { c } else { '_' };
        let chance: String = random()?.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        let item = format!("{}-{chance}", id.chars().take(100).map(plain).collect::<String>());
        let stored = self.store(&item, key).and_then(|()| {
            let entry =
                serde_json::json!({ "type": "api_key", "key": format!("!{}{item}", self.tool.look_up) });
            let change = || file.change(|entries| entries.insert(id.to_owned(), entry)).map(drop);
            self.replace(file, id, change)
        });
        if let Err(KeychainError::Failed { .. } | KeychainError::File(_)) = &stored {
            // What was stored in part is of no use; the first error is the one to show.
            drop(self.remove(&item));
        }
        stored
    }

    /// Makes a change that puts something else in the place of the entry `id` of the file, or nothing, and then removes
    /// the key that the entry had in the keychain. Blocks.
    ///
    /// # Errors
    /// What the change says, and when the key cannot be removed.
    pub fn replace<T, E>(
        &self,
        file: &AuthFile,
        id: &str,
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, KeychainError>
    where
        KeychainError: From<E>,
    {
        let before = file.key_text(id)?;
        let made = change()?;
        let item = before.as_deref().and_then(|text| self.item(text));
        if let Some(item) = item {
            let left = |source| KeychainError::Left {
                source: Box::new(source),
                command: format!("{}{item}", self.tool.remove),
            };
            self.remove(item).map_err(left)?;
        }
        Ok(made)
    }

    fn item<'a>(&self, text: &'a str) -> Option<&'a str> {
        self.tool.item(text)
    }

    fn store(&self, item: &str, key: &str) -> Result<(), KeychainError> {
        let what = "store the key";
        let input = match &self.tool.store_input {
            None => key.to_owned(),
            Some(form) => form.replace("{item}", item).replace("{hex}", &quipu_protocol::hex(key.as_bytes())),
        };
        self.run(&format!("{}{item}", self.tool.store), what, &input)?;
        // What cannot be read now is not there when it is needed.
        let line = format!("!{}{item}", self.tool.look_up);
        let failed = |why: String| KeychainError::Failed { program: self.tool.program.as_str(), what, why };
        match values::resolve(&line, &Vars::new(), &*self.shell) {
            Ok(read) if read == key => Ok(()),
            Ok(_) => Err(failed("it gives another key back".into())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn remove(&self, item: &str) -> Result<(), KeychainError> {
        self.run(&format!("{}{item}", self.tool.remove), "remove the key", "")
    }

    /// Runs a line with this as its stdin.
    fn run(&self, line: &str, what: &'static str, input: &str) -> Result<(), KeychainError> {
        let program = self.tool.program.as_str();
        let failed = |why: String| KeychainError::Failed { program, what, why };
        let mut child = (self.shell)(line)
            .map_err(|error| failed(error.to_string()))?
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let (send, receive) = mpsc::sync_channel(1);
        let input = input.to_owned();
        // The thread ends with the pipes, which end with the child. The receiver may be gone by then.
        std::thread::spawn(move || {
            // One that reads nothing says so by its status.
            drop(stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
            let mut complaint = Vec::new();
            let read = stderr.map(|stderr| stderr.take(MAX_COMPLAINT).read_to_end(&mut complaint));
            drop(send.send(read.is_some_and(|read| read.is_ok()).then_some(complaint)));
        });
        let complaint = receive.recv_timeout(LIMIT);
        if complaint.is_err() {
            // It may have ended already, and left its pipe to another.
            drop(child.kill());
        }
        let status = child.wait().map_err(|error| failed(error.to_string()))?;
        match (status.code(), complaint) {
            (Some(0), _) => Ok(()),
            (Some(127), _) => Err(KeychainError::NoProgram { program, remedy: &self.tool.remedy }),
            (_, Err(_)) => Err(failed(format!("it took more than {} s", LIMIT.as_secs()))),
            (_, Ok(complaint)) => Err(failed(why(status, &complaint.unwrap_or_default()))),
        }
    }
}

impl Tool {
    /// The item that a line reads.
    fn item<'a>(&self, text: &'a str) -> Option<&'a str> {
        let item = text.strip_prefix('!')?.strip_prefix(self.look_up.as_str())?;
        (!item.is_empty() && item.chars().all(is_plain)).then_some(item)
    }
}

/// Whether a key of `auth.json` stands in a keychain.
fn is_reference(text: &str) -> bool {
    tools().values().any(|tool| tool.item(text).is_some())
}

/// Whether it stands for itself in a shell.
const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '@' | ':' | '-')
}

fn why(status: ExitStatus, complaint: &[u8]) -> String {
    let text = crate::failure::quote(&String::from_utf8_lossy(complaint));
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(|| format!("it failed ({status})"), |line| line.chars().take(300).collect())
}

impl Keys {
    /// Whether the key of a provider's first entry stands in the keychain.
    pub(crate) fn is_in_keychain(&self, provider: &str) -> bool {
        let entry = self.auth.get(provider);
        matches!(entry, Some(AuthEntry::ApiKey { key: Some(key), .. }) if is_reference(key))
    }
}

impl AuthFile {
    /// The key of an entry as it is written.
    fn key_text(&self, id: &str) -> Result<Option<String>, AuthFileError> {
        let entry = self.read()?.known.remove(id);
        Ok(match entry {
            Some(AuthEntry::ApiKey { key, .. }) => key,
            Some(AuthEntry::Oauth { .. } | AuthEntry::Reference { .. }) | None => None,
        })
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// `security` with a directory behind it, as far as it is used.
    const SECURITY: &str = r#"#!/bin/sh
case $1 in
  -i)
    read -r verb update s service a account x digits
    [ "$verb $update $s $service $a $x" = 'add-generic-password -U -s quipu -a -X' ] || exit 2
    printf "$(printf '%s' "$digits" | sed 's/../\\x&/g')" > "items/$account" ;;
  find-generic-password) cat "items/$6" ;;
  delete-generic-password) rm "items/$5" ;;
  *) exit 2 ;;
esac
"#;

    fn keychain(directory: &Path) -> Keychain {
        let here = directory.to_path_buf();
        let path = format!("{}:/usr/bin:/bin", directory.display());
        let shell = move |line: &str| {
            let mut command = Command::new("/bin/bash");
            command.args(["-c", line]).env("PATH", &path).current_dir(&here);
            Ok(command)
        };
        Keychain { shell: Arc::new(shell), tool: tool(APPLE) }
    }

    #[test]
    fn keychain_of_the_other_system_is_used_by_its_own_program() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("items")).unwrap();
        let program = directory.path().join("security");
        std::fs::write(&program, SECURITY.replace("#!/bin/sh", "#!/bin/bash")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (keychain, file) = (keychain(directory.path()), AuthFile::new(directory.path()));
        let items = || std::fs::read_dir(directory.path().join("items")).unwrap().count();
        keychain.set_key(&file, "p:work", "k$1\"'`\\;x").unwrap();
        let text = file.key_text("p:work").unwrap().unwrap();
        assert!(text.starts_with("!security find-generic-password -s quipu -w -a p:work-"), "{text}");
        let read = values::resolve(&text, &Vars::new(), &*keychain.shell);
        assert_eq!((read.as_deref(), items()), (Ok("k$1\"'`\\;x"), 1));
        assert!(keychain.replace(&file, "p:work", || file.remove("p:work")).unwrap());
        assert_eq!((file.key_text("p:work").unwrap(), items()), (None, 0));
    }

    #[test]
    fn each_keychain_has_its_source_and_date() {
        let rows: serde_json::Value = serde_json::from_str(ROWS).unwrap();
        for name in [SECRET_SERVICE, APPLE] {
            assert!(!tool(name).program.is_empty() && !rows[name]["source"].as_str().unwrap().is_empty());
            assert!(rows[name]["date"].as_str().unwrap().parse::<jiff::civil::Date>().is_ok());
        }
        assert_eq!(tools().len(), 2);
    }

    #[test]
    fn commands_of_a_person_are_no_items_of_ours() {
        for text in [
            "!secret-tool lookup service mine account x",
            "!secret-tool lookup service quipu account x; rm -rf /",
            "!secret-tool lookup service quipu account ",
            "secret-tool lookup service quipu account x",
        ] {
            assert!(!is_reference(text), "{text}");
        }
        assert!(is_reference("!secret-tool lookup service quipu account p:work-abc"));
    }
}
