//! `quipu trace`, word for word, and the rows of the action log behind it.

use quipu::store::{OpenOptions, RefName, SqliteStore, Store as _};
use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

/// Where the newest session stands.
fn head(world: &World) -> String {
    world.sessions()[0]["head"].as_str().unwrap().to_owned()
}

/// What `quipu trace` prints, with names for nodes and sessions, and without the times.
fn traced(world: &World, args: &[&str], names: &[(&str, &str)]) -> String {
    let text = world.run(&[&["trace"], args].concat()).ok().text();
    let lines = text.lines().map(|line| match line.strip_prefix('[') {
        // Year, month, day and time of day.
        Some(row) => {
            let (time, rest) = row.split_once("] ").unwrap();
            let form: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert_eq!(form, "0000-00-00 00:00");
            rest.to_owned()
        }
        None => line.to_owned(),
    });
    let mut text = lines.collect::<Vec<_>>().join("\n");
    for (id, name) in names {
        // A node by its beginning, a session whole.
        text = text.replace(if id.len() == 64 { &id[..12] } else { id }, name);
    }
    text
}

#[tokio::test]
async fn trace_prints_how_a_session_came_about() {
    let says = ["Left or right?", "Left it is.", "Well?", "On I go.", "Closed, I see."];
    let world = World::new(says.map(|text| Answer::new().text(text).reply()));
    world.run(&["-p", "Where to?"]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let asked = head(&world);
    assert_eq!(traced(&world, &["--filter", "all"], &[]), "(no actions recorded)", "nothing was before it");
    world.run(&["-p", "-c", "Left."]).ok();
    let left = head(&world);
    world.run(&["-p", "Something else."]).ok();
    let (other, said) = (head(&world), world.nodes()[1]["id"].as_str().unwrap().to_owned());
    let other_id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["-p", "--session", &id, "Go on."]).ok();
    let on = head(&world);
    let names = [
        (&*asked, "ASKED"),
        (&left, "LEFT"),
        (&other, "OTHER"),
        (&said, "SAID"),
        (&on, "ON"),
        (&id, "SESSION"),
        (&other_id, "OTHER-SESSION"),
    ];
    assert_eq!(traced(&world, &[&id], &names), "BOOT: null → LEFT\nBOOT: null → ASKED");
    assert_eq!(traced(&world, &[&other_id], &names), "(no actions recorded)", "it was never opened again");
    assert_eq!(
        traced(&world, &[&id, "--filter", "switches"], &names),
        "SESSION_SWITCH: OTHER → LEFT. Metadata:
    > {
    >   \"trigger\": \"human\",
    >   \"session\": \"SESSION\"
    > }
BOOT: null → LEFT
SESSION_SWITCH: LEFT → SAID (departed from this lineage). Metadata:
    > {
    >   \"trigger\": \"human\",
    >   \"session\": \"OTHER-SESSION\"
    > }
BOOT: null → ASKED"
    );

    world.run(&["tobe", "--yes", &asked, "Left is\nclosed."]).ok();
    let note = head(&world);
    world.run(&["-p", "-c"]).ok();
    let names = [&names[..], &[(&*note, "NOTE")]].concat();
    let whole = "BOOT: null → NOTE
INCARNATE: ON → NOTE. Carryover:
    > Left is
    > closed.
BOOT: null → ASKED";
    assert_eq!(traced(&world, &[], &names), whole);
    assert_eq!(
        traced(&world, &["--limit", "1"], &names),
        "BOOT: null → NOTE\n... older rows are not shown; --limit 4 shows more"
    );
    assert_eq!(
        traced(&world, &[&on], &names),
        "INCARNATE: ON → NOTE (departed from this lineage). Carryover:
    > Left is
    > closed.
BOOT: null → LEFT
BOOT: null → ASKED"
    );
    let all = traced(&world, &["--scope", "all"], &names);
    assert_eq!(all.matches("BOOT").count(), 3, "{all}");

    // For programs, with whole ids.
    let rows = world.run(&["trace", "--json"]).ok().json_lines();
    let of = |row: &Value| json!([row["type"], row["from"], row["to"], row["departed"], row["carryover"]]);
    assert_eq!(
        rows.iter().map(of).collect::<Vec<_>>(),
        [
            json!(["BOOT", null, note, false, null]),
            json!(["INCARNATE", on, note, false, "Left is\nclosed."]),
            json!(["BOOT", null, asked, false, null]),
        ]
    );

    // The newest session is where it stands; no head of another program was made.
    let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
    let at = store.head(&RefName::from(RefName::NEWEST)).await.unwrap();
    assert_eq!(json!(at), world.sessions()[0]["head"]);
    for name in ["PI_HEAD", "terminal_head"] {
        assert_eq!(store.head(&RefName::from(name)).await.unwrap(), None, "{name}");
    }
}

/// A move of a session that is not the published one is a switch as well.
#[test]
fn a_move_of_another_session_publishes_it() {
    let world = World::new(["One.", "Two.", "Other."].map(|text| Answer::new().text(text).reply()));
    world.run(&["-p", "one"]).ok();
    let (id, one) = (world.sessions()[0]["id"].as_str().unwrap().to_owned(), head(&world));
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["-p", "other"]).ok();
    let (other_id, other) = (world.sessions()[0]["id"].as_str().unwrap().to_owned(), head(&world));
    world.run(&["undo", &id, "--yes"]).ok();
    let names = [(&*one, "ONE"), (&other, "OTHER"), (&id, "SESSION"), (&other_id, "OTHER-SESSION")];
    let rows = traced(&world, &[&id, "--filter", "switches"], &names);
    assert!(rows.starts_with("SESSION_SWITCH: OTHER → ONE. Metadata:\n"), "{rows}");
    // It is published now, so that the next move is none.
    world.run(&["redo", &id, "--yes"]).ok();
    let rows = traced(&world, &[&id, "--filter", "switches"], &names);
    assert_eq!(rows.matches("SESSION_SWITCH: OTHER").count(), 1, "{rows}");
}
