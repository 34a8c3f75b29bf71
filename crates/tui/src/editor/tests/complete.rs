//! What is offered while one writes.

use super::*;
use crate::editor::{Candidate, CommandWord, Query};

fn bench() -> Bench {
    let mut bench = Bench::new(60, 10);
    let command = |name: &str, arguments: &str, completes| CommandWord {
        name: name.into(),
        arguments: arguments.into(),
        help: format!("what {name} does"),
        completes,
    };
    bench.editor.set_commands(vec![
        command("compact", "[FOCUS]", false),
        command("model", "[NAME]", true),
        command("search", "WORDS", false),
        command("resume", "", false),
    ]);
    bench
}

fn found(texts: &[&str]) -> Vec<Candidate> {
    texts.iter().map(|text| Candidate { text: (*text).into(), ..Candidate::default() }).collect()
}

/// What the editor asks for after these keys.
fn asked(bench: &mut Bench, keys: &str) -> Option<(u64, Query)> {
    match bench.press(keys) {
        EditorOutcome::Handled(effects) => effects.into_iter().find_map(|effect| match effect {
            EditorEffect::Complete { id, query } => Some((id, query)),
            _ => None,
        }),
        _ => None,
    }
}

fn files(text: &str, fresh: bool) -> Query {
    Query::Files { text: text.into(), fresh }
}

fn popup(bench: &Bench) -> Vec<String> {
    let lines = bench.editor.popup(Size { columns: 60, rows: 6 }, &Theme::default());
    lines.iter().map(|line| line.text().trim_end().to_owned()).collect()
}

#[test]
fn commands_are_completed_and_sent() {
    let mut bench = bench();
    bench.press("'/'");
    assert_eq!(popup(&bench).len(), 4);
    bench.press("'m'");
    assert!(popup(&bench)[0].starts_with("› /model"), "{:?}", popup(&bench));
    bench.press("escape 'o'");
    assert_eq!(popup(&bench), Vec::<String>::new(), "closed for this word");
    bench.press("ctrl+u '/res'");
    assert_eq!(bench.press("enter"), EditorOutcome::Submit("/resume ".trim_end().into()));
    bench.press("'/sea'");
    assert_eq!(bench.press("enter"), EditorOutcome::Handled(vec![]));
    assert_eq!(bench.marked(), "/search |", "what it searches is missing");
    bench.press("ctrl+u '/' down down enter");
    assert_eq!(bench.marked(), "/search |");
    bench.press("ctrl+u '/nothing'");
    assert_eq!(bench.press("enter"), EditorOutcome::Submit("/nothing".into()));
    bench.press("'/usr/lib'");
    assert_eq!(popup(&bench), Vec::<String>::new());
    bench.press("ctrl+u 'a /mo'");
    assert_eq!(popup(&bench), Vec::<String>::new());
}

#[test]
fn arguments_are_asked_for_once() {
    let mut bench = bench();
    bench.press("'/mod' tab");
    assert_eq!(bench.marked(), "/model |");
    let (id, query) = asked(&mut bench, "backspace ' '").unwrap();
    assert_eq!(query, Query::Argument { command: "model".into() });
    bench.editor.offer(id - 1, found(&["old"]), false);
    assert_eq!(popup(&bench), ["looking ..."]);
    bench.editor.offer(id, found(&["big one", "small one"]), false);
    assert_eq!(asked(&mut bench, "'sm'"), None);
    assert_eq!(popup(&bench), ["› small one"]);
    assert_eq!(bench.press("enter"), EditorOutcome::Submit("/model small one".into()));
}

#[test]
fn files_are_named() {
    let mut bench = bench();
    assert_eq!(asked(&mut bench, "'see @'"), Some((1, files("", true))));
    let (id, query) = asked(&mut bench, "'m'").unwrap();
    assert_eq!(query, files("m", false));
    bench.editor.offer(id, found(&["src/main.rs", "a b.rs", "src/"]), true);
    bench.press("down");
    bench.editor.offer(id, found(&["new", "src/main.rs", "a b.rs", "src/"]), false);
    assert_eq!(popup(&bench)[2], "› a b.rs", "the chosen one stays chosen");
    bench.press("enter");
    assert_eq!(bench.marked(), "see @\"a b.rs\" |");
    let (id, _) = asked(&mut bench, "'@s'").unwrap();
    bench.editor.offer(id, found(&["src/"]), false);
    let (id, query) = asked(&mut bench, "enter").unwrap();
    assert_eq!((bench.marked().as_str(), query), ("see @\"a b.rs\" @src/|", files("src/", true)));
    bench.editor.offer(id, found(&["src/main.rs"]), false);
    bench.press("tab 'x'");
    assert_eq!(bench.marked(), "see @\"a b.rs\" @src/main.rs x|");
    bench.press("ctrl+-");
    for (typed, expect) in [
        ("me@host", None),
        ("(@x", Some(files("x", false))),
        ("@\"a b", Some(files("a b", false))),
        ("@\"a b\" c", None),
        ("a@@b", None),
    ] {
        let mut bench = self::bench();
        assert_eq!(asked(&mut bench, &format!("'{typed}'")).map(|(_, query)| query), expect, "{typed}");
    }
    let (id, _) = asked(&mut bench, "' @zzz'").unwrap();
    bench.editor.offer(id, Vec::new(), false);
    assert_eq!(popup(&bench), ["no such file"]);
    assert_eq!(bench.press("escape"), EditorOutcome::Handled(vec![]));
    assert_eq!(bench.press("escape"), EditorOutcome::Ignored);
}

#[test]
fn tab_completes_paths() {
    let mut bench = bench();
    let paths = |text: &str| Query::Paths { text: text.into() };
    let (id, query) = asked(&mut bench, "'look at sr' tab").unwrap();
    assert_eq!(query, paths("sr"));
    // One is written at once, and a directory is gone into.
    let effects = bench.editor.offer(id, found(&["src/"]), false);
    assert_eq!(bench.marked(), "look at src/|");
    let [EditorEffect::Complete { id, query }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*query, paths("src/"));
    bench.editor.offer(*id, found(&["src/module_a.rs", "src/module_b.rs"]), false);
    assert_eq!(bench.marked(), "look at src/module_|", "what they have in common");
    let (id, query) = asked(&mut bench, "'b'").unwrap();
    assert_eq!(query, paths("src/module_b"));
    bench.editor.offer(id, found(&["src/module_b.rs"]), false);
    assert_eq!(bench.marked(), "look at src/module_b|", "only Tab writes");
    bench.press("tab");
    assert_eq!(bench.marked(), "look at src/module_b.rs|");
    bench.press("ctrl+u");
    let (id, query) = asked(&mut bench, "'!cat my\\ f' tab").unwrap();
    assert_eq!(query, paths("my f"));
    bench.editor.offer(id, found(&["my file"]), false);
    assert_eq!(bench.marked(), "!cat my\\ file |");
}
