//! `quipu import --state`: a whole state directory of a gateway.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

use quipu_archive::{Progress, Report};
use quipu_host::Home;
use quipu_host::import::{ImportObserver, ImportProblem, Importer};
use quipu_host::takeover::{
    GatewayConversation, STATE_AGENT, StateOutcome, StateReport, Takeover, TakeoverMode,
};
use quipu_runtime::{BindMode, ConversationBinding, ImportedConversation, SessionKey, bind_conversation};
use quipu_store::Graph;
use serde_json::json;

use crate::args::ImportArgs;
use crate::exit::Failure;
use crate::import::{Teller, end, tell_sum};
use crate::print::{note, printable};
use crate::signals::Signals;

pub(crate) async fn run(home: &Home, args: &ImportArgs) -> Result<(), Failure> {
    if args.agent.as_deref() != Some(STATE_AGENT) {
        return Err(Failure::usage(format!(
            "name the agent whose state is taken over: `quipu import --state {STATE_AGENT} [PATH]`"
        )));
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        biased;
        _ = signals.next() => {
            note("Stopped. What was taken over stays; run the same command again to continue.");
            Err(Failure::silent(signals.exit()))
        }
        done = take(home, args) => done,
    }
}

async fn take(home: &Home, args: &ImportArgs) -> Result<(), Failure> {
    let mode = if args.dry_run { TakeoverMode::DryRun } else { TakeoverMode::Write };
    let mut takeover = Takeover::open(home, args.path.as_deref(), mode)?;
    let mut tally = Tally::default();
    tally.tell(takeover.take_reports(), args.out.json)?;
    takeover.settings()?;
    tally.tell(takeover.take_reports(), args.out.json)?;
    let mut importer = Importer::open(home, takeover.transcripts()?).await?;
    importer.run(&Transcripts { teller: Teller::new(args), takeover: &takeover }).await?;
    let sum = importer.sum();
    let store = home.store().await?;
    let conversations = takeover.conversations(&*store).await?;
    for (conversation, outcome) in bind_all(&*store, conversations, args).await? {
        takeover.report_conversation(&conversation, outcome);
    }
    takeover.jobs(&*store).await?;
    tally.tell(takeover.take_reports(), args.out.json)?;
    tell_sum(&sum, args);
    tally.sum(args.dry_run);
    end(&sum)?;
    match tally.count("failed") {
        0 => Ok(()),
        1 => Err(Failure::failed("one part could not be taken over")),
        count => Err(Failure::failed(format!("{count} parts could not be taken over"))),
    }
}

/// Has each conversation go on in its session. Of several that are one here, that which was used last counts.
async fn bind_all(
    store: &dyn Graph,
    mut conversations: Vec<GatewayConversation>,
    args: &ImportArgs,
) -> Result<Vec<(GatewayConversation, StateOutcome)>, Failure> {
    conversations.sort_by_key(|conversation| std::cmp::Reverse(conversation.updated));
    let mode = if args.dry_run { BindMode::DryRun } else { BindMode::Write };
    let (mut met, mut outcomes) = (BTreeMap::<String, String>::new(), Vec::new());
    for conversation in conversations {
        let key = match SessionKey::parse(&conversation.key) {
            Ok(key) => key,
            Err(error) => {
                outcomes.push((conversation, StateOutcome::Left(error.to_string())));
                continue;
            }
        };
        let name = key.to_string();
        if let Some(other) = met.get(&name) {
            let why = format!("it is the same conversation as `{other}`, which was used later");
            outcomes.push((conversation, StateOutcome::Left(why)));
            continue;
        }
        met.insert(name.clone(), conversation.key.clone());
        let imported = ImportedConversation {
            session: conversation.session.clone(),
            updated: conversation.updated,
            entry: conversation.entry.clone(),
        };
        let session = &conversation.session;
        let outcome = match bind_conversation(store, &key, &imported, mode).await? {
            ConversationBinding::Bound => StateOutcome::Added(format!("{name} goes on in session {session}")),
            ConversationBinding::Same => StateOutcome::Same(name),
            ConversationBinding::Kept(ours) => {
                StateOutcome::Kept(format!("{name} has gone on here, in session {ours}"))
            }
        };
        outcomes.push((conversation, outcome));
    }
    Ok(outcomes)
}

/// Tells of transcripts by the names that people know.
struct Transcripts<'a> {
    teller: Teller<'a>,
    takeover: &'a Takeover<'a>,
}

impl ImportObserver for Transcripts<'_> {
    fn progress(&self, file: &Path, at: Progress) {
        self.teller.progress(&self.takeover.shown(file), at);
    }

    fn imported(&self, report: &Report) -> io::Result<()> {
        let report = Report { path: self.takeover.shown(&report.path), ..report.clone() };
        self.teller.imported(&report)
    }

    fn failed(&self, path: &Path, problem: &ImportProblem) -> io::Result<()> {
        self.teller.failed(&self.takeover.shown(path), problem)
    }

    fn is_store(&self, file: &Path) {
        self.teller.is_store(file);
    }
}

/// What parts came to.
#[derive(Default)]
pub(crate) struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    pub(crate) fn tell(&mut self, reports: Vec<StateReport>, is_json: bool) -> Result<(), Failure> {
        let mut out = io::BufWriter::new(crate::console::stdout());
        for report in reports {
            let StateReport { part, file, key, outcome } = &report;
            let (word, text) = (outcome.word(), outcome.text());
            *self.0.entry(word).or_default() += 1;
            if is_json {
                let line =
                    json!({ "part": part.word(), "file": file, "key": key, "outcome": word, "text": text });
                writeln!(out, "{line}")?;
            } else {
                let key = if key.is_empty() { file.display().to_string() } else { key.clone() };
                let line = format!("{word:<6} {:<12} {key}: {text}", part.word());
                writeln!(out, "{}", printable(&line))?;
            }
        }
        Ok(out.flush()?)
    }

    pub(crate) fn count(&self, word: &str) -> usize {
        self.0.get(word).copied().unwrap_or_default()
    }

    fn sum(&self, dry_run: bool) {
        let would = if dry_run { "would be taken over" } else { "taken over" };
        note(format!(
            "{} {would}, {} as they were, {} kept as they are here, {} without a counterpart, {} not readable",
            self.count("added"),
            self.count("same"),
            self.count("kept"),
            self.count("left"),
            self.count("failed"),
        ));
    }
}
