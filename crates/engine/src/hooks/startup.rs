//! Hooks before there is a session: whether a project is trusted, and which files were found for it. Nobody is in front yet, so a
//! question gets its default.

use std::path::Path;
use std::sync::Arc;

use quipu_seal::Sealer;
use tokio_util::sync::CancellationToken;

use super::chain::{HookOutcome, VerdictSize, failed};
use super::system::HookSections;
use super::{
    HOOK_RESOURCES, Hook, HookError, HookFailure, HookPoint, Hooks, ProjectTrust, Resources,
    ResourcesVerdict, TrustVerdict,
};
use crate::calls::ContentSize;

impl VerdictSize for TrustVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass | Self::Trust => ContentSize::default(),
            Self::Distrust { reason } => ContentSize::of_text(reason),
        }
    }
}

impl VerdictSize for ResourcesVerdict {
    fn size(&self) -> ContentSize {
        match self {
            Self::Pass => ContentSize::default(),
            Self::Replace(Resources { rules }) => rules
                .iter()
                .map(|path| ContentSize::of_text(&path.to_string_lossy()))
                .fold(ContentSize::default(), |sum, one| ContentSize { text: sum.text + one.text, ..sum }),
        }
    }
}

/// What hooks say before there is a session, and what people should know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookAnswer<T> {
    /// What they say.
    pub value: T,
    /// For people.
    pub notices: Vec<String>,
}

/// Hooks before there is a session. A question of one gets its default: nobody is in front yet.
pub struct StartupHooks(Hooks);

impl std::fmt::Debug for StartupHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartupHooks").finish_non_exhaustive()
    }
}

impl StartupHooks {
    /// Hooks in their order, for a session that will begin in `cwd`.
    pub fn new(hooks: &[Arc<dyn Hook>], sealer: Arc<Sealer>, cwd: &Path) -> Self {
        let sections = Arc::new(HookSections::new(&[], Default::default()));
        Self(Hooks::new(hooks.to_vec(), sealer, cwd.to_owned(), Default::default(), sections))
    }

    /// Whether a project is trusted: one that distrusts it counts more than any that trust it.
    pub async fn project_trust(&self, project: &ProjectTrust) -> HookAnswer<TrustVerdict> {
        let (hooks, never) = (&self.0, CancellationToken::new());
        let (mut verdict, mut notices) = (TrustVerdict::Pass, Vec::new());
        for hook in hooks.hooks.iter() {
            let cx = hooks.context(None);
            let work = async { hook.project_trust(project, &cx).await };
            let outcome = hooks.call(HookPoint::ProjectTrust, &**hook, &cx, &never, Box::pin(work)).await;
            let reason = match outcome {
                HookOutcome::Cancelled | HookOutcome::Verdict(TrustVerdict::Pass) => continue,
                HookOutcome::Verdict(TrustVerdict::Trust) => {
                    verdict = TrustVerdict::Trust;
                    continue;
                }
                HookOutcome::Verdict(TrustVerdict::Distrust { reason }) => {
                    hooks.sealer.seal(&reason).into_owned()
                }
                HookOutcome::Failed(why) => {
                    notices.push(failed(hook.name(), HookPoint::ProjectTrust, &why));
                    if hook.on_failure() == HookFailure::Pass {
                        continue;
                    }
                    why
                }
            };
            let reason = format!("{reason} (the hook {})", hook.name());
            return HookAnswer { value: TrustVerdict::Distrust { reason }, notices };
        }
        HookAnswer { value: verdict, notices }
    }

    /// The files that are used.
    pub async fn resources(&self, mut found: Resources) -> HookAnswer<Resources> {
        let (hooks, never) = (&self.0, CancellationToken::new());
        let mut notices = Vec::new();
        for hook in hooks.hooks.iter() {
            let cx = hooks.context(None);
            let work = async {
                match hook.resources(&found, &cx).await? {
                    ResourcesVerdict::Replace(Resources { rules }) if rules.len() > HOOK_RESOURCES => {
                        let count = rules.len();
                        let text = format!("it named {count} files; the limit is {HOOK_RESOURCES}");
                        Err(HookError::new(text))
                    }
                    verdict => Ok(verdict),
                }
            };
            match hooks.call(HookPoint::Resources, &**hook, &cx, &never, Box::pin(work)).await {
                HookOutcome::Cancelled | HookOutcome::Verdict(ResourcesVerdict::Pass) => {}
                HookOutcome::Verdict(ResourcesVerdict::Replace(Resources { rules })) => {
                    let mut other = Resources::default();
                    for path in rules {
                        let path = hooks.cwd.join(path);
                        if !other.rules.contains(&path) {
                            other.rules.push(path);
                        }
                    }
                    found = other;
                }
                HookOutcome::Failed(why) => notices.push(failed(hook.name(), HookPoint::Resources, &why)),
            }
        }
        HookAnswer { value: found, notices }
    }
}
