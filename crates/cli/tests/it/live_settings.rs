//! Every setting that the terminal can change: its effect is looked for before, after, and after the next start.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_C, CTRL_D, Terminal, says};
use crate::support::*;

/// A setting, how it is changed, and what tells whether that has an effect.
struct Row {
    /// As `/settings` lists it, or a command of its own.
    name: &'static str,
    command: &'static str,
    /// `settings.json` before.
    before: &'static str,
    effect: fn(&mut SettingProbe<'_>) -> bool,
}

/// A unit test of the program finds each of its settings in this table.
const TABLE: &[Row] = &[
    Row { name: "theme", command: "/settings theme mine", before: "{}", effect: wears_the_theme },
    Row {
        name: "cacheRetention",
        command: "/settings cacheRetention none",
        before: "{}",
        effect: caches_nothing,
    },
    Row {
        name: "compaction.enabled",
        command: "/settings compaction.enabled false",
        before: r#"{"compaction":{"keepRecentTokens":1}}"#,
        effect: |look| look.calls_behind(190_000) == 1,
    },
    Row {
        name: "compaction.reserveTokens",
        command: "/settings compaction.reserveTokens 50000",
        before: r#"{"compaction":{"keepRecentTokens":1}}"#,
        effect: |look| look.calls_behind(160_000) > 1,
    },
    Row {
        name: "compaction.keepRecentTokens",
        command: "/settings compaction.keepRecentTokens 1",
        before: "{}",
        effect: |look| look.calls_behind(190_000) > 1,
    },
    Row {
        name: "context.prune.enabled",
        command: "/settings context.prune.enabled true",
        before: r#"{"context":{"prune":{"triggerPercent":1,"clearAtLeastPercent":1,"keepTurns":1,"minCharacters":100}}}"#,
        effect: leaves_results_out,
    },
    Row {
        name: "search.tool",
        command: "/settings search.tool false",
        before: "{}",
        effect: |look| !look.tools().contains("search_history"),
    },
    Row {
        name: "todo.tool",
        command: "/settings todo.tool false",
        before: "{}",
        effect: |look| !look.tools().contains("\"todo\""),
    },
    Row {
        name: "travel.tools",
        command: "/settings travel.tools true",
        before: "{}",
        effect: |look| {
            look.terminal.types("/new\r");
            look.tools().contains("\"tobe\"")
        },
    },
    Row {
        name: "files.enabled",
        command: "/settings files.enabled false",
        before: "{}",
        effect: keeps_no_files,
    },
    Row {
        name: "budget.daily",
        command: "/settings budget.daily 0.001",
        before: "{}",
        effect: is_out_of_money,
    },
    Row {
        name: "retry.enabled",
        command: "/settings retry.enabled false",
        before: "{}",
        effect: |look| look.gives_up(1),
    },
    Row {
        name: "retry.maxRetries",
        command: "/settings retry.maxRetries 1",
        before: "{}",
        effect: |look| look.gives_up(2),
    },
    Row {
        name: "/model",
        command: "/model testing/thinker",
        before: "{}",
        effect: |look| look.turn()["model"] == "thinker",
    },
    Row {
        name: "/thinking",
        command: "/thinking high",
        before: "thinker",
        effect: |look| {
            look.turn()["thinking"]["budget_tokens"].as_u64().is_some_and(|budget| budget > 10_000)
        },
    },
    Row { name: "/permissions", command: "/permissions ask", before: "{}", effect: asks_for_a_command },
];

struct SettingProbe<'a> {
    world: &'a World,
    terminal: Terminal,
    count: usize,
}

impl SettingProbe<'_> {
    fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// Says something that is answered so; the last request.
    fn says(&mut self, replies: impl IntoIterator<Item = Reply>) -> Value {
        let at = self.next();
        for reply in replies {
            self.world.server.push(reply);
        }
        self.world.server.push(says(&format!("Answer {at}.")));
        self.terminal.types(&format!("prompt {at}\r"));
        self.terminal.settles(&format!("Answer {at}."));
        self.world.requests().last().unwrap().json()
    }

    fn turn(&mut self) -> Value {
        self.says([])
    }

    fn tools(&mut self) -> String {
        self.turn()["tools"].to_string()
    }

    /// How many calls answer a message behind an answer that took so many tokens.
    fn calls_behind(&mut self, tokens: u64) -> usize {
        self.turn();
        let at = self.next();
        self.world.server.push(Answer::new().text(&format!("Large {at}.")).usage(tokens, 5, 0, 0).reply());
        self.terminal.types(&format!("large {at}\r"));
        self.terminal.settles(&format!("Large {at}."));
        let before = self.world.requests().len();
        // Enough for summaries and the answer.
        for _ in 0..4 {
            self.world.server.push(says("Here it is."));
        }
        self.terminal.types(&format!("behind {at}\r"));
        self.terminal.until("the answer", |shown| {
            let behind = shown.rsplit(&format!("behind {at}")).next().unwrap_or_default();
            shown.contains(&format!("behind {at}"))
                && behind.contains("Here it is.")
                && !shown.contains("stops it")
        });
        let calls = self.world.requests().len() - before;
        for _ in calls..4 {
            let at = self.next();
            self.terminal.types(&format!("rest {at}\r"));
            self.terminal.until("the rest", |shown| {
                let rest = shown.rsplit(&format!("rest {at}")).next().unwrap_or_default();
                shown.contains(&format!("rest {at}"))
                    && rest.contains("Here it is.")
                    && !shown.contains("stops it")
            });
        }
        calls
    }

    /// Whether so many tries are made of a call that fails as often, and no more.
    fn gives_up(&mut self, tries: usize) -> bool {
        let at = self.next();
        let error = format!("Overloaded {at}.");
        for _ in 0..tries {
            self.world.server.push(Reply::error(529, "overloaded_error", &error));
        }
        self.world.server.push(says(&format!("Tried {at}.")));
        let before = self.world.requests().len();
        self.terminal.types(&format!("try {at}\r"));
        let tried = format!("Tried {at}.");
        self.terminal.until("the end of the tries", |shown| {
            (shown.contains(&tried) || shown.contains(&error)) && !shown.contains("stops it")
        });
        let gave_up = self.world.requests().len() - before == tries;
        if gave_up {
            self.terminal.types(&format!("again {at}\r"));
            self.terminal.settles(&tried);
        }
        gave_up
    }
}

fn wears_the_theme(look: &mut SettingProbe<'_>) -> bool {
    look.turn();
    let screen = look.terminal.screen.screen();
    let (rows, columns) = screen.size();
    let mut cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
    cells.any(|(row, column)| {
        screen.cell(row, column).is_some_and(|cell| cell.fgcolor() == vt100::Color::Idx(196))
    })
}

fn caches_nothing(look: &mut SettingProbe<'_>) -> bool {
    !look.turn().to_string().contains("cache_control")
}

fn leaves_results_out(look: &mut SettingProbe<'_>) -> bool {
    let letter = ["a", "b", "c"][look.count / 4 % 3];
    let long = letter.repeat(20_000);
    let file = format!("long-{}", look.count);
    look.world.file(&file, &long);
    let large = |text: &str| Answer::new().text(text).usage(50_000, 5, 0, 0);
    let read =
        large("I read.").tool_call(&format!("c{}", look.count), "read", &json!({ "path": file }).to_string());
    look.says([read.reply()]);
    for _ in 0..2 {
        let at = look.next();
        look.world.server.push(large(&format!("Large {at}.")).reply());
        look.terminal.types(&format!("large {at}\r"));
        look.terminal.settles(&format!("Large {at}."));
    }
    !look.turn().to_string().contains(&long[..1_000])
}

fn keeps_no_files(look: &mut SettingProbe<'_>) -> bool {
    let at = look.count;
    let states = |world: &World| {
        let doctor = world.run(&["doctor"]).ok().text();
        let line = doctor.lines().find(|line| line.contains("states of files")).unwrap_or_default();
        line.split(" states of files").next().unwrap_or_default().to_owned()
    };
    let before = states(look.world);
    let write = |content: &str| json!({ "path": format!("f{at}"), "content": content });
    look.says([call(&format!("c{at}"), "write", &write("x")), call(&format!("d{at}"), "write", &write("y"))]);
    states(look.world) == before
}

fn is_out_of_money(look: &mut SettingProbe<'_>) -> bool {
    let at = look.next();
    let before = look.world.requests().len();
    look.world.server.push(says(&format!("Paid {at}.")));
    look.terminal.types(&format!("pay {at}\r"));
    look.terminal.until("an answer or the budget", |shown| {
        let behind = shown.rsplit(&format!("pay {at}")).next().unwrap_or_default();
        (shown.contains(&format!("Paid {at}.")) || behind.contains("budget")) && !shown.contains("stops it")
    });
    look.world.requests().len() == before
}

fn asks_for_a_command(look: &mut SettingProbe<'_>) -> bool {
    let at = look.next();
    look.world.server.push(bash(&format!("c{at}"), "true"));
    look.world.server.push(says(&format!("Ran {at}.")));
    look.terminal.types(&format!("run {at}\r"));
    look.terminal.until("an answer or a question", |shown| {
        shown.contains(&format!("Ran {at}.")) || shown.contains("`bash`: Allow")
    });
    let asked = look.terminal.seen().contains("`bash`: Allow");
    if asked {
        look.terminal.types("\u{1b}n\r");
    }
    look.terminal.settles(&format!("Ran {at}."));
    asked
}

fn play(row: &Row) {
    let world = World::new([]);
    let home = world.path("home/.quipu");
    std::fs::create_dir(home.join("themes")).unwrap();
    std::fs::write(home.join("themes/mine.json"), r#"{"roles":{"status":"196"}}"#).unwrap();
    let thinks = row.before == "thinker";
    let mut settings: Value = serde_json::from_str(if thinks { "{}" } else { row.before }).unwrap();
    settings["retry"] = json!({ "baseDelayMs": 1 });
    std::fs::write(home.join("settings.json"), settings.to_string()).unwrap();
    let first = if thinks { &["--model", "testing/thinker", "--thinking", "low"][..] } else { &[] };
    let terminal = Terminal::sized(&world, first, 100, 50);
    let mut look = SettingProbe { world: &world, terminal, count: 0 };
    look.terminal.shows(if thinks { "thinker" } else { "test-1" });
    look.turn();
    assert!(!(row.effect)(&mut look), "{}: before it is changed", row.name);
    look.terminal.types(&format!("{}\r", row.command));
    if row.name.starts_with('/') {
        look.terminal.until("what was changed", |shown| {
            row.command.rsplit(['/', ' ']).next().is_some_and(|word| shown.matches(word).count() >= 1)
        });
    } else {
        look.terminal.shows(" is now ");
    }
    assert!((row.effect)(&mut look), "{}: at once", row.name);
    look.terminal.types(&format!("{CTRL_C}{CTRL_C}{CTRL_D}"));
    assert_eq!(look.terminal.ends(), Some(0), "{}", row.name);
    look.terminal = Terminal::sized(&world, &["-c"], 100, 50);
    look.terminal.until("the session", |shown| {
        [" · workspace · ", " · ask · "].iter().any(|mode| shown.contains(mode)) && !shown.contains("opening")
    });
    assert!((row.effect)(&mut look), "{}: after the next start", row.name);
    look.terminal.types(&format!("{CTRL_C}{CTRL_C}{CTRL_D}"));
    assert_eq!(look.terminal.ends(), Some(0), "{}", row.name);
    world.unchecked();
}

#[test]
fn each_setting_takes_effect_at_once_and_after_a_restart() {
    let only = std::env::var("QUIPU_SETTING").ok();
    let rows: Vec<&Row> =
        TABLE.iter().filter(|row| only.as_ref().is_none_or(|only| only == row.name)).collect();
    let mut failed = Vec::new();
    for some in rows.chunks(4) {
        std::thread::scope(|scope| {
            let played: Vec<_> = some.iter().map(|row| (row.name, scope.spawn(|| play(row)))).collect();
            failed.extend(played.into_iter().filter_map(|(name, play)| play.join().is_err().then_some(name)));
        });
    }
    assert_eq!(failed, Vec::<&str>::new());
}
