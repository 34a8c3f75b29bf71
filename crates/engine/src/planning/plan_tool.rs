//! `plan` as a tool of a model: hands in a plan, which a person accepts, edits or refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Answer, AskKind, AskOption, Json, ToolSpec};
use quipu_seal::Sealer;
use quipu_tools::{Invocation, Tool, ToolContext, ToolOutput};
use quipu_transcript::{PLAN_TOOL, PlanOutcome, SubmittedPlan};
use serde::Deserialize;
use serde_json::json;

use super::PlanMode;

/// Bytes of a plan at most.
const PLAN_BYTES: usize = 64 << 10;

const ACCEPT: &str = "accept";
const EDIT: &str = "edit";
const REFUSE: &str = "refuse";

/// Hands in a plan.
pub(super) struct PlanTool {
    spec: ToolSpec,
    mode: Arc<PlanMode>,
    sealer: Arc<Sealer>,
    /// How long a person has for each question.
    wait: Duration,
}

#[derive(Deserialize)]
struct PlanArgs {
    text: String,
}

/// What a person said of a plan.
enum PlanAnswer {
    Accepted,
    Edited(String),
    Refused(String),
    None,
}

impl PlanTool {
    pub(super) fn new(mode: Arc<PlanMode>, sealer: Arc<Sealer>, wait: Duration) -> Self {
        let parameters = json!({
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"]
        });
        let spec = ToolSpec {
            name: PLAN_TOOL.into(),
            description: "In plan mode: hand in your plan".into(),
            parameters: Json::from(&parameters),
        };
        Self { spec, mode, sealer, wait }
    }

    /// Asks; a person who does not want to write after all is asked again.
    async fn ask(&self, plan: &str) -> PlanAnswer {
        let Some((asker, _)) = self.mode.front.get() else { return PlanAnswer::None };
        let ask = async |kind| asker(kind, Answer::Cancel, Some(self.wait)).await.unwrap_or(Answer::Cancel);
        loop {
            let option = |id: &str, label: &str, detail: Option<&str>| AskOption {
                id: id.into(),
                label: label.into(),
                detail: detail.map(str::to_owned),
            };
            let kind = AskKind::Choose {
                title: "Accept this plan?".into(),
                options: vec![
                    option(ACCEPT, "accept the plan and start", Some(plan)),
                    option(EDIT, "edit the plan, then start", None),
                    option(REFUSE, "refuse it, and say what should change", None),
                ],
            };
            let Answer::Choose { option } = ask(kind).await else { return PlanAnswer::None };
            let kind = match option.as_str() {
                ACCEPT => return PlanAnswer::Accepted,
                EDIT => AskKind::Edit { title: "Edit the plan".into(), text: plan.to_owned() },
                _ => AskKind::Text {
                    title: "What should change?".into(),
                    placeholder: "The model plans on with it".into(),
                    secret: false,
                },
            };
            match (ask(kind).await, option.as_str()) {
                (Answer::Text { text }, EDIT) if text.trim().is_empty() => {}
                (Answer::Text { text }, EDIT) => return PlanAnswer::Edited(text),
                (Answer::Text { text }, _) => return PlanAnswer::Refused(text),
                _ => {}
            }
        }
    }

    async fn hand_in(&self, PlanArgs { text }: PlanArgs) -> ToolOutput {
        if !self.mode.is_on() {
            return ToolOutput::error("Plan mode is off: no plan is wanted. Do the work.");
        }
        if text.trim().is_empty() {
            return ToolOutput::error("The plan is empty.");
        }
        if text.len() > PLAN_BYTES {
            let bytes = text.len();
            return ToolOutput::error(format!("The plan has {bytes} bytes; the limit is {PLAN_BYTES}."));
        }
        // People are shown it as the store keeps it.
        let text = self.sealer.seal(&text).into_owned();
        let answer = self.ask(&text).await;
        // A person may have left plan mode meanwhile.
        let (outcome, says, text) = match answer {
            PlanAnswer::Accepted => {
                (PlanOutcome::Accepted, "The plan is accepted. Plan mode is off: carry it out.".into(), text)
            }
            PlanAnswer::Edited(edited) => {
                let says = format!(
                    "The person changed the plan and accepted it. Plan mode is off: carry out this version.\n\n{edited}"
                );
                (PlanOutcome::Edited, says, edited)
            }
            PlanAnswer::Refused(comment) => {
                let comment = comment.trim();
                let comment = if comment.is_empty() { String::new() } else { format!(": {comment}") };
                let says =
                    format!("The plan is not accepted{comment}\nPlan mode stays on. Hand in a better plan.");
                (PlanOutcome::Refused, says, text)
            }
            PlanAnswer::None => {
                let says = "Nobody accepted the plan yet. Plan mode stays on. Stop here.".to_owned();
                (PlanOutcome::Unanswered, says, text)
            }
        };
        let plan = SubmittedPlan { text, outcome };
        if plan.is_accepted() {
            self.mode.leave().await;
        }
        ToolOutput {
            details: plan.details(),
            terminate: outcome == PlanOutcome::Unanswered,
            ..ToolOutput::text(says)
        }
    }
}

impl Tool for PlanTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let args = match serde_json::from_value(call.args.value()) {
                Ok(args) => args,
                Err(error) => return ToolOutput::error(format!("Invalid arguments: {error}")),
            };
            tokio::select! {
                biased;
                () = cx.cancel.cancelled() => ToolOutput::error("Operation aborted"),
                output = self.hand_in(args) => output,
            }
        })
    }
}
