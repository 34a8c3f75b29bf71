use quipu_protocol::{Json, ToolCall};

use quipu_workspace::Namespaces;

use super::*;

const FULL: SandboxSupport = SandboxSupport::Full { scoped: true };

struct Case<'a> {
    permissions: &'a Permissions,
    touches: Touches,
}

impl Case<'_> {
    fn decide(&self, tool: &str) -> Decision {
        let arguments = Json::from(serde_json::json!({ "command": "make test" }));
        let call = ToolCall {
            id: "c".into(),
            name: tool.into(),
            arguments,
            thought_signature: None,
            namespace: None,
        };
        let cwd = &self.permissions.bounds().cwd;
        self.permissions.decide(&Proposal { call: &call, cwd, touches: &self.touches, travel: None })
    }
}

/// One word for each decision, with a question's text.
fn word(decision: Decision) -> String {
    match decision {
        Decision::NoOpinion => "no opinion".into(),
        Decision::Allow => "allow".into(),
        Decision::Deny { reason } => format!("deny {reason}"),
        Decision::Ask { question, .. } => format!("ask {question}"),
    }
}

#[test]
fn each_mode_asks_for_its_actions() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for made in ["work", "added", "own", "home/.ssh"] {
        std::fs::create_dir_all(root.join(made)).unwrap();
    }
    let make = |mode, support| {
        let rules = PermissionRules {
            mode,
            cwd: root.join("work"),
            add_dirs: vec![root.join("added")],
            read: vec![root.join("own/outputs")],
            own: root.join("own"),
            home: Some(root.join("home")),
            command_write: vec![],
            caches: vec![],
            cache_layers: None,
            network: Network::Open,
            workspace: WorkspaceAccess::Write,
            containers: None,
            namespaces: None,
            needs: CommandNeeds::default(),
            support: Some(support),
            travel: TravelRule::Ask,
            rules: RuleSet::default(),
        };
        Permissions::new(rules, [])
    };
    let read = |path: &str| Touches::Reads(vec![root.join(path)]);
    let write = |path: &str| Touches::Writes(vec![root.join(path)]);
    let check = |mode, support, tool: &str, touches: Touches, expect: &str| {
        let permissions = make(mode, support);
        let decision = word(Case { permissions: &permissions, touches: touches.clone() }.decide(tool));
        assert!(decision.starts_with(expect.split('*').next().unwrap()), "{mode:?} {touches:?}: {decision}");
        assert!(expect.split('*').all(|part| decision.contains(part)), "{mode:?} {touches:?}: {decision}");
    };
    use PermissionMode::{Ask, Full, Workspace};
    use SandboxSupport::{Missing, TooOld};
    for mode in [Ask, Workspace] {
        check(mode, FULL, "read", read("work/f"), "allow");
        check(mode, FULL, "read", read("added/f"), "allow");
        check(mode, FULL, "read", read("own/outputs/f"), "allow");
        check(mode, FULL, "read", read("own/auth.json"), "ask*outside");
        check(mode, FULL, "read", read("home/f"), "ask*outside");
        check(mode, FULL, "read", read("home/.ssh/f"), "ask*secrets");
        check(mode, FULL, "read", read("work/id_rsa"), "ask*secrets");
        check(mode, FULL, "read", read("work/../home/f"), "ask*outside");
        check(mode, FULL, "write", write("home/f"), "ask*outside");
        check(mode, FULL, "write", write("own/permissions.json"), "deny*own files");
        check(mode, FULL, "write", write("own/outputs/f"), "deny*own files");
        check(mode, Missing, "bash", Touches::Anything, "ask*no Landlock*permissions `full`");
        check(mode, TooOld, "bash", Touches::Anything, "ask*truncation*permissions `full`");
        check(mode, FULL, "other", Touches::Anything, "ask*without a sandbox");
        check(mode, FULL, "other", Touches::Nothing, "allow");
    }
    check(Workspace, FULL, "write", write("work/f"), "allow");
    check(Workspace, FULL, "write", write("added/new/f"), "allow");
    check(Workspace, FULL, "bash", Touches::Anything, "allow");
    check(Ask, FULL, "write", write("work/f"), "ask*before every change");
    check(Ask, FULL, "bash", Touches::Anything, "ask*before every command");
    for touches in [Touches::Anything, write("own/f"), read("home/.ssh/f")] {
        check(Full, Missing, "bash", touches, "allow");
    }
    assert!(make(Full, FULL).sandbox().is_none() && make(Workspace, Missing).sandbox().is_none());
    assert!(make(Ask, FULL).sandbox().is_some());
}

#[test]
fn change_of_a_file_with_hard_links_is_asked_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
    for made in ["work", "own"] {
        std::fs::create_dir(at(made)).unwrap();
    }
    let rules = || PermissionRules {
        cwd: at("work"),
        own: at("own"),
        support: Some(FULL),
        ..PermissionRules::default()
    };
    for name in ["work/file", "file"] {
        let path = at(name);
        let grant = |tool: &str| Grant { tool: tool.into(), subject: path.to_str().unwrap().into() };
        std::fs::write(&path, "").unwrap();
        let permissions = Permissions::new(rules(), [grant("edit").into()]);
        assert!(permissions.allow(grant("write")) && permissions.may_last(&grant("edit")));
        let decide = |tool: &str| {
            let touches = Touches::Writes(vec![path.clone()]);
            word(Case { permissions: &permissions, touches }.decide(tool))
        };
        assert_eq!((decide("write"), decide("edit")), ("allow".into(), "allow".into()));
        std::fs::hard_link(&path, at("other")).unwrap();
        for tool in ["write", "edit"] {
            let decision = decide(tool);
            assert!(decision.starts_with("ask") && decision.contains("hard links"), "{decision}");
            assert!(!permissions.allow(grant(tool)), "a yes holds once");
        }
        std::fs::remove_file(at("other")).unwrap();
        assert_eq!((decide("write"), decide("edit")), ("allow".into(), "allow".into()));
    }
}

#[test]
fn yes_to_a_comment_is_no_yes_to_the_network() {
    let subject = |mode, arguments: serde_json::Value| {
        let dir = tempfile::tempdir().unwrap();
        let rules = PermissionRules {
            mode,
            cwd: dir.path().join("work"),
            own: dir.path().join("own"),
            support: Some(FULL),
            namespaces: Some(Namespaces {
                launcher: quipu_workspace::Launcher { program: "/nowhere".into(), arguments: Vec::new() },
                home: None,
                hidden: Vec::new(),
                visible: Vec::new(),
                doors: quipu_workspace::Doors::default(),
            }),
            ..PermissionRules::default()
        };
        let call = ToolCall {
            id: "c".into(),
            name: "bash".into(),
            arguments: Json::from(arguments),
            thought_signature: None,
            namespace: None,
        };
        let permissions = Permissions::new(rules, []);
        let touches = Touches::Anything;
        let proposal = Proposal { call: &call, cwd: dir.path(), touches: &touches, travel: None };
        match permissions.decide(&proposal) {
            Decision::Ask { subject, .. } => subject,
            other => panic!("{other:?}"),
        }
    };
    let wants = subject(
        PermissionMode::Workspace,
        serde_json::json!({ "command": "curl x", "network": true, "reason": "why" }),
    );
    assert_eq!(wants, "# to use the network\ncurl x");
    let plain = subject(PermissionMode::Ask, serde_json::json!({ "command": wants }));
    assert_eq!(plain, "#\n# to use the network\ncurl x");
}

#[test]
fn commands_that_may_change_the_shell_are_asked() {
    let shell = file_key(Path::new("/bin/sh"));
    let cwd = shell.ancestors().nth(2).unwrap().to_path_buf();
    let own = std::env::temp_dir().join("quipu-none");
    let rules = |mode| PermissionRules {
        mode,
        cwd: cwd.clone(),
        own: own.clone(),
        support: Some(FULL),
        ..PermissionRules::default()
    };
    let permissions = Permissions::new(rules(PermissionMode::Workspace), []);
    let decision = word(Case { permissions: &permissions, touches: Touches::Anything }.decide("bash"));
    assert!(decision.starts_with("ask") && decision.contains("Quipu itself runs"), "{decision}");
    assert!(permissions.sandbox().is_none());
    assert_eq!(Permissions::new(rules(PermissionMode::Full), []).unconfined(), None);
}

#[test]
fn grants_are_exact_and_never_of_secrets() {
    let root = std::env::temp_dir().canonicalize().unwrap();
    let rules = PermissionRules {
        cwd: root.join("quipu-none/work"),
        own: root.join("quipu-none/own"),
        home: Some(root.join("quipu-none/home")),
        support: Some(SandboxSupport::Missing),
        ..PermissionRules::default()
    };
    let permissions = Permissions::new(rules, []);
    let decide =
        |tool: &str, touches: Touches| word(Case { permissions: &permissions, touches }.decide(tool));
    let at = |path: &str| root.join("quipu-none").join(path);
    let grant = |tool: &str, subject: &str| Grant { tool: tool.into(), subject: subject.into() };
    assert!(permissions.allow(grant("bash", "make test")));
    assert_eq!(decide("bash", Touches::Anything), "allow");
    assert!(permissions.allow(grant("read", at("f").to_str().unwrap())));
    assert_eq!(decide("read", Touches::Reads(vec![at("f")])), "allow");
    assert!(decide("read", Touches::Reads(vec![at("g")])).starts_with("ask"));
    assert!(decide("write", Touches::Writes(vec![at("f")])).starts_with("ask"), "another tool");
    assert!(!permissions.allow(grant("read", at("home/.ssh/f").to_str().unwrap())));
    // Even one that was written into the file by hand.
    permissions.grants().insert(grant("read", at("home/.ssh/f").to_str().unwrap()), Vec::new());
    assert!(decide("read", Touches::Reads(vec![at("home/.ssh/f")])).starts_with("ask"));
}

#[test]
fn going_elsewhere_is_asked_each_time_unless_a_rule_says_more() {
    let decide = |travel, mode| {
        let cwd = std::env::temp_dir();
        let rules = PermissionRules { mode, cwd: cwd.clone(), travel, ..PermissionRules::default() };
        let permissions = Permissions::new(rules, []);
        let trip = Travel {
            target: quipu_protocol::NodeId([7; 32]),
            line: "user: \"hello\"".into(),
            messages: 3,
            turns: 1,
            message: "the first way is closed".into(),
            files: None,
            begins: false,
        };
        let grant = Grant { tool: "tobe".into(), subject: trip.message.clone() };
        assert!(!permissions.allow(grant));
        let call = ToolCall {
            id: "c".into(),
            name: "tobe".into(),
            arguments: Json::object(),
            thought_signature: None,
            namespace: None,
        };
        let touches = Touches::Nothing;
        let travel = Some(&trip);
        word(permissions.decide(&Proposal { call: &call, cwd: &cwd, touches: &touches, travel }))
    };
    use PermissionMode::{Ask, Full, Workspace};
    for mode in [Ask, Workspace, Full] {
        let asked = decide(TravelRule::Ask, mode);
        assert!(
            asked.starts_with(
                "ask Allow going back to 070707070707 (user: \"hello\")? It leaves 3 message(s)"
            ),
            "{asked}"
        );
    }
    for mode in [Ask, Workspace, Full] {
        assert_eq!(decide(TravelRule::Allow, mode), "allow");
        assert!(decide(TravelRule::Deny, mode).starts_with("deny"));
    }
}

#[test]
fn input_is_judged_like_the_command_that_reads_it() {
    use PermissionMode::{Ask, Full, Workspace};
    use quipu_rules::{Effect, Rule, RuleSet};
    let dir = tempfile::tempdir().unwrap();
    let decide = |mode, rules: &[(Effect, &str)], input: CommandInput| {
        let rules = rules.iter().map(|(effect, rule)| (*effect, Rule::parse(rule).unwrap()));
        let rules = PermissionRules {
            mode,
            cwd: dir.path().to_path_buf(),
            own: std::env::temp_dir().join("quipu-none"),
            support: Some(FULL),
            rules: RuleSet::default().with(rules),
            ..PermissionRules::default()
        };
        let permissions = Permissions::new(rules, []);
        let decision =
            Case { permissions: &permissions, touches: Touches::Input(input) }.decide("background");
        if let Decision::Ask { subject, .. } = &decision {
            let grant = Grant { tool: "background".into(), subject: subject.clone() };
            assert_eq!(permissions.scopes(&grant), [Scope::Once], "{subject}");
        }
        decision
    };
    let input = |is_confined| CommandInput {
        id: "b1".into(),
        command: Some("python3 -i".into()),
        text: "print(1)\nexit()\n".into(),
        is_last: true,
        is_confined,
        network: false,
        protected: false,
    };
    assert_eq!(decide(Workspace, &[], input(true)), Decision::Allow);
    assert_eq!(decide(Full, &[], input(false)), Decision::Allow);
    assert_eq!(
        decide(Ask, &[], input(true)),
        Decision::Ask {
            question: "Allow input for background command b1? This mode asks before every command.".into(),
            subject: "b1: python3 -i\n< print(1)\n< exit()\n(end of the input)".into(),
        }
    );
    let word_of = |mode, rules: &[(Effect, &str)], input| word(decide(mode, rules, input));
    assert!(word_of(Workspace, &[], input(false)).contains("runs without a sandbox"));
    let unknown = CommandInput { command: None, ..input(true) };
    assert!(word_of(Workspace, &[], unknown).starts_with("deny No background command `b1`"));
    let allowed: &[(Effect, &str)] = &[(Effect::Allow, "background")];
    assert_eq!(word_of(Ask, allowed, input(true)), "allow");
    let push: &[(Effect, &str)] = &[(Effect::Deny, "bash(git push *)")];
    assert!(word_of(Full, push, input(true)).contains("cannot judge"), "what a program reads is not known");
    let text = CommandInput { text: "git push origin\n".into(), ..input(true) };
    assert!(word_of(Full, push, text).starts_with("deny The user's permission rule"));
}

#[test]
fn lasting_yes_is_bound_to_the_bytes_of_programs() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("work")).unwrap();
    let script = root.join("work/run.sh");
    std::fs::write(&script, "echo one").unwrap();
    let rules = PermissionRules {
        mode: PermissionMode::Ask,
        cwd: root.join("work"),
        own: root.join("own"),
        support: Some(FULL),
        ..PermissionRules::default()
    };
    let decide = |permissions: &Permissions, command: &str| {
        let call = ToolCall {
            id: "c".into(),
            name: "bash".into(),
            arguments: Json::from(serde_json::json!({ "command": command })),
            thought_signature: None,
            namespace: None,
        };
        let cwd = &permissions.bounds().cwd;
        let touches = Touches::Anything;
        permissions.decide(&Proposal { call: &call, cwd, touches: &touches, travel: None })
    };
    let permissions = Permissions::new(rules.clone(), []);
    let asked = |permissions: &Permissions, command: &str| match decide(permissions, command) {
        Decision::Ask { question, subject } => {
            assert_eq!(subject, command);
            question
        }
        other => panic!("{command}: {other:?}"),
    };
    let grant = |command: &str| Grant { tool: "bash".into(), subject: command.into() };
    let (run, plain) = ("./run.sh --fast", "ls -la");
    for command in [run, plain] {
        assert!(!asked(&permissions, command).contains("You allowed it"));
        assert!(permissions.allow(grant(command)));
        assert_eq!(decide(&permissions, command), Decision::Allow);
    }
    // Exactly this line.
    asked(&permissions, "./run.sh");
    asked(&permissions, "./run.sh --fast; ls");
    std::fs::write(&script, "echo two").unwrap();
    let question = asked(&permissions, run);
    assert!(question.ends_with("./run.sh has changed since."), "{question}");
    assert_eq!(decide(&permissions, plain), Decision::Allow, "it runs no file by path");
    // The yes is for what was there when it was asked.
    std::fs::write(&script, "echo three").unwrap();
    assert!(permissions.allow(grant(run)));
    assert!(asked(&permissions, run).contains("has changed since"));
    assert!(permissions.allow(grant(run)));
    assert_eq!(decide(&permissions, run), Decision::Allow);

    // What is saved is bound as well; what earlier versions saved has no bytes.
    let bound = permissions.bound(grant(run));
    assert_eq!(bound.files.len(), 1);
    let again = Permissions::new(rules.clone(), [bound]);
    assert_eq!(decide(&again, run), Decision::Allow);
    let old = Permissions::new(rules.clone(), [grant(run).into(), grant(plain).into()]);
    assert!(asked(&old, run).contains("not with the bytes"));
    assert_eq!(decide(&old, plain), Decision::Allow);
    // Of more files than are compared, none could be found changed.
    let words: Vec<String> = (0..64).map(|number| format!("a/{number}")).collect();
    let many = format!("echo {} >/dev/null; cat run.sh | bash", words.join(" "));
    assert!(!permissions.scopes(&grant(&many)).contains(&Scope::Session));
    asked(&permissions, &many);
    assert!(!permissions.allow(grant(&many)), "a yes holds once");
    asked(&permissions, &many);
    let old = Permissions::new(rules.clone(), [permissions.bound(grant(&many))]);
    assert!(asked(&old, &many).contains("more files"));
    // In another directory the same words run another file.
    std::fs::create_dir_all(root.join("tree")).unwrap();
    std::fs::write(root.join("tree/run.sh"), "echo three").unwrap();
    let tree = permissions.beside(PermissionRules { cwd: root.join("tree"), ..rules }, []);
    assert!(asked(&tree, run).contains("not with the bytes"));
}

#[test]
fn pattern_of_programs_is_asked_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("work")).unwrap();
    std::fs::write(root.join("work/s.sh"), "echo one").unwrap();
    let rules = PermissionRules {
        mode: PermissionMode::Ask,
        cwd: root.join("work"),
        own: root.join("own"),
        support: Some(FULL),
        ..PermissionRules::default()
    };
    let grant = |command: &str| Grant { tool: "bash".into(), subject: command.into() };
    for command in ["./s.*", "sh s.s?", "cd ./w* && ./s.sh"] {
        // One that an earlier version kept counts no more.
        let kept = vec![BoundFile { path: root.join("work").join(command), content: None }];
        let kept = BoundGrant { grant: grant(command), files: kept };
        let permissions = Permissions::new(rules.clone(), [kept]);
        assert_eq!(permissions.scopes(&grant(command)), [Scope::Once], "{command}");
        assert!(!permissions.allow(grant(command)), "{command}");
        let arguments = Json::from(serde_json::json!({ "command": command }));
        let call = ToolCall {
            id: "c".into(),
            name: "bash".into(),
            arguments,
            thought_signature: None,
            namespace: None,
        };
        let touches = Touches::Anything;
        let cwd = root.join("work");
        let asked = permissions.decide(&Proposal { call: &call, cwd: &cwd, touches: &touches, travel: None });
        assert!(matches!(asked, Decision::Ask { .. }), "{command}: {asked:?}");
    }
    let permissions = Permissions::new(rules, []);
    assert!(permissions.allow(grant("./s.sh *.txt")) && permissions.allow(grant("ls ./*")));
}

#[test]
fn read_only_workspace_refuses_changes_in_every_mode() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("work")).unwrap();
    for mode in [PermissionMode::Ask, PermissionMode::Workspace, PermissionMode::Full] {
        let rules = PermissionRules {
            mode,
            cwd: root.join("work"),
            own: root.join("own"),
            workspace: WorkspaceAccess::Read,
            support: Some(FULL),
            ..PermissionRules::default()
        };
        let permissions = Permissions::new(rules, []);
        let decided =
            |touches: Touches, tool: &str| word(Case { permissions: &permissions, touches }.decide(tool));
        assert_eq!(decided(Touches::Reads(vec![root.join("work/f")]), "read"), "allow");
        for path in ["work/f", "elsewhere/f"] {
            let refused = decided(Touches::Writes(vec![root.join(path)]), "write");
            assert!(refused.starts_with("deny") && refused.contains("sandbox.workspaceAccess"), "{refused}");
        }
        assert_eq!(permissions.sandbox().unwrap().write(), [] as [PathBuf; 0]);
        let access = permissions.access();
        assert!(access.may_read(&root.join("work/f")));
        assert_ne!(access.reach(&root.join("work/f"), AccessMode::Write), Reach::Free);
    }
}
