//! The policies of a session, asked one after the other.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu_machine::{CheckedCall, PolicyVersion};
use quipu_protocol::{CallId, Json, Provenance, RunId, Scope, ToolCall, Touches};
use quipu_seal::Sealer;
use quipu_workspace::{Access, Sandbox};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::questions::{Crossing, Verdict, crossings, subject_of};
use super::{
    ConfinementRequest, POLICY_TEXT, PolicyContext, PolicyEffect, PolicyError, PolicyQuestion, PolicyRecord,
    ToolPolicy, ToolRequest, TravelRequest,
};
use crate::hooks::{Asker, HookContext};
use crate::policy::{Decision, Grant, GrantError, Policy, Proposal, SharedPolicy};
use crate::spans;
use crate::travel::{SessionView, Travel};

/// The result for the model of a call that was stopped while policies were asked.
const ABORTED: &str = "Operation aborted";

/// The chain of a session, with those steps that stand behind its permissions; there is at least one.
pub(crate) struct Policies {
    steps: Arc<[Arc<dyn ToolPolicy>]>,
    base: Arc<dyn Policy>,
    sealer: Arc<Sealer>,
    cwd: PathBuf,
    standing: SessionView,
    asker: OnceLock<Asker>,
    /// Who asked what a yes may answer for longer than once, in the current batch.
    askers: Mutex<OpenQuestions>,
}

/// By the call and what a person was shown.
type OpenQuestions = HashMap<(CallId, Grant), Vec<GrantClaim>>;

/// The place of who asks in the chain, and what a yes is a yes to for it.
type GrantClaim = (usize, Grant);

/// The place of the permissions among those who ask.
const BASE: usize = usize::MAX;

/// A valid call as the permissions decided on it.
pub(crate) struct DecidedCall {
    pub(crate) call: ToolCall,
    pub(crate) touches: Touches,
    decision: Decision,
    /// What a hook wants a person to be asked, whatever is decided.
    hook_asks: Option<String>,
    travel: Option<Travel>,
    crossings: Vec<Crossing>,
}

/// A call as the chain decided on it.
pub(crate) struct ChainResult {
    pub(crate) prepared: CheckedCall,
    /// What is kept with its result.
    pub(crate) records: Vec<Json>,
    /// What people should know.
    pub(crate) notices: Vec<String>,
    /// The questions of the steps behind the permissions, where the call is asked about.
    pub(crate) questions: Vec<String>,
}

impl ChainResult {
    /// No policy was asked.
    pub(crate) fn of(prepared: CheckedCall) -> Self {
        Self { prepared, records: Vec::new(), notices: Vec::new(), questions: Vec::new() }
    }
}

impl DecidedCall {
    /// There are no steps but the permissions.
    pub(crate) fn alone(
        call: ToolCall,
        touches: Touches,
        decision: Decision,
        hook_asks: Option<String>,
    ) -> Self {
        Self { call, touches, decision, hook_asks, travel: None, crossings: Vec::new() }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.decision == Decision::Allow && self.hook_asks.is_none()
    }

    /// What becomes of it where there is no other step; `scopes` says for how long its question can be answered.
    pub(crate) fn prepared(self, policy: &dyn Policy) -> CheckedCall {
        let Self { call, touches, decision, hook_asks, .. } = self;
        let (question, subject) = match (decision, hook_asks) {
            (Decision::Allow, None) => return CheckedCall::Ready { call, touches },
            (Decision::Deny { reason }, _) => return CheckedCall::Refused(reason),
            (Decision::Ask { question, subject }, hook) => {
                let grant = Grant { tool: call.name.clone(), subject };
                let scopes = policy.scopes(&grant);
                let rules = offered(policy, &grant, &scopes);
                let question = with_question(question, hook);
                let subject = grant.subject.into();
                return CheckedCall::Ask { call, touches, question, subject, scopes, rules };
            }
            (Decision::Allow, Some(question)) => (question, call.arguments.get().to_owned()),
            (Decision::NoOpinion, question) => {
                let subject = subject_of(&call, &touches);
                (question.unwrap_or_else(|| undecided(&call)), subject)
            }
        };
        let (subject, scopes, rules) = (subject.into(), vec![Scope::Once], Vec::new());
        CheckedCall::Ask { call, touches, question, subject, scopes, rules }
    }
}

/// A question with that of a hook behind it: what a hook wants to be asked is asked, whoever else asks.
fn with_question(question: String, hook: Option<String>) -> String {
    match hook {
        Some(hook) => format!("{question} {hook}"),
        None => question,
    }
}

/// The rules that scopes of a rule are about, where there are such scopes.
fn offered(policy: &dyn Policy, grant: &Grant, scopes: &[Scope]) -> Vec<String> {
    if scopes.iter().any(|scope| scope.is_rule()) { policy.offers(grant) } else { Vec::new() }
}

/// What a person is asked where nobody decides.
fn undecided(call: &ToolCall) -> String {
    format!("Allow calling {}? No policy decides that.", call.name)
}

/// The permissions with the versions of the other steps; the permissions themselves where there are none.
pub(crate) fn with_steps(base: Arc<dyn Policy>, steps: &[Arc<dyn ToolPolicy>]) -> Arc<dyn Policy> {
    if steps.is_empty() { base } else { Arc::new(WithSteps { base, steps: steps.into() }) }
}

struct WithSteps {
    base: Arc<dyn Policy>,
    steps: Arc<[Arc<dyn ToolPolicy>]>,
}

impl Policy for WithSteps {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        self.base.decide(proposal)
    }

    fn version(&self) -> PolicyVersion {
        let mut version = self.base.version();
        for step in self.steps.iter() {
            // One that fails inside is one that does not change.
            let number = catch_unwind(AssertUnwindSafe(|| step.version())).unwrap_or(u64::MAX);
            version.number = version.number.wrapping_add(number);
        }
        version
    }

    fn scopes(&self, grant: &Grant) -> Vec<Scope> {
        self.base.scopes(grant)
    }

    fn offers(&self, grant: &Grant) -> Vec<String> {
        self.base.offers(grant)
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        self.base.grant(grant, scope)
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn restores(&self) -> Option<Access> {
        self.base.restores()
    }

    fn elsewhere(&self, cwd: &Path) -> Option<Arc<dyn Policy>> {
        self.base.elsewhere(cwd)
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.base.sandbox()
    }
}

/// What became of a call so far.
struct Course {
    /// What the chain is asked about it, and whether somebody had an opinion on that so far.
    opinions: Vec<(PolicyQuestion, bool)>,
    /// What the permissions ask a person.
    base_question: Option<String>,
    /// What a person is asked behind that: by the steps, and because nobody has an opinion.
    questions: Vec<String>,
    /// Who asked whether the call may be made, and what a yes to them is a yes to.
    askers: Vec<GrantClaim>,
    /// For how long a yes may hold.
    scopes: Vec<Scope>,
    concluded: Vec<PolicyRecord>,
    notices: Vec<String>,
}

/// How a chain ends.
enum End {
    Refused(String),
    Decided,
}

/// What came of one question to one step.
enum Answer {
    Verdict(Verdict),
    /// Why it has none.
    Failed(String),
    /// Nobody waits for it any more.
    Cancelled,
}

impl Policies {
    /// `None` where there are no steps.
    pub(crate) fn new(
        steps: &[Arc<dyn ToolPolicy>],
        base: Arc<dyn Policy>,
        sealer: Arc<Sealer>,
        cwd: PathBuf,
        standing: SessionView,
    ) -> Option<Self> {
        let (asker, askers) = (OnceLock::new(), Mutex::default());
        (!steps.is_empty()).then(|| Self { steps: steps.into(), base, sealer, cwd, standing, asker, askers })
    }

    /// How steps ask people.
    pub(crate) fn asks_through(&self, asker: Asker) {
        // Each session has its own chain, and begins once.
        drop(self.asker.set(asker));
    }

    fn askers(&self) -> MutexGuard<'_, OpenQuestions> {
        self.askers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another batch is decided.
    pub(crate) fn forget_askers(&self) {
        self.askers().clear();
    }

    /// A call on which the permissions decided, with what the steps are asked about it. May look at files.
    pub(crate) fn begin(
        &self,
        (call, touches): (ToolCall, Touches),
        decision: Decision,
        hook_asks: Option<String>,
        travel: Option<Travel>,
    ) -> DecidedCall {
        let crossings = crossings(&*self.base, &call, &touches, travel.as_ref());
        DecidedCall { call, touches, decision, hook_asks, travel, crossings }
    }

    fn context(&self, run: &RunId) -> PolicyContext {
        let session = self.standing.get().map(|view| view.borrow().session.clone());
        let asker = self.asker.get().cloned();
        PolicyContext(HookContext::new(session, Some(run.clone()), self.cwd.clone(), asker))
    }

    /// Asks the steps about a call on which the permissions decided.
    pub(crate) async fn conclude(
        &self,
        run: &RunId,
        decided: DecidedCall,
        origin: &Provenance,
        cancel: &CancellationToken,
    ) -> ChainResult {
        let mut course = Course::of(&decided);
        let end = match self.permissions(&mut course, &decided) {
            End::Refused(reason) => End::Refused(reason),
            End::Decided => self.steps(&mut course, run, &decided, origin, cancel).await,
        };
        let Course { concluded, notices, .. } = &mut course;
        let (records, notices) = (std::mem::take(concluded), std::mem::take(notices));
        let (prepared, questions) = match end {
            End::Refused(reason) => (CheckedCall::Refused(reason), Vec::new()),
            End::Decided => {
                self.add_undecided(&mut course, &decided);
                (self.decided(&course, decided), course.questions)
            }
        };
        let records = records.iter().filter_map(|record| Json::of(record).ok()).collect();
        ChainResult { prepared, records, notices, questions }
    }

    /// The first step, which decided already.
    fn permissions(&self, course: &mut Course, decided: &DecidedCall) -> End {
        let (call, name) = (&decided.call, self.base.name());
        let span = spans::policy(name, PolicyQuestion::Call.word());
        let did = match &decided.decision {
            Decision::NoOpinion => return End::Decided,
            Decision::Allow => {
                course.has_opinion_on_all();
                PolicyEffect::Allowed
            }
            Decision::Ask { question, subject } => {
                course.has_opinion_on_all();
                let grant = Grant { tool: call.name.clone(), subject: subject.clone() };
                course.scopes = self.base.scopes(&grant);
                course.askers.push((BASE, grant));
                course.base_question = Some(question.clone());
                PolicyEffect::Asked
            }
            Decision::Deny { .. } => PolicyEffect::Denied,
        };
        span.record("outcome", outcome(did));
        if did != PolicyEffect::Allowed {
            course.record(name, PolicyQuestion::Call, did);
        }
        match &decided.decision {
            Decision::Deny { reason } => End::Refused(reason.clone()),
            Decision::NoOpinion | Decision::Allow | Decision::Ask { .. } => End::Decided,
        }
    }

    /// The steps behind it.
    async fn steps(
        &self,
        course: &mut Course,
        run: &RunId,
        decided: &DecidedCall,
        origin: &Provenance,
        cancel: &CancellationToken,
    ) -> End {
        let (call, crossings) = (&decided.call, &*decided.crossings);
        let (cwd, touches) = (&*self.cwd, &decided.touches);
        let tool = ToolRequest { call, origin, cwd, touches };
        let travel = decided.travel.as_ref().map(|travel| TravelRequest { call, origin, travel });
        let confinement = ConfinementRequest { call, origin, cwd, crossings };
        for (at, step) in self.steps.iter().enumerate() {
            for place in 0..course.opinions.len() {
                let (question, _) = course.opinions[place];
                let cx = self.context(run);
                let work: BoxFuture<'_, Result<Verdict, PolicyError>> = match (question, &travel) {
                    (PolicyQuestion::Travel, Some(travel)) => {
                        Box::pin(async { step.travel(travel, &cx).await.map(Verdict::from) })
                    }
                    (PolicyQuestion::Confinement, _) => {
                        Box::pin(async { step.confinement(&confinement, &cx).await.map(Verdict::from) })
                    }
                    (PolicyQuestion::Call | PolicyQuestion::Travel, _) => {
                        Box::pin(async { step.decide(&tool, &cx).await.map(Verdict::from) })
                    }
                };
                match self.ask(&**step, question, &cx, cancel, work).await {
                    Answer::Cancelled => return End::Refused(ABORTED.into()),
                    Answer::Verdict(Verdict::NoOpinion) => {}
                    Answer::Verdict(Verdict::Allow(grants)) => {
                        course.opinions[place].1 = true;
                        if !grants.is_empty() {
                            course.record_grants(step.name(), question, self.sealed(grants));
                        }
                    }
                    Answer::Verdict(Verdict::Ask(text, scopes)) => {
                        course.opinions[place].1 = true;
                        let text = self.sealer.seal(&text).replace('\n', " ");
                        let grant = Grant { tool: call.name.clone(), subject: tool.subject() };
                        course.asked((at, grant), format!("{text} ({})", step.name()), &scopes);
                        course.record(step.name(), question, PolicyEffect::Asked);
                    }
                    Answer::Verdict(Verdict::Deny(reason)) => {
                        course.record(step.name(), question, PolicyEffect::Denied);
                        let reason = self.sealer.seal(&reason);
                        return End::Refused(format!(
                            "The policy {} did not allow this call: {reason}",
                            step.name()
                        ));
                    }
                    Answer::Failed(why) => {
                        course.record(step.name(), question, PolicyEffect::Failed);
                        let (name, tool) = (step.name(), &call.name);
                        course.notices.push(format!(
                            "The policy {name} failed on a call of {tool}, so the call was not run: {why}."
                        ));
                        return End::Refused(format!(
                            "The call was not run, because the policy {name} failed: {why}."
                        ));
                    }
                }
            }
        }
        End::Decided
    }

    /// A person is asked what nobody has an opinion on.
    fn add_undecided(&self, course: &mut Course, decided: &DecidedCall) {
        let DecidedCall { call, travel, crossings, .. } = decided;
        for (question, _) in course.opinions.iter().filter(|(_, has_opinion)| !has_opinion) {
            let nobody = match question {
                PolicyQuestion::Call => undecided(call),
                PolicyQuestion::Travel => travel.as_ref().map(Travel::question).unwrap_or_default(),
                PolicyQuestion::Confinement => {
                    let phrases: Vec<_> = crossings.iter().map(Crossing::phrase).collect();
                    format!("Allow {}? No policy decides that.", phrases.join(" and "))
                }
            };
            course.questions.push(nobody);
            course.scopes = vec![Scope::Once];
        }
    }

    /// What becomes of a call that nobody denied.
    fn decided(&self, course: &Course, decided: DecidedCall) -> CheckedCall {
        let DecidedCall { call, touches, decision, hook_asks, travel, .. } = decided;
        let asked: Vec<&str> =
            course.base_question.iter().chain(&course.questions).map(String::as_str).collect();
        if asked.is_empty() {
            let Some(question) = hook_asks else { return CheckedCall::Ready { call, touches } };
            let (subject, scopes) = (call.arguments.get().into(), vec![Scope::Once]);
            return CheckedCall::Ask { call, touches, question, subject, scopes, rules: Vec::new() };
        }
        let subject = match (decision, &travel) {
            (Decision::Ask { subject, .. }, _) => subject,
            (_, Some(travel)) => travel.subject(),
            (_, None) => subject_of(&call, &touches),
        };
        let grant = Grant { tool: call.name.clone(), subject };
        let lasts = course.scopes.iter().any(|scope| *scope != Scope::Once);
        if lasts && course.askers.iter().any(|(at, _)| *at != BASE) {
            self.remember(call.id.clone(), &grant, &course.askers);
        }
        let (question, scopes) = (with_question(asked.join(" "), hook_asks), course.scopes.clone());
        let rules = offered(&*self.base, &grant, &scopes);
        CheckedCall::Ask { call, touches, question, subject: grant.subject.into(), scopes, rules }
    }

    /// Keeps who asked. Two calls may have the same question; a yes to one of them reaches only those who asked about
    /// both.
    fn remember(&self, call: CallId, grant: &Grant, askers: &[GrantClaim]) {
        let mut open = self.askers();
        let kept = open.entry((call, grant.clone())).or_insert_with(|| askers.to_vec());
        kept.retain(|one| askers.contains(one));
    }

    fn sealed(&self, grants: Vec<Grant>) -> Vec<Grant> {
        let sealed =
            |grant: Grant| Grant { tool: grant.tool, subject: self.sealer.seal(&grant.subject).into_owned() };
        grants.into_iter().map(sealed).collect()
    }

    async fn ask(
        &self,
        step: &dyn ToolPolicy,
        question: PolicyQuestion,
        cx: &PolicyContext,
        cancel: &CancellationToken,
        work: BoxFuture<'_, Result<Verdict, PolicyError>>,
    ) -> Answer {
        const BROKE_DOWN: &str = "it panicked, which is a bug in the policy";
        let Ok(limit) = catch_unwind(AssertUnwindSafe(|| step.deadline())) else {
            return Answer::Failed(BROKE_DOWN.into());
        };
        let span = spans::policy(step.name(), question.word());
        let work = work.instrument(span.clone());
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => Answer::Cancelled,
            done = AssertUnwindSafe(work).catch_unwind() => match done {
                Err(_) => Answer::Failed(BROKE_DOWN.into()),
                Ok(Err(error)) => {
                    let why = self.sealer.seal(&error.to_string()).into_owned();
                    Answer::Failed(shortened(&why))
                }
                Ok(Ok(verdict)) if verdict.size() > POLICY_TEXT => Answer::Failed(format!(
                    "it returned {} bytes; the limit is {POLICY_TEXT}",
                    verdict.size()
                )),
                Ok(Ok(verdict)) => Answer::Verdict(verdict),
            },
            () = cx.0.overdue(limit) => {
                Answer::Failed(format!("it did not answer within {} s", limit.as_secs_f64()))
            }
        };
        match &answer {
            Answer::Verdict(Verdict::NoOpinion) => span.record("outcome", "no opinion"),
            Answer::Verdict(Verdict::Allow(_)) => span.record("outcome", outcome(PolicyEffect::Allowed)),
            Answer::Verdict(Verdict::Ask(..)) => span.record("outcome", outcome(PolicyEffect::Asked)),
            Answer::Verdict(Verdict::Deny(_)) => span.record("outcome", outcome(PolicyEffect::Denied)),
            Answer::Cancelled => span.record("outcome", "cancelled"),
            Answer::Failed(why) => {
                span.record("outcome", outcome(PolicyEffect::Failed)).record("error", why.as_str())
            }
        };
        answer
    }

    /// A person allowed this for longer than once. Gives for how long it holds with all who asked, and what people should
    /// know.
    pub(crate) async fn grant(&self, call: &CallId, grant: Grant, scope: Scope) -> (Scope, Vec<String>) {
        let asked = self.askers().get(&(call.clone(), grant.clone())).cloned();
        let asked = asked.unwrap_or_else(|| vec![(BASE, grant)]);
        let (mut holds, mut notices) = (scope, Vec::new());
        // Nobody is left who asked about each call with this question.
        if asked.is_empty() {
            holds = Scope::Once;
        }
        for (at, grant) in asked {
            let kept = match self.steps.get(at) {
                None => SharedPolicy(self.base.clone()).grant(grant, scope).await,
                Some(step) => self.granted(&**step, grant, scope, &mut notices).await,
            };
            let kept = kept.unwrap_or_else(|error| {
                notices.push(error.to_string());
                Scope::Session
            });
            holds = shorter(holds, kept);
        }
        (holds, notices)
    }

    async fn granted(
        &self,
        step: &dyn ToolPolicy,
        grant: Grant,
        scope: Scope,
        notices: &mut Vec<String>,
    ) -> Result<Scope, GrantError> {
        let work = async {
            let limit = step.deadline();
            tokio::time::timeout(limit, step.grant(grant, scope)).await.map_err(|_| limit)
        };
        let why = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(Ok(kept)) => return kept,
            Ok(Err(limit)) => format!("it did not answer within {} s", limit.as_secs_f64()),
            Err(_) => "it panicked, which is a bug in the policy".to_owned(),
        };
        notices.push(format!(
            "The policy {} did not save your permission and will ask again: {why}.",
            step.name()
        ));
        Ok(Scope::Once)
    }
}

impl Course {
    fn of(decided: &DecidedCall) -> Self {
        let asked = [
            (PolicyQuestion::Call, true),
            (PolicyQuestion::Travel, decided.travel.is_some()),
            (PolicyQuestion::Confinement, !decided.crossings.is_empty()),
        ];
        let asked = asked.into_iter().filter(|(_, asked)| *asked);
        Self {
            opinions: asked.map(|(question, _)| (question, false)).collect(),
            base_question: None,
            questions: Vec::new(),
            askers: Vec::new(),
            scopes: vec![Scope::Once, Scope::Session, Scope::Always],
            concluded: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// The permissions answer all questions at once.
    fn has_opinion_on_all(&mut self) {
        self.opinions.iter_mut().for_each(|(_, has_opinion)| *has_opinion = true);
    }

    /// Somebody asks; a yes holds no longer than each of those who ask lets it.
    fn asked(&mut self, asker: GrantClaim, question: String, scopes: &[Scope]) {
        self.scopes.retain(|scope| *scope == Scope::Once || scopes.contains(scope));
        self.questions.push(question);
        self.askers.push(asker);
    }

    fn record(&mut self, policy: &str, question: PolicyQuestion, did: PolicyEffect) {
        self.concluded.push(PolicyRecord { policy: policy.to_owned(), question, did, grants: Vec::new() });
    }

    fn record_grants(&mut self, policy: &str, question: PolicyQuestion, grants: Vec<Grant>) {
        let (policy, did) = (policy.to_owned(), PolicyEffect::Allowed);
        self.concluded.push(PolicyRecord { policy, question, did, grants });
    }
}

/// As traces name it.
fn outcome(did: PolicyEffect) -> &'static str {
    match did {
        PolicyEffect::Allowed => "allowed",
        PolicyEffect::Asked => "asked",
        PolicyEffect::Denied => "denied",
        PolicyEffect::Failed => "failed",
    }
}

/// What fits into a reason.
fn shortened(why: &str) -> String {
    if why.len() <= POLICY_TEXT {
        return why.to_owned();
    }
    format!("{} …", &why[..why.floor_char_boundary(POLICY_TEXT)])
}

/// The one that holds for less long.
fn shorter(one: Scope, other: Scope) -> Scope {
    one.min(other)
}
