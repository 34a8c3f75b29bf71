//! Lines that a person runs in the shell: outside of the sandbox, without the engine's keys in their environment.

use std::path::Path;
use std::sync::Arc;

use crate::mailbox;
use quipu_protocol::{BashExecutionMessage, RunId};
use quipu_seal::Sealer;
use quipu_workspace::{
    CommandNeeds, OutputBuffer, OutputLimits, OutputPlace, ProcessRegistry, ShellCommand, ShellEnd,
    ShellError, SpillState, run_shell,
};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::toolbox::Toolbox;
use quipu_machine::{MachineInput, ShellResult, ShellRunError, shell_message};

/// Bytes of what is printed that are kept at hand.
const OUTPUT: usize = 256 << 10;
/// Bytes of the end of its output that are sent while it runs.
const TAIL_BYTES: usize = 16 << 10;
/// Bytes of the file that holds all of a long one.
const SPILLED: u64 = 64 << 20;

/// Where a line runs, and with what.
struct FileRestorer<'a> {
    cwd: &'a Path,
    env: &'a [(String, Option<String>)],
    outputs: &'a OutputPlace,
    sealer: &'a Sealer,
    processes: &'a Arc<ProcessRegistry>,
}

/// Runs a line of a session until it ends or is cancelled. What it printed is sealed.
pub(super) async fn run(
    toolbox: &Toolbox,
    run: RunId,
    line: &str,
    cancel: CancellationToken,
    input: mailbox::Sender<MachineInput>,
) -> Result<ShellResult, ShellRunError> {
    let parts = &toolbox.parts;
    let restorer = FileRestorer {
        cwd: &parts.cwd,
        env: &parts.env,
        outputs: &toolbox.output_place(),
        sealer: &parts.sealer,
        processes: &parts.processes,
    };
    // A newer one follows, and the end holds all.
    let tell = |tail: Arc<str>| drop(input.try_send(MachineInput::ShellOutput { run: run.clone(), tail }));
    restorer.run(line, &cancel, &tell).await
}

impl Engine {
    /// Runs a line in the shell for a person who has no session, as [`Command::Shell`](quipu_protocol::Command::Shell)
    /// does in one: nothing of it is kept. `tell` hears the sealed end of what it printed so far, at most 16 KB.
    pub async fn run_unkept(
        &self,
        cwd: &Path,
        line: String,
        hidden: bool,
        cancel: CancellationToken,
        tell: impl Fn(Arc<str>) + Send + Sync,
    ) -> BashExecutionMessage {
        let outputs = self.outputs().place(&"".into(), self.sealer());
        let (sealer, processes) = (self.sealer(), self.processes());
        let restorer = FileRestorer { cwd, env: self.env(), outputs: &outputs, sealer, processes };
        let end = restorer.run(&line, &cancel, &tell).await;
        shell_message(sealer.seal(&line).into_owned(), hidden, end, self.now())
    }
}

impl FileRestorer<'_> {
    async fn run(
        &self,
        line: &str,
        cancel: &CancellationToken,
        tell: &(dyn Fn(Arc<str>) + Send + Sync),
    ) -> Result<ShellResult, ShellRunError> {
        let limits = OutputLimits { lines: u64::MAX, bytes: OUTPUT, spill_bytes: SPILLED };
        let mut output = OutputBuffer::new(limits, self.outputs);
        let command = ShellCommand {
            owner: "user",
            command: line,
            cwd: self.cwd,
            env: self.env,
            timeout: None,
            sandbox: None,
            needs: CommandNeeds::default(),
        };
        let progress = |output: &OutputBuffer| {
            let tail = output.tail();
            let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(TAIL_BYTES))..];
            tell(self.sealer.seal(tail).into());
        };
        let end = run_shell(command, self.processes, cancel, &mut output, &progress).await;
        let failed = |error: ShellError| match error {
            ShellError::Lost(_) => ShellRunError::Lost { why: error.to_string() },
            _ => ShellRunError::NotStarted { why: error.to_string() },
        };
        let code = match end.map_err(failed)? {
            ShellEnd::Exited(code) => Some(code),
            ShellEnd::Signalled(signal) => Some(128 + signal),
            ShellEnd::TimedOut | ShellEnd::Cancelled => None,
        };
        let path = match output.spill() {
            SpillState::Complete(path) | SpillState::Limited(path) => Some(path.display().to_string()),
            SpillState::NotNeeded | SpillState::Failed(_) => None,
        };
        let text = output.tail();
        let cut = output.bytes() > text.len() as u64;
        Ok(ShellResult { output: self.sealer.seal(text).into_owned(), code, cut, path })
    }
}
