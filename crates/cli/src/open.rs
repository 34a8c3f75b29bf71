//! `quipu open`: one node, whole, in the user's pager.

use std::io::Write as _;

use crate::args::OpenArgs;
use crate::exit::Failure;
use crate::home::{home, no_sessions};
use crate::pager::page;
use crate::show;

pub(crate) async fn run(args: &OpenArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let Some(store) = home.existing_store().await? else {
        return Err(no_sessions(&home));
    };
    let mut text = Vec::new();
    show::write_whole(&*store, &args.node, args.out.json, &mut text).await?;
    if args.out.json {
        let mut out = crate::console::stdout();
        out.write_all(&text)?;
        return Ok(out.flush()?);
    }
    page(&text)
}
