//! A small helper process that outlives the agent by a moment and kills what it left behind.
//!
//! Asking the kernel to signal children when their parent dies needs code between fork and exec, which is
//! `unsafe`, and reaches only direct children. A pipe needs neither: the guardian waits for its end, which comes
//! when the agent is gone for whatever reason, `kill -9` included.

use std::io::{self, PipeWriter, Write};

use process_wrap::std::{ChildWrapper, CommandWrap, ProcessSession};

use crate::Helpers;
use crate::tree::{GUARDIAN, MARK};

/// A running guardian. Dropping it kills it (do so only after its charges are gone).
#[derive(Debug)]
pub(crate) struct Guardian {
    child: Box<dyn ChildWrapper>,
    lifeline: PipeWriter,
}

impl Guardian {
    /// Starts one for the processes whose mark begins with `id` and a dot.
    pub(crate) fn start(id: &str) -> io::Result<Self> {
        let (reader, lifeline) = io::pipe()?;
        let helpers = Helpers::of_this_process();
        let missing = "no `sh` outside the directories that commands can write to";
        let shell = helpers.find("sh").ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing))?;
        let mut command = CommandWrap::with_new(shell, |command| {
            command
                .args(["-c", include_str!("guardian.sh"), "quipu-guardian"])
                .arg(format!("{MARK}={id}."))
                // Without it, only what stayed in its group is found.
                .arg(helpers.find("grep").unwrap_or_else(|| "/bin/grep".into()))
                .env_clear()
                .env("PATH", helpers.path("grep"))
                .env(GUARDIAN, "1")
                .current_dir("/")
                .stdin(reader)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
        });
        // A session of its own: neither Ctrl-C nor a closed terminal reaches it.
        let child = command.wrap(ProcessSession).spawn()?;
        Ok(Self { child, lifeline })
    }

    /// Puts a group into its care.
    pub(crate) fn watch(&mut self, group: i32) -> io::Result<()> {
        self.lifeline.write_all(format!("+ {group}\n").as_bytes())
    }

    #[cfg(test)]
    pub(crate) fn end(&mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Takes a group out of its care.
    pub(crate) fn forget(&mut self, group: i32) -> io::Result<()> {
        self.lifeline.write_all(format!("- {group}\n").as_bytes())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.child.start_kill().ok();
        self.child.wait().ok();
    }
}
