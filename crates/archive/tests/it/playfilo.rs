//! The graph of another program that has the form of ours: the same nodes, under the same ids.

use std::path::Path;

use quipu_archive::{ProblemKind, Report};
use quipu_protocol::NodeId;
use quipu_store::{Action, ActionQuery, Until};
use quipu_testkit::{Act, Neighbour};

use crate::agents::shorts;
use crate::support::{Archive, SECRET, archive, block_on};

const AGENT: &str = "playfilo";
/// The ids that the description of the format gives for its example.
const U1: &str = "03ff3429d7eea7748aceab403bbccb8be0befe67901a98a5fa31364b4260e002";
const U2: &str = "94418ef706d0f31a62c9258ba8cef8873639c3a16f41f3b1e2ef243b844dcd5b";
const A3: &str = "d26089eb560de11c1fabeb6a0b3034c708ae6d3d76ed8888166abb0d2cbd94e7";

impl Archive {
    /// Imports a fixture, from a copy of it.
    fn take_graph(&self, name: &str) -> Report {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/playfilo").join(name);
        let copy = self.file("playfilo.db", std::fs::read(path).unwrap());
        let mut reports = self.try_take(AGENT, &copy).unwrap();
        assert_eq!(reports.len(), 1);
        let report = reports.pop().unwrap();
        assert!(report.unchanged || report.read == report.added + report.present, "{report:?}");
        report
    }

    /// Rows of the log that an import may have brought, oldest first.
    fn actions(&self) -> Vec<Action> {
        let rows = block_on(self.store.actions(ActionQuery::default())).unwrap();
        let rows = rows.into_iter().rev().map(|row| row.action);
        rows.filter(|action| !action.kind.starts_with("QUIPU_")).collect()
    }

    fn has_node(&self, id: &str) -> bool {
        block_on(self.store.nodes(&[id.parse::<NodeId>().unwrap()])).unwrap()[0].is_some()
    }
}

#[test]
fn nodes_are_the_same_in_both_stores() {
    let archive = archive();
    let report = archive.take_graph("playfilo.db");
    assert_eq!((report.added, report.lost, report.repaired, report.branches), (10, 0, 0, 2), "{report:?}");
    assert_eq!((report.actions, report.skipped.len()), (1, 0));
    for id in [U1, U2, A3] {
        assert!(archive.has_node(id), "{id}");
    }
    let head = archive.head("playfilo/PI_HEAD").unwrap();
    assert_eq!(report.head, Some(head));
    let said = shorts(&archive.branch(head));
    assert_eq!(
        said[..3],
        ["u Please fix the parser bug", "a (Look first) call_1=read", "r call_1=read fn main() {}\n"]
    );
    assert_eq!((said.len(), said[6].as_str()), (7, "a call_3=life"));
    assert_eq!(archive.head("playfilo/terminal_head"), Some(U2.parse().unwrap()));
    let nodes = block_on(archive.store.lineage(head, Until::Root)).unwrap();
    assert!(nodes.iter().all(|node| node.verify() == quipu_dag::Verdict::Valid));
    assert!(nodes[1].config.as_ref().unwrap().contains("thinkingLevel"), "{:?}", nodes[1].config);
    // What a person would go on with is what a model would be shown.
    quipu_transcript::check_conversation(&quipu_transcript::project_messages(
        archive.branch(head).into_iter().map(std::sync::Arc::new),
    ))
    .unwrap();
    assert!(archive.take_graph("playfilo.db").added == 0);
    let path = archive.dir.path().join("playfilo.db");
    assert!(archive.try_take(AGENT, &path).unwrap()[0].unchanged);
}

#[test]
fn a_graph_that_grows() {
    let grown = archive();
    let first = grown.take_graph("earlier.db");
    assert_eq!((first.added, first.branches), (6, 1));
    assert_eq!(grown.head("playfilo/PI_HEAD"), Some(U2.parse().unwrap()));
    let report = grown.take_graph("playfilo.db");
    assert_eq!((report.added, report.present), (4, 6), "{report:?}");
    let whole = archive();
    whole.take_graph("playfilo.db");
    assert_eq!(grown.all(), whole.all());
    // Back again: the head is followed, and nothing is lost.
    let report = grown.take_graph("earlier.db");
    assert_eq!((report.added, report.present), (0, 6));
    assert_eq!(grown.all().1, whole.all().1);
}

#[test]
fn what_cannot_be_kept_as_it_is() {
    let archive = archive();
    let report = archive.take_graph("odd.db");
    let told = |word: &str| report.problems.iter().filter(|problem| problem.detail.contains(word)).count();
    let kinds = |kind: ProblemKind| report.problems.iter().filter(|problem| problem.kind == kind).count();
    assert_eq!((report.added, report.sealed, report.lost), (10, 1, 2), "{report:?}");
    assert_eq!((kinds(ProblemKind::Renamed), kinds(ProblemKind::NotAnEntry)), (6, 2), "{report:?}");
    assert_eq!(
        (told("its parent is missing"), told("a part of it"), told("not the hash")),
        (2, 2, 2),
        "{report:?}"
    );
    assert_eq!((told("ref gone"), told("nohash")), (1, 1));
    // A secret is sealed, and so is what follows it another node; both are the same at each import.
    let said = shorts(&archive.branch(archive.head("playfilo/PI_HEAD").unwrap()));
    assert!(said[0].starts_with("u It is [REDACTED:") && said[1] == "a Thanks.", "{said:?}");
    assert!(!archive.has_node("b609276e23f775d18a77b6048b9191fad04955b3a0cf5a18588b6a08ed331e62"));
    assert!(archive.has_node("54d3984234139fa704a813a981e499dcf8f44fe5e1b0085e8989a2d8016adcb2"));
    let nodes = archive.all().1;
    for node in block_on(archive.store.nodes(&nodes)).unwrap().into_iter().flatten() {
        assert_eq!(node.verify(), quipu_dag::Verdict::Valid, "{node:?}");
    }
    let before = archive.all();
    let again = archive.take_graph("odd.db");
    assert_eq!((again.added, again.present), (0, 10), "{again:?}");
    assert_eq!(archive.all(), before);
    assert!(!format!("{before:?}").contains(SECRET));
}

#[test]
fn older_tables_and_none() {
    let archive = archive();
    let report = archive.take_graph("oldest.db");
    assert_eq!((report.added, report.repaired), (2, 0), "{report:?}");
    let head = archive.head("playfilo/terminal_head").unwrap();
    assert_eq!(shorts(&archive.branch(head)), ["u An older one.", "a Yes."]);
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hand-made.db");
    let error = archive.try_take(AGENT, &other).unwrap_err();
    assert!(error.to_string().contains("its table `nodes`"), "{error}");
    let error =
        archive.try_take(AGENT, &archive.file("playfilo.db", "not a database".repeat(90))).unwrap_err();
    assert!(error.to_string().contains("could not be read"), "{error}");
}

#[test]
fn the_log_of_actions_is_taken_over_once() {
    let archive = archive();
    let path = archive.dir.path().join("playfilo.db");
    let mut there = Neighbour::create(&path);
    let (one, two) = (there.say("user", "one"), there.say("assistant", "two"));
    let gone = "ab".repeat(32);
    let act = |kind: &str, from: Option<&str>, to: Option<&str>, metadata: Option<&str>| Act {
        kind: kind.into(),
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
        metadata: metadata.map(str::to_owned),
    };
    let switch = r#"{"trigger":"human","session":"/home/u/x.jsonl"}"#;
    let acts = [
        act("BOOT", None, Some(&one), None),
        act("INCARNATE", Some(&two), Some(&one), Some("Left is closed.\nTry right.")),
        act("INCARNATE", None, Some(&one), Some("42")),
        // Said twice at once, it is there twice.
        act("HYDRATE_GHOST", None, Some(&two), None),
        act("HYDRATE_GHOST", None, Some(&two), None),
        act("SESSION_SWITCH", Some(&two), Some(&one), Some(switch)),
        act("THEIR_OWN", Some(&gone), Some("no hash"), Some(&format!("It is {SECRET}."))),
        act(
            "QUIPU_IMPORT",
            None,
            Some(&one),
            Some(r#"{"format":"pi","path":"/etc","session":"x","bytes":0}"#),
        ),
    ];
    acts.iter().for_each(|one| there.log(1_700_000_000_500, one));
    let import = || archive.try_take(AGENT, &path).unwrap().remove(0);
    let report = import();
    // Two that tell of what was said come before them.
    assert_eq!((report.added, report.actions), (2, 9), "{report:?}");
    assert_eq!(report.skipped["action written by Quipu"], 1);
    let told = |word: &str| report.problems.iter().filter(|problem| problem.detail.contains(word)).count();
    assert_eq!((report.repaired, told("is missing"), told("is not a node id"), report.sealed), (2, 1, 1, 1));
    let found = archive.actions();
    assert_eq!(found.len(), 9);
    for (found, act) in found[2..8].iter().zip(&acts) {
        let text = |node: Option<NodeId>| node.map(|node| node.to_string());
        assert_eq!(
            (&found.kind, text(found.from), text(found.to)),
            (&act.kind, act.from.clone(), act.to.clone())
        );
        assert_eq!((&found.metadata, found.timestamp), (&act.metadata, 1_700_000_000_500));
    }
    let own = &found[8];
    assert_eq!((own.kind.as_str(), own.from, own.to), ("THEIR_OWN", gone.parse().ok(), None));
    assert!(own.metadata.as_ref().unwrap().starts_with("It is [REDACTED:"), "{own:?}");

    // Nothing comes twice; what is new comes.
    assert!(import().unchanged);
    let three = there.say("user", "three");
    there.log(1_700_000_001_000, &act("BOOT", None, Some(&three), None));
    let report = import();
    assert_eq!((report.added, report.present, report.actions), (1, 2, 2), "{report:?}");
    let now = archive.actions();
    assert_eq!((&now[..9], now.len()), (&found[..], 11));
    assert_eq!((now[10].kind.as_str(), now[10].to), ("BOOT", three.parse().ok()));
    // From a copy of it, too.
    let copy = archive.dir.path().join("copy").join("playfilo.db");
    std::fs::create_dir(copy.parent().unwrap()).unwrap();
    drop(there);
    std::fs::copy(&path, &copy).unwrap();
    let report = archive.try_take(AGENT, &copy).unwrap().remove(0);
    assert_eq!((report.unchanged, report.actions), (false, 0), "{report:?}");
    assert_eq!(archive.actions(), now);
}
