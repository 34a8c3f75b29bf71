//! `quipu acp`: an agent of the Agent Client Protocol, over standard input and output.

use clap::Args;
use quipu_acp::{AcpAgent, ServeEnd};
use quipu_host::OpenRequest;

use crate::args::StoreArg;
use crate::exit::{Failure, advised};
use crate::home::home;
use crate::signals::Signals;

#[derive(Debug, Args)]
pub(crate) struct AcpArgs {
    #[command(flatten)]
    pub(crate) store: StoreArg,
    /// The model of new sessions.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) model: Option<String>,
}

pub(crate) async fn run(args: &AcpArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let request = OpenRequest { model: args.model.clone(), ..OpenRequest::default() };
    let agent = AcpAgent::new(home.clone(), request).worded_by(advised);
    let mut signals = Signals::new()?;
    let signal = async {
        signals.next().await;
    };
    let serve = agent.serve(tokio::io::stdin(), tokio::io::stdout(), signal);
    match quipu_host::jobs::run_alongside(&home, serve).await {
        ServeEnd::Stalled => Err(Failure::failed("the client stopped reading")),
        ServeEnd::Closed => Err(Failure::silent(signals.exit())),
        ServeEnd::Left | ServeEnd::OtherVersion => Ok(()),
    }
}
