//! `quipu pi-helper`: what the extension of Pi starts and speaks to (docs/pi-extension.md).

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use quipu_host::{Home, identity_for_new_sessions, seal_credentials};
use quipu_pi_extension::{HelperEnd, HelperOptions, IdentityError, StoreOpenError, serve};
use quipu_seal::Sealer;
use quipu_store::{Graph, OpenOptions, SearchIndex};

use crate::args::StoreArg;
use crate::exit::Failure;
use crate::home::home;
use crate::signals::Signals;

/// Bytes of the store that each connection keeps in memory: the helper stays for as long as Pi does.
const CACHE: u32 = 2_000_000;

#[derive(Debug, Args, Default)]
pub(crate) struct PiHelperArgs {
    #[command(flatten)]
    store: StoreArg,
}

pub(crate) async fn run(args: &PiHelperArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let mut signals = Signals::new()?;
    tokio::select! {
        end = serve(options(&home)?, tokio::io::stdin(), tokio::io::stdout()) => match end {
            HelperEnd::Closed => Ok(()),
            HelperEnd::Stalled => Err(Failure::failed("the extension stopped reading")),
            HelperEnd::Malformed => Err(Failure::usage(
                "100 lines in a row were no requests; this command is for the extension of Pi (docs/pi-extension.md)",
            )),
        },
        _ = signals.next() => Err(Failure::silent(signals.exit())),
    }
}

fn options(home: &Home) -> Result<HelperOptions, Failure> {
    let sealer = Arc::new(Sealer::new(home.seal_key()?));
    seal_credentials(&sealer, &home.settings());
    let (stores, texts) = (home.clone(), home.clone());
    // Text is made searchable by whoever searches: each turn of the session would wait for it here.
    // Who waits for a tool hears of a lock soon; what was not written is given again.
    let busy = Duration::from_secs(2);
    let open = OpenOptions { search_index: SearchIndex::Asked, busy, cache: CACHE, ..OpenOptions::default() };
    Ok(HelperOptions {
        opener: Arc::new(move || match stores.open(&open) {
            Ok(store) => Ok(Arc::new(store) as Arc<dyn Graph>),
            Err(error) => Err(StoreOpenError(error.to_string())),
        }),
        sealer,
        identity: Arc::new(move |_| {
            identity_for_new_sessions(&texts).map_err(|error| IdentityError(error.to_string()))
        }),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}
