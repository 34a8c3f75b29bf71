//! Models, credentials and the choice between them.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_protocol::{Model, ModelErrorKind, Thinking};
use quipu_providers::{AuthFile, FindError, Scheme, Settings};

struct Home(tempfile::TempDir);

impl Home {
    fn new(files: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = home.path().join(name);
            std::fs::write(&path, text).unwrap();
            private(&path);
        }
        Self(home)
    }

    fn load(&self, env: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let env: BTreeMap<_, _> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (settings, warnings) = Settings::load(self.0.path(), &|name| env.get(name).cloned());
        (settings, warnings.into_iter().map(|warning| warning.to_string()).collect())
    }

    fn settings(&self, env: &[(&str, &str)]) -> Settings {
        let (settings, warnings) = self.load(env);
        assert_eq!(warnings, [""; 0]);
        settings
    }
}

#[cfg(unix)]
fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[cfg(not(unix))]
fn private(_: &Path) {}

const FAKE: &str = r#"{ // my own
  "providers": { "fake": { "baseUrl": "http://127.0.0.1:9/", "api": "anthropic-messages", "apiKey": "$FAKE_KEY",
    "headers": {"X-Team": "t-${TEAM}"}, "compat": {"a": 1},
    "models": [ {"id": "m1", "contextWindow": 32000, "maxTokens": 4000, "cost": {"input": 2}, "compat": {"b": 2}}, {"id": "m2", "name": "Two"} ] } } }"#;

#[test]
fn own_models_have_defaults() {
    let home = Home::new(&[("models.json", FAKE)]);
    let settings = home.settings(&[]);
    let [m1, m2] = settings.models_of("fake") else { panic!("two models") };
    assert_eq!(
        (m1.name.as_str(), m1.context_window, m1.max_tokens, m1.cost.input),
        ("m1", 32_000, 4_000, 2.0)
    );
    assert_eq!(
        (m2.name.as_str(), m2.context_window, m2.max_tokens, m2.reasoning),
        ("Two", 128_000, 16_384, false)
    );
    assert_eq!((m2.provider.as_str(), m2.input.as_slice()), ("fake", ["text".to_owned()].as_slice()));
    assert_eq!(m1.compat.as_ref().map(ToString::to_string).as_deref(), Some(r#"{"a":1,"b":2}"#));
    assert_eq!(m1.headers.as_ref().map(ToString::to_string).as_deref(), Some(r#"{"X-Team":"t-${TEAM}"}"#));
    assert!(settings.providers().contains(&"fake"));
}

#[test]
fn sampling_is_changed_member_by_member() {
    let home = Home::new(&[(
        "models.json",
        r#"{"providers":{"fake":{"baseUrl":"http://127.0.0.1:9/","api":"openai-completions",
            "models":[{"id":"m1","samplingParams":{"temperature":0.5,"top_k":3}}],
            "modelOverrides":{"m1":{"samplingParams":{"top_k":4,"min_p":0.1}}}}}}"#,
    )]);
    let settings = home.settings(&[]);
    let [model] = settings.models_of("fake") else { panic!("one model") };
    let params = model.sampling_params.as_ref().map(ToString::to_string);
    assert_eq!(params.as_deref(), Some(r#"{"temperature":0.5,"top_k":4,"min_p":0.1}"#));
}

#[test]
fn the_catalogue_can_be_changed() {
    let home = Home::new(&[(
        "models.json",
        "\u{feff}{\"providers\":{\"anthropic\":{\"baseUrl\":\"http://proxy.example\",\"models\":[{\"id\":\"claude-next\",\"reasoning\":true}],\
         \"modelOverrides\":{\"claude-opus-4-5\":{\"name\":\"Mine\",\"cost\":{\"output\":1},\"contextWindow\":5}}}}}",
    )]);
    let settings = home.settings(&[]);
    let plain = Home::new(&[]).settings(&[]);
    let of = |settings: &Settings, id: &str| -> Model {
        let models = settings.models_of("anthropic");
        Model::clone(models.iter().find(|model| model.id == id).unwrap())
    };
    let before = of(&plain, "claude-opus-4-5");
    let mut expect =
        Model { name: "Mine".into(), context_window: 5, base_url: "http://proxy.example".into(), ..before };
    expect.cost.output = 1.0;
    assert!(!expect.cost.stated, "one rate of two was given");
    assert_eq!(of(&settings, "claude-opus-4-5"), expect);
    let next = of(&settings, "claude-next");
    assert_eq!((next.api.as_str(), next.base_url.as_str()), ("anthropic-messages", "http://proxy.example"));
    assert_eq!(settings.models_of("anthropic").len(), plain.models_of("anthropic").len() + 1);
    assert!(plain.models().len() > 1_000);
}

#[test]
fn broken_files_are_told_of_and_passed_over() {
    let check = |name: &str, text: &str, words: &[&str]| {
        let (settings, warnings) = Home::new(&[(name, text)]).load(&[]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for word in words.iter().chain(&[name]) {
            assert!(warnings[0].contains(word), "{} says {word}", warnings[0]);
        }
        assert!(!settings.models_of("anthropic").is_empty());
    };
    check("models.json", "{\n\"providers\": {,}}", &["line 2, column 15", "built-in"]);
    check("models.json", "[]", &["providers"]);
    check("models.json", r#"{"providers":{"p":1}}"#, &["\"p\"", "object"]);
    check("models.json", r#"{"providers":{"p":{"apiKey":1}}}"#, &["apiKey must be a string"]);
    check(
        "models.json",
        r#"{"providers":{"p":{"models":[{"id":"m"}]}}}"#,
        &["providers.p.models[0]", "baseUrl"],
    );
    check(
        "models.json",
        r#"{"providers":{"p":{"baseUrl":"u","api":"openai-completions","models":[{}]}}}"#,
        &["models[0] has no id"],
    );
    check(
        "models.json",
        r#"{"providers":{"p":{"baseUrl":"u","api":"openai-completions","models":[7]}}}"#,
        &["models[0]"],
    );
    check(
        "models.json",
        r#"{"providers":{"p":{"baseUrl":"u","api":"openai-completions","models":[{"id":"m","contextWindow":"big"}]}}}"#,
        &["models[0]", "big"],
    );
    check("auth.json", r#"{"p": {"type": "api_key", "key": sk-secret}}"#, &["line 1"]);
    check("auth.json", r#"{"p": {"type": "new"}}"#, &["\"p\"", "\"new\" is unknown"]);
    check("auth.json", "{} // strict", &["line 1"]);

    let home = Home::new(&[]);
    std::fs::create_dir(home.0.path().join("models.json")).unwrap();
    assert!(home.load(&[]).1[0].contains("not a regular file"));
}

#[test]
fn unknown_api_is_reported_with_the_nearest_one() {
    let told = |api: &str| {
        let provider = serde_json::json!({ "baseUrl": "http://u", "api": api, "models": [{ "id": "m" }] });
        let file = serde_json::json!({ "providers": { "p": provider } }).to_string();
        Home::new(&[("models.json", &file)]).load(&[]).1.join("\n")
    };
    let said = told("openai-completion");
    assert!(said.contains("models.json: providers.p.api: there is no api"), "{said}");
    assert!(said.ends_with("Did you mean \"openai-completions\"?"), "{said}");
    assert!(told("none at all").ends_with("there is no api \"none at all\"."));
    // One of the catalogue is known, though it cannot be called yet.
    for known in catalogue_apis() {
        assert_eq!(told(&known), "");
    }
    let of_a_model = r#"{"providers":{"p":{"baseUrl":"u","models":[{"id":"m","api":"openai"}],
        "modelOverrides":{"m":{"api":"antropic-messages"}}}}}"#;
    let said = Home::new(&[("models.json", of_a_model)]).load(&[]).1.join("\n");
    assert!(said.contains("providers.p.models[0].api") && said.contains("modelOverrides.m.api"), "{said}");
    assert!(said.contains("Did you mean \"anthropic-messages\"?"), "{said}");
}

fn catalogue_apis() -> std::collections::BTreeSet<String> {
    Home::new(&[]).settings(&[]).models().iter().map(|model| model.api.clone()).collect()
}

#[cfg(unix)]
#[test]
fn an_open_auth_file_is_told_of() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new(&[("auth.json", "{}")]);
    let path = home.0.path().join("auth.json");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(home.load(&[]).1[0].contains("chmod 600"));
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    ApiKey,
    Bearer,
}

#[track_caller]
fn check_credential(home: &Home, env: &[(&str, &str)], provider: &str, expect: Option<(&str, Kind, &str)>) {
    let settings = home.settings(env);
    let got = settings.credential(provider);
    let got = got.as_ref().map(|found| match &found.scheme {
        Scheme::Key(secret) => (secret.expose(), Kind::ApiKey, found.identity.as_str()),
        Scheme::Bearer(secret) => (secret.expose(), Kind::Bearer, found.identity.as_str()),
        other => panic!("{other:?}"),
    });
    assert_eq!(got, expect);
    assert_eq!(settings.credential_source(provider).as_deref(), expect.map(|(_, _, source)| source));
}

#[test]
fn credentials_have_an_order() {
    use Kind::{ApiKey, Bearer};
    let none = Home::new(&[]);
    let env = |names: &[&'static str]| -> Vec<(&'static str, &'static str)> {
        names.iter().map(|name| (*name, "value-of-it")).collect()
    };
    let all = env(&["ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"]);
    check_credential(&none, &[], "anthropic", None);
    check_credential(&none, &all, "nobody", None);
    check_credential(&none, &all[..1], "anthropic", Some(("value-of-it", ApiKey, "ANTHROPIC_API_KEY")));
    check_credential(&none, &all[..2], "anthropic", Some(("value-of-it", Bearer, "ANTHROPIC_OAUTH_TOKEN")));
    check_credential(&none, &all, "anthropic", Some(("value-of-it", Bearer, "ANTHROPIC_AUTH_TOKEN")));
    check_credential(&none, &[("ANTHROPIC_API_KEY", "")], "anthropic", None);

    let file = Home::new(&[(
        "auth.json",
        r#"{"anthropic": {"type": "api_key", "key": "$MINE$$", "env": {"MINE": "m"}},
            "openai": {"type": "oauth", "access": "tok-access", "refresh": "tok-refresh", "expires": 99999999999999},
            "groq": {"type": "oauth", "access": "tok-old", "expires": 1},
            "xai": {"type": "api_key", "key": "!echo from-command"},
            "zai": {"type": "api_key", "env": {"A": "b"}}}"#,
    )]);
    check_credential(&file, &all, "anthropic", Some(("m$", ApiKey, "auth.json")));
    check_credential(&file, &[], "openai", Some(("tok-access", Bearer, "auth.json")));
    check_credential(&file, &[], "xai", Some(("from-command", ApiKey, "auth.json")));
    check_credential(&file, &[("ZAI_API_KEY", "zzz")], "zai", Some(("zzz", ApiKey, "ZAI_API_KEY")));
    let settings = file.settings(&[("GROQ_API_KEY", "from-env")]);
    // The key of the environment follows a login that has expired.
    let scheme = settings.credential("groq").map(|found| found.scheme);
    assert!(matches!(scheme, Some(Scheme::Key(key)) if key.expose() == "from-env"));
    assert_eq!(file.settings(&[]).credential("groq"), None);

    let own = Home::new(&[("models.json", FAKE)]);
    check_credential(&own, &[], "fake", None);
    check_credential(&own, &[("FAKE_KEY", "k-fake")], "fake", Some(("k-fake", ApiKey, "models.json")));
    let bearer = FAKE.replace("\"apiKey\"", "\"authHeader\": true, \"apiKey\"");
    let bearer = Home::new(&[("models.json", &bearer)]);
    check_credential(&bearer, &[("FAKE_KEY", "k-fake")], "fake", Some(("k-fake", Bearer, "models.json")));
    let shown = format!("{:?} {:?}", bearer.settings(&[("FAKE_KEY", "k-fake")]).credential("fake"), settings);
    assert!(!shown.contains("k-fake") && !shown.contains("tok-"));
}

#[test]
fn secrets_and_their_variables_are_known() {
    let auth = r#"{"openai": {"type": "oauth", "access": "tok-access", "refresh": "tok-refresh", "expires": 1},
                   "xai": {"type": "api_key", "key": "!echo from-command"}, "zai": {"type": "api_key", "key": "short"}}"#;
    let home = Home::new(&[("models.json", FAKE), ("auth.json", auth)]);
    let settings = home.settings(&[
        ("FAKE_KEY", "fake-secret"),
        ("TEAM", "blue-42"),
        ("GEMINI_API_KEY", "gem-secret"),
        ("HOME", "/home/someone"),
    ]);
    let owned = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(provider, secret)| ((*provider).to_owned(), (*secret).to_owned())).collect()
    };
    let mut expect = owned(&[
        ("fake", "fake-secret"),
        ("fake", "t-blue-42"),
        ("google", "gem-secret"),
        ("openai", "tok-access"),
        ("openai", "tok-refresh"),
    ]);
    assert_eq!(settings.secrets(), expect);
    settings.credential("xai").unwrap();
    let mut model = Model::clone(&settings.models_of("fake")[0]);
    settings.provider_for(&model, Some(" given-by-hand ")).unwrap();
    expect.extend(owned(&[("xai", "from-command"), ("fake", "given-by-hand")]));
    expect.sort();
    assert_eq!(settings.secrets(), expect);

    let names = settings.env_keys();
    for name in
        ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "HF_TOKEN", "FAKE_KEY", "TEAM"]
    {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert!(!names.iter().any(|name| name == "HOME" || name == "PATH"));

    // A missing variable is named.
    let poor = home.settings(&[]);
    let error =
        |settings: &Settings, model: &Model, key| settings.provider_for(model, key).map(drop).unwrap_err();
    let missing = error(&poor, &model, Some("k"));
    assert_eq!(missing.kind, ModelErrorKind::NoCredential);
    assert!(missing.message.contains("TEAM"), "{missing}");
    let missing = error(&poor, &model, None);
    assert!(missing.message.contains("FAKE_KEY"), "{missing}");

    model.api = "no-such-api".into();
    let unsupported = error(&settings, &model, None);
    assert_eq!(unsupported.kind, ModelErrorKind::InvalidRequest);
    assert!(unsupported.message.contains("no-such-api"));
}

#[test]
fn credentials_in_headers_and_entries_are_known() {
    let models = r#"{"providers": {"fake": {"baseUrl": "http://127.0.0.1:9/", "api": "anthropic-messages",
      "headers": {"Authorization": "Bearer tok-written-out", "X-Team": "blue-and-green", "x-api-key": "$$literal-key"},
      "models": [{"id": "m", "headers": {"X-Other": "Token ${OTHER}", "Proxy-Auth": "!echo Basic from-command"}}]}}}"#;
    let auth = r#"{"fake": {"type": "api_key", "key": "${OWN}", "env": {"OWN": "own-variable"}}}"#;
    let home = Home::new(&[("models.json", models), ("auth.json", auth)]);
    let settings = home.settings(&[("OTHER", "tok-variable")]);
    let check = |expect: &[&str]| {
        let known: Vec<_> = settings.secrets().into_iter().map(|(_, secret)| secret).collect();
        assert_eq!(known, expect);
    };
    let written = ["$literal-key", "Bearer tok-written-out", "Token tok-variable", "own-variable"];
    check(&[&written[..], &["tok-variable", "tok-written-out"]].concat());
    settings.provider_for(&settings.models_of("fake")[0], None).unwrap();
    let mut expect =
        [&written[..], &["tok-variable", "tok-written-out", "Basic from-command", "from-command"]].concat();
    expect.sort_unstable();
    check(&expect);
}

#[test]
fn a_missing_credential_says_what_to_do() {
    let settings = Home::new(&[]).settings(&[]);
    let model = settings.find(None, "anthropic/claude-sonnet-5-5").unwrap().model;
    let error = settings.provider_for(&model, None).map(drop).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::NoCredential);
    assert!(error.message.contains("ANTHROPIC_API_KEY") && error.message.contains("auth.json"), "{error}");
    let provider = settings.provider_for(&model, Some("k")).unwrap();
    assert!(!provider.is_local());

    // A server on this machine needs none.
    let local = r#"{"providers":{"here":{"baseUrl":"http://localhost:1","api":"anthropic-messages","models":[{"id":"m"}]}}}"#;
    let settings = Home::new(&[("models.json", local)]).settings(&[]);
    let model = settings.default_model().unwrap();
    assert!(model.provider == "here" && settings.is_available(&model));
    assert!(settings.provider_for(&model, None).unwrap().is_local());
}

#[test]
fn addresses_are_completed_from_variables() {
    let settings =
        Home::new(&[]).settings(&[("CLOUDFLARE_API_KEY", "cf-secret"), ("CLOUDFLARE_ACCOUNT_ID", "acc")]);
    let models = settings.models_of("cloudflare-ai-gateway");
    let model = models.iter().find(|model| model.api == "anthropic-messages").unwrap();
    let error = settings.provider_for(model, None).map(drop).unwrap_err();
    assert!(error.message.contains("CLOUDFLARE_GATEWAY_ID"), "{error}");
    let both =
        [("CLOUDFLARE_API_KEY", "x"), ("CLOUDFLARE_ACCOUNT_ID", "acc"), ("CLOUDFLARE_GATEWAY_ID", "gate")];
    let provider = Home::new(&[]).settings(&both).provider_for(model, None);
    assert!(provider.is_ok());
}

#[test]
fn models_are_found_by_what_people_write() {
    let settings = Home::new(&[("models.json", FAKE)]).settings(&[("ANTHROPIC_API_KEY", "k")]);
    let check = |provider: Option<&str>, pattern: &str, expect: &str, thinking: Option<Thinking>| {
        let found = settings.find(provider, pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        assert_eq!(format!("{}/{}", found.model.provider, found.model.id), expect, "{pattern}");
        assert_eq!((found.thinking, found.note), (thinking, None), "{pattern}");
    };
    check(None, "anthropic/claude-opus-4-5", "anthropic/claude-opus-4-5", None);
    check(None, " Anthropic/Claude-Opus-4-5 ", "anthropic/claude-opus-4-5", None);
    check(Some("ANTHROPIC"), "claude-opus-4-5", "anthropic/claude-opus-4-5", None);
    check(Some("anthropic"), "anthropic/claude-opus-4-5", "anthropic/claude-opus-4-5", None);
    // Exact in several providers: the one that can be called.
    check(None, "claude-opus-4-5", "anthropic/claude-opus-4-5", None);
    // A part: undated before dated, then the highest.
    check(None, "opus-4", "anthropic/claude-opus-4-8", None);
    check(None, "haiku-4", "anthropic/claude-haiku-4-5", None);
    check(None, "sonnet", "anthropic/claude-sonnet-5-5", None);
    check(None, "Claude Opus 4.5 (latest)", "anthropic/claude-opus-4-5", None);
    check(None, "sonnet:high", "anthropic/claude-sonnet-5-5", Some(Thinking::High));
    check(None, "fake/m1:off", "fake/m1", Some(Thinking::Off));
    check(None, "m1", "fake/m1", None);
    // A colon within an id is no level, and a known provider before the slash wins.
    check(None, "amazon.nova-lite-v1:0", "amazon-bedrock/amazon.nova-lite-v1:0", None);
    check(None, "openrouter/anthropic/claude-opus-4.5", "openrouter/anthropic/claude-opus-4.5", None);

    let made_up = settings.find(Some("anthropic"), "claude-zeta-9:low").unwrap();
    assert_eq!((made_up.model.id.as_str(), made_up.thinking), ("claude-zeta-9", Some(Thinking::Low)));
    assert_eq!(made_up.model.api, "anthropic-messages");
    assert!(made_up.note.unwrap().contains("claude-zeta-9"));
    // One that a session was begun with is that one, or none.
    let again = settings.find_again("anthropic", "claude").unwrap();
    assert_eq!(again.model.id, "claude");
    assert!(again.note.unwrap().contains("anthropic/claude, is not a known model"));
    assert!(
        settings.find_again("nobody", "claude").is_err() && settings.find_again("anthropic", " ").is_err()
    );
    assert!(settings.find(None, "anthropic/claude-zeta-9").unwrap().note.is_some());

    assert_eq!(settings.default_model().unwrap().id, "claude-sonnet-5-5");
}

#[test]
fn names_that_are_no_model_are_not_sent_to_a_server() {
    let settings = Home::new(&[]).settings(&[("ANTHROPIC_API_KEY", "sk-ant-0123456789")]);
    for (provider, pattern, words) in [
        (
            None,
            "anthropic/claude-opus-5*",
            "is a pattern, and one model is wanted. It matches anthropic/claude-opus-5, ",
        ),
        (None, "anthropic/zzz-[ab]", "is a pattern, and one model is wanted. No model matches it."),
        (None, "*", "is a pattern"),
        (Some("anthropic"), "claude-opus-?:high", "It matches anthropic/claude-opus-5."),
        (Some("openai"), "claude*", "No model matches it."),
        (None, "claude-opus-4-6:ultra", "no level of thinking \"ultra\". The levels are off, minimal, low, "),
        (None, "anthropic/claude-opus-4-6:", "no level of thinking \"\""),
    ] {
        let error = settings.find(provider, pattern).unwrap_err().to_string();
        assert!(error.contains(words), "{pattern}: {error}");
    }
    // A part of an id that nobody knows, behind its provider.
    let found = settings.find(None, "openrouter/openai/gpt-6-sol:nitro").unwrap();
    assert!(found.model.id.ends_with(":nitro") && found.note.is_some());
}

#[test]
fn unknown_model_error_suggests_near_names() {
    let settings = Home::new(&[]).settings(&[]);
    let check = |provider: Option<&str>, pattern: &str, words: &[&str]| {
        let error = settings.find(provider, pattern).unwrap_err();
        for word in words {
            assert!(error.to_string().contains(word), "{error} says {word}");
        }
        error
    };
    let unknown =
        check(None, "claude-opsu-4-5", &["no model \"claude-opsu-4-5\"", "anthropic/claude-opus-4-5"]);
    assert!(matches!(unknown, FindError::UnknownModel { .. }));
    check(None, "zzzzzzzzzzzzzzzzzzz", &["There is no model"]);
    check(None, "", &["There is no model"]);
    // A part of ids of other providers that have no key either.
    let provider = check(None, "Mistral", &["mistral is a provider", "such as mistral/"]);
    assert!(matches!(provider, FindError::Provider { .. }));
    let provider = check(Some("antropic"), "x", &["Did you mean anthropic?"]);
    assert!(matches!(provider, FindError::UnknownProvider { .. }));
    let ambiguous = check(None, "claude-opus-4-5", &["anthropic/claude-opus-4-5", " or "]);
    assert!(matches!(ambiguous, FindError::Ambiguous { .. }));
    assert_eq!(settings.default_model(), None);
}

#[test]
fn a_key_that_was_set_is_found() {
    let home = Home::new(&[]);
    for key in ["sk-plain-key", "!not a command", "pa$$word$HOME"] {
        AuthFile::new(home.0.path()).set_key("anthropic", key).unwrap();
        check_credential(&home, &[], "anthropic", Some((key, Kind::ApiKey, "auth.json")));
    }
}

/// A server on this machine that lists these models for every question.
fn lists(ids: &[&str]) -> quipu_testkit::FakeServer {
    let data: Vec<_> = ids.iter().map(|id| serde_json::json!({ "id": id, "object": "model" })).collect();
    let list = serde_json::json!({ "object": "list", "data": data }).to_string();
    quipu_testkit::FakeServer::start(
        (0..4).map(|_| quipu_testkit::Reply::new(200, "application/json", list.clone())),
    )
}

#[test]
fn local_server_is_offered_when_no_model_is_usable() {
    let server = lists(&["qwen3:8b", "other"]);
    let url = format!("{}/v1", server.url());
    let file = serde_json::json!({ "localServers": { "ollama": url, "llama.cpp": null, "lmstudio": null,
        "vllm": null, "sglang": null, "jan": null, "koboldcpp": null, "docker": null } });
    let home = Home::new(&[("settings.json", &file.to_string())]);
    let settings = home.settings(&[]);
    let [found] = settings.local_servers() else { panic!("{:?}", settings.local_servers()) };
    assert_eq!((found.name.as_str(), format!("http://{}/v1", found.address)), ("Ollama", url.clone()));
    assert!(settings.models().iter().any(|model| model.id == "other" && settings.is_available(model)));
    // It is named, and used when it is asked for.
    let model = settings.find(None, "anthropic/claude-sonnet-5-5").unwrap().model;
    let error = settings.provider_for(&model, None).map(drop).unwrap_err().to_string();
    assert!(error.contains(&found.address) && error.contains("the model ollama/qwen3:8b"), "{error}");
    assert_eq!(settings.default_model(), None);
    for (provider, pattern) in [(None, "ollama/qwen3:8b"), (Some("Ollama"), "qwen3"), (None, "qwen3:8b")] {
        let found = settings.find(provider, pattern).unwrap().model;
        assert_eq!((found.provider.as_str(), found.id.as_str()), ("ollama", "qwen3:8b"), "{pattern}");
        assert!(settings.provider_for(&found, None).unwrap().is_local());
    }
    assert_eq!(server.requests().len(), 1);

    // With a key nobody is asked, unless by name.
    let settings = home.settings(&[("ANTHROPIC_API_KEY", "k")]);
    assert_eq!(settings.local_servers(), []);
    assert!(!settings.models().iter().any(|model| model.provider == "ollama"));
    assert_eq!(server.requests().len(), 1);
    assert_eq!(settings.find(None, "ollama/other").unwrap().note, None);
    assert_eq!(server.requests().len(), 2);
    // One that has gone is called all the same, and the call says so.
    drop(server);
    let gone = home.settings(&[]).find(Some("ollama"), "qwen3:8b").unwrap();
    assert_eq!((gone.model.base_url.as_str(), gone.note.is_some()), (url.as_str(), true));
    assert!(home.settings(&[]).find(Some("lmstudio"), "x").is_err());
}

#[test]
fn the_word_that_a_local_server_takes_for_a_key_is_no_secret() {
    let models = |url: &str, key: &str| {
        serde_json::json!({ "providers": { "here": {
            "baseUrl": url, "api": "openai-completions", "apiKey": key, "models": [{ "id": "m" }],
        } } })
        .to_string()
    };
    let check = |url: &str, key: &str, secret: bool| {
        let home = Home::new(&[("models.json", &models(url, key))]);
        let settings = home.settings(&[("LOCAL", "from-a-variable")]);
        assert!(settings.credential("here").is_some());
        assert_eq!(settings.secrets().is_empty(), !secret, "{url} {key}");
    };
    let local = "http://127.0.0.1:1234/v1";
    check(local, "lm-studio", false);
    check(local, "sk-no-key-required", false);
    check(local, "sk-0a1b2c3d4e5f", true);
    check(local, "$LOCAL", true);
    check(local, "!echo some-long-word", true);
    check("https://example.com/v1", "not-needed", true);
}

#[test]
fn a_model_without_an_address_is_not_chosen() {
    let settings = Home::new(&[]).settings(&[("AZURE_OPENAI_API_KEY", "some-key-1")]);
    assert_eq!(settings.default_model(), None);
    let of = |settings: &Settings| {
        let models = settings.models_of("azure");
        Model::clone(models.iter().find(|model| model.api == "openai-completions").unwrap())
    };
    let error = settings.provider_for(&of(&settings), None).map(drop).unwrap_err();
    assert!(error.message.contains("baseUrl") && error.message.contains("azure"), "{error}");
    let file = r#"{"providers":{"azure":{"baseUrl":"https://mine.example/v1"}}}"#;
    let settings = Home::new(&[("models.json", file)]).settings(&[("AZURE_OPENAI_API_KEY", "some-key-1")]);
    let model = settings.default_model().unwrap();
    assert_eq!((model.provider.as_str(), model.api.as_str()), ("azure", "azure-openai-responses"));
    assert!(settings.provider_for(&model, None).is_ok());
    assert!(settings.provider_for(&of(&settings), None).is_ok());
    // Variables say where the deployments of a customer are.
    let key = ("AZURE_OPENAI_API_KEY", "some-key-1");
    let error = settings_error(&Home::new(&[]).settings(&[key]), &model);
    assert!(error.contains("Set AZURE_OPENAI_BASE_URL or AZURE_OPENAI_RESOURCE_NAME"), "{error}");
    let settings = Home::new(&[]).settings(&[key, ("AZURE_OPENAI_RESOURCE_NAME", "mine")]);
    let model = settings.default_model().unwrap();
    assert_eq!((model.api.as_str(), model.id.as_str()), ("azure-openai-responses", "gpt-5.4"));
    assert!(settings.provider_for(&model, None).is_ok());
}

/// Why the catalogue's model of this id cannot be called.
fn settings_error(settings: &Settings, model: &Model) -> String {
    let models = settings.models_of(&model.provider);
    let model = models.iter().find(|known| known.id == model.id).unwrap();
    settings.provider_for(model, None).map(drop).unwrap_err().message
}

#[test]
fn models_of_the_responses_api_can_be_called() {
    let settings = Home::new(&[]).settings(&[("OPENAI_API_KEY", "sk-some-key-1")]);
    let model = settings.default_model().unwrap();
    assert_eq!((model.provider.as_str(), model.api.as_str()), ("openai", "openai-responses"));
    let found = settings.find(None, "openai/gpt-5").unwrap().model;
    assert_eq!((found.id.as_str(), settings.is_available(&found)), ("gpt-5", true));
    assert!(settings.provider_for(&found, None).is_ok());
    let auth = r#"{"openai":{"type":"api_key","key":"sk-stored-key-1"}}"#;
    let settings = Home::new(&[("auth.json", auth)]).settings(&[]);
    assert!(settings.provider_for(&found, None).is_ok());
    let settings = Home::new(&[]).settings(&[]);
    assert!(settings.provider_for(&found, None).is_err() && !settings.is_available(&found));
}

#[test]
fn models_behind_a_google_key_are_callable() {
    let stored = r#"{"google":{"type":"api_key","key":"stored-key-0"}}"#;
    let homes = [
        Home::new(&[]).settings(&[("GEMINI_API_KEY", "gem-secret")]),
        Home::new(&[("auth.json", stored)]).settings(&[]),
    ];
    for settings in homes {
        let models = settings.models_of("google");
        assert!(models.len() > 10);
        for model in models {
            assert!(settings.is_available(model), "{}", model.id);
            assert!(!settings.provider_for(model, None).unwrap().is_local());
        }
        let default = settings.default_model().unwrap();
        assert_eq!((default.provider.as_str(), default.api.as_str()), ("google", "google-generative-ai"));
        assert_eq!(default.id, "gemini-3.1-pro-preview");
    }
    let none = Home::new(&[]).settings(&[]);
    let error = none.provider_for(&none.models_of("google")[0], None).map(drop).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::NoCredential);
    assert!(error.message.contains("GEMINI_API_KEY"), "{error}");
}

#[test]
fn vertex_needs_a_key_or_a_token_with_its_place() {
    let check = |files: &[(&str, &str)], env: &[(&str, &str)], problem: &str| {
        let settings = Home::new(files).settings(env);
        let model = settings.models_of("google-vertex")[0].clone();
        match settings.provider_for(&model, None).map(drop) {
            Ok(()) => assert_eq!(problem, ""),
            Err(error) => {
                assert!(!problem.is_empty() && error.message.contains(problem), "{error}");
                assert!(!error.message.contains('\n'));
            }
        }
    };
    check(&[], &[], "Set GOOGLE_CLOUD_API_KEY");
    check(&[], &[("GOOGLE_CLOUD_API_KEY", "key")], "");
    let token = [("auth.json", r#"{"google-vertex":{"type":"oauth","access":"token-of-test"}}"#)];
    let (project, location) = (("GOOGLE_CLOUD_PROJECT", "p"), ("GOOGLE_CLOUD_LOCATION", "global"));
    check(&token, &[location], "GOOGLE_CLOUD_PROJECT is not set");
    check(&token, &[project], "GOOGLE_CLOUD_LOCATION is not set");
    check(&token, &[project, location], "");
    check(&token, &[("GCLOUD_PROJECT", "p"), location], "");
    let printed = r#"{"providers":{"google-vertex":{"apiKey":"!echo token-of-test","authHeader":true}}}"#;
    check(&[("models.json", printed)], &[location], "GOOGLE_CLOUD_PROJECT is not set");
    check(&[("models.json", printed)], &[project, location], "");
    let in_file = r#"{"google-vertex":{"type":"api_key","key":"ya29.token-of-test",
        "env":{"GOOGLE_CLOUD_PROJECT":"p","GOOGLE_CLOUD_LOCATION":"us"}}}"#;
    check(&[("auth.json", in_file)], &[], "");
}
