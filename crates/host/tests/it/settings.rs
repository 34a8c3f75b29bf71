//! Settings: layers, files of every shape, and what is changed in them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use proptest::prelude::*;
use quipu_host::settings::{
    Effect, FileChange, KEYS, Key, ProjectUse, SettingError, SettingsFile, project_to_trust, set_setting,
    settings_schema, settings_table, trust_project, unset_setting,
};
use quipu_host::{
    Advice, Home, HostNotice, Observer, ProblemKind, SandboxMode, Settings, SilentObserver, Source,
};
use serde_json::{Value, json};

/// Hears what is told.
#[derive(Default)]
struct Ears(Mutex<Vec<HostNotice>>);

impl Observer for Ears {
    fn notice(&self, notice: HostNotice) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(notice);
    }
}

impl Ears {
    /// What was told since the last time.
    fn take(&self) -> Vec<String> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *told).into_iter().map(|notice| notice.text).collect()
    }
}

/// A user and a project.
struct World {
    dir: tempfile::TempDir,
    ears: Arc<Ears>,
    home: Home,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("home")).unwrap();
        std::fs::create_dir_all(root.join("work/.git")).unwrap();
        std::fs::create_dir_all(root.join("work/.quipu")).unwrap();
        std::fs::create_dir_all(root.join("work/below")).unwrap();
        let ears = Arc::new(Ears::default());
        let home = Home::at(root.join("home"), ears.clone());
        Self { dir, ears, home }
    }

    fn with(text: impl AsRef<[u8]>) -> Self {
        let world = Self::new();
        std::fs::write(world.home.settings_path(), text).unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn cwd(&self) -> PathBuf {
        self.path("work/below")
    }

    fn project(&self, settings: &Value) {
        std::fs::write(self.path("work/.quipu/settings.json"), settings.to_string()).unwrap();
    }

    fn trust(&self) {
        trust_project(&self.home, &project_to_trust(&self.home, &self.cwd()).unwrap()).unwrap();
    }

    fn set(&self, name: &str, words: &str) -> Result<FileChange, SettingError> {
        set_setting(&self.home, &SettingsFile::User, name, words).map(|kept| kept.changed)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.home.settings_path()).unwrap()
    }
}

fn value_of(settings: &Settings, name: &str) -> (Value, &'static str) {
    let row = settings.row(Key::named(name).unwrap());
    (row.value, row.source.word())
}

#[test]
fn each_layer_counts_more_than_the_one_before() {
    let mut world = World::new();
    let name = "compaction.reserveTokens";
    let now = |world: &World| value_of(&world.home.config_in(&world.cwd()), name);
    assert_eq!(now(&world), (json!(16_384), "built-in"));
    std::fs::write(world.home.settings_path(), r#"{"compaction":{"reserveTokens":1}}"#).unwrap();
    assert_eq!(now(&world), (json!(1), "user"));
    world.project(&json!({ "compaction": { "reserveTokens": 2 } }));
    assert_eq!(now(&world), (json!(1), "user"), "nobody has accepted it");
    world.trust();
    assert_eq!(now(&world), (json!(2), "project"));
    assert_eq!(value_of(&world.home.config(), name), (json!(1), "user"), "outside of the project");
    let variable = |name: &str| (name == "QUIPU_COMPACTION_RESERVE_TOKENS").then(|| "3".to_owned());
    world.home = world.home.with_environment(&variable);
    let settings = world.home.config_in(&world.cwd());
    assert_eq!(value_of(&settings, name), (json!(3), "environment"));
    assert_eq!(settings.compaction.reserve_tokens, 3);
    let flags = [(name, "--reserve", json!(4)), ("travel.tobe", "--allow-tobe", json!("allow"))];
    let flagged = settings.with_flags(&flags);
    assert_eq!(value_of(&flagged, name), (json!(4), "flag"));
    assert_eq!((flagged.compaction.reserve_tokens, flagged.travel_rule), (4, quipu::TravelRule::Allow));
    assert_eq!(flagged.source_of(name), Some(&Source::Flag("--reserve")));
    assert_eq!(value_of(&flagged, "retry.enabled"), (json!(true), "built-in"));
}

#[test]
fn defaults_of_the_table_are_those_of_the_types() {
    let mut all = json!({});
    for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
        assert!(!key.default_value().is_null(), "{}", key.name);
        let path = key.path();
        let at = path.iter().fold(&mut all, |at, member| &mut at[member]);
        *at = key.default_value();
    }
    let world = World::with(all.to_string());
    let said = world.home.config();
    assert_eq!(said.problems, []);
    let built_in = Settings::default();
    let differs = built_in.rows().zip(said.rows()).find(|(built_in, said)| built_in.value != said.value);
    assert_eq!(differs, None);
    // All but where it comes from.
    assert_eq!(
        format!("{:?}", (&built_in.calls, &built_in.files, &built_in.sandbox)),
        format!("{:?}", (&said.calls, &said.files, &said.sandbox))
    );
    assert_eq!(
        (built_in.compaction, built_in.prune, built_in.history),
        (said.compaction, said.prune, said.history)
    );
    assert_eq!(
        (built_in.travel, built_in.travel_rule, &built_in.budget),
        (said.travel, said.travel_rule, &said.budget)
    );
    assert_eq!(
        (&built_in.publish, &built_in.identity, &built_in.semantic),
        (&said.publish, &said.identity, &said.semantic)
    );
    assert_eq!((built_in.terminal, built_in.screen_reader), (said.terminal, said.screen_reader));
}

#[test]
fn names_and_variables_of_settings_are_unique() {
    let mut seen = std::collections::BTreeSet::new();
    for key in KEYS {
        assert!(seen.insert(key.name) && seen.len() <= 170, "{}", key.name);
        let within = format!("{}.", key.name);
        assert!(KEYS.iter().all(|other| !other.name.starts_with(&within)), "{} holds others", key.name);
    }
    let variables: std::collections::BTreeSet<String> = KEYS.iter().map(Key::variable).collect();
    assert_eq!(variables.len(), KEYS.len());
    assert_eq!(Key::named("screenReader").unwrap().variable(), "QUIPU_SCREEN_READER");
    let long = "retry.provider.maxRetryDelayMs";
    assert_eq!(Key::named(long).unwrap().variable(), "QUIPU_RETRY_PROVIDER_MAX_RETRY_DELAY_MS");
}

#[test]
fn wrong_values_are_told_and_the_rest_holds() {
    // With each there is `retry.maxRetries`, which holds.
    let check = |members: &str, told: &[&str]| {
        let world = World::with(format!(
            r#"{{{members}{}"retry":{{"maxRetries":7}}}}"#,
            if members.is_empty() { "" } else { "," }
        ));
        let settings = world.home.config();
        assert_eq!(settings.calls.options.max_retries, 7, "{members}");
        let heard = world.ears.take();
        assert_eq!(heard.len(), told.len(), "{members}: {heard:?}");
        for (heard, told) in heard.iter().zip(told) {
            assert!(heard.contains(told), "{heard}");
            assert!(heard.contains("settings.json: ") && heard.ends_with(" (line 1)"), "{heard}");
        }
        // Once.
        world.home.config();
        assert_eq!(world.ears.take(), [""; 0]);
    };
    check("", &[]);
    check(r#""$schema":"docs/settings.schema.json""#, &[]);
    check(r#""compaction":null,"theme":null"#, &[]);
    check(
        r#""compaction":{"reserveTokens":0}"#,
        &["compaction.reserveTokens must be a whole number of 1 or more"],
    );
    check(
        r#""compaction":{"reserveTokens":1e999}"#,
        &["compaction.reserveTokens holds a number that is too large"],
    );
    check(r#""compaction":{"reserveTokens":99999999999999999999}"#, &["compaction.reserveTokens must be"]);
    check(r#""compaction":[1]"#, &["compaction must be an object"]);
    check(r#""context":7"#, &["context must be an object"]);
    check(r#""context":{"prune":true}"#, &["context.prune must be an object"]);
    check(r#""themes":"dark""#, &["there is no setting themes. Did you mean theme?"]);
    check(
        r#""compaction":{"reservTokens":1}"#,
        &["compaction.reservTokens. Did you mean compaction.reserveTokens?"],
    );
    check(r#""reserveTokens":1"#, &["no setting reserveTokens. Did you mean compaction.reserveTokens?"]);
    check(r#""zzzzzzzzzzzz":1"#, &["there is no setting zzzzzzzzzzzz"]);
    check("\"a\\u001b[2J\":1", &["there is no setting \"a\\u{1b}[2J\""]);
    check(r#""theme":"a","theme":"b""#, &["theme occurs more than once"]);
    check(r#""theme":7,"theme":"b""#, &["theme occurs more than once"]);
    check(r#""theme":"""#, &["theme must be a text that is not empty"]);
    check(r#""enabledModels":["a",1]"#, &["enabledModels must be a list of names"]);
    check(
        r#""publish":["quipu_head","PI_HEAD",7]"#,
        &["publish[0] must be the name of another", "publish[2] must be"],
    );
    check(
        r#""sandbox":{"network":"close","scope":"sesion","runtime":7}"#,
        &[
            "sandbox.network must be ask, open or closed",
            "sandbox.network cannot be read: commands reach no network",
            "sandbox.scope must be agent, session or shared",
            "sandbox.scope cannot be read: no sessions share a sandbox",
            "sandbox.runtime must be",
            "sandbox.runtime cannot be read: commands in containers do not run",
        ],
    );
    check(
        r#""sandbox":true"#,
        &[
            "sandbox must be an object",
            "sandbox.network cannot be read",
            "sandbox.mode cannot be read",
            "sandbox.scope cannot be read",
            "sandbox.backend cannot be read",
            "sandbox.runtime cannot be read",
        ],
    );
    check(
        r#""tools":"minimal""#,
        &[
            "tools must be an object",
            "tools.profile cannot be read",
            "tools.allow cannot be read",
            "tools.byProvider cannot be read",
        ],
    );
    check(
        r#""sandbox":{"mode":true,"backend":"podmann"}"#,
        &[
            "sandbox.mode must be off, non-main or all",
            "sandbox.mode cannot be read: all sessions work in a sandbox",
            "sandbox.backend must be namespaces, podman or docker",
            "sandbox.backend cannot be read: commands in sandboxes do not run",
        ],
    );
    check(r#""sandbox":{"ports":[0,80]}"#, &["sandbox.ports[0] must be a port"]);
    check(r#""sandbox":{"write":["relative"]}"#, &["sandbox.write[0] must be an absolute path"]);
    check(r#""localServers":7"#, &["localServers must be an object of URLs, or false"]);
    check(
        r#""localServers":{"far":"http://10.0.0.1/v1"}"#,
        &["localServers.far must be the URL of a server on this"],
    );
    check(r#""search":{"semantic":{"path":7}}"#, &["search.semantic.path must be text"]);
    check(r#""budget":{"daily":-1}"#, &["budget.daily must be an amount in US dollars above 0"]);
    check(r#""hooks":{"Nonsense":[]}"#, &["hooks.Nonsense is not a known event"]);
    check(r#""hooks":[]"#, &["hooks must be an object of events"]);
    let deep = format!(r#""theme":{}1{}"#, "[".repeat(100_000), "]".repeat(100_000));
    check(&deep, &["theme is nested too deep"]);
    let deep = format!(r#""unknown":{}1{}"#, "{\"a\":".repeat(50_000), "}".repeat(50_000));
    check(&deep, &["there is no setting unknown"]);
    let many: Vec<String> = (0..10_000).map(|at| format!("\"x{at}\":1")).collect();
    let world = World::with(format!("{{{},\"screenReader\":true}}", many.join(",")));
    assert!(world.home.config().screen_reader);
    let heard = world.ears.take();
    assert_eq!((heard.len(), heard.last().unwrap().contains("there are more problems")), (21, true));
}

#[test]
fn files_that_cannot_be_read_are_told_and_defaults_hold() {
    let tells = |world: World, told: &str, lines: usize| {
        let settings = world.home.config();
        assert_eq!(settings.compaction, quipu::CompactionSettings::default());
        let heard = world.ears.take();
        assert!(
            heard.len() == lines && heard[0].contains(told) && heard[0].contains("settings.json"),
            "{heard:?}"
        );
    };
    let check = |world: World, told: &str| tells(world, told, 1);
    // Nobody knows what it says of tools and sandboxes.
    let closes = |world: World, told: &str| {
        let settings = world.home.config();
        assert_eq!(settings.sandbox.mode, SandboxMode::All);
        assert_eq!(settings.tools.policy.allow.len(), 1);
        tells(world, told, 2);
    };
    check(World::with("[]"), "it must be a JSON object");
    check(World::with("7"), "it must be a JSON object");
    check(World::with("\"compaction\""), "it must be a JSON object");
    check(World::with("{"), "it is not valid JSON from column 2 on, so all of it is ignored (line 1)");
    check(
        World::with("{\n  \"a\": 1,\n}"),
        "it is not valid JSON from column 1 on, so all of it is ignored (line 3)",
    );
    check(World::with("{}}"), "it is not valid JSON");
    check(World::with("\u{0}"), "it is not valid JSON");
    check(World::with("{\"a\": \"\\ud800\"}"), "it is not valid JSON");
    check(World::with("[".repeat(1 << 20)), "it is not valid JSON");
    check(World::with(b"{\"theme\": \"\xff\"}"), "it is not text (UTF-8) from byte 11 on");
    closes(World::with(vec![b' '; 10 << 20]), "it is larger than 1 MiB");
    let world = World::new();
    std::fs::create_dir(world.home.settings_path()).unwrap();
    closes(world, "it is not a regular file");
    let world = World::new();
    nix::unistd::mkfifo(&world.home.settings_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    closes(world, "it is not a regular file");
    let world = World::new();
    std::os::unix::fs::symlink("settings.json", world.home.settings_path()).unwrap();
    closes(world, "it cannot be read");
    for nothing in ["", " \n", "{}", "\u{feff}{}"] {
        let world = World::with(nothing);
        assert_eq!((world.home.config().problems.len(), world.ears.take().len()), (0, 0), "{nothing:?}");
    }
}

#[test]
fn last_good_values_stay_when_a_file_breaks() {
    let world = World::with(r#"{"compaction":{"reserveTokens":5},"theme":"mine"}"#);
    let reserve = || world.home.config().compaction.reserve_tokens;
    assert_eq!(reserve(), 5);
    std::fs::write(world.home.settings_path(), "{ broken").unwrap();
    assert_eq!((reserve(), reserve()), (5, 5));
    assert_eq!(world.ears.take().len(), 1, "told once");
    std::fs::write(world.home.settings_path(), r#"{"compaction":{"reserveTokens":"x"}}"#).unwrap();
    let settings = world.home.config();
    assert_eq!((settings.compaction.reserve_tokens, settings.theme.as_deref()), (5, None));
    assert_eq!(world.ears.take().len(), 1);
    std::fs::write(world.home.settings_path(), r#"{"compaction":{"reserveTokens":6}}"#).unwrap();
    assert_eq!(reserve(), 6);
    let is_refused = |text: &str| {
        std::fs::write(world.home.settings_path(), text).unwrap();
        let error = world.set("theme", "dark").unwrap_err();
        assert!(matches!(error, SettingError::Unreadable { .. }), "{error:?}");
        assert_eq!(world.text(), text);
    };
    // As an editor leaves it before it writes. A change would take the place of all that holds.
    is_refused("");
    is_refused(" \n");
    std::fs::write(world.home.settings_path(), "").unwrap();
    assert_eq!((reserve(), reserve()), (6, 6));
    let told = world.ears.take();
    assert!(told.len() == 1 && told[0].contains("it is empty, so what it said last holds"), "{told:?}");
    // One that is empty as long as anybody knows is a file like others.
    let empty = World::with("");
    empty.set("theme", "dark").unwrap_err();
    let file = std::fs::File::options().append(true).open(empty.home.settings_path()).unwrap();
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(60)).unwrap();
    empty.set("theme", "dark").unwrap();
    assert_eq!(empty.home.config().theme.as_deref(), Some("dark"));
    std::fs::write(world.home.settings_path(), "{}").unwrap();
    assert_eq!((reserve(), world.ears.take().len()), (16_384, 0));
    std::fs::write(world.home.settings_path(), r#"{"compaction":{"reserveTokens":6}}"#).unwrap();
    assert_eq!(reserve(), 6);
    std::fs::remove_file(world.home.settings_path()).unwrap();
    assert_eq!((reserve(), world.ears.take().len()), (16_384, 0));
}

#[test]
fn projects_settings_count_as_they_were_accepted() {
    let world = World::new();
    let hook = |command: &str| json!({ "Stop": [], "PreToolUse": [{ "hooks": [{ "type": "command", "command": command }] }] });
    std::fs::write(
        world.home.settings_path(),
        json!({ "hooks": { "PreToolUse": hook("own")["PreToolUse"] } }).to_string(),
    )
    .unwrap();
    let project =
        json!({ "files": { "enabled": false }, "hooks": { "PreToolUse": hook("theirs")["PreToolUse"] } });
    world.project(&project);
    let read = || world.home.config_in(&world.cwd());
    assert!(read().files.enabled);
    let notices = std::mem::take(&mut *world.ears.0.lock().unwrap());
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].advice, Some(Advice::TrustProject));
    assert!(notices[0].text.contains("work/.quipu/settings.json"), "{}", notices[0].text);
    world.trust();
    let settings = read();
    assert!(!settings.files.enabled);
    let commands: Vec<&Value> =
        settings.hooks.iter().map(|hooks| &hooks["PreToolUse"][0]["hooks"][0]["command"]).collect();
    assert_eq!(commands, ["own", "theirs"]);
    // Another project does not count, nor does this one when it has changed.
    std::fs::create_dir_all(world.path("other/.git")).unwrap();
    assert!(world.home.config_in(&world.path("other")).files.enabled);
    world.project(&json!({ "files": { "enabled": false }, "theme": "x" }));
    assert!(read().files.enabled);
    assert_eq!(read().hooks.len(), 1);
    world.trust();
    assert!(!read().files.enabled);
    // What was accepted before is not accepted for ever.
    world.project(&project);
    assert!(read().files.enabled);
    // A revoked one counts no more.
    world.trust();
    let record = quipu_host::Record::of(&world.home, &world.path("work"));
    let id = record.project().unwrap().entries[0].id.clone();
    assert!(!read().files.enabled && record.revoke(&id).unwrap());
    assert!(read().files.enabled);
}

#[test]
fn projects_cannot_open_anything() {
    let world = World::new();
    let mut all = json!({});
    let example = |key: &Key| match key.name {
        "theme" => json!("light"),
        "defaultModel" => json!("sonnet"),
        "terminal.hyperlinks" => json!(false),
        "localServers" => json!(false),
        "identity.file" => json!("/etc/passwd"),
        "budget.daily" => json!(1000),
        "budget.waitMs" => json!(1),
        _ => key.default_value(),
    };
    for key in KEYS {
        let path = key.path();
        let at = path.iter().fold(&mut all, |at, member| &mut at[member]);
        *at = example(key);
    }
    world.project(&all);
    world.trust();
    let settings = world.home.config_in(&world.cwd());
    for row in settings.rows() {
        let expect = if row.key.project == ProjectUse::Allowed { "project" } else { "built-in" };
        assert_eq!(row.source.word(), expect, "{}", row.key.name);
    }
    let refused = |key: &Key| {
        settings
            .problems
            .iter()
            .any(|problem| matches!(&problem.kind, ProblemKind::Refused { key: of, .. } if *of == key.name))
    };
    for closed in
        ["sandbox.write", "travel.tobe", "budget.daily", "identity.file", "localServers", "search.semantic"]
    {
        let key = Key::named(closed).unwrap();
        assert!(refused(key), "{closed}");
        let project = SettingsFile::Project(world.cwd());
        let error = set_setting(&world.home, &project, closed, "x").unwrap_err();
        assert!(matches!(error, SettingError::Refused { .. }), "{error:?}");
    }
    // The user's own directory is no project.
    let own = Home::at(world.path("work/.quipu"), Arc::new(SilentObserver));
    assert_eq!(own.config_in(&world.cwd()).source_of("files.enabled").map(Source::word), Some("user"));
    assert!(project_to_trust(&own, &world.cwd()).is_err());
}

#[test]
fn former_name_of_a_setting_is_read_with_a_notice() {
    let path = |home: &Home| home.config().semantic.clone().map(|semantic| format!("{semantic:?}"));
    let world = World::with(r#"{"search":{"meaning":{"path":"old"}}}"#);
    assert!(path(&world.home).unwrap().contains("old"));
    let heard = world.ears.take();
    assert!(
        heard.len() == 1 && heard[0].contains("search.meaning is now called search.semantic"),
        "{heard:?}"
    );
    let world = World::with(r#"{"search":{"semantic":{"path":"new"},"meaning":{"path":"old"}}}"#);
    assert!(path(&world.home).unwrap().contains("new"));
    unset_setting(&world.home, &SettingsFile::User, "search.semantic").unwrap();
    assert_eq!((path(&world.home), world.home.config().problems.len()), (None, 0));
    let error = set_setting(&world.home, &SettingsFile::User, "search.meaning", "false").unwrap_err();
    assert!(
        matches!(&error, SettingError::Unknown { nearest: Some(near), .. } if near == "search.semantic"),
        "{error:?}"
    );
    let old = |asked: &str| (asked == "QUIPU_SEARCH_MEANING").then(|| r#"{"path":"old"}"#.to_owned());
    let home = World::new().home.clone().with_environment(&old);
    assert!(path(&home).unwrap().contains("old"));
    assert!(home.config().problems[0].to_string().contains("QUIPU_SEARCH_SEMANTIC"));
}

#[test]
fn environment_sets_every_setting_and_is_checked() {
    let world = World::new();
    let check = |name: &str, words: &str| {
        let home = world.home.clone().with_environment(&|asked| (asked == name).then(|| words.to_owned()));
        let settings = home.config();
        let set: Vec<Value> = settings
            .rows()
            .filter(|row| *row.source == Source::Environment(name.to_owned()))
            .map(|row| row.value)
            .collect();
        (set, world.ears.take())
    };
    assert_eq!(check("QUIPU_RETRY_ENABLED", "off"), (vec![json!(false)], vec![]));
    assert_eq!(check("QUIPU_THEME", "mine"), (vec![json!("mine")], vec![]));
    assert_eq!(check("QUIPU_ENABLED_MODELS", "a, b"), (vec![json!(["a", "b"])], vec![]));
    assert_eq!(
        check("QUIPU_SANDBOX_PORTS", "80,[81"),
        (
            vec![],
            vec![
                "QUIPU_SANDBOX_PORTS: sandbox.ports[1] must be a port (1 to 65535); it is ignored".to_owned()
            ]
        )
    );
    assert_eq!(check("QUIPU_LOCAL_SERVERS", "false"), (vec![json!(false)], vec![]));
    assert_eq!(check("QUIPU_SCREEN_READER", "please"), (vec![json!(true)], vec![]));
    assert_eq!(check("QUIPU_BUDGET_DAILY", "2.5"), (vec![json!(2.5)], vec![]));
    assert_eq!(check("QUIPU_THEME", ""), (vec![], vec![]));
    // What confines closes.
    for (name, words, value) in [
        ("QUIPU_SANDBOX_MODE", "al", json!("all")),
        ("QUIPU_SANDBOX_BACKEND", "podmann", json!("(unreadable)")),
        ("QUIPU_SANDBOX_SCOPE", "sesion", json!("session")),
        ("QUIPU_SANDBOX_NETWORK", "close", json!("closed")),
        ("QUIPU_TOOLS_DENY", "[7]", json!(["*"])),
    ] {
        let (set, told) = check(name, words);
        assert_eq!((set, told.len()), (vec![value], 2), "{told:?}");
        assert!(told[1].contains("until it is corrected"), "{told:?}");
    }
    let (set, told) = check("QUIPU_FILES_FILE_BYTES", "many");
    assert!(
        set.is_empty() && told[0].starts_with("QUIPU_FILES_FILE_BYTES: files.fileBytes must be"),
        "{told:?}"
    );
}

#[test]
fn set_and_unset_keep_all_other_text() {
    let text = "{\n    \"mine\" : [1,2],\n    \"theme\": \"dark\",\n    \"search\": {\"other\":  1}\n}\n";
    let world = World::with(text);
    assert_eq!(world.set("search.tool", "false").unwrap(), FileChange::Yes);
    let with = text.replace("{\"other\":  1}", "{\"other\":  1, \"tool\": false}");
    assert_eq!(world.text(), with);
    assert_eq!(world.set("search.tool", "false").unwrap(), FileChange::No);
    assert!(!world.home.config().history.enabled);
    unset_setting(&world.home, &SettingsFile::User, "search.tool").unwrap();
    assert_eq!(world.text(), text);
    // A name that means nothing can be removed; one that is not there is told of.
    unset_setting(&world.home, &SettingsFile::User, "mine").unwrap();
    assert!(!world.text().contains("mine"));
    let world = World::with(r#"{"tools":{"builtIn":["read"],"deny":["bash"]}}"#);
    unset_setting(&world.home, &SettingsFile::User, "tools.builtIn").unwrap();
    let left: Value = serde_json::from_str(&world.text()).unwrap();
    assert_eq!(left, json!({ "tools": { "deny": ["bash"] } }), "not what has its former name");
    let error = unset_setting(&world.home, &SettingsFile::User, "thene").unwrap_err();
    assert!(matches!(error, SettingError::Unknown { nearest: Some(near), .. } if near == "theme"));
}

#[test]
fn setting_that_cannot_be_set_says_why_and_writes_nothing() {
    let world = World::new();
    let refused = |name: &str, words: &str| world.set(name, words).unwrap_err();
    assert!(matches!(refused("no.such", "1"), SettingError::Unknown { name, .. } if name == "no.such"));
    assert!(
        matches!(refused("budget.daily", "much"), SettingError::Invalid(what) if what.contains("US dollars"))
    );
    assert!(
        matches!(refused("cacheRetention", "ever"), SettingError::Invalid(what) if what.contains("none, short or long"))
    );
    assert!(!world.home.settings_path().exists());
    for (broken, is_syntax) in [("{", true), ("[]", false), (r#"{"theme":1,"search":7}"#, false)] {
        std::fs::write(world.home.settings_path(), broken).unwrap();
        let error = refused("search.tool", "false");
        assert_eq!(matches!(error, SettingError::Syntax { line: 1, .. }), is_syntax, "{error:?}");
        assert_eq!(world.text(), broken);
    }
}

#[test]
fn set_through_a_link_keeps_the_link_and_the_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let real = world.path("dotfiles.json");
    std::fs::write(&real, "{}").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, world.home.settings_path()).unwrap();
    world.set("theme", "dark").unwrap();
    assert!(world.home.settings_path().is_symlink());
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(std::fs::read_to_string(real).unwrap().contains("dark"));
}

#[test]
fn changes_of_many_at_once_are_all_kept() {
    let world = World::new();
    let names: Vec<&Key> = KEYS.iter().filter(|key| key.values() == ["true", "false"]).collect();
    assert!(names.len() > 8);
    std::thread::scope(|scope| {
        for key in &names {
            // A place of its own each, as in another process.
            let home = Home::at(world.home.dir.clone(), Arc::new(SilentObserver));
            scope.spawn(move || set_setting(&home, &SettingsFile::User, key.name, "false").unwrap());
        }
    });
    let settings = world.home.config();
    for key in names {
        assert_eq!(value_of(&settings, key.name), (json!(false), "user"), "{}", key.name);
    }
}

#[test]
fn set_in_a_project_keeps_its_trust() {
    let world = World::new();
    let project = SettingsFile::Project(world.cwd());
    let set = |name: &str, words: &str| set_setting(&world.home, &project, name, words).unwrap().changed;
    // A new file is the user's word.
    assert_eq!(set("retry.maxRetries", "9"), FileChange::Yes);
    let now = || world.home.config_in(&world.cwd());
    assert_eq!(now().calls.options.max_retries, 9);
    assert_eq!(set("retry.maxRetries", "8"), FileChange::Yes);
    assert_eq!(now().calls.options.max_retries, 8);
    // What somebody else wrote is not accepted along with it.
    world.project(&json!({ "compaction": { "enabled": false } }));
    assert_eq!(set("retry.maxRetries", "7"), FileChange::Untrusted);
    assert!(now().compaction.enabled && now().calls.options.max_retries == 3);
}

fn published(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "docs/{name} is not that of the table: run `UPDATE_SCHEMA=1 cargo test -p quipu-host --test it settings`"
    );
}

#[test]
fn published_schema_is_that_of_the_table() {
    published("settings.schema.json", &format!("{:#}\n", settings_schema()));
}

#[test]
fn published_page_has_the_table() {
    const BEGIN: &str = "<!-- the table of the settings: made by a test -->\n";
    const END: &str = "<!-- end of the table -->\n";
    let page = include_str!("../../../../docs/settings.md");
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    published("settings.md", &format!("{before}{BEGIN}\n{}\n{END}{after}", settings_table()));
}

#[test]
fn effects_of_settings_have_words() {
    assert_eq!(
        [Effect::Now, Effect::NextSession, Effect::NewSession, Effect::NextStart].map(Effect::word),
        ["now", "next session", "new session", "next start"]
    );
}

/// JSON of any shape, with names of settings among its names.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        proptest::sample::select(vec!["dark", "short", "closed", "default", "/x", "~/x", "a:1"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let names: Vec<String> = KEYS.iter().flat_map(Key::path).map(str::to_owned).collect();
        let name = prop_oneof![3 => proptest::sample::select(names), 1 => ".{0,6}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..6)
                .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn good_values_hold_beside_any_others(json in any_json(), at in 0..KEYS.len()) {
        let key = &KEYS[at];
        let good = if key.default.is_empty() { return Ok(()) } else { key.default_value() };
        let mut json = json;
        let mut here = &mut json;
        for member in key.path() {
            if !here.is_object() {
                *here = json!({});
            }
            here = &mut here[member];
        }
        *here = good.clone();
        let world = World::with(json.to_string());
        let settings = world.home.config();
        prop_assert_eq!(value_of(&settings, key.name), (good, "user"));
    }

    #[test]
    fn any_text_is_read_and_changed_without_panic(text in prop_oneof![".{0,60}", "[{}\\[\\]\",:0-9a-e\\\\ \n]{0,60}"]) {
        let world = World::with(&text);
        let settings = world.home.config();
        let is_json = serde_json::from_str::<Value>(&text);
        let is_blank = text.trim().is_empty();
        let is_syntax = settings.problems.iter().any(|problem| matches!(problem.kind, ProblemKind::Syntax { .. }));
        // Numbers that are too large are JSON all the same.
        prop_assert!(is_syntax != (is_json.is_ok() || is_blank) || text.contains(['e', 'E']));
        let before = is_json.ok().filter(Value::is_object);
        if let (Some(mut before), Ok(_)) = (before, world.set("screenReader", "true")) {
            before["screenReader"] = json!(true);
            prop_assert_eq!(serde_json::from_str::<Value>(&world.text()).unwrap(), before);
        }
    }

    #[test]
    fn set_changes_what_is_meant_and_nothing_else(json in any_json(), at in 0..KEYS.len()) {
        let key = &KEYS[at];
        let values = key.values();
        let words = values.first().copied().unwrap_or("1");
        let world = World::with(format!("{json:#}"));
        let Ok(kept) = set_setting(&world.home, &SettingsFile::User, key.name, words) else { return Ok(()) };
        let mut expect = json;
        let path = key.path();
        let mut here = &mut expect;
        for member in &path {
            here = &mut here[member];
        }
        *here = kept.value.unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&world.text()).unwrap(), expect);
        let removed = unset_setting(&world.home, &SettingsFile::User, key.name).unwrap();
        prop_assert_eq!(removed.changed, FileChange::Yes);
        prop_assert_eq!(value_of(&world.home.config(), key.name).1, "built-in");
    }
}
