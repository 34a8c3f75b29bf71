//! Who watches what a session commits: a mirror in another format, an index, a memory.

use std::sync::Arc;

use crate::mailbox;
use futures_util::future::{BoxFuture, FutureExt as _};
use quipu_protocol::{NodeId, Notice, SessionId};

use quipu_machine::MachineInput;

/// What one commit added to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitEvent {
    /// The session; another than before when it had to branch.
    pub session: SessionId,
    /// The nodes, each below the one before it; never empty. The session's ref stands at the last, or stood: when it goes
    /// elsewhere, what it left comes first, and its message there next.
    pub nodes: Vec<NodeId>,
}

/// Watches the commits of a session ([`SessionOptions::follower`](crate::SessionOptions::follower)).
///
/// It gets each commit that added nodes, after that is durable, in order, one at a time and beside the run: the
/// session waits for it only when it is 256 commits behind. What a process commits when it opens a session that a dead
/// one left, and what it could not get before it died itself, it finds below the first of `nodes`: a follower
/// keeps count of how far it is and reads the lineage back to there.
///
/// ```
/// # use std::sync::{Arc, Mutex};
/// # use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions, store};
/// use futures_util::future::BoxFuture;
/// use quipu::protocol::{Model, Notice};
/// use quipu::{CommitEvent, Follower};
///
/// #[derive(Default)]
/// struct Count(Mutex<usize>);
///
/// impl Follower for Count {
///     fn committed(&self, commit: CommitEvent) -> BoxFuture<'_, Vec<Notice>> {
///         Box::pin(async move {
///             *self.0.lock().expect("nobody panicked") += commit.nodes.len();
///             Vec::new()
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::new(store::in_memory()?, Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
/// # let step = ScriptStep { text: "Hello.".into(), ..ScriptStep::default() };
/// # let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(vec![step])));
/// let count = Arc::new(Count::default());
/// let options = SessionOptions {
///     follower: Some(count.clone()),
///     ..SessionOptions::new(std::env::temp_dir(), model, script)
/// };
/// let session = engine.create(options).await?;
/// session.ask("Hi!").await?;
/// session.shutdown().await;
/// // The session's first node, the question, the answer.
/// assert_eq!(*count.0.lock().expect("nobody panicked"), 3);
/// # Ok(())
/// # }
/// ```
pub trait Follower: Send + Sync + 'static {
    /// Takes note of a commit. What it returns becomes events; nothing that it does can fail the commit or the run.
    fn committed(&self, commit: CommitEvent) -> BoxFuture<'_, Vec<Notice>>;
}

/// Tells a follower of commits until no more can come.
pub(crate) async fn follow(
    follower: Arc<dyn Follower>,
    mut commits: mailbox::Receiver<CommitEvent>,
    events: mailbox::Sender<MachineInput>,
) {
    while let Some(commit) = commits.recv().await {
        let work = std::panic::AssertUnwindSafe(async { follower.committed(commit).await });
        let notices = work.catch_unwind().await.unwrap_or_else(|_| {
            vec![Notice::Note {
                text: "a follower of this session panicked; this is a bug in the follower".into(),
            }]
        });
        for notice in notices {
            // The session is over: who wants to know asks the follower itself.
            drop(events.send(MachineInput::Notice(notice)).await);
        }
    }
}
