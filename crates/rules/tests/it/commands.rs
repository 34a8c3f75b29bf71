//! A table of commands.

use std::path::{Path, PathBuf};

use quipu_rules::{Effect, Judgement, Place, Rule, RuleSet, Verdict};

pub(crate) const RULES: &[(Effect, &str)] = &[
    (Effect::Allow, "bash(git status *)"),
    (Effect::Allow, "bash(git log*)"),
    (Effect::Allow, "bash(git diff *)"),
    (Effect::Allow, "bash(cargo test *)"),
    (Effect::Allow, "bash(cargo build)"),
    (Effect::Allow, "bash(ls *)"),
    (Effect::Allow, "bash(cat *)"),
    (Effect::Allow, "bash(grep *)"),
    (Effect::Allow, "bash(npm run test*)"),
    (Effect::Allow, "bash(find *)"),
    (Effect::Allow, "bash(find . -delete)"),
    (Effect::Allow, "bash(python *)"),
    (Effect::Allow, "bash(python -c 'print(1)')"),
    (Effect::Allow, "bash(node *)"),
    (Effect::Allow, "bash(perl *)"),
    (Effect::Allow, "bash(ruby *)"),
    (Effect::Allow, "bash(awk *)"),
    (Effect::Allow, "bash(sed *)"),
    (Effect::Allow, "bash(tar *)"),
    (Effect::Allow, "bash(sort *)"),
    (Effect::Allow, "bash(split *)"),
    (Effect::Allow, "bash(g++ *)"),
    (Effect::Allow, "bash(sudo *)"),
    (Effect::Allow, "bash(ssh *)"),
    (Effect::Allow, "bash(watch *)"),
    (Effect::Allow, "bash(timeout *)"),
    (Effect::Allow, "bash(xargs *)"),
    (Effect::Allow, "bash(bash *)"),
    (Effect::Allow, "bash(zsh *)"),
    (Effect::Allow, "bash(./run.sh *)"),
    (Effect::Allow, "write(docs/**)"),
    (Effect::Allow, "write(out.txt)"),
    (Effect::Ask, "bash(git push *)"),
    (Effect::Deny, "bash(rm *)"),
    (Effect::Deny, "bash(curl *)"),
    (Effect::Deny, "write(docs/secret/**)"),
    (Effect::Deny, "read(keys/**)"),
];

pub(crate) fn rules(rules: &[(Effect, &str)]) -> RuleSet {
    RuleSet::new(rules.iter().map(|(effect, rule)| (*effect, Rule::parse(rule).unwrap())).collect())
}

pub(crate) fn judged(rules: &RuleSet, command: &str) -> Judgement {
    let true_path = |path: &Path| path.to_path_buf();
    let (cwd, home) = (PathBuf::from("/work"), PathBuf::from("/home/me"));
    rules.command(command, &Place { cwd: &cwd, home: Some(&home), true_path: &true_path })
}

pub(crate) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::NoRule => "none",
        Verdict::Unclear => "unclear",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

/// The lines of the table: what is expected, and the command.
pub(crate) fn table() -> Vec<(String, String)> {
    let lines = include_str!("commands.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (verdict, command) = line.split_once(" | ").unwrap_or_else(|| panic!("{line}"));
            (verdict.to_owned(), unescaped(command))
        })
        .collect()
}

/// `\n`, `\t`, `\r` and `\u{…}` of the table; two backslashes are one.
fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(char) = rest.chars().next() {
        let known = [("\\\\", "\\"), ("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r")];
        if let Some((sign, char)) = known.iter().find(|(sign, _)| rest.starts_with(sign)) {
            out.push_str(char);
            rest = &rest[sign.len()..];
        } else if let Some((number, behind)) = rest.strip_prefix("\\u{").and_then(|rest| rest.split_once('}'))
        {
            out.push(char::from_u32(u32::from_str_radix(number, 16).unwrap()).unwrap());
            rest = behind;
        } else {
            out.push(char);
            rest = &rest[char.len_utf8()..];
        }
    }
    out
}

#[test]
fn commands_are_judged_by_each_of_their_parts() {
    let rules = rules(RULES);
    let table = table();
    assert!(table.len() >= 150, "{}", table.len());
    let mut wrong = Vec::new();
    for (expected, command) in &table {
        let judgement = judged(&rules, command);
        if word(judgement.verdict) != expected {
            let parts = judgement.parts.iter();
            let parts: Vec<_> =
                parts.map(|part| (&*part.part, word(part.verdict), part.rule, part.why)).collect();
            wrong.push(format!("{expected} expected: {command:?} is {parts:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

#[test]
fn without_rules_nothing_is_said_but_what_is_unclear() {
    for (_, command) in table() {
        let verdict = judged(&RuleSet::default(), &command).verdict;
        assert!(matches!(verdict, Verdict::NoRule | Verdict::Unclear), "{command}");
    }
}

#[test]
fn rule_without_pattern_is_about_every_command() {
    let allowed = rules(&[(Effect::Allow, "bash")]);
    let denied = rules(&[(Effect::Deny, "bash"), (Effect::Allow, "bash(git status)")]);
    for (_, command) in table() {
        // Files are another matter.
        if !command.contains('>') {
            assert_eq!(judged(&allowed, &command).verdict, Verdict::Allow, "{command}");
            assert_eq!(judged(&denied, &command).verdict, Verdict::Deny, "{command}");
        }
    }
}

#[test]
fn decision_names_the_part_and_its_rule() {
    let rules = rules(RULES);
    let judgement = judged(&rules, "git status && cargo run --bin x && FOO=1 timeout 5 rm -rf x");
    let decisive = judgement.decisive().unwrap();
    assert_eq!((decisive.part.as_str(), decisive.verdict), ("rm -rf x", Verdict::Deny));
    assert_eq!(rules.get(decisive.rule.unwrap()).unwrap().1.text(), "bash(rm *)");
    let parts: Vec<(&str, &str)> =
        judgement.parts.iter().map(|part| (part.part.as_str(), word(part.verdict))).collect();
    assert_eq!(parts, [("git status", "allow"), ("cargo run --bin x", "none"), ("rm -rf x", "deny")]);
}

#[test]
fn proposals_are_of_programs_and_their_commands() {
    let rules = rules(&[(Effect::Allow, "bash(git status *)")]);
    for (command, proposed) in [
        ("cargo test -p x", "bash(cargo test *)"),
        ("cd src && cargo test", "bash(cargo test *)"),
        ("git status && git log -5 | head", "bash(git log *), bash(head *)"),
        ("npm run test:unit -- -x", "bash(npm run test:unit *)"),
        ("timeout 60 cargo clippy", "bash(cargo clippy *)"),
        ("cargo test 2>&1 | tail -5", "bash(cargo test *), bash(tail *)"),
        ("git status", ""),
        ("python -c 'x'", ""),
        ("python script.py", ""),
        ("./configure", ""),
        ("rm -rf x", ""),
        ("bash -c \"$x\"", ""),
        ("cargo test && $x", ""),
        ("cargo test > out.txt", ""),
        ("npx thing", ""),
        ("uv run x", ""),
        ("git -c a=b log", ""),
        ("cargo --version", ""),
        ("git log; git diff; cargo fmt; cargo doc", ""),
    ] {
        assert_eq!(judged(&rules, command).proposals().join(", "), proposed, "{command}");
    }
}

#[test]
fn proposed_rule_allows_what_it_was_proposed_for() {
    for (_, command) in table() {
        let proposals = judged(&RuleSet::default(), &command).proposals();
        if !proposals.is_empty() {
            let rules: Vec<(Effect, &str)> =
                proposals.iter().map(|rule| (Effect::Allow, rule.as_str())).collect();
            assert_eq!(judged(&self::rules(&rules), &command).verdict, Verdict::Allow, "{command}");
        }
    }
}
