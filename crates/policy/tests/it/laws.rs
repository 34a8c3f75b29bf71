//! What holds for every policy.

use std::collections::BTreeSet;

use proptest::prelude::*;
use quipu_policy::{
    ChatGroup, NameLists, PolicyInput, PolicyLevel, Sender, SubAgentPolicy, ToolName, ToolPolicy,
    ToolProfile, judge, sandbox_lists, steps,
};

const NAMES: [&str; 8] = ["read", "bash", "write", "edit", "task", "schedule", "mcp__a__b", "memory_get"];

fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned),
        prop::sample::select(vec!["group:fs", "group:runtime", "group:mcp", "exec", "*", "nobody"])
            .prop_map(str::to_owned),
        "[a-z*_]{0,6}",
    ]
}

fn entries() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(entry(), 0..4)
}

fn lists() -> impl Strategy<Value = NameLists> {
    (entries(), entries(), entries()).prop_map(|(allow, also_allow, deny)| NameLists {
        allow,
        also_allow,
        deny,
    })
}

fn policy() -> impl Strategy<Value = ToolPolicy> {
    let profile = prop::option::of(prop::sample::select(ToolProfile::ALL.to_vec()));
    (profile, lists(), lists()).prop_map(|(profile, lists, of_provider)| {
        let one = |NameLists { allow, also_allow, deny }: NameLists| ToolPolicy {
            allow,
            also_allow,
            deny,
            ..ToolPolicy::default()
        };
        let mut policy = ToolPolicy { profile, ..one(lists) };
        policy.by_provider.insert("p".into(), one(of_provider));
        policy
    })
}

fn tools() -> Vec<ToolName> {
    let of = |name: &&str| match name.starts_with("mcp__") {
        true => ToolName::of_source(*name, "mcp"),
        false => ToolName::built_in(*name),
    };
    NAMES.iter().map(of).collect()
}

fn kept(input: &PolicyInput<'_>) -> BTreeSet<String> {
    judge(&tools(), &steps(input)).kept.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn groups_and_senders_only_narrow(mut global in policy(), mut agent in policy(), of in (policy(), lists(), lists())) {
        let (group, in_group, everywhere) = of;
        let base = PolicyInput { model: Some(("p", "m")), ..PolicyInput::default() };
        let open = kept(&PolicyInput { global: Some(&global), agent: Some(&agent), ..base });
        let room = ChatGroup { channel: "c".into(), room: "r".into() };
        let sender = Sender { id: Some("7".into()), ..Sender::default() };
        for policy in [&mut global, &mut agent] {
            let by_sender = [("id:7".to_owned(), in_group.clone())].into();
            policy.by_group.insert("c:*".into(), ToolPolicy { by_sender, ..group.clone() });
            policy.by_sender.insert("*".into(), everywhere.clone());
        }
        let all = PolicyInput { global: Some(&global), agent: Some(&agent), ..base };
        let grouped = PolicyInput { group: Some(&room), ..all };
        let sent = PolicyInput { sender: Some(&sender), ..grouped };
        prop_assert_eq!(kept(&all), open.clone(), "they count in a group, and for a sender, alone");
        prop_assert!(kept(&grouped).is_subset(&open));
        prop_assert!(kept(&sent).is_subset(&kept(&grouped)));
    }

    #[test]
    fn narrowing_is_monotone(global in policy(), agent in policy(), sandbox in lists(), sub in lists()) {
        // A profile of the agent is no step of its own: it takes the place of the global one.
        let agent = ToolPolicy { profile: None, also_allow: Vec::new(), ..agent };
        let model = Some(("p", "m"));
        let first = PolicyInput { global: Some(&global), model, ..PolicyInput::default() };
        let second = PolicyInput { agent: Some(&agent), ..first };
        let sandbox = sandbox_lists(&sandbox);
        let third = PolicyInput { sandbox: &[(PolicyLevel::Global, &sandbox)], ..second };
        let sub = SubAgentPolicy { depth: 1, max_depth: 1, lists: sub };
        let fourth = PolicyInput { sub_agent: Some(&sub), ..third };
        let parent = steps(&fourth).to_inherited();
        let fifth = PolicyInput { inherited: Some(&parent), ..first };
        let sets = [kept(&first), kept(&second), kept(&third), kept(&fourth)];
        for pair in sets.windows(2) {
            prop_assert!(pair[1].is_subset(&pair[0]), "{pair:?}");
        }
        prop_assert_eq!(&kept(&fifth), &sets[3]);
    }

    #[test]
    fn deny_wins_wherever_it_stands(global in policy(), agent in policy(), name in 0..NAMES.len(), place in 0..3usize) {
        let (mut global, mut agent) = (global, agent);
        let name = NAMES[name].to_owned();
        match place {
            0 => global.deny.push(name.clone()),
            1 => agent.deny.push(name.clone()),
            _ => global.by_provider.get_mut("p").unwrap().deny.push(name.clone()),
        }
        let input = PolicyInput { global: Some(&global), agent: Some(&agent), model: Some(("p", "m")), ..PolicyInput::default() };
        prop_assert!(!kept(&input).contains(&name));
    }

    #[test]
    fn order_of_entries_does_not_matter(global in policy(), turns in 0..4usize) {
        let turned = |list: &[String]| {
            let mut list = list.to_vec();
            let by = turns.min(list.len());
            list.rotate_left(by);
            list.reverse();
            list
        };
        let other = ToolPolicy {
            allow: turned(&global.allow),
            also_allow: turned(&global.also_allow),
            deny: turned(&global.deny),
            ..global.clone()
        };
        let report = |policy: &ToolPolicy| {
            let input = PolicyInput { global: Some(policy), model: Some(("p", "m")), ..PolicyInput::default() };
            judge(&tools(), &steps(&input))
        };
        prop_assert_eq!(report(&global), report(&other));
    }

    #[test]
    fn each_tool_is_kept_or_removed_once(global in policy()) {
        let input = PolicyInput { global: Some(&global), model: Some(("p", "m")), ..PolicyInput::default() };
        let report = judge(&tools(), &steps(&input));
        let mut all: Vec<&str> = report.kept.iter().map(String::as_str).collect();
        all.extend(report.removed.iter().map(|one| &*one.tool));
        all.sort_unstable();
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        prop_assert_eq!(all, names);
    }

    #[test]
    fn any_text_is_read(text in ".{0,400}", name in ".{0,80}") {
        let policy = ToolPolicy { allow: vec![text.clone()], deny: vec![text], ..ToolPolicy::default() };
        let input = PolicyInput { global: Some(&policy), ..PolicyInput::default() };
        judge(&[ToolName::built_in(name)], &steps(&input));
    }
}
