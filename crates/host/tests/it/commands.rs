//! Commands that come from elsewhere: which there are, and what becomes of those that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_host::commands::{BUILT_IN, MAX_COMMAND_TEXT, MAX_COMMANDS};
use quipu_host::{CommandCall, CommandError, CommandHandler, CommandRegistry, Failure};
use quipu_protocol::{CommandSpec, CommandValue};

/// What a command does.
enum Behavior {
    Says(&'static str),
    Asks,
    Nothing,
    Fails,
    Panics,
    Hangs(Arc<AtomicBool>),
    Floods,
}

/// Records that it was dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl CommandHandler for Behavior {
    fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
        Box::pin(async move {
            Ok(match self {
                Self::Says(text) => CommandValue::Text { text: format!("{text} {}", call.arguments) },
                Self::Asks => CommandValue::Prompt { input: call.arguments.as_str().into() },
                Self::Nothing => CommandValue::Done,
                Self::Fails => return Err(Failure::request("y".repeat(100_000))),
                Self::Panics => panic!("the command of a test breaks down"),
                Self::Hangs(dropped) => {
                    let _dropped = DropFlag(dropped.clone());
                    std::future::pending().await
                }
                Self::Floods => CommandValue::Text { text: "z".repeat(MAX_COMMAND_TEXT + 1) },
            })
        })
    }

    fn complete<'a>(&'a self, _arguments: &'a str) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            match self {
                Self::Hangs(_) => std::future::pending().await,
                Self::Panics => panic!("the completion of a test breaks down"),
                Self::Floods => vec!["a".to_owned(); 10_000],
                _ => vec!["one".to_owned(), "t\u{7}wo".to_owned(), "three".to_owned()],
            }
        })
    }
}

fn spec(name: &str, source: &str) -> CommandSpec {
    CommandSpec::new(name, "what it does", source).completes()
}

fn names(registry: &CommandRegistry) -> Vec<String> {
    registry.list().into_iter().map(|spec| spec.name).collect()
}

fn call(arguments: &str) -> CommandCall {
    CommandCall { arguments: arguments.into(), session: None }
}

#[tokio::test]
async fn commands_are_listed_and_run() {
    let registry = CommandRegistry::default();
    registry.set_built_in([spec("help", "x"), spec("about", "x")]);
    for (name, does) in
        [("skill:z", Behavior::Says("said")), ("a_1-b", Behavior::Asks), ("m", Behavior::Nothing)]
    {
        registry.register(spec(name, "a test"), Arc::new(does)).unwrap();
    }
    assert_eq!(names(&registry), ["help", "about", "a_1-b", "m", "skill:z"]);
    assert_eq!(registry.list()[0].source, BUILT_IN);
    assert_eq!(registry.runnable().len(), 3);
    let text = registry.run("skill:z", call("hi")).await.unwrap();
    assert_eq!(text, CommandValue::Text { text: "said hi".into() });
    let prompt = registry.run("a_1-b", call("do it")).await.unwrap();
    assert_eq!(prompt, CommandValue::Prompt { input: "do it".into() });
    assert_eq!(registry.run("m", call("")).await.unwrap(), CommandValue::Done);
    assert_eq!(registry.complete("m", "").await, ["one", "three"]);
    let version = registry.version();
    registry.remove("a test");
    assert_eq!(names(&registry), ["help", "about"]);
    assert_ne!(registry.version(), version);
    for (name, expect) in [("help", "terminal"), ("skill:z", "there is no command")] {
        let error = registry.run(name, call("")).await.unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn names_and_texts_that_cannot_be_listed_are_refused() {
    let registry = CommandRegistry::default();
    let add = |spec: CommandSpec| registry.register(spec, Arc::new(Behavior::Nothing));
    let long = "a".repeat(65);
    for name in ["", "Help", "a b", "a/b", "é", "a\n", &long] {
        assert!(matches!(add(spec(name, "a test")), Err(CommandError::Name { .. })), "{name:?}");
    }
    let huge = "x".repeat(201);
    for (help, source) in [
        ("", "s"),
        ("h", " "),
        ("two\nlines", "s"),
        (huge.as_str(), "s"),
        ("h", huge.as_str()),
        ("h", BUILT_IN),
    ] {
        let refused = add(CommandSpec::new("name", help, source));
        assert!(matches!(refused, Err(CommandError::Spec { .. })), "{help:.20} {source:.20}");
    }
    assert!(add(CommandSpec::new("name", "h", "s").with_arguments("[\u{1b}]")).is_err());
    assert_eq!(registry.take_notices().len(), 14);
    for n in 0..MAX_COMMANDS {
        add(spec(&format!("c{n}"), "a test")).unwrap();
    }
    assert!(matches!(add(spec("more", "a test")), Err(CommandError::TooMany { .. })));
    let listed = names(&registry);
    assert!(listed.is_sorted() && listed.len() == MAX_COMMANDS);
}

#[test]
fn a_collision_is_told_with_both_names() {
    let registry = CommandRegistry::default();
    let add = |name: &str, source: &str| registry.register(spec(name, source), Arc::new(Behavior::Nothing));
    add("tree", "first").unwrap();
    add("own", "first").unwrap();
    let taken = add("own", "second").unwrap_err();
    assert_eq!(
        taken.to_string(),
        "the command /own of second is not used: first already has a command of this name"
    );
    registry.set_built_in([spec("tree", "x")]);
    assert!(add("tree", "third").is_err());
    let told: Vec<_> = registry.take_notices().iter().map(ToString::to_string).collect();
    assert_eq!(
        told[1],
        "the command /tree of first is not used: Quipu itself already has a command of this name"
    );
    assert!(told[2].contains("/tree of third"), "{told:?}");
    assert_eq!(names(&registry), ["tree", "own"]);
    assert!(registry.take_notices().is_empty());
}

#[tokio::test]
async fn a_command_that_misbehaves_is_ended_with_an_error() {
    let registry = CommandRegistry::default();
    let dropped = Arc::new(AtomicBool::new(false));
    for (name, does) in [
        ("hangs", Behavior::Hangs(dropped.clone())),
        ("panics", Behavior::Panics),
        ("floods", Behavior::Floods),
        ("fails", Behavior::Fails),
    ] {
        registry.register(spec(name, "a test"), Arc::new(does)).unwrap();
    }
    let run = async |name: &str| {
        let error = registry.run_within(name, call(""), Duration::from_millis(50)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("/{name} of a test")) && text.len() < 2_000, "{text}");
        error
    };
    assert!(matches!(run("hangs").await, CommandError::TimedOut { .. }));
    assert!(dropped.load(Ordering::SeqCst), "it goes on");
    assert!(matches!(run("panics").await, CommandError::Panicked { .. }));
    assert!(matches!(run("floods").await, CommandError::TooLarge { limit: MAX_COMMAND_TEXT, .. }));
    assert!(matches!(run("fails").await, CommandError::Failed { .. }));
    assert_eq!(registry.complete("floods", "").await.len(), 100);
    for name in ["hangs", "panics", "nobody"] {
        assert!(registry.complete(name, "").await.is_empty(), "{name}");
    }
}
