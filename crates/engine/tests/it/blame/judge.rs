//! Another generator, written when the code was done, to judge by: code as people write it, with functions that look alike, and
//! every turn run by the engine with the real tools. Nothing is tuned on it.

use quipu::protocol::Outcome;
use serde_json::{Value, json};

use super::Score;
use super::made::Dice;
use crate::support::{World, call, say};

/// Lines and whose they are.
type Lines = Vec<(String, Option<usize>)>;

fn text(lines: &[(String, Option<usize>)]) -> String {
    lines.iter().map(|(line, _)| format!("{line}\n")).collect()
}

/// A function as many are.
fn function(dice: &mut Dice, number: usize, of: Option<usize>) -> Lines {
    let mut lines = vec![format!("fn step_{number}(input: u32) -> u32 {{")];
    for _ in 0..1 + dice.below(3) {
        lines.push(format!("    let part = input + {};", dice.below(9)));
        if dice.below(2) == 0 {
            lines.push("    if part > 3 {".into());
            lines.push(format!("        return {number};"));
            lines.push("    }".into());
        }
    }
    lines.push("    part".into());
    lines.push("}".into());
    lines.push(String::new());
    lines.into_iter().map(|line| (line, of)).collect()
}

/// Where the functions of a file begin and end.
fn functions(lines: &[(String, Option<usize>)]) -> Vec<(usize, usize)> {
    let begins = lines.iter().enumerate().filter(|(_, (line, _))| line.starts_with("fn "));
    let begins: Vec<usize> = begins.map(|(at, _)| at).collect();
    let ends = begins.iter().skip(1).copied().chain([lines.len()]);
    begins.iter().copied().zip(ends).collect()
}

async fn history(seed: u64) -> Score {
    let mut dice = Dice::new(seed.wrapping_add(1_000_003));
    let mut world = World::new();
    world.tools = quipu::builtin();
    let cwd = world.cwd();
    let (mut name, mut number) = ("main.rs".to_owned(), 0);
    let mut next = |dice: &mut Dice, of| {
        number += 1;
        function(dice, number, of)
    };
    let mut lines: Lines = (0..4).flat_map(|_| next(&mut dice, None)).collect();
    std::fs::write(cwd.join(&name), text(&lines)).unwrap();
    let live = world.create().await;
    for turn in 0..10 {
        let of = Some(turn);
        let all = functions(&lines);
        let (from, to) = all[dice.below(all.len())];
        let bash = |command: String| ("bash", json!({ "command": command }));
        let (tool, arguments): (&str, Value) = match dice.below(8) {
            0 | 1 => {
                let new = next(&mut dice, of);
                let head = format!("{}\n", lines[from].0);
                let arguments = json!({ "path": name, "edits": [
                    { "oldText": head, "newText": format!("{}{head}", text(&new)) }] });
                lines.splice(from..from, new);
                ("edit", arguments)
            }
            2 => {
                let new = next(&mut dice, of);
                let command = format!("cat >> {name} <<'EOF'\n{}EOF", text(&new));
                lines.extend(new);
                bash(command)
            }
            3 => {
                let digit = dice.below(9);
                for line in &mut lines {
                    if line.0.contains(&format!("+ {digit};")) {
                        *line = (line.0.replace(&format!("+ {digit};"), "+ 70;"), of);
                    }
                }
                bash(format!("sed -i 's/+ {digit};/+ 70;/' {name}"))
            }
            4 => {
                let to = format!("moved_{turn}.rs");
                let command = format!("mv {name} {to}");
                name = to;
                bash(command)
            }
            5 if all.len() > 2 => {
                // A function goes to the end.
                let block: Lines = lines.drain(from..to).collect();
                lines.extend(block);
                let (first, last) = (from + 1, to);
                bash(format!(
                    "sed -n '{first},{last}p' {name} > .cut && sed -i '{first},{last}d' {name} && cat .cut >> {name} && rm .cut"
                ))
            }
            6 if all.len() > 2 => {
                let gone = text(&lines[from..to]);
                lines.drain(from..to);
                ("edit", json!({ "path": name, "edits": [{ "oldText": gone, "newText": "" }] }))
            }
            _ => {
                let new = format!("    // {turn}: as it was asked");
                lines.insert(from + 1, (new.clone(), of));
                bash(format!("sed -i '{}a\\{new}' {name}", from + 1))
            }
        };
        world.fake.push([call(&[(tool, arguments)]), say("done")]);
        assert_eq!(live.run(&format!("turn {turn}")).await, Outcome::Done);
        assert_eq!(std::fs::read_to_string(cwd.join(&name)).unwrap(), text(&lines), "{seed} {turn}");
        if dice.below(3) == 0 {
            let all = functions(&lines);
            let (from, _) = all[dice.below(all.len())];
            lines.insert(from + 1, (format!("    // by hand {turn}"), None));
            std::fs::write(cwd.join(&name), text(&lines)).unwrap();
        }
    }
    let path = cwd.join(&name).to_str().unwrap().to_owned();
    let blame = quipu::history::blame(&*world.store, &[path], &text(&lines), &|_| None).await.unwrap();
    let mut score = Score::default();
    for (told, (_, truth)) in blame.lines.iter().zip(&lines) {
        let is = |turn: &usize| {
            blame.turns[*turn].reason == truth.map_or(String::new(), |of| format!("turn {of}"))
        };
        match told {
            quipu::history::LineAuthor::Unknown(_) => score.unknown += 1,
            quipu::history::LineAuthor::Nobody if truth.is_none() => score.right += 1,
            quipu::history::LineAuthor::Turn(turn) if is(turn) => score.right += 1,
            quipu::history::LineAuthor::Nobody | quipu::history::LineAuthor::Turn(_) => score.wrong += 1,
        }
    }
    live.finish().await;
    score
}

#[tokio::test]
async fn the_judges_histories_are_told_rightly() {
    let mut sum = Score::default();
    for seed in 0..12 {
        sum.add(history(seed).await);
    }
    eprintln!("the judge's histories: {sum}");
    sum.check("the judge's histories");
}

/// A real formatter: what it changed is its turn's, what it left is whose it was.
#[tokio::test]
async fn a_formatter_owns_the_lines_that_it_changed() {
    let written = "fn one( ){\nlet x=1;\n    let y = 2;\nif x>y {\nlong_name(first_argument_here, second_argument_here, third_argument_here, a_fourth);\n}\n}\n\nfn two() {\n    one();\n}\n";
    let mut world = World::with([
        call(&[("write", json!({ "path": "a.rs", "content": written }))]),
        say("written"),
        call(&[("bash", json!({ "command": "rustfmt --edition 2024 a.rs" }))]),
        say("formatted"),
    ]);
    world.tools = quipu::builtin();
    let live = world.create().await;
    assert_eq!(live.run("write").await, Outcome::Done);
    assert_eq!(live.run("format").await, Outcome::Done);
    let now = std::fs::read_to_string(world.cwd().join("a.rs")).unwrap();
    assert_ne!(now, written, "there is a formatter");
    let path = world.cwd().join("a.rs").to_str().unwrap().to_owned();
    let blame = quipu::history::blame(&*world.store, &[path], &now, &|_| None).await.unwrap();
    let (mut kept, mut made) = (0, 0);
    for (told, line) in blame.lines.iter().zip(now.lines()) {
        let quipu::history::LineAuthor::Turn(turn) = told else { panic!("{told:?}: {line}") };
        let was = written.lines().any(|old| old == line);
        match blame.turns[*turn].reason.as_str() {
            "write" => kept += 1,
            reason => made += usize::from(reason == "format"),
        }
        assert!(was || blame.turns[*turn].reason == "format", "{line}");
    }
    assert!(kept >= 5 && made >= 5, "{kept} kept, {made} made");
    live.finish().await;
}
