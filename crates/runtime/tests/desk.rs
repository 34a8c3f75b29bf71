//! A desk and its clients, over pipes in memory and a model's server on loopback.

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::future::BoxFuture;
    use quipu_host::{CommandCall, CommandHandler, Failure, Home, OpenRequest, SilentObserver};
    use quipu_protocol::{
        Ack, Answer as Answered, AskKind, ClientFrame, Command, CommandSpec, CommandValue, Event,
        FrameErrorKind, MoveFiles, NodeId, Outcome, QueueMode, Refusal, Scope, ServerFrame, SessionId,
        Snapshot,
    };
    use quipu_runtime::{Desk, LINE_LIMIT, ServeEnd};
    use quipu_testkit::{Answer, FakeServer, Gate, Reply};
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
    use tokio::task::JoinHandle;

    /// A home, a directory to work in, and a model.
    struct World {
        dir: tempfile::TempDir,
        server: FakeServer,
    }

    impl World {
        fn new(script: impl IntoIterator<Item = Reply>) -> Self {
            let world = Self { dir: tempfile::tempdir().unwrap(), server: FakeServer::start(script) };
            for made in ["home", "work", "other"] {
                std::fs::create_dir(world.path(made)).unwrap();
            }
            let model = json!({ "id": "test-1", "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000 });
            let provider = json!({
                "baseUrl": world.server.url(), "apiKey": "key", "api": "anthropic-messages", "models": [model],
            });
            let models = json!({ "providers": { "testing": provider } });
            std::fs::write(world.path("home/models.json"), models.to_string()).unwrap();
            let settings = json!({ "retry": { "baseDelayMs": 1 }, "defaultModel": "test-1" });
            std::fs::write(world.path("home/settings.json"), settings.to_string()).unwrap();
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join(name)
        }

        fn desk(&self) -> Desk {
            Desk::new(Home::at(self.path("home"), Arc::new(SilentObserver)), OpenRequest::default())
        }
    }

    /// One end of a connection.
    struct Client {
        write: WriteHalf<DuplexStream>,
        read: BufReader<ReadHalf<DuplexStream>>,
        served: JoinHandle<ServeEnd>,
        number: u64,
        /// What came while something else was waited for.
        kept: Vec<ServerFrame>,
    }

    impl Client {
        /// A connection that nobody greeted on.
        fn silent(desk: &Desk) -> Self {
            let (ours, theirs) = tokio::io::duplex(4 << 10);
            let (read, write) = tokio::io::split(theirs);
            let desk = desk.clone();
            let served = tokio::spawn(async move { desk.serve(read, write).await });
            let (read, write) = tokio::io::split(ours);
            Self { write, read: BufReader::new(read), served, number: 0, kept: Vec::new() }
        }

        async fn connect(desk: &Desk) -> Self {
            let mut client = Self::silent(desk);
            client.line(r#"{"type":"hello","version":2}"#).await;
            assert!(matches!(client.next().await, ServerFrame::Hello { version: 2, .. }));
            client
        }

        async fn line(&mut self, line: &str) {
            self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        }

        async fn read(&mut self) -> Option<ServerFrame> {
            let mut line = String::new();
            let read =
                tokio::time::timeout(Duration::from_secs(60), self.read.read_line(&mut line)).await.unwrap();
            (read.unwrap() > 0)
                .then(|| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))
        }

        async fn next(&mut self) -> ServerFrame {
            self.read().await.unwrap()
        }

        async fn send(&mut self, frame: impl FnOnce(u64) -> ClientFrame) -> u64 {
            self.number += 1;
            let line = serde_json::to_string(&frame(self.number)).unwrap();
            self.line(&line).await;
            self.number
        }

        /// The answer to a line; what comes before it is kept.
        async fn answer(&mut self, frame: impl FnOnce(u64) -> ClientFrame) -> ServerFrame {
            let id = self.send(frame).await;
            loop {
                let frame = self.next().await;
                let json = serde_json::to_value(&frame).unwrap();
                if json["id"] == id {
                    return frame;
                }
                self.kept.push(frame);
            }
        }

        async fn open(&mut self, cwd: &Path, session: Option<&SessionId>) -> SessionId {
            let (cwd, session) = (cwd.to_str().unwrap().to_owned(), session.map(ToString::to_string));
            let open = |id| ClientFrame::Open { id, cwd, session, fork: None, model: None, thinking: None };
            match self.answer(open).await {
                ServerFrame::Opened { session, .. } => session,
                other => panic!("{other:?}"),
            }
        }

        async fn command(&mut self, session: &SessionId, command: Command) -> Result<Ack, Refusal> {
            let session = session.clone();
            match self.answer(|id| ClientFrame::Command { id, session, command }).await {
                ServerFrame::Ack { ack, .. } => Ok(ack),
                ServerFrame::Refused { refused, message, .. } => {
                    assert_eq!(message, refused.to_string());
                    Err(refused)
                }
                other => panic!("{other:?}"),
            }
        }

        async fn prompt(&mut self, session: &SessionId, text: &str, when: QueueMode) -> Result<Ack, Refusal> {
            self.command(session, Command::Prompt { input: text.into(), when }).await
        }

        async fn subscribe(&mut self, session: &SessionId, live: bool) -> Snapshot {
            let session = session.clone();
            match self.answer(|id| ClientFrame::Subscribe { id, session, live, answers: true }).await {
                ServerFrame::Snapshot { snapshot, .. } => *snapshot,
                other => panic!("{other:?}"),
            }
        }

        /// Reads events of a session until one fits.
        async fn until<T>(&mut self, of: &SessionId, fits: impl Fn(&Event) -> Option<T>) -> T {
            loop {
                let frame = if self.kept.is_empty() { self.next().await } else { self.kept.remove(0) };
                if let ServerFrame::Event { session, envelope } = frame
                    && session == *of
                    && let Some(found) = fits(&envelope.event)
                {
                    return found;
                }
            }
        }

        async fn settled(&mut self, session: &SessionId) -> Outcome {
            let ended = |event: &Event| match event {
                Event::RunEnded { outcome } => Some(outcome.clone()),
                _ => None,
            };
            let outcome = self.until(session, ended).await;
            self.until(session, |event| matches!(event, Event::Settled).then_some(())).await;
            outcome
        }

        /// The client leaves, and its connection ends.
        async fn leave(self) -> ServeEnd {
            drop((self.write, self.read));
            self.served.await.unwrap()
        }
    }

    fn says(text: &str) -> Reply {
        Answer::new().text(text).reply()
    }

    fn calls(tool: &str, args: &serde_json::Value) -> Reply {
        Answer::new().tool_call("call_1", tool, &args.to_string()).reply()
    }

    /// Says what follows its name, and how many messages there are in the session.
    struct EchoCommand;

    impl CommandHandler for EchoCommand {
        fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
            Box::pin(async move {
                if call.arguments == "panic" {
                    panic!("the command of a test breaks down");
                }
                if let Some(asked) = call.arguments.strip_prefix('?') {
                    return Ok(CommandValue::Prompt { input: asked.into() });
                }
                let session = call.session.as_ref().map(|session| session.view().session.to_string());
                Ok(CommandValue::Text { text: format!("{} {session:?}", call.arguments) })
            })
        }
    }

    #[tokio::test]
    async fn commands_of_the_place_are_listed_and_run() {
        let world = World::new([]);
        let home = Home::at(world.path("home"), Arc::new(SilentObserver));
        home.commands().set_built_in([CommandSpec::new("tree", "the tree", "x")]);
        let own = CommandSpec::new("test:says", "says it", "a test").with_arguments("TEXT");
        home.commands().register(own.clone(), Arc::new(EchoCommand)).unwrap();
        let desk = Desk::new(home, OpenRequest::default());
        let mut client = Client::connect(&desk).await;
        let ServerFrame::Commands { commands, .. } = client.answer(|id| ClientFrame::Commands { id }).await
        else {
            panic!("no commands")
        };
        assert_eq!(commands, [own]);
        let session = client.open(&world.path("work"), None).await;
        let run = |name: &str, arguments: &str, session: Option<&SessionId>| {
            let (name, arguments, session) = (name.to_owned(), arguments.to_owned(), session.cloned());
            move |id| ClientFrame::Run { id, session, name, arguments }
        };
        match client.answer(run("test:says", "hello", Some(&session))).await {
            ServerFrame::CommandResult { value: CommandValue::Text { text }, .. } => {
                assert_eq!(text, format!("hello Some(\"{session}\")"));
            }
            other => panic!("{other:?}"),
        }
        match client.answer(run("test:says", "?ask it", None)).await {
            ServerFrame::CommandResult { value, .. } => {
                assert_eq!(value, CommandValue::Prompt { input: "ask it".into() });
            }
            other => panic!("{other:?}"),
        }
        for (name, arguments, what) in [
            ("test:says", "panic", "panicked"),
            ("tree", "", "works only in the terminal"),
            ("none", "", "there is no command /none"),
        ] {
            match client.answer(run(name, arguments, None)).await {
                ServerFrame::Error { kind: FrameErrorKind::Failed, message, .. } => {
                    assert!(message.contains(what), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
        let nobody = SessionId::from("nobody".to_owned());
        let lost = client.answer(run("test:says", "", Some(&nobody))).await;
        assert!(matches!(lost, ServerFrame::Error { kind: FrameErrorKind::NoSession, .. }), "{lost:?}");
        assert_eq!(client.leave().await, ServeEnd::Left);
        desk.shutdown().await;
    }

    #[tokio::test]
    async fn two_sessions_at_once_each_with_its_own_events() {
        let gate = Gate::new();
        let world = World::new([
            Reply::sse("").then_gate(&gate).then(Answer::new().text("first").stream()),
            says("second"),
            says("again"),
        ]);
        let desk = world.desk();
        let mut client = Client::connect(&desk).await;
        let one = client.open(&world.path("work"), None).await;
        let two = client.open(&world.path("other"), None).await;
        assert_ne!(one, two);
        for session in [&one, &two] {
            client.subscribe(session, false).await;
        }
        assert!(matches!(client.prompt(&one, "one", QueueMode::Now).await, Ok(Ack::Started(_))));
        gate.reached().await;
        assert_eq!(client.prompt(&one, "more", QueueMode::Now).await, Err(Refusal::Busy));
        assert!(matches!(client.prompt(&one, "and", QueueMode::Steer).await, Ok(Ack::Queued(_))));
        client.prompt(&two, "two", QueueMode::Now).await.unwrap();
        assert_eq!(client.settled(&two).await, Outcome::Done);
        gate.open();
        assert_eq!(client.settled(&one).await, Outcome::Done);
        match client.answer(|id| ClientFrame::Sessions { id }).await {
            ServerFrame::Sessions { sessions, .. } => {
                let mut both = vec![one.clone(), two.clone()];
                both.sort();
                assert_eq!(sessions, both);
            }
            other => panic!("{other:?}"),
        }
        let name = one.clone();
        assert!(matches!(
            client.answer(|id| ClientFrame::Close { id, session: name }).await,
            ServerFrame::Done { .. }
        ));
        assert!(
            client
                .kept
                .iter()
                .any(|frame| matches!(frame, ServerFrame::Ended { session } if *session == one))
        );
        let name = one.clone();
        let late = client
            .answer(|id| ClientFrame::Subscribe { id, session: name, live: false, answers: false })
            .await;
        assert!(matches!(late, ServerFrame::Error { kind: FrameErrorKind::NoSession, .. }), "{late:?}");
        assert_eq!(client.leave().await, ServeEnd::Left);
        desk.shutdown().await;
    }

    #[tokio::test]
    async fn client_that_reconnects_often_finds_session_and_question() {
        let world = World::new([]);
        let outside = world.path("other/out.txt");
        world.server.push(calls("write", &json!({ "path": outside, "content": "hi" })));
        world.server.push(says("done"));
        let desk = world.desk();
        let mut client = Client::connect(&desk).await;
        let session = client.open(&world.path("work"), None).await;
        client.subscribe(&session, false).await;
        client.prompt(&session, "go", QueueMode::Now).await.unwrap();
        let is_asked = |event: &Event| match event {
            Event::AskOpened { ask } => Some(ask.id.clone()),
            _ => None,
        };
        let asked = client.until(&session, is_asked).await;
        for round in 0..1_000 {
            // Half of them within the connection, half with another one.
            if round % 2 == 0 {
                let snapshot = client.subscribe(&session, round % 4 == 0).await;
                assert_eq!(snapshot.asks[0].id, asked, "{round}");
            } else {
                let mut next = Client::connect(&desk).await;
                next.subscribe(&session, false).await;
                let before = std::mem::replace(&mut client, next);
                assert_eq!(before.leave().await, ServeEnd::Left);
            }
        }
        let snapshot = client.subscribe(&session, false).await;
        let AskKind::Permission(permission) = &snapshot.asks[0].kind else { panic!("{snapshot:?}") };
        assert!(permission.scopes.contains(&Scope::Session), "{permission:?}");
        let answer = Answered::Allow { scope: Scope::Session };
        assert_eq!(client.command(&session, Command::Answer { ask: asked, answer }).await, Ok(Ack::Handled));
        assert_eq!(client.settled(&session).await, Outcome::Done);
        assert_eq!(std::fs::read_to_string(outside).unwrap(), "hi");
        // Who names a session that is open gets that one.
        let id = client.subscribe(&session, false).await.session;
        assert_eq!(client.open(&world.path("work"), Some(&id)).await, session);
        desk.shutdown().await;
    }

    #[tokio::test]
    async fn invalid_line_is_reported_and_session_continues() {
        let world = World::new([says("still here")]);
        let desk = world.desk();
        for (first, kind) in [
            (r#"{"type":"hello","version":7}"#, FrameErrorKind::Version),
            (r#"{"type":"sessions","id":1}"#, FrameErrorKind::Version),
            ("GET / HTTP/1.1", FrameErrorKind::Version),
        ] {
            let mut client = Client::silent(&desk);
            client.line(first).await;
            let answer = client.next().await;
            assert!(
                matches!(&answer, ServerFrame::Error { kind: found, .. } if *found == kind),
                "{answer:?}"
            );
            assert!(client.read().await.is_none());
            assert_eq!(client.served.await.unwrap(), ServeEnd::OtherVersion);
        }
        let mut client = Client::connect(&desk).await;
        let session = client.open(&world.path("work"), None).await;
        client.subscribe(&session, false).await;
        let long = "x".repeat(LINE_LIMIT + 1);
        for (line, kind, id) in [
            ("garbage", FrameErrorKind::Invalid, None),
            ("[1,2]", FrameErrorKind::Invalid, None),
            (r#"{"type":"nothing","id":5}"#, FrameErrorKind::Invalid, Some(5)),
            (r#"{"type":"sessions","id":6,"more":1}"#, FrameErrorKind::Invalid, Some(6)),
            (
                r#"{"type":"command","id":7,"session":"x","command":{"type":"continue"}}"#,
                FrameErrorKind::NoSession,
                Some(7),
            ),
            (r#"{"type":"hello","version":2}"#, FrameErrorKind::Invalid, None),
            (r#"{"type":"open","id":8,"cwd":"work"}"#, FrameErrorKind::Failed, Some(8)),
            (r#"{"type":"open","id":9,"cwd":"/","session":"a","fork":"b"}"#, FrameErrorKind::Failed, Some(9)),
            (r#"{"type":"open","id":10,"cwd":"/not there"}"#, FrameErrorKind::Failed, Some(10)),
            (r#"{"type":"open","id":11,"cwd":"/","session":"nobody"}"#, FrameErrorKind::Failed, Some(11)),
            ("\u{0}\u{1}{\"", FrameErrorKind::Invalid, None),
            (&long, FrameErrorKind::TooLong, None),
        ] {
            client.line(line).await;
            match client.next().await {
                ServerFrame::Error { id: found, kind: of, message } => {
                    assert_eq!((of, found), (kind, id), "{line:.80}: {message}");
                    assert!(!message.is_empty());
                }
                other => panic!("{line:.80}: {other:?}"),
            }
        }
        client.write.write_all(b"\xff\xfe\n").await.unwrap();
        assert!(matches!(client.next().await, ServerFrame::Error { kind: FrameErrorKind::Invalid, .. }));
        client.prompt(&session, "are you there?", QueueMode::Now).await.unwrap();
        assert_eq!(client.settled(&session).await, Outcome::Done);
        desk.shutdown().await;
    }

    #[tokio::test]
    async fn a_client_that_never_reads_is_left_and_its_session_goes_on() {
        let long: String = "words ".repeat(20_000);
        let world = World::new([says(&long), says("next")]);
        let desk = world.desk().with_patience(Duration::from_millis(300));
        let mut deaf = Client::connect(&desk).await;
        let session = deaf.open(&world.path("work"), None).await;
        deaf.subscribe(&session, false).await;
        deaf.send(|id| ClientFrame::Command {
            id,
            session: session.clone(),
            command: Command::Prompt { input: "go".into(), when: QueueMode::Now },
        })
        .await;
        assert_eq!((&mut deaf.served).await.unwrap(), ServeEnd::Stalled);
        let mut client = Client::connect(&desk).await;
        let mut snapshot = client.subscribe(&session, false).await;
        if snapshot.run.is_some() {
            assert_eq!(client.settled(&session).await, Outcome::Done);
            snapshot = client.subscribe(&session, false).await;
        }
        assert!(snapshot.run.is_none());
        client.prompt(&session, "and now?", QueueMode::Now).await.unwrap();
        assert_eq!(client.settled(&session).await, Outcome::Done);
        desk.shutdown().await;
    }

    #[tokio::test]
    async fn open_session_in_which_nothing_was_said_is_found_by_its_id() {
        let world = World::new([]);
        let desk = world.desk();
        let (mut one, mut two) = (Client::connect(&desk).await, Client::connect(&desk).await);
        let session = one.open(&world.path("work"), None).await;
        assert_eq!(two.open(&world.path("work"), Some(&session)).await, session);
        assert_eq!(desk.session_count(), 1);
        desk.shutdown().await;
    }

    #[tokio::test]
    async fn two_desks_on_one_store_do_not_write_to_one_session() {
        let world = World::new([says("one"), says("two"), says("three")]);
        let (first, second) = (world.desk(), world.desk());
        let mut one = Client::connect(&first).await;
        let session = one.open(&world.path("work"), None).await;
        one.subscribe(&session, false).await;
        one.prompt(&session, "hello", QueueMode::Now).await.unwrap();
        one.settled(&session).await;
        let mut two = Client::connect(&second).await;
        let other = two.open(&world.path("work"), Some(&session)).await;
        assert_ne!(other, session, "held by the first, so the second has a branch of it");
        two.subscribe(&other, false).await;
        two.prompt(&other, "hello, too", QueueMode::Now).await.unwrap();
        one.prompt(&session, "and again", QueueMode::Now).await.unwrap();
        assert_eq!(two.settled(&other).await, Outcome::Done);
        assert_eq!(one.settled(&session).await, Outcome::Done);
        tokio::join!(first.shutdown(), second.shutdown());
    }

    #[tokio::test]
    async fn commands_while_the_desk_ends_are_refused_and_nothing_is_lost() {
        let gate = Gate::new();
        let world = World::new([
            Reply::sse("").then_gate(&gate).then(Answer::new().text("never").stream()),
            says("after"),
        ]);
        let desk = world.desk();
        let mut client = Client::connect(&desk).await;
        let session = client.open(&world.path("work"), None).await;
        client.subscribe(&session, false).await;
        client.prompt(&session, "go", QueueMode::Now).await.unwrap();
        gate.reached().await;
        // Another one closes the session while this one goes on sending.
        let mut other = Client::connect(&desk).await;
        let name = session.clone();
        other.send(|id| ClientFrame::Close { id, session: name }).await;
        let refused = loop {
            let name = session.clone();
            let command = Command::Prompt { input: "more".into(), when: QueueMode::FollowUp };
            match client.answer(|id| ClientFrame::Command { id, session: name, command }).await {
                ServerFrame::Ack { .. } => {}
                ServerFrame::Refused { refused, .. } => break Some(refused),
                ServerFrame::Error { kind: FrameErrorKind::NoSession, .. } => break None,
                other => panic!("{other:?}"),
            }
        };
        assert!(matches!(refused, None | Some(Refusal::Closed)), "{refused:?}");
        // What was queued is there when it is opened again.
        let again = client.open(&world.path("work"), Some(&session)).await;
        assert_eq!(again, session, "nobody holds it any more");
        // A command that ends it does so as well.
        assert_eq!(client.command(&session, Command::Close).await, Ok(Ack::Handled));
        let again = client.open(&world.path("work"), Some(&session)).await;
        client.subscribe(&again, false).await;
        tokio::join!(desk.shutdown(), async { while client.read().await.is_some() {} });
        assert_eq!(client.served.await.unwrap(), ServeEnd::Closed);
        let mut late = Client::silent(&desk);
        late.write.write_all(b"{\"type\":\"hello\",\"version\":2}\n").await.ok();
        assert_eq!(late.leave().await, ServeEnd::Closed);
    }

    #[tokio::test]
    async fn a_jump_with_files_and_its_undo() {
        let world = World::new([
            calls("write", &json!({ "path": "a.txt", "content": "one" })),
            says("written"),
            calls("write", &json!({ "path": "a.txt", "content": "two" })),
            says("changed"),
        ]);
        let desk = world.desk();
        let mut client = Client::connect(&desk).await;
        let session = client.open(&world.path("work"), None).await;
        client.subscribe(&session, false).await;
        client.prompt(&session, "write", QueueMode::Now).await.unwrap();
        client.settled(&session).await;
        let there = client.subscribe(&session, false).await.head.unwrap();
        client.prompt(&session, "change", QueueMode::Now).await.unwrap();
        client.settled(&session).await;
        let file = || std::fs::read_to_string(world.path("work/a.txt")).unwrap();
        assert_eq!(file(), "two");
        let jump = |to: NodeId| Command::Jump {
            to,
            summary: None,
            label: None,
            files: MoveFiles::Restore { overwrite: false },
        };
        client.command(&session, jump(there)).await.unwrap();
        client.until(&session, |event| matches!(event, Event::JumpEnded { .. }).then_some(())).await;
        assert_eq!(file(), "one");
        let undo = Command::Undo { steps: 1, files: MoveFiles::Auto };
        assert!(matches!(client.command(&session, undo).await, Ok(Ack::Moved(_))));
        assert_eq!(file(), "two");
        desk.shutdown().await;
    }
}
