//! `quipu serve`: sessions for a program, over standard input and output.

use clap::Args;
use quipu_host::OpenRequest;
use quipu_runtime::{Desk, ServeEnd};

use crate::args::StoreArg;
use crate::exit::{Failure, advised};
use crate::home::home;
use crate::signals::Signals;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArg,
}

pub(crate) async fn run(args: &ServeArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let desk = Desk::new(home.clone(), OpenRequest::default()).worded_by(advised);
    let mut signals = Signals::new()?;
    let serve = async {
        tokio::select! {
            served = desk.serve(tokio::io::stdin(), tokio::io::stdout()) => Some(served),
            _ = signals.next() => None,
        }
    };
    let served = quipu_host::jobs::run_alongside(&home, serve).await;
    // Also where the client is gone: what runs is recorded as aborted.
    desk.shutdown().await;
    match served {
        Some(ServeEnd::Left | ServeEnd::Closed) => Ok(()),
        Some(ServeEnd::OtherVersion) => Err(Failure::usage(
            "the client does not speak this protocol, or speaks another version of it (docs/serve.md)",
        )),
        Some(ServeEnd::Stalled) => Err(Failure::failed("the client stopped reading")),
        None => Err(Failure::silent(signals.exit())),
    }
}
