//! Hooks of a program before a session is there: the trust in a project, and the files of rules.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{
    Hook, HookContext, HookError, HookFailure, ProjectTrust, Resources, ResourcesVerdict, TrustVerdict,
};
use quipu_host::{Home, HostNotice, Observer, OpenRequest, Question, open};
use quipu_testkit::{Answer, FakeServer, Wire};
use serde_json::json;

#[derive(Default)]
struct Ears(Mutex<Vec<String>>);

impl Observer for Ears {
    fn notice(&self, notice: HostNotice) {
        self.0.lock().unwrap().push(notice.text);
    }
}

struct World {
    dir: tempfile::TempDir,
    server: FakeServer,
    ears: Arc<Ears>,
    home: Home,
}

impl World {
    /// A project whose settings want another number of tokens to be kept free, and rules of its own.
    fn new() -> Self {
        let answers = (0..4).map(|_| Answer::on(Wire::Messages).text("well").reply());
        let (dir, server) = (tempfile::tempdir().unwrap(), FakeServer::start(answers));
        let root = dir.path().canonicalize().unwrap();
        for made in ["home", "work/.git", "work/.quipu"] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        let model = json!({ "id": "test-1", "contextWindow": 200_000, "maxTokens": 8_000 });
        let provider = json!({
            "baseUrl": server.url(), "apiKey": "key", "api": "anthropic-messages", "models": [model],
        });
        let write = |name: &str, text: String| std::fs::write(root.join(name), text).unwrap();
        write("home/models.json", json!({ "providers": { "testing": provider } }).to_string());
        write("home/settings.json", json!({ "defaultModel": "test-1" }).to_string());
        write("work/.quipu/settings.json", json!({ "compaction": { "reserveTokens": 4_321 } }).to_string());
        write("work/AGENTS.md", "Use tabs.".into());
        write("work/EXTRA.md", "Be brief.".into());
        let ears = Arc::new(Ears::default());
        let home = Home::at(root.join("home"), ears.clone());
        Self { dir, server, ears, home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Opens a session and says something; gives the system prompt of its request.
    async fn ask(&self, hooks: Vec<Arc<dyn Hook>>) -> String {
        let answers = vec![(Question::Resources, None)];
        let request = OpenRequest { here: self.path("work"), hooks, answers, ..OpenRequest::default() };
        let started = open(&self.home, &request).await.unwrap();
        started.opened.session.ask("hi").await.unwrap();
        started.opened.session.shutdown().await;
        let asked = self.server.requests().pop().unwrap();
        let body: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
        body["system"].to_string()
    }

    fn reserve(&self) -> u64 {
        self.home.config_in(&self.path("work")).compaction.reserve_tokens
    }

    fn heard(&self) -> String {
        std::mem::take(&mut *self.ears.0.lock().unwrap()).join("\n")
    }
}

type HookFn<I, V> = Box<dyn Fn(&I) -> Result<V, HookError> + Send + Sync>;

struct TestHook {
    name: &'static str,
    trust: HookFn<ProjectTrust, TrustVerdict>,
    resources: HookFn<Resources, ResourcesVerdict>,
    guards: bool,
}

impl TestHook {
    fn named(name: &'static str) -> Self {
        let (trust, resources) =
            (Box::new(|_: &_| Ok(TrustVerdict::Pass)), Box::new(|_: &_| Ok(ResourcesVerdict::Pass)));
        Self { name, trust, resources, guards: false }
    }

    fn trusting(verdict: TrustVerdict) -> Arc<dyn Hook> {
        let trust = Box::new(move |_: &ProjectTrust| Ok(verdict.clone()));
        Arc::new(Self { trust, ..Self::named("judge") })
    }

    fn finding(rules: Vec<PathBuf>) -> Arc<dyn Hook> {
        let resources =
            Box::new(move |_: &Resources| Ok(ResourcesVerdict::Replace(Resources { rules: rules.clone() })));
        Arc::new(Self { resources, ..Self::named("finder") })
    }
}

impl Hook for TestHook {
    fn name(&self) -> &str {
        self.name
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn on_failure(&self) -> HookFailure {
        if self.guards { HookFailure::Block } else { HookFailure::Pass }
    }

    fn project_trust<'a>(
        &'a self,
        project: &'a ProjectTrust,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<TrustVerdict, HookError>> {
        assert!(cx.session.is_none());
        Box::pin(std::future::ready((self.trust)(project)))
    }

    fn resources<'a>(
        &'a self,
        found: &'a Resources,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResourcesVerdict, HookError>> {
        Box::pin(std::future::ready((self.resources)(found)))
    }
}

fn distrust() -> TrustVerdict {
    TrustVerdict::Distrust { reason: "it is unknown here".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_decides_whether_the_settings_of_a_project_count() {
    let world = World::new();
    let before = world.reserve();
    world.heard();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let known = seen.clone();
    let trust = Box::new(move |project: &ProjectTrust| {
        known.lock().unwrap().push(project.clone());
        Ok(TrustVerdict::Trust)
    });
    world.ask(vec![Arc::new(TestHook { trust, ..TestHook::named("judge") })]).await;
    let file = world.path("work/.quipu/settings.json");
    let asked = ProjectTrust {
        root: world.path("work"),
        file: file.clone(),
        settings: vec!["compaction.reserveTokens".into()],
    };
    assert_eq!(*seen.lock().unwrap(), [asked]);
    assert_eq!(world.reserve(), 4_321);
    // Another file is another question, and so is another process.
    std::fs::write(&file, json!({ "compaction": { "reserveTokens": 5_432 } }).to_string()).unwrap();
    assert_eq!(world.reserve(), before);
    assert_eq!(
        Home::at(world.path("home"), Arc::new(Ears::default()))
            .config_in(&world.path("work"))
            .compaction
            .reserve_tokens,
        before
    );
    // Where one trusts it and one does not, it is not trusted.
    for hooks in [
        vec![TestHook::trusting(TrustVerdict::Trust), TestHook::trusting(distrust())],
        vec![TestHook::trusting(distrust()), TestHook::trusting(TrustVerdict::Trust)],
    ] {
        world.heard();
        world.ask(hooks).await;
        assert_eq!(world.reserve(), before);
        let heard = world.heard();
        assert!(heard.contains("are ignored: it is unknown here (the hook judge)"), "{heard}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_can_distrust_what_a_person_trusts_and_leave_it_to_them() {
    use quipu_host::settings::{project_to_trust, trust_project};
    let world = World::new();
    trust_project(&world.home, &project_to_trust(&world.home, &world.path("work")).unwrap()).unwrap();
    assert_eq!(world.reserve(), 4_321);
    world.ask(vec![TestHook::trusting(distrust())]).await;
    assert_ne!(world.reserve(), 4_321);
    world.ask(vec![TestHook::trusting(TrustVerdict::Pass)]).await;
    assert_eq!(world.reserve(), 4_321);
    // One that fails says nothing, and a guard distrusts.
    for guards in [false, true] {
        let trust = Box::new(|_: &ProjectTrust| Err(HookError::new("it is out of order")));
        world.ask(vec![Arc::new(TestHook { trust, guards, ..TestHook::named("broken") })]).await;
        assert_eq!(world.reserve() == 4_321, !guards);
        assert!(world.heard().contains(
            "The hook broken had no effect on the trust decision for a project: it is out of order."
        ));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_replaces_the_files_of_rules_that_were_found() {
    let world = World::new();
    let plain = world.ask(Vec::new()).await;
    assert!(plain.contains("Use tabs.") && !plain.contains("Be brief."), "{plain}");
    let both = vec![world.path("work/AGENTS.md"), PathBuf::from("EXTRA.md"), PathBuf::from("missing.md")];
    let with = world.ask(vec![TestHook::finding(both)]).await;
    assert!(with.contains("Use tabs.") && with.contains("Be brief."), "{with}");
    assert!(world.heard().contains("missing.md, so it is not loaded"));
    let without = world.ask(vec![TestHook::finding(Vec::new())]).await;
    assert!(!without.contains("Use tabs."), "{without}");
    let flood = vec![PathBuf::from("EXTRA.md"); quipu::HOOK_RESOURCES + 1];
    let as_found = world.ask(vec![TestHook::finding(flood)]).await;
    assert_eq!(as_found, plain);
    assert!(world.heard().contains("the limit is 256"));
}
