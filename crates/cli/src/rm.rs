//! `quipu rm`: a session goes, and its nodes stay.

use crate::args::RmArgs;
use crate::confirm::confirm;
use crate::exit::Failure;
use crate::fork::engine;
use crate::memory::person::moved_by_a_person;
use crate::print::{ago, note, one_line};
use quipu_host::{now, session_named};

pub(crate) async fn run(args: &RmArgs) -> Result<(), Failure> {
    let (home, engine) = engine(&args.store).await?;
    let row = session_named(&**engine.store(), &args.session).await?;
    moved_by_a_person(&row)?;
    if !args.yes {
        let title = if row.called.is_empty() { &row.title } else { &row.called };
        let what = format!("session {} ({}, {})", row.id, one_line(title, 60), ago(now(), row.updated));
        let question = format!("Remove {what} and the saved outputs of its commands? Its nodes are kept.");
        confirm(&question, &format!("{what} is removed"), "not removed")?;
    }
    let head = engine.remove(&row.id).await?;
    let again = if row.agent == quipu::AGENT { "" } else { "; importing its file again restores it too" };
    note(format!(
        "Removed session {}. Its nodes are kept: `quipu fork {head}{}` starts a new session from its end{again}.",
        row.id,
        crate::home::store_flag(&home)
    ));
    Ok(())
}
