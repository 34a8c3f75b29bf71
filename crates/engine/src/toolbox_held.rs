//! What holds back a call that is about to begin: rules, files or programs that changed since it was decided on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quipu_machine::{CheckedCall, MachineInput};
use quipu_protocol::{RunId, Scope, ToolCall};
use quipu_tools::Touches;
use quipu_workspace::{Access, AccessMode, Approval, Reach};
use tokio_util::sync::CancellationToken;

use crate::mailbox;
use crate::policies::{ChainResult, command_of};
use crate::policy::Grant;
use crate::toolbox::{Toolbox, files, identity};

/// A notice for the person about a call that was allowed already.
const LEADS_ELSEWHERE: &str =
    "This is asked again, because the name now leads to another file than the one that was allowed.";

/// The same, where the name leads to what it led to.
const HAS_OTHER_NAMES: &str = "This is asked again, because the file got other names (hard links) since it was allowed, \
                               which may lie elsewhere.";

/// The same of a command whose program is another one.
fn program_changed(program: &Path) -> String {
    format!("This is asked again, because {} changed after it was decided.", program.display())
}

impl Toolbox {
    /// Whether a yes to what a person was shown covers what is asked now.
    fn covers(&self, call: &ToolCall, questions: &[String]) -> bool {
        let hooked = self.hooked();
        let shown = hooked.get(&identity(call)).map(|hooked| &*hooked.questions).unwrap_or_default();
        questions.iter().all(|question| shown.contains(question))
    }

    /// What holds a call back that is about to begin, where the rules changed since it was prepared, or its files since a
    /// person or policies allowed it; with what policies decided.
    pub(crate) async fn held(
        &self,
        run: &RunId,
        (call, touches, approved): (&ToolCall, &Touches, bool),
        cancel: &CancellationToken,
        people: &mailbox::Sender<MachineInput>,
    ) -> Option<ChainResult> {
        // Policies look at paths; what the permissions go by is looked at once more when a file is opened.
        if (approved || self.policies.is_some())
            && let Some(now) = self.exchanged(run, call, touches)
        {
            self.show(call, &now);
            let led_elsewhere = now != *touches;
            let mut concluded = self.conclude(run, self.judge(call, &now), cancel, people).await;
            concluded.prepared = match concluded.prepared {
                CheckedCall::Ready { .. } if !led_elsewhere && !approved => return None,
                CheckedCall::Ready { .. } if !led_elsewhere => self.asked_again(call, now)?,
                CheckedCall::Ask { call, touches, question, subject, scopes, rules } => {
                    let why = if led_elsewhere { LEADS_ELSEWHERE } else { HAS_OTHER_NAMES };
                    let question = format!("{question} {why}");
                    CheckedCall::Ask { call, touches, question, subject, scopes, rules }
                }
                held @ (CheckedCall::Ready { .. } | CheckedCall::Refused(_)) => held,
            };
            self.shows(&concluded);
            return Some(concluded);
        }
        if let Some(program) = self.programs.changed(&identity(call)) {
            // What was decided by its bytes is decided anew.
            self.show(call, touches);
            let mut concluded = self.conclude(run, self.judge(call, touches), cancel, people).await;
            if let CheckedCall::Ask { question, .. } = &mut concluded.prepared {
                *question = format!("{question} {}", program_changed(&program));
            } else if matches!(concluded.prepared, CheckedCall::Ready { .. }) {
                if !approved {
                    return None;
                }
                // A person was shown the one before.
                concluded.prepared = self.command_asked_again(call, touches.clone(), &program);
            }
            self.shows(&concluded);
            return Some(concluded);
        }
        if self.rules() == self.decided_by.load(Ordering::SeqCst) {
            return None;
        }
        let concluded = self.conclude(run, self.judge(call, touches), cancel, people).await;
        match &concluded.prepared {
            CheckedCall::Ready { .. } => None,
            CheckedCall::Ask { .. } if approved && self.covers(call, &concluded.questions) => None,
            CheckedCall::Ask { .. } | CheckedCall::Refused(_) => {
                self.shows(&concluded);
                Some(concluded)
            }
        }
    }

    /// The question of a call whose file came to have other names, where the policy goes by a yes to what was shown.
    fn asked_again(&self, call: &ToolCall, touches: Touches) -> Option<CheckedCall> {
        let access = self.parts.policy.access();
        let want = if matches!(touches, Touches::Reads(_)) { AccessMode::Read } else { AccessMode::Write };
        if files(&touches).iter().all(|path| access.reach(path, want) == Reach::Free) {
            return None;
        }
        let what = if want == AccessMode::Read { "reading" } else { "writing" };
        let paths: Vec<_> = files(&touches).iter().map(|path| path.to_string_lossy()).collect();
        let (subject, question) =
            (paths.join("\n"), format!("Allow {what} {}? {HAS_OTHER_NAMES}", paths.join(", ")));
        let grant = Grant { tool: call.name.clone(), subject };
        let scopes = self.parts.policy.scopes(&grant);
        let (call, subject) = (call.clone(), grant.subject.into());
        Some(CheckedCall::Ask { call, touches, question, subject, scopes, rules: Vec::new() })
    }

    /// The question of a command whose program changed after a person allowed it.
    fn command_asked_again(&self, call: &ToolCall, touches: Touches, program: &Path) -> CheckedCall {
        let subject = command_of(call).unwrap_or_else(|| call.arguments.get().to_owned());
        let (question, call) =
            (format!("Allow running this command? {}", program_changed(program)), call.clone());
        let (subject, scopes, rules) = (subject.into(), vec![Scope::Once], Vec::new());
        CheckedCall::Ask { call, touches, question, subject, scopes, rules }
    }

    /// What a call touches by now, where these are not the files that it was decided by.
    fn exchanged(&self, run: &RunId, call: &ToolCall, touches: &Touches) -> Option<Touches> {
        if files(touches).is_empty() {
            return None;
        }
        let tool = self.find(&call.name)?;
        let cx = self.context(run, CancellationToken::new(), Arc::new(|_| {}), Access::default());
        let look = AssertUnwindSafe(|| tool.touches(&call.arguments.value(), &cx));
        let now = catch_unwind(look).ok()?;
        let holds = self.shown().get(&identity(call)).is_some_and(|files| files.iter().all(Approval::holds));
        (now != *touches || !holds).then_some(now)
    }
}
