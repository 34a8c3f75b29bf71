//! The steps of a policy in their order, and the report.

use std::collections::BTreeMap;

use quipu_policy::{
    ChatGroup, NameLists, PolicyInput, PolicyLevel, PolicyReport, PolicyWarning, RemovalRule, Sender,
    SubAgentPolicy, ToolName, ToolPolicy, ToolProfile, judge, sandbox_lists, steps,
};

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn tools() -> Vec<ToolName> {
    let own = ["read", "bash", "background", "edit", "write", "web_fetch", "task", "todo", "schedule"];
    let mut all: Vec<ToolName> = own.into_iter().map(ToolName::built_in).collect();
    all.push(ToolName::of_source("mcp__files__list", "mcp"));
    all
}

fn report(input: &PolicyInput<'_>) -> PolicyReport {
    judge(&tools(), &steps(input))
}

fn lines(report: &PolicyReport) -> Vec<String> {
    report.removed.iter().map(ToString::to_string).collect()
}

fn allow(list: &[&str]) -> ToolPolicy {
    ToolPolicy { allow: words(list), ..ToolPolicy::default() }
}

fn deny(list: &[&str]) -> ToolPolicy {
    ToolPolicy { deny: words(list), ..ToolPolicy::default() }
}

#[test]
fn report_names_the_step_and_the_entry() {
    let policy = ToolPolicy {
        profile: Some(ToolProfile::Coding),
        deny: words(&["group:runtime", "write"]),
        by_provider: BTreeMap::from([("Small".to_owned(), allow(&["read", "edit"]))]),
        ..ToolPolicy::default()
    };
    let agent = deny(&["edit"]);
    let found = report(&PolicyInput {
        global: Some(&policy),
        agent: Some(&agent),
        model: Some(("small", "s-1")),
        ..PolicyInput::default()
    });
    assert_eq!(found.kept, ["read"]);
    assert_eq!(
        lines(&found),
        [
            "bash: denied by group:runtime (tools.allow and deny)",
            "background: denied by group:runtime (tools.allow and deny)",
            "edit: denied by edit (the agent's tools.allow and deny)",
            "write: denied by write (tools.allow and deny)",
            "web_fetch: not in the allow list (tools.byProvider.Small)",
            "task: not in the allow list (tools.byProvider.Small)",
            "todo: not in the allow list (tools.byProvider.Small)",
            "schedule: not in the allow list (tools.byProvider.Small)",
            "mcp__files__list: not in the allow list (tools.byProvider.Small)",
        ]
    );
    assert_eq!(found.warnings, []);
}

#[test]
fn profiles_allow_their_groups_and_what_is_added() {
    let of = |profile, also: &[&str]| {
        let policy = ToolPolicy { profile: Some(profile), also_allow: words(also), ..ToolPolicy::default() };
        report(&PolicyInput { global: Some(&policy), ..PolicyInput::default() }).kept
    };
    assert_eq!(of(ToolProfile::Minimal, &[]), Vec::<String>::new());
    assert_eq!(of(ToolProfile::Minimal, &["read"]), ["read"]);
    assert_eq!(of(ToolProfile::Messaging, &[]), ["mcp__files__list"]);
    assert_eq!(of(ToolProfile::Coding, &[]).len(), tools().len());
    assert_eq!(of(ToolProfile::Full, &[]).len(), tools().len());
}

#[test]
fn agent_profile_takes_the_place_of_the_global_one() {
    let global = ToolPolicy { profile: Some(ToolProfile::Minimal), ..ToolPolicy::default() };
    let agent = ToolPolicy { profile: Some(ToolProfile::Coding), ..ToolPolicy::default() };
    let found = report(&PolicyInput { global: Some(&global), agent: Some(&agent), ..PolicyInput::default() });
    assert_eq!(found.kept.len(), tools().len());
    // Lists do not: both hold.
    let (global, agent) = (allow(&["read", "bash"]), allow(&["bash", "write"]));
    let found = report(&PolicyInput { global: Some(&global), agent: Some(&agent), ..PolicyInput::default() });
    assert_eq!(found.kept, ["bash", "background"]);
}

#[test]
fn model_key_wins_over_provider_key() {
    let policy = ToolPolicy {
        by_provider: BTreeMap::from([
            ("openai".to_owned(), deny(&["*"])),
            ("openai/gpt-5".to_owned(), deny(&["bash"])),
        ]),
        ..ToolPolicy::default()
    };
    let kept = |model| report(&PolicyInput { global: Some(&policy), model, ..PolicyInput::default() }).kept;
    assert_eq!(kept(Some(("openai", "gpt-5"))).len(), tools().len() - 2);
    assert_eq!(kept(Some(("openai", "other"))), Vec::<String>::new());
    assert_eq!(kept(Some(("another", "gpt-5"))).len(), tools().len());
    assert_eq!(kept(None).len(), tools().len());
}

#[test]
fn senders_count_by_id_before_name_before_everybody() {
    let lists = |deny: &[&str]| NameLists { deny: words(deny), ..NameLists::default() };
    let group = ToolPolicy {
        deny: words(&["todo"]),
        by_sender: BTreeMap::from([
            ("*".to_owned(), lists(&["*"])),
            ("id:7".to_owned(), lists(&["bash"])),
            ("name:ann".to_owned(), lists(&["read"])),
        ]),
        ..ToolPolicy::default()
    };
    let global = ToolPolicy {
        by_sender: BTreeMap::from([("username:ann".to_owned(), lists(&["schedule"]))]),
        by_group: BTreeMap::from([("chat:Room".to_owned(), group)]),
        ..ToolPolicy::default()
    };
    let room = ChatGroup { channel: "chat".into(), room: "room".into() };
    let found = |id: &str| {
        let sender = Sender { id: Some(id.into()), username: Some("@ann".into()), ..Sender::default() };
        let sender = Sender { name: (id == "8").then(|| "Ann".into()), ..sender };
        let input = PolicyInput {
            global: Some(&global),
            group: Some(&room),
            sender: Some(&sender),
            ..PolicyInput::default()
        };
        report(&input)
    };
    let seven = found("7");
    assert_eq!(
        lines(&seven),
        [
            "bash: denied by bash (tools.byGroup.chat:Room.bySender.id:7)",
            "background: denied by bash (tools.byGroup.chat:Room.bySender.id:7)",
            "todo: denied by todo (tools.byGroup.chat:Room)",
            "schedule: denied by schedule (tools.bySender.username:ann)",
        ]
    );
    assert!(lines(&found("8"))[0].starts_with("read: denied by read"), "{:?}", lines(&found("8")));
    assert!(found("9").kept.is_empty(), "everybody else");
}

#[test]
fn groups_count_by_room_before_channel_before_all() {
    let of = |policy: &ToolPolicy, agent: &ToolPolicy, channel: &str, room: &str| {
        let group = ChatGroup { channel: channel.into(), room: room.into() };
        let (global, agent) = (Some(policy), Some(agent));
        let input = PolicyInput { global, agent, group: Some(&group), ..PolicyInput::default() };
        lines(&report(&input))
    };
    let groups = [("chat:1", deny(&["bash"])), ("chat:*", deny(&["write"])), ("*", deny(&["*"]))];
    let by_group: BTreeMap<String, ToolPolicy> =
        groups.into_iter().map(|(key, policy)| (key.to_owned(), policy)).collect();
    let global = ToolPolicy { by_group, ..ToolPolicy::default() };
    let none = ToolPolicy::default();
    assert_eq!(of(&global, &none, "CHAT", "1")[0], "bash: denied by bash (tools.byGroup.chat:1)");
    assert_eq!(of(&global, &none, "chat", "2"), ["write: denied by write (tools.byGroup.chat:*)"]);
    assert_eq!(of(&global, &none, "mail", "1").len(), tools().len());
    // What the agent says of the group holds too, and opens nothing.
    let agent = ToolPolicy {
        by_group: BTreeMap::from([("chat:2".to_owned(), allow(&["read", "write", "todo"]))]),
        ..ToolPolicy::default()
    };
    let found = of(&global, &agent, "chat", "2");
    assert_eq!(found.len(), tools().len() - 2, "{found:?}");
    assert!(found.contains(&"write: denied by write (tools.byGroup.chat:*)".to_owned()), "{found:?}");
    assert!(found.contains(&"bash: not in the allow list (the agent's tools.byGroup.chat:2)".to_owned()));
    // A conversation in no group has no such steps.
    let input = PolicyInput { global: Some(&global), ..PolicyInput::default() };
    assert_eq!(report(&input).removed, []);
}

#[test]
fn senders_of_an_agent_are_narrowed_beside_the_others() {
    let by = |key: &str, deny: &[&str]| ToolPolicy {
        by_sender: BTreeMap::from([(
            key.to_owned(),
            NameLists { deny: words(deny), ..NameLists::default() },
        )]),
        ..ToolPolicy::default()
    };
    let (global, agent) = (by("*", &["bash"]), by("id:7", &["write"]));
    let seven = Sender { id: Some("7".into()), ..Sender::default() };
    let input = PolicyInput {
        global: Some(&global),
        agent: Some(&agent),
        sender: Some(&seven),
        ..PolicyInput::default()
    };
    assert_eq!(
        lines(&report(&input)),
        [
            "bash: denied by bash (tools.bySender.*)",
            "background: denied by bash (tools.bySender.*)",
            "write: denied by write (the agent's tools.bySender.id:7)",
        ]
    );
    let nobody = Sender::default();
    let kept = report(&PolicyInput { sender: Some(&nobody), ..input }).kept;
    assert!(kept.contains(&"write".to_owned()) && !kept.contains(&"bash".to_owned()));
    assert_eq!(report(&PolicyInput { sender: None, ..input }).removed, []);
}

#[test]
fn sub_agents_lose_what_acts_for_a_person() {
    let kept = |depth, lists: NameLists| {
        let policy = SubAgentPolicy { depth, max_depth: 2, lists };
        report(&PolicyInput { sub_agent: Some(&policy), ..PolicyInput::default() }).kept
    };
    let one = kept(1, NameLists::default());
    assert!(one.contains(&"task".to_owned()) && !one.contains(&"schedule".to_owned()), "{one:?}");
    assert!(!kept(2, NameLists::default()).contains(&"task".to_owned()));
    let opened = NameLists { also_allow: words(&["task", "cron"]), ..NameLists::default() };
    assert_eq!(kept(2, opened).len(), tools().len());
    let narrowed =
        NameLists { allow: words(&["read", "bash"]), deny: words(&["bash"]), ..NameLists::default() };
    assert_eq!(kept(1, narrowed), ["read"]);
}

#[test]
fn sandbox_has_its_own_tools_unless_told_otherwise() {
    let kept = |written: NameLists| {
        let lists = sandbox_lists(&written);
        report(&PolicyInput { sandbox: &[(PolicyLevel::Global, &lists)], ..PolicyInput::default() }).kept
    };
    assert_eq!(kept(NameLists::default()), ["read", "bash", "background", "edit", "write", "task", "todo"]);
    let opened = NameLists { also_allow: words(&["schedule"]), ..NameLists::default() };
    assert!(kept(opened).contains(&"schedule".to_owned()));
    assert_eq!(kept(NameLists { allow: words(&["read"]), ..NameLists::default() }), ["read"]);
}

#[test]
fn read_only_workspace_leaves_no_tool_that_changes_files() {
    let found = report(&PolicyInput { is_read_only: true, ..PolicyInput::default() });
    assert!(["write", "edit"].iter().all(|name| !found.kept.contains(&(*name).to_owned())), "{found:?}");
    assert!(found.kept.contains(&"read".to_owned()));
    assert!(lines(&found).contains(&"write: denied by write (sandbox.workspaceAccess is `ro`)".to_owned()));
    assert_eq!(found.warnings, []);
}

#[test]
fn inherited_steps_hold_in_the_spawned_session() {
    let global = deny(&["bash"]);
    let parent = steps(&PolicyInput { global: Some(&global), ..PolicyInput::default() }).to_inherited();
    let open = allow(&["*"]);
    let child = PolicyInput { global: Some(&open), inherited: Some(&parent), ..PolicyInput::default() };
    assert_eq!(
        lines(&report(&child))[0],
        "bash: denied by bash (the session that sent this one: tools.allow and deny)"
    );
    let again = steps(&child).to_inherited();
    let grandchild = PolicyInput { inherited: Some(&again), ..PolicyInput::default() };
    assert_eq!(lines(&report(&grandchild)), lines(&report(&child)));
}

#[test]
fn warnings_name_likely_mistakes() {
    let warned = |policy: ToolPolicy| {
        report(&PolicyInput { global: Some(&policy), ..PolicyInput::default() }).warnings
    };
    assert_eq!(warned(deny(&["bash", "group:fs", "web*"])), []);
    assert!(
        matches!(&warned(deny(&["bsah"]))[..], [PolicyWarning::Unknown { entry, .. }] if entry == "bsah")
    );
    // The name of a source is none, also before it has any tool.
    let of_sources = deny(&["mcp", "group:mcp"]);
    let built_in: Vec<_> = tools().into_iter().filter(|tool| tool.source().is_none()).collect();
    let found =
        judge(&built_in, &steps(&PolicyInput { global: Some(&of_sources), ..PolicyInput::default() }));
    assert_eq!(found.warnings, []);
    assert_eq!(warned(deny(&["*"])), [PolicyWarning::NothingLeft]);
    let both = ToolPolicy { allow: words(&["read"]), also_allow: words(&["bash"]), ..ToolPolicy::default() };
    assert!(matches!(&warned(both)[..], [PolicyWarning::AllowAndAlso { .. }]));
    let lost = report(&PolicyInput { global: Some(&allow(&["nobody"])), ..PolicyInput::default() });
    assert!(lost.kept.is_empty() && lost.removed.iter().all(|one| one.rule == RemovalRule::NotAllowed));
    assert_eq!(lost.warnings.len(), 3, "{:?}", lost.warnings);
}
