//! `quipu --mode rpc`: a session for a program that drives it by the commands of Pi.

use quipu_host::{OpenRequest, current_dir};
use quipu_runtime::{RpcEnd, RpcFront};
use tokio_util::sync::CancellationToken;

use crate::args::Task;
use crate::exit::{Exit, Failure, advised};
use crate::home::{home, request};
use crate::signals::Signals;

pub(crate) async fn run(task: &Task) -> Result<(), Failure> {
    refuse_others(task)?;
    let mut home = home(&task.store)?;
    if task.no_session {
        home = home.without_outputs();
    }
    let request: OpenRequest = request(task, &current_dir()?)?;
    // Before the first command.
    quipu_host::helpers();
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    // What others move is not the state of the whole front.
    let work = Box::pin(async {
        let front = RpcFront::open(home.clone(), request, advised, tokio::io::stdout()).await?;
        Ok::<_, Failure>(front.serve(tokio::io::stdin(), stop.clone()).await)
    });
    let served = signals.ending(&stop, work);
    // What keeps nothing runs no jobs.
    let end = match task.no_session {
        true => served.await?,
        false => quipu_host::jobs::run_alongside(&home, served).await?,
    };
    crate::home::make_room(&home, task).await;
    match end {
        RpcEnd::Left | RpcEnd::Stopped => Ok(()),
        RpcEnd::Unread => Err(Failure::silent(Exit::Failed)),
    }
}

/// What has no meaning beside commands that come in.
fn refuse_others(task: &Task) -> Result<(), Failure> {
    if let Some(first) = task.messages.first() {
        let what = if first.starts_with('@') { "@file arguments are" } else { "messages are" };
        return Err(Failure::usage(format!(
            "{what} not supported in RPC mode: send them with the command `prompt` on stdin (docs/rpc.md)"
        )));
    }
    let others = [
        (task.record.is_some(), "--record"),
        (task.replay.is_some(), "--replay"),
        (task.output_schema.is_some(), "--output-schema"),
        (task.stream, "--stream"),
        (task.ask_on_stdin, "--ask-on-stdin"),
    ];
    match others.iter().find(|(is_given, _)| *is_given) {
        Some((_, name)) => {
            Err(Failure::usage(format!("{name} has no meaning with `--mode rpc`; leave it out")))
        }
        None => Ok(()),
    }
}
