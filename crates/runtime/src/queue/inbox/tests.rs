use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use quipu::store::{Action, ActionQuery, Commit, Op, OpenOptions, Report, SqliteStore, Upkeep as _};
use quipu_testkit::accepted_until_killed;

use super::super::{BusyMode, DropRule, QueueOverride, QueueSettings};
use super::*;

fn open(dir: &Path) -> Arc<dyn Graph> {
    quipu::store::open(&dir.join("quipu.db"), &OpenOptions::default()).unwrap()
}

/// What the store at rest says of itself.
async fn check(dir: &Path) -> Report {
    SqliteStore::open(&dir.join("quipu.db"), &OpenOptions::default()).unwrap().check().await.unwrap()
}

fn sealer() -> Arc<Sealer> {
    Arc::new(Sealer::new([7; 32]))
}

fn key(text: &str) -> SessionKey {
    SessionKey::parse(text).unwrap()
}

fn policy(mode: BusyMode) -> QueuePolicy {
    let none = QueueOverride::default();
    QueuePolicy { mode, ..QueueSettings::default().resolve("", &none, &none) }
}

fn message(id: &str) -> NewMessage {
    NewMessage {
        message_id: Some(id.to_owned()),
        route: Route { channel: "irc".into(), ..Route::default() },
        authority: Authority { sender: Some("anna".into()), is_owner: true, ..Authority::default() },
        from: None,
        input: UserInput::from(id),
        at: 0,
    }
}

/// The next turn that is to be run.
async fn start(events: &mut InboxEvents) -> (SessionKey, Arc<QueueTurn>) {
    loop {
        if let (key, QueueEffect::Start(turn)) = events.next().await.unwrap() {
            return (key, turn);
        }
    }
}

/// What the commit of a session's prompt does: the row goes, and what was said is there, in one transaction.
fn commit_of(turn: &QueueTurn) -> Commit {
    let (session, item) = MessageInbox::row_of(turn);
    let said = Action {
        timestamp: 0,
        kind: "QUIPU_TEST_SAID".into(),
        from: None,
        to: None,
        metadata: Some(turn.message_ids.join(" ")),
    };
    Commit { ops: vec![Op::InboxTake { session, item }], actions: vec![said], ..Commit::default() }
}

#[tokio::test]
async fn accepted_messages_survive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let chat = key("agent:main:main");
    let (inbox, mut events) = MessageInbox::open(store.clone(), sealer()).await.unwrap();
    for id in ["1", "2", "3"] {
        inbox.put(&chat, message(id), policy(BusyMode::Collect)).await.unwrap().unwrap();
    }
    let duplicate = inbox.put(&chat, message("2"), policy(BusyMode::Collect)).await.unwrap();
    assert_eq!(duplicate, Err(QueueRefusal::Duplicate));
    let (of, turn) = start(&mut events).await;
    assert_eq!((of, &*turn.message_ids), (chat.clone(), &["1".to_owned()][..]));
    assert_eq!(inbox.len(), 3);
    let report = check(dir.path()).await;
    assert_eq!((report.inbox, report.problems), (3, vec![]), "they are of no session yet");
    drop((inbox, events));

    // The process died before the turn was part of a session.
    let (inbox, mut events) = MessageInbox::open(store.clone(), sealer()).await.unwrap();
    let (of, again) = start(&mut events).await;
    assert_eq!((of, &again), (chat.clone(), &turn), "the same turn");
    store.commit(commit_of(&turn)).await.unwrap();
    drop((inbox, events));

    // And again, after that commit and before anybody heard of it.
    let (inbox, mut events) = MessageInbox::open(store.clone(), sealer()).await.unwrap();
    let (_, rest) = start(&mut events).await;
    assert_eq!(rest.message_ids, ["2", "3"]);
    store.commit(commit_of(&rest)).await.unwrap();
    inbox.entered(&chat, &rest.id).await.unwrap();
    inbox.tell(&chat, QueueInput::Ended(rest.id.clone())).await.unwrap();
    assert!(inbox.is_empty());
    assert_eq!(check(dir.path()).await.inbox, 0);
}

#[tokio::test]
async fn change_that_cannot_be_stored_did_not_happen() {
    let store = quipu::store::in_memory().unwrap();
    let chat = key("agent:main:main");
    let (inbox, mut events) = MessageInbox::open(store.clone(), sealer()).await.unwrap();
    inbox.put(&chat, message("1"), policy(BusyMode::Followup)).await.unwrap().unwrap();
    let (_, turn) = start(&mut events).await;
    // Somebody took the row, whom this queue does not know.
    store.commit(commit_of(&turn)).await.unwrap();
    let refused = inbox.tell(&chat, QueueInput::Entered(turn.id.clone())).await;
    assert!(matches!(refused, Err(InboxError::Store(StoreError::Missing { .. }))), "{refused:?}");
    assert_eq!(inbox.len(), 1);
    inbox.entered(&chat, &turn.id).await.unwrap();
    assert_eq!(inbox.len(), 0);
}

#[tokio::test]
async fn stopped_turn_ends_though_its_row_is_gone() {
    let store = quipu::store::in_memory().unwrap();
    let chat = key("agent:main:main");
    let (inbox, mut events) = MessageInbox::open(store.clone(), sealer()).await.unwrap();
    for text in ["1", "2"] {
        inbox.put(&chat, message(text), policy(BusyMode::Followup)).await.unwrap().unwrap();
    }
    let (_, turn) = start(&mut events).await;
    // A session took it, and nobody said so.
    store.commit(commit_of(&turn)).await.unwrap();
    let authority = turn.group.authority.clone();
    assert_eq!(inbox.stop(&chat, authority).await.unwrap(), Some(turn.id.clone()));
    assert!(
        inbox.ended(&chat, &turn.id).await.unwrap().iter().any(|one| matches!(one, QueueEffect::Dropped(..)))
    );
    assert_eq!((inbox.len(), inbox.aborting(&chat).await), (0, None));
    assert_eq!(store.pending(&MESSAGE_INBOX.into()).await.unwrap().inbox.len(), 0);
}

#[tokio::test]
async fn stored_messages_hold_no_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let sealer = sealer();
    let secret = "hunter2-and-more-of-it-4711";
    sealer.know("password", secret);
    let (inbox, _events) = MessageInbox::open(store.clone(), sealer).await.unwrap();
    let text = format!("my password is {secret}");
    let secretive =
        NewMessage { input: UserInput::from(text), from: Some(secret.to_owned()), ..message("1") };
    inbox.put(&key("agent:main:main"), secretive, policy(BusyMode::Steer)).await.unwrap().unwrap();
    let rows = store.pending(&MESSAGE_INBOX.into()).await.unwrap().inbox;
    assert_eq!(rows.len(), 1);
    assert!(!rows[0].input.get().contains(secret), "{}", rows[0].input);
}

#[tokio::test]
async fn one_process_has_the_queues_of_a_store() {
    let store = quipu::store::in_memory().unwrap();
    let done: Result<(), InboxError> = MessageInbox::with(store.clone(), sealer(), |_, _| async {
        let other =
            MessageInbox::with(store.clone(), sealer(), |_, _| async { Ok::<(), InboxError>(()) }).await;
        assert_eq!(other, Err(InboxError::HeldElsewhere));
        Ok(())
    })
    .await;
    assert_eq!(done, Ok(()));
    let again = MessageInbox::with(store.clone(), sealer(), |_, _| async { Ok::<_, InboxError>(1) }).await;
    assert_eq!(again, Ok(1));
}

#[tokio::test]
async fn rows_that_cannot_be_read_stay() {
    let store = quipu::store::in_memory().unwrap();
    let put = |id: &str, queue: &str, json: &str| {
        let item = InboxItem { id: id.into(), queue: queue.into(), input: Json::parse(json).unwrap() };
        Op::InboxPut { session: holder(), item }
    };
    let newer = r#"{"type":"later","what":1}"#;
    let ops = vec![put("a", "agent:main:main", newer), put("b", "", newer), put("c", "agent:x", "3")];
    store.commit(Commit { ops, ..Commit::default() }).await.unwrap();
    let (inbox, _events) = MessageInbox::open(store.clone(), sealer()).await.unwrap();
    assert_eq!(inbox.unreadable(), ["a".into(), "b".into(), "c".into()]);
    inbox.put(&key("agent:main:main"), message("1"), policy(BusyMode::Steer)).await.unwrap().unwrap();
    assert_eq!(store.pending(&holder()).await.unwrap().inbox.len(), 4);
}

#[tokio::test]
async fn message_that_is_too_large_is_refused() {
    let store = quipu::store::in_memory().unwrap();
    let (inbox, _events) = MessageInbox::open(store, sealer()).await.unwrap();
    let large = NewMessage { input: UserInput::from("x".repeat(MESSAGE_LIMIT)), ..message("1") };
    let refused = inbox.put(&key("agent:main:main"), large, policy(BusyMode::Steer)).await;
    assert!(matches!(refused, Err(InboxError::TooLarge { bytes }) if bytes > MESSAGE_LIMIT));
    assert!(inbox.is_empty());
}

#[tokio::test]
async fn ten_thousand_messages_for_one_session_are_bounded() {
    let store = quipu::store::in_memory().unwrap();
    let (inbox, mut events) = MessageInbox::open(store.clone(), sealer()).await.unwrap();
    let (flood, quiet) = (key("agent:main:direct:flood"), key("agent:main:direct:quiet"));
    for n in 0..10_000 {
        inbox.put(&flood, message(&n.to_string()), policy(BusyMode::Collect)).await.unwrap().unwrap();
    }
    assert_eq!(inbox.len(), 1 + 20 + 1, "the turn, what waits, and the report of the rest");
    assert_eq!(store.pending(&holder()).await.unwrap().inbox.len(), 22);
    inbox.put(&quiet, message("hello"), policy(BusyMode::Collect)).await.unwrap().unwrap();
    assert_eq!(start(&mut events).await.0, flood);
    assert_eq!(start(&mut events).await.0, quiet, "at once");
}

#[tokio::test(start_paused = true)]
async fn events_come_when_they_are_due() {
    let store = quipu::store::in_memory().unwrap();
    let chat = key("agent:main:main");
    let (inbox, mut events) = MessageInbox::open(store, sealer()).await.unwrap();
    inbox.put(&chat, message("1"), policy(BusyMode::Followup)).await.unwrap().unwrap();
    let (_, turn) = start(&mut events).await;
    inbox.put(&chat, message("2"), policy(BusyMode::Followup)).await.unwrap().unwrap();
    inbox.tell(&chat, QueueInput::Entered(turn.id.clone())).await.unwrap();
    inbox.tell(&chat, QueueInput::Ended(turn.id.clone())).await.unwrap();
    let began = Instant::now();
    let (_, turn) = start(&mut events).await;
    assert_eq!(turn.message_ids, ["2"]);
    assert!(began.elapsed() <= Duration::from_millis(500));
    inbox.tell(&chat, QueueInput::Entered(turn.id.clone())).await.unwrap();
    inbox.tell(&chat, QueueInput::Ended(turn.id.clone())).await.unwrap();
    let nothing = tokio::time::timeout(Duration::from_secs(86_400), events.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

const ROLE: &str = "QUIPU_INBOX_CHILD";
const CHATS: [&str; 3] = ["agent:main:direct:a", "agent:main:direct:b", "agent:main:telegram:group:g"];

/// Not a test: the child's part. Accepts messages and runs turns until it is killed, and says what it accepted.
#[tokio::test]
async fn child() {
    let Ok(first) = std::env::var(ROLE) else { return };
    let first: u32 = first.parse().unwrap();
    let store = open(Path::new(&std::env::var("QUIPU_INBOX_DIR").unwrap()));
    // The test harness has begun a line.
    println!();
    let done: Result<(), InboxError> =
        MessageInbox::with(store.clone(), sealer(), |inbox, mut events| async move {
            let runner = inbox.clone();
            let run = async move {
                loop {
                    let (chat, turn) = start(&mut events).await;
                    store.commit(commit_of(&turn)).await.unwrap();
                    runner.entered(&chat, &turn.id).await.unwrap();
                    runner.tell(&chat, QueueInput::Ended(turn.id.clone())).await.unwrap();
                }
            };
            let accept = async move {
                let modes = [BusyMode::Followup, BusyMode::Collect, BusyMode::Steer];
                for n in first.. {
                    let at = n as usize % 3;
                    let policy =
                        QueuePolicy { debounce: Duration::ZERO, drop: DropRule::New, ..policy(modes[at]) };
                    if inbox.put(&key(CHATS[at]), message(&n.to_string()), policy).await.unwrap().is_ok() {
                        let mut out = std::io::stdout().lock();
                        writeln!(out, "accepted {n}").unwrap();
                        out.flush().unwrap();
                    }
                }
            };
            tokio::join!(run, accept);
            Ok(())
        })
        .await;
    panic!("{done:?}");
}

#[tokio::test]
async fn killed_process_loses_no_message_and_runs_none_twice() {
    let full = ["CI", "QUIPU_FULL"].iter().any(|name| std::env::var_os(name).is_some());
    let dir = tempfile::tempdir().unwrap();
    let mut accepted = Vec::new();
    for round in 0..if full { 100 } else { 12 } {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program
            .args(["--exact", "queue::inbox::tests::child", "--nocapture", "--test-threads=1"])
            .env(ROLE, (round * 100_000).to_string())
            .env("QUIPU_INBOX_DIR", dir.path());
        accepted.extend(accepted_until_killed(&mut program, 1 + round * 7919 % 61));
    }
    let store = open(dir.path());
    let sessions = store.clone();
    let left: Result<(), InboxError> =
        MessageInbox::with(store.clone(), sealer(), |inbox, mut events| async move {
            while !inbox.is_empty() {
                let (chat, turn) = start(&mut events).await;
                sessions.commit(commit_of(&turn)).await.unwrap();
                inbox.entered(&chat, &turn.id).await.unwrap();
                inbox.tell(&chat, QueueInput::Ended(turn.id.clone())).await.unwrap();
            }
            Ok(())
        })
        .await;
    left.unwrap();
    let query = ActionQuery { kinds: vec!["QUIPU_TEST_SAID".into()], ..ActionQuery::default() };
    let mut ran: BTreeMap<u32, u32> = BTreeMap::new();
    for logged in store.actions(query).await.unwrap() {
        for n in logged.action.metadata.unwrap().split(' ') {
            *ran.entry(n.parse().unwrap()).or_default() += 1;
        }
    }
    let twice: Vec<_> = ran.iter().filter(|(_, count)| **count != 1).collect();
    assert_eq!(twice, [], "ran twice");
    let lost: Vec<_> = accepted.iter().filter(|n| !ran.contains_key(n)).collect();
    assert_eq!(lost, [] as [&u32; 0], "lost");
    println!("{} accepted, {} ran", accepted.len(), ran.len());
    assert_eq!(check(dir.path()).await.problems, []);
}
