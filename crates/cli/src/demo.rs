//! `quipu demo`: recordings played on the real engine, tools and store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::{Engine, Session, SessionOptions};
use quipu_protocol::{NodeId, UserInput};
use quipu_replay::{Places, Replay};
use quipu_store::{Graph, SessionQuery, SessionRow};

use crate::args::{DemoArgs, Mode};
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::print::{Paint, note, note_in};
use crate::run::{ExitHints, Front};
use crate::tree;
use quipu_host::Home;

/// A whole coding task.
const TASK: Story = Story {
    recording: include_str!("demo/task.jsonl"),
    files: &[("discount.sh", include_str!("demo/discount.sh")), ("test.sh", include_str!("demo/test.sh"))],
};
/// The first way, up to its end.
const TOUR: Story = Story {
    recording: include_str!("demo/tour.jsonl"),
    files: &[("birthdays.txt", include_str!("demo/birthdays.txt"))],
};
/// The second way, from an older node.
const TOUR_FORK: Story = Story { recording: include_str!("demo/tour-fork.jsonl"), files: &[] };

/// A recording, and the files that must be there.
struct Story {
    recording: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// Where demos run.
struct Stage {
    home: Home,
    dir: PathBuf,
    store: Arc<dyn Graph>,
    engine: Engine,
    /// Removed at the end.
    _temporary: Option<tempfile::TempDir>,
}

pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let temporary = match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .map_err(|error| Failure::usage(format!("{}: {error}", dir.display())))?;
            None
        }
        None => Some(tempfile::Builder::new().prefix("quipu-demo-").tempdir()?),
    };
    let dir = args.dir.as_deref().or(temporary.as_ref().map(tempfile::TempDir::path));
    let dir = dir.unwrap_or(Path::new(".")).canonicalize()?;
    let story = if args.tour { &TOUR } else { &TASK };
    for (name, text) in story.files {
        let path = dir.join(name);
        if !path.exists() {
            std::fs::write(&path, text)
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
    }
    note_in(
        Paint::bold,
        if args.tour {
            "A recorded model does a small task in two ways. Everything else is real: engine, tools, store."
        } else {
            "A scripted model fixes a bug in a small program. Everything else is real: engine, tools, store."
        },
    );
    note(format!("workspace  {}", dir.display()));
    let store: Arc<dyn Graph> = home.store().await?;
    let engine = home.engine(store.clone(), &home.settings())?;
    let stage = Stage { home, dir, store, engine, _temporary: temporary };
    if args.tour { tour(&stage).await } else { task(&stage).await }
}

/// One task from its beginning to its end.
async fn task(stage: &Stage) -> Result<(), Failure> {
    let (options, prompts) = stage.rehearse(&TASK)?;
    note(format!("task       {}\n", prompt_text(&prompts)));
    let session = stage.engine.create(options).await?;
    let id = session.view().session;
    stage.follow(session, prompts).await?;
    let row = stage.row(&id).await?;
    let drawn = tree::read(&*stage.store, &row, tree::Forks::Named).await?;
    let answer =
        drawn.rows.iter().rev().find(|row| row.decoded.step.call.is_some()).map(|row| row.node.id.short());
    note(format!("\nEvery step is a node of the graph in {}:\n", stage.home.store.display()));
    write_lines(&tree::draw(&drawn, row.head.as_slice(), Paint::stdout()))?;
    let flag = crate::home::store_flag(&stage.home);
    let answer = answer.unwrap_or_default();
    note(format!(
        "\nTo look at it:\n  quipu show {id}{flag}\n  quipu show {answer}{flag}            (one step)\n  \
         quipu show {answer} --request{flag}  (the bytes sent to the model)\n  quipu sessions --all{flag}"
    ));
    Ok(())
}

/// One way, then another from an older node.
async fn tour(stage: &Stage) -> Result<(), Failure> {
    let (options, mut prompts) = stage.rehearse(&TOUR)?;
    let rest = prompts.split_off(1.min(prompts.len()));
    note(format!("\nThe user: {}\n", prompt_text(&prompts)));
    let session = stage.engine.create(options.clone()).await?;
    let first = session.view().session;
    stage.follow(session, prompts).await?;
    let Some(fork) = stage.row(&first).await?.head else {
        return Err(Failure::new(Exit::Store, "the session has no head"));
    };
    note(format!("\nThis answer is node {}. The user takes one way: {}\n", fork.short(), prompt_text(&rest)));
    let session = stage.engine.open(&first, options).await?.session;
    stage.follow(session, rest).await?;

    let (options, prompts) = stage.rehearse(&TOUR_FORK)?;
    note(format!("\nBack to node {}, and another way: {}\n", fork.short(), prompt_text(&prompts)));
    let session = stage.engine.fork(fork, options).await?.session;
    let second = session.view().session;
    stage.follow(session, prompts).await?;

    let (row, other) = (stage.row(&first).await?, stage.row(&second).await?);
    let drawn = tree::read(&*stage.store, &row, tree::Forks::Whole).await?;
    note(format!("\nBoth branches are in the graph in {}:\n", stage.home.store.display()));
    let heads: Vec<NodeId> = row.head.into_iter().chain(other.head).collect();
    write_lines(&tree::draw(&drawn, &heads, Paint::stdout()))?;
    let flag = crate::home::store_flag(&stage.home);
    note(format!(
        "\nTo look at it:\n  quipu show {first}{flag}  (the first way)\n  quipu show {second}{flag}  (the second)\n  \
         quipu show {}{flag}  (where they part)\n  quipu sessions --all{flag}\n\
         With your own model, `quipu -p --fork NODE \"…\"` continues from any node{}.",
        fork.short(),
        if flag.is_empty() { String::new() } else { format!(" (with{flag})") }
    ));
    Ok(())
}

impl Stage {
    /// What a session that plays a recording is made of, and what its user says.
    fn rehearse(&self, story: &Story) -> Result<(SessionOptions, Vec<Option<UserInput>>), Failure> {
        let places = Places::of(&self.dir);
        let replay = Arc::new(Replay::parse("the demo", story.recording.as_bytes(), places)?);
        let prompts = replay.prompts();
        let model = replay.model();
        let thinking = replay.thinking();
        let mut options = SessionOptions { thinking, ..SessionOptions::new(&self.dir, model, replay) };
        // As any task in this directory, except that what cannot be confined is run all the same: the commands are ours.
        let permissions = quipu_host::demo_permissions(&self.home, &self.dir);
        if permissions.confines() {
            options.policy = Arc::new(permissions);
        }
        Ok((options, prompts))
    }

    async fn follow(&self, session: Session, prompts: Vec<Option<UserInput>>) -> Result<(), Failure> {
        let id = session.view().session;
        let mut front = Front::new(Mode::Text, &session, &self.dir.display().to_string())?;
        if let Front::Text(text) = &mut front {
            text.streams = true;
        }
        crate::run::run_prompts(session, prompts, front, &ExitHints::default()).await.map_err(
            |mut failure| {
                if failure.exit == Exit::Departed {
                    failure.message = format!("The demo stopped: {}", failure.message);
                }
                note(format!(
                    "\nThe session up to here: quipu show {id}{}",
                    crate::home::store_flag(&self.home)
                ));
                failure
            },
        )
    }

    async fn row(&self, id: &quipu_protocol::SessionId) -> Result<SessionRow, Failure> {
        let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
        let rows = self.store.sessions(query).await?;
        rows.into_iter().next().ok_or_else(|| Failure::new(Exit::Store, "the session is not in the store"))
    }
}

/// What the user says, for people.
fn prompt_text(prompts: &[Option<UserInput>]) -> String {
    let blocks = prompts.iter().flatten().flat_map(|input| &input.content);
    blocks.filter_map(quipu_protocol::Content::as_text).collect::<Vec<_>>().join(" ")
}

fn write_lines(lines: &[String]) -> std::io::Result<()> {
    let mut out = crate::console::stdout();
    for line in lines {
        std::io::Write::write_all(&mut out, format!("{line}\n").as_bytes())?;
    }
    Ok(())
}
