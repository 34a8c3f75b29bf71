//! `quipu memory`: what is remembered.

use clap::{Args, Subcommand};

use crate::exit::Failure;
use crate::memory_search::MemorySearchArgs;

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    action: MemoryAction,
}

#[derive(Debug, Subcommand)]
enum MemoryAction {
    /// Search notes and sessions for what answers a question, best first.
    Search(MemorySearchArgs),
}

pub(crate) async fn run(args: &MemoryArgs) -> Result<(), Failure> {
    match &args.action {
        MemoryAction::Search(args) => crate::memory_search::run(args).await,
    }
}
