//! Skills, prompt templates and rules of this agent and others, as the model gets them.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::pty::{CTRL_D, DOWN, ENTER, Terminal};
use crate::support::*;

fn put(world: &World, path: &str, text: &str) {
    let path = world.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn skill(world: &World, directory: &str, name: &str, description: &str) {
    let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo {name} with care.\n");
    put(world, &format!("{directory}/{name}/SKILL.md"), &text);
}

/// The system prompt of the last request.
fn system(world: &World) -> String {
    let body: Value = world.requests().last().unwrap().json();
    let blocks = body["system"].as_array().unwrap();
    blocks.iter().map(|block| block["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// What the user said last.
fn said(world: &World) -> String {
    wire_text(&messages(world.requests().last().unwrap()).pop().unwrap())
}

fn answers(world: &World, count: usize) {
    for _ in 0..count {
        world.server.push(Answer::new().text("Well.").reply());
    }
}

#[test]
fn skills_of_every_agent_are_listed_and_cost_little() {
    let world = World::says("Well.");
    skill(&world, "home/.quipu/skills", "alpha", "First skill.");
    skill(&world, "home/.pi/agent/skills", "beta", "Second skill.");
    skill(&world, "home/.claude/skills", "gamma", "Third skill.");
    skill(&world, "home/.codex/skills", "delta", "Fourth skill.");
    skill(&world, "home/.agents/skills", "epsilon", "Fifth skill.");
    skill(&world, "home/.agents/skills", "alpha", "Another with this name.");
    let ran = world.run(&["-p", "hello"]).ok();
    assert_eq!(ran.err.matches("has the same name").count(), 1, "{}", ran.err);
    let text = system(&world);
    for line in ["- alpha: First skill.", "- beta: ", "- gamma: ", "- delta: ", "- epsilon: "] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("with care"), "the text of a skill is not in the prompt: {text}");
    let sections = world.run(&["context", "--json"]).ok().json();
    let of_skills = sections["sections"].as_array().unwrap().iter().find(|one| one["source"] == "skills");
    assert!(of_skills.unwrap()["tokens"].as_u64().unwrap() > 50, "{sections}");
    let listed = world.run(&["skills", "--json"]).ok().json_lines();
    let names: Vec<_> = listed.iter().filter(|row| row["kind"] == "skill").map(|row| &row["name"]).collect();
    assert_eq!(names, ["alpha", "beta", "gamma", "delta", "epsilon"]);
    let shown = world.run(&["skills"]).ok();
    assert!(shown.err.contains("of the system prompt, about"), "{}", shown.err);
}

#[test]
fn ten_skills_add_little_to_prompt_and_tools() {
    let world = World::says("Well.");
    for at in 0..10 {
        skill(&world, "home/.quipu/skills", &format!("skill-{at}"), &"d".repeat(200));
    }
    world.run(&["-p", "hello"]).ok();
    let body: Value = world.requests().last().unwrap().json();
    let tools = body["tools"].to_string().len();
    let prompt = system(&world).len();
    assert!(prompt <= 2_900, "{prompt}");
    assert!(prompt + tools <= 6_336, "{prompt} + {tools}");
}

#[test]
fn skill_is_read_by_the_model_and_given_by_a_person() {
    let world = World::new([]);
    skill(&world, "home/.claude/skills", "deploy", "How to deploy.");
    put(&world, "home/.claude/skills/deploy/scripts/go.sh", "#!/bin/sh\necho deployed > \"$1\"\n");
    let file = world.path("home/.claude/skills/deploy/SKILL.md");
    // The model reads it without a question, though it lies outside of the workspace.
    world.server.push(call("c1", "read", &json!({ "path": file })));
    answers(&world, 1);
    world.run(&["-p", "deploy"]).ok();
    assert!(said(&world).contains("Do deploy with care."), "{}", said(&world));
    // A person gives it by its name, with arguments.
    for line in ["/skill:deploy to \"the moon\"", "/deploy to \"the moon\""] {
        answers(&world, 1);
        world.run(&["-p", line]).ok();
        let text = said(&world);
        assert!(text.starts_with("<skill name=\"deploy\" location=\""), "{text}");
        assert!(text.contains("Do deploy with care.\n</skill>\n\nto \"the moon\""), "{text}");
    }
    // Nothing of it ran.
    assert!(!world.path("work/deployed").exists());
}

#[test]
fn templates_take_arguments_in_every_front() {
    let world = World::new([]);
    put(
        &world,
        "home/.pi/agent/prompts/fix.md",
        "---\nargument-hint: <issue>\n---\nFix $1 and ${2:-nothing}: $@",
    );
    put(
        &world,
        "home/.claude/commands/git/commit.md",
        "State: !`git status`\nCommit $ARGUMENTS, see @notes.txt",
    );
    put(&world, "home/.codex/prompts/plan.md", "Plan $FILE for $$5.");
    world.file("notes.txt", "the notes");
    let run = |line: &str| {
        answers(&world, 1);
        let ran = world.run(&["-p", line]).ok();
        (said(&world), ran.err)
    };
    assert_eq!(run("/fix 'a b' c").0, "Fix a b and c: a b c");
    assert_eq!(run("/plan FILE=\"x y.rs\"").0, "Plan x y.rs for $5.");
    let (text, _) = run("/git:commit don't wait");
    assert!(text.contains("[output of `git status`]") && text.contains("Commit don't wait"), "{text}");
    assert!(text.contains("the notes\n</file>") && text.contains("run these commands"), "{text}");
    // What is no command is said as it is.
    assert_eq!(run("/unknown thing").0, "/unknown thing");
    assert!(run("/review HEAD~1").0.contains("Review changes in this project: HEAD~1."));
    assert!(run("/init").0.contains("Write the file AGENTS.md"));
    // A user's own template has the name of ours.
    put(&world, "home/.quipu/prompts/review.md", "My review.");
    assert_eq!(run("/review").0, "My review.");
}

#[test]
fn hostile_files_are_named_and_the_rest_is_used() {
    let world = World::new([]);
    put(&world, "home/.quipu/prompts/bomb.md", &"$@".repeat(40_000));
    put(&world, "home/.quipu/prompts/large.md", &"x".repeat(300 << 10));
    put(&world, "home/.quipu/prompts/broken.md", "---\ndescription: [a\n");
    put(&world, "home/.claude/skills/half/SKILL.md", "---\nname: half\ndescr");
    std::fs::write(world.path("home/.quipu/prompts/binary.md"), [0xff, 0xfe]).unwrap();
    skill(&world, "home/.quipu/skills", "good", "A good one.");
    answers(&world, 1);
    let ran = world.run(&["-p", "hello"]).ok();
    for part in [
        "large.md is not used: it is larger than 256 KiB",
        "broken.md is not used: line",
        "half/SKILL.md",
        "binary.md",
    ] {
        assert!(ran.err.contains(part), "{part} in {}", ran.err);
    }
    assert!(system(&world).contains("- good: A good one."));
    world.run(&["-p", &format!("/bomb {}", "x".repeat(2_000))]).fails(2, &["becomes larger than 1024 KiB"]);
}

#[test]
fn project_is_used_once_a_person_trusts_it() {
    let world = World::new([]);
    std::fs::create_dir(world.path("work/.git")).unwrap();
    skill(&world, "work/.claude/skills", "inside", "Skill of the project.");
    put(&world, "work/.claude/skills/inside/scripts/run.sh", "#!/bin/sh\n");
    put(&world, "work/.claude/commands/ship.md", "Ship it.");
    put(&world, "work/.claude/CLAUDE.md", "Hidden rule.");
    put(&world, "work/AGENTS.md", "Open rule.");
    answers(&world, 1);
    let ran = world.run(&["-p", "/ship"]).ok();
    assert!(
        ran.err.contains("3 skills, templates and rules of") && ran.err.contains("quipu config trust"),
        "{}",
        ran.err
    );
    assert_eq!(said(&world), "/ship");
    let text = system(&world);
    assert!(
        text.contains("Open rule.") && !text.contains("Hidden rule") && !text.contains("inside"),
        "{text}"
    );
    let rows = world.run(&["skills", "--json"]).ok().json_lines();
    assert!(rows.iter().any(|row| row["name"] == "inside" && row["used"] == false), "{rows:?}");
    // A person sees what it is and accepts it.
    let trusted = world.run(&["config", "trust"]).ok();
    for part in ["SKILL.md", "program   .claude/skills/inside/scripts/run.sh", "ship.md", "CLAUDE.md"] {
        assert!(trusted.text().contains(part), "{part} in {}", trusted.text());
    }
    answers(&world, 1);
    world.run(&["-p", "/ship"]).ok();
    assert_eq!(said(&world), "Ship it.");
    let text = system(&world);
    assert!(text.contains("Hidden rule.") && text.contains("- inside: Skill of the project."), "{text}");
    // Text may change, programs may not.
    put(&world, "work/.claude/commands/ship.md", "Ship it now.");
    answers(&world, 1);
    world.run(&["-p", "/ship"]).ok();
    assert_eq!(said(&world), "Ship it now.");
    put(&world, "work/.claude/skills/inside/scripts/run.sh", "#!/bin/sh\nrm -rf ~\n");
    answers(&world, 1);
    let ran = world.run(&["-p", "/ship"]).ok();
    assert!(ran.err.contains("are not used"), "{}", ran.err);
    assert_eq!(said(&world), "/ship");
    assert!(world.run(&["permissions", "list"]).ok().text().contains("skills"));
}

#[test]
fn terminal_asks_once_about_a_project() {
    let world = World::says("Well.");
    skill(&world, "work/.agents/skills", "inside", "Skill of the project.");
    put(&world, "work/.pi/prompts/ship.md", "Ship it.");
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("Use what this project brings along?");
    assert!(terminal.seen().contains("inside/SKILL.md"), "{}", terminal.seen());
    terminal.types(DOWN);
    terminal.types(ENTER);
    terminal.shows("Skills: 1");
    terminal.types("/ship");
    terminal.types(ENTER);
    terminal.shows("Well.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(said(&world), "Ship it.");
    // On the command line of the terminal it is the same.
    world.server.push(Answer::new().text("Once more.").reply());
    let mut terminal = Terminal::open(&world, &["/ship"]);
    terminal.shows("Once more.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(said(&world), "Ship it.");
    answers(&world, 1);
    world.run(&["-p", "hello"]).ok();
    assert!(system(&world).contains("- inside: "));
}

#[test]
fn rules_of_other_agents_count_once() {
    let world = World::says("Well.");
    put(&world, "home/.quipu/AGENTS.md", "Ours.");
    put(&world, "home/.claude/CLAUDE.md", "Of Claude. @more.md");
    put(&world, "home/.claude/more.md", "Imported.");
    put(&world, "home/.codex/AGENTS.md", "Ours.");
    put(&world, "home/.pi/agent/AGENTS.md", "Of Pi.");
    put(&world, "work/CLAUDE.md", "Of the project. @../outside.md");
    put(&world, "work/CLAUDE.local.md", "Local.");
    put(&world, "outside.md", "Outside.");
    let ran = world.run(&["-p", "hello"]).ok();
    assert!(ran.err.contains("outside.md, which is not loaded: it is outside the project"), "{}", ran.err);
    let text = system(&world);
    let order = ["Ours.", "Of Pi.", "Of Claude.", "Imported.", "Of the project.", "Local."];
    let places: Vec<_> =
        order.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"))).collect();
    assert!(places.is_sorted(), "{places:?} in {text}");
    assert_eq!(text.matches("Ours.").count(), 1);
    assert!(!text.contains("Outside."));
}

#[test]
fn rules_below_follow_the_first_result_there() {
    let world = World::new([]);
    put(&world, "work/AGENTS.md", "Top rule.");
    put(&world, "work/part/AGENTS.md", "Rule of the part.");
    put(&world, "work/part/a.txt", "first file");
    put(&world, "work/part/b.txt", "second file");
    put(&world, "work/node_modules/x/AGENTS.md", "Rule of a package.");
    put(&world, "work/node_modules/x/c.txt", "package");
    for path in ["part/a.txt", "part/b.txt", "node_modules/x/c.txt"] {
        world.server.push(call(path, "read", &json!({ "path": path })));
    }
    answers(&world, 1);
    world.run(&["-p", "look"]).ok();
    let requests = world.requests();
    let body = String::from_utf8_lossy(&requests.last().unwrap().body).into_owned();
    assert_eq!(body.matches("Rule of the part.").count(), 1, "{body}");
    assert!(!body.contains("Rule of a package."));
    let results: Vec<_> = messages(requests.last().unwrap()).iter().map(wire_text).collect();
    let first = results.iter().find(|text| text.contains("first file")).unwrap();
    assert!(first.contains("Rule of the part."), "{first}");
    // What was sent before stays as it was.
    let prompts: Vec<Value> = requests.iter().map(|request| request.json()["system"].clone()).collect();
    assert!(prompts.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn rules_for_paths_follow_a_matching_file() {
    let world = World::new([]);
    std::fs::create_dir(world.path("work/.git")).unwrap();
    put(&world, "home/.claude/rules/web.md", "---\npaths: [\"web/**/*.{ts,tsx}\"]\n---\nRule of the web.");
    put(&world, "work/.claude/rules/api.md", "---\npaths:\n  - src/api/**\n---\nRule of the project's api.");
    put(&world, "work/web/a.ts", "first file");
    put(&world, "work/web/b.ts", "second file");
    put(&world, "work/web/c.css", "third file");
    put(&world, "work/src/api/d.rs", "fourth file");
    let reads = |paths: &[&str]| {
        for path in paths {
            world.server.push(call(path, "read", &json!({ "path": path })));
        }
        answers(&world, 1);
        world.run(&["-p", "look"]).ok();
        let requests = world.requests();
        messages(requests.last().unwrap()).iter().map(wire_text).collect::<Vec<_>>()
    };
    let all = ["web/c.css", "web/a.ts", "web/b.ts", "src/api/d.rs"];
    let results = reads(&all);
    assert!(!system(&world).contains("Rule of"));
    let with_rule: Vec<_> = results.iter().filter(|text| text.contains("Rule of")).collect();
    assert!(with_rule.len() == 1 && with_rule[0].contains("first file"), "{results:?}");
    assert!(!with_rule[0].contains("paths:"), "{with_rule:?}");
    // Those of the project count once a person trusts it.
    let trusted = world.run(&["config", "trust"]).ok().text();
    assert!(trusted.contains(".claude/rules/api.md  for src/api/**"), "{trusted}");
    let results = reads(&all);
    let api = results.iter().find(|text| text.contains("fourth file")).unwrap();
    assert!(api.contains("Rule of the project's api."), "{api}");
}

#[test]
fn rules_of_a_refused_project_are_not_read() {
    let world = World::new([]);
    std::fs::create_dir(world.path("work/.git")).unwrap();
    put(&world, "work/AGENTS.md", "Top rule.");
    put(&world, "work/part/AGENTS.md", "Rule of the part.");
    put(&world, "work/part/a.txt", "first file");
    put(&world, "home/.quipu/AGENTS.md", "Mine.");
    let says = |flags: &[&str]| {
        world.server.push(call("c1", "read", &json!({ "path": "part/a.txt" })));
        answers(&world, 1);
        let ran = world.run(&[&["-p", "look"], flags].concat()).ok();
        let body = String::from_utf8_lossy(&world.requests().last().unwrap().body).into_owned();
        (body, ran.err)
    };
    // Nobody decided, and nobody can be asked: they are read, and a line says so.
    let (body, err) = says(&[]);
    assert!(body.contains("Top rule.") && body.contains("Rule of the part."), "{body}");
    assert!(err.contains("read, although you have not accepted the project; `quipu config trust`"), "{err}");
    assert!(!says(&["--no-context-files"]).1.contains("AGENTS.md"));
    // A no counts everywhere, and leaves the user's own.
    world.run(&["config", "trust", "--refuse"]).ok();
    let (body, err) = says(&[]);
    assert!(
        body.contains("Mine.") && !body.contains("Top rule.") && !body.contains("Rule of the part."),
        "{body}"
    );
    assert!(err.contains("not read, because you refused"), "{err}");
    let rows = world.run(&["skills", "--json"]).ok().json_lines();
    let row = rows.iter().find(|row| row["path"].as_str().unwrap_or_default().ends_with("work/AGENTS.md"));
    assert_eq!(row.unwrap()["used"], false);
    // It also counts after the project brought along a program.
    skill(&world, "work/.claude/skills", "inside", "Skill of the project.");
    put(&world, "work/.claude/skills/inside/scripts/run.sh", "#!/bin/sh\n");
    assert!(!says(&[]).0.contains("Top rule."));
    // A yes makes it quiet.
    world.run(&["config", "trust"]).ok();
    let (body, err) = says(&[]);
    assert!(body.contains("Top rule.") && !err.contains("AGENTS.md"), "{err}");
}

#[test]
fn terminal_asks_before_it_reads_rules_of_a_project() {
    let world = World::says("Well.");
    put(&world, "work/AGENTS.md", "Top rule.");
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("Use what this project brings along?");
    assert!(terminal.seen().contains("rules     AGENTS.md"), "{}", terminal.seen());
    terminal.types(ENTER);
    terminal.shows("New session");
    terminal.types("hello");
    terminal.types(ENTER);
    terminal.shows("Well.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(!system(&world).contains("Top rule."));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("not read, because you refused");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
