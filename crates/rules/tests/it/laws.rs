//! Laws over any command line.

use proptest::prelude::*;
use quipu_rules::Verdict;

use crate::commands::{RULES, judged, rules, table};

/// Pieces of commands, of which most strings are built wrongly.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "git", "status", "rm", "x", "cargo", "test", "bash", "-c", "env", "timeout", "5", "xargs", "find",
        "-exec", "sudo", " ", " ", " ", "\n", ";", "&&", "||", "|", "&", "(", ")", "{", "}", "$(", "`", "'",
        "\"", "\\", "$x", "${x}", "${", "<<EOF\n", "EOF\n", "<<<", "<", ">", ">>", ">&", "2>&1", "#", "*",
        "?", "[", "]", "~", "=", "A=1", "if", "then", "fi", "for", "in", "do", "done", "while", "!", "time",
        "$((", "))", "$'", "{a,b}", "cd", "docs", "..", "/", "é", "\u{a0}", "\t", "case",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn known() -> impl Strategy<Value = String> {
    prop::sample::select(table().into_iter().map(|(_, command)| command).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_is_too_strange_to_be_judged(text in prop_oneof![soup(), any::<String>()]) {
        let rules = rules(RULES);
        let judgement = judged(&rules, &text);
        prop_assert!(judgement.parts.iter().all(|part| part.verdict <= judgement.verdict));
        drop(judgement.proposals());
    }

    #[test]
    fn another_part_never_makes_a_command_more_allowed(
        one in prop_oneof![soup(), known()],
        sign in prop::sample::select(vec!["\n", " && ", "; ", " | ", " & ", " || "]),
        other in prop_oneof![soup(), known()],
    ) {
        let rules = rules(RULES);
        let alone = judged(&rules, &one);
        // What is no command by itself may become one.
        prop_assume!(!alone.parts.iter().any(|part| part.verdict == Verdict::Unclear));
        let both = judged(&rules, &format!("{one}{sign}{other}")).verdict;
        prop_assert!(both >= alone.verdict, "{one:?} {sign:?} {other:?}: {:?}, {both:?}", alone.verdict);
    }

    #[test]
    fn order_of_rules_counts_nothing(one in known(), turn in 0..RULES.len()) {
        let mut turned = RULES.to_vec();
        turned.rotate_left(turn);
        turned.reverse();
        prop_assert_eq!(judged(&rules(RULES), &one).verdict, judged(&rules(&turned), &one).verdict);
    }
}

#[test]
fn nested_and_long_commands_end_soon_and_are_unclear() {
    let rules = rules(RULES);
    for text in [
        "$(".repeat(10_000),
        "echo $(".repeat(1_000) + &")".repeat(1_000),
        "\"$(".repeat(5_000),
        "(".repeat(20_000),
        "{ ".repeat(10_000),
        "`".repeat(20_001),
        "if ".repeat(8_000),
        "git status;".repeat(1_000),
        "bash -c ".repeat(2_000),
        "cat <<E ".repeat(2_000) + "\n",
        "a".repeat(40_000),
        "sudo ".repeat(6_000) + "'",
    ] {
        let verdict = judged(&rules, &text).verdict;
        assert!(matches!(verdict, Verdict::Unclear | Verdict::Deny), "{}: {verdict:?}", &text[..40]);
    }
    assert_eq!(judged(&rules, &"echo $() ".repeat(3_000)).verdict, Verdict::Allow);
    assert_eq!(judged(&rules, &("git log ".to_owned() + &"a*b ".repeat(5_000))).verdict, Verdict::Allow);
}
