//! What entries, groups and one step say of a name.

use quipu_policy::{GROUPS, NameFilter, ToolName, ToolProfile, canonical};

fn kept(allow: &[&str], deny: &[&str], name: &str) -> bool {
    NameFilter::new(allow.iter().copied(), deny.iter().copied()).keeps(&ToolName::built_in(name))
}

#[test]
fn matcher_denies_first_then_allows_then_refuses() {
    for (allow, deny, name, expected) in [
        (&[][..], &[][..], "read", true),
        (&["read"], &[], "read", true),
        (&["read"], &[], "write", false),
        (&[], &["read"], "read", false),
        (&["read"], &["read"], "read", false),
        (&["*"], &["r*"], "read", false),
        (&["*"], &["r*"], "write", true),
        (&["READ "], &[], "read", true),
        (&["web_*"], &[], "web_fetch", true),
        (&["*_fetch"], &[], "web_fetch", true),
        (&["w*_*h"], &[], "web_fetch", true),
        (&["w*_*x"], &[], "web_fetch", false),
        (&["**"], &[], "read", true),
        (&["rea"], &[], "read", false),
        (&["read*d"], &[], "read", false),
        (&["group:fs"], &[], "edit", true),
        (&["group:fs"], &[], "bash", false),
        (&["group:nothing"], &[], "bash", false),
        (&["exec"], &[], "bash", true),
        (&["bash"], &[], "exec", true),
        (&["Process"], &[], "background", true),
        (&["apply-patch"], &[], "apply_patch", true),
        (&["write"], &[], "apply_patch", true),
        (&["edit"], &[], "apply_patch", false),
        (&[], &["edit"], "apply_patch", false),
        (&[], &["bash"], "background", false),
        (&["bash"], &[], "background", true),
        (&[""], &[], "read", false),
    ] {
        assert_eq!(kept(allow, deny, name), expected, "allow {allow:?} deny {deny:?} of {name}");
    }
}

#[test]
fn entries_that_are_too_long_open_nothing() {
    let long = "r".repeat(1_000_000);
    assert!(!kept(&[&long], &[], &long));
    assert!(!kept(&["*".repeat(300).as_str()], &[], "read"), "an allow list that cannot be read is closed");
    let stars = "*a".repeat(100);
    assert!(!kept(&[&stars], &[], &"a".repeat(99)), "many stars are matched in a bounded time");
    let many: Vec<String> = (0..5_000).map(|at| format!("tool{at}")).collect();
    let filter = NameFilter::new([], many.iter().map(String::as_str));
    assert!(!filter.keeps(&ToolName::built_in("tool4999")), "no deny entry is dropped");
}

#[test]
fn tools_of_sources_are_in_their_groups_alone() {
    let mcp = ToolName::of_source("mcp__files__read", "mcp");
    let own = ToolName::of_source("read", "bench");
    let keeps = |entry: &str, tool: &ToolName| NameFilter::new([entry], []).keeps(tool);
    assert!(keeps("group:mcp", &mcp) && keeps("group:plugins", &mcp) && keeps("mcp__files__*", &mcp));
    assert!(keeps("mcp", &mcp), "the name of a source means its tools");
    assert!(!keeps("group:fs", &mcp) && !keeps("group:quipu", &mcp));
    assert!(!keeps("group:fs", &own) && keeps("group:plugins", &own) && !keeps("group:mcp", &own));
}

#[test]
fn groups_hold_canonical_names_once() {
    let mut all: Vec<&str> = GROUPS.iter().flat_map(|group| group.tools.iter().copied()).collect();
    for name in &all {
        assert_eq!(canonical(name), *name);
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a tool is in one group");
    for profile in ToolProfile::ALL {
        assert_eq!(ToolProfile::of_word(profile.word()), Some(profile));
    }
}
