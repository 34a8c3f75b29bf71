//! What a conversation says of plan mode and of the model's to-do list: both are read from its messages, so that they
//! follow the lineage.

use std::sync::Arc;

use quipu_protocol::{Body, Content, Json, Message};
use serde::{Deserialize, Serialize};

use crate::mentioned::is_resource_note;

/// The tool with which a model hands in a plan.
pub const PLAN_TOOL: &str = "plan";
/// The tool with which a model keeps its to-do list.
pub const TODO_TOOL: &str = "todo";

/// Stands beside each message of a person in plan mode.
pub const PLAN_ON: &str = "[Plan mode is on: change nothing, only read. Find out what you need, then hand in your plan with \
                           the tool `plan`; without that tool, answer with it.]";
/// Stands beside the first message behind it.
pub const PLAN_OFF: &str = "[Plan mode is off.]";

/// Items of a to-do list at most.
pub const TODO_ITEMS: usize = 50;
/// Characters of one of them at most.
pub const TODO_TEXT: usize = 300;

/// How far an item of a to-do list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Worked on.
    InProgress,
    /// Done.
    Done,
}

impl TodoStatus {
    const ALL: [Self; 3] = [Self::Pending, Self::InProgress, Self::Done];

    fn mark(self) -> &'static str {
        match self {
            Self::Pending => "[ ]",
            Self::InProgress => "[>]",
            Self::Done => "[x]",
        }
    }
}

/// An item of a to-do list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// What is to be done: one line.
    pub text: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// A model's to-do list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TodoList {
    /// In the order in which it was written.
    pub items: Vec<TodoItem>,
}

/// Rows of a list that are shown at most, below the first.
const SHOWN: usize = 5;

impl TodoList {
    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.items.iter().all(|item| item.status == TodoStatus::Done)
    }

    /// The items, a line each.
    pub fn text(&self) -> String {
        let line = |item: &TodoItem| format!("{} {}", item.status.mark(), item.text);
        self.items.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The list in a few lines: how much is done, then what is not, what is worked on first. None where nothing is left.
    pub fn lines(&self) -> Vec<String> {
        if self.is_done() {
            return Vec::new();
        }
        let of = |status: TodoStatus| self.items.iter().filter(move |item| item.status == status);
        let done = of(TodoStatus::Done).count();
        let open: Vec<&TodoItem> = of(TodoStatus::InProgress).chain(of(TodoStatus::Pending)).collect();
        let mut lines = vec![format!("To do: {done} of {} done", self.items.len())];
        lines.extend(open.iter().take(SHOWN).map(|item| format!("{} {}", item.status.mark(), item.text)));
        if open.len() > SHOWN {
            lines.push(format!("… {} more", open.len() - SHOWN));
        }
        lines
    }

    fn of_text(text: &str) -> Self {
        let item = |line: &str| {
            let status = TodoStatus::ALL.into_iter().find(|status| line.starts_with(status.mark()))?;
            Some(TodoItem { text: line.get(4..)?.to_owned(), status })
        };
        Self { items: text.lines().filter_map(item).take(TODO_ITEMS).collect() }
    }

    /// As the details of a result keep it.
    pub fn details(&self) -> Option<Json> {
        Json::of(&TodoDetails { todo: self.clone() }).ok()
    }
}

#[derive(Serialize, Deserialize)]
struct TodoDetails {
    todo: TodoList,
}

/// What became of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PlanOutcome {
    /// A person accepted it as it was.
    Accepted,
    /// A person changed it and accepted that.
    Edited,
    /// A person wants another one.
    Refused,
    /// Nobody answered, or nobody was there.
    Unanswered,
}

/// A plan, as the details of its result keep it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedPlan {
    /// The plan; the changed one where a person changed it.
    pub text: String,
    /// What became of it.
    pub outcome: PlanOutcome,
}

#[derive(Serialize, Deserialize)]
struct PlanDetails {
    plan: SubmittedPlan,
}

impl SubmittedPlan {
    /// As the details of a result keep it.
    pub fn details(&self) -> Option<Json> {
        Json::of(&PlanDetails { plan: self.clone() }).ok()
    }

    /// The plan that a result of the tool `plan` has.
    pub fn of_details(details: &Json) -> Option<Self> {
        details.read::<PlanDetails>().ok().map(|details| details.plan)
    }

    /// Whether plan mode ended with it.
    pub fn is_accepted(&self) -> bool {
        matches!(self.outcome, PlanOutcome::Accepted | PlanOutcome::Edited)
    }
}

/// The to-do list that stands at the end of these messages, where they have one.
pub fn todo_of(messages: &[Arc<Message>]) -> Option<TodoList> {
    messages.iter().rev().find_map(|message| match &**message {
        Message::ToolResult(result) if result.tool_name == TODO_TOOL && !result.is_error => {
            result.details.as_ref()?.read::<TodoDetails>().ok().map(|details| details.todo)
        }
        Message::CompactionSummary(before) => block_of(&before.summary, TODO_BLOCK).map(TodoList::of_text),
        _ => None,
    })
}

/// Whether plan mode is on at the end of these messages, where they say so.
pub fn plan_mode_of(messages: &[Arc<Message>]) -> Option<bool> {
    messages.iter().rev().find_map(|message| match &**message {
        Message::ToolResult(result) if result.tool_name == PLAN_TOOL => {
            let plan = SubmittedPlan::of_details(result.details.as_ref()?)?;
            plan.is_accepted().then_some(false)
        }
        Message::User(user) => match &user.content {
            Body::Text(text) => said(text),
            Body::Blocks(blocks) => blocks.iter().rev().filter_map(Content::as_text).find_map(said),
        },
        Message::CompactionSummary(before) => block_of(&before.summary, PLAN_BLOCK).map(|_| true),
        _ => None,
    })
}

/// Whether a text is what stands beside messages because of plan mode.
pub fn is_plan_note(text: &str) -> bool {
    said(text).is_some()
}

/// The text blocks joined by newlines, without what stands beside them because of plan mode or of resources that they mention.
pub fn typed_text(blocks: &[Content]) -> String {
    let is_typed = |text: &&str| !is_plan_note(text) && !is_resource_note(text);
    let texts = blocks.iter().filter_map(Content::as_text).filter(is_typed);
    texts.collect::<Vec<_>>().join("\n")
}

fn said(text: &str) -> Option<bool> {
    match text {
        PLAN_ON => Some(true),
        PLAN_OFF => Some(false),
        _ => None,
    }
}

/// The block of a compaction's note with the to-do list.
pub(crate) const TODO_BLOCK: &str = "to-do";
/// The block that says that plan mode is on.
pub(crate) const PLAN_BLOCK: &str = "plan-mode";

/// What a compaction's note carries on beside the summary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CarriedState {
    todo: String,
    plan: &'static str,
}

impl CarriedState {
    /// What these messages say, of which a summary takes the place.
    pub fn of(messages: &[Arc<Message>]) -> Self {
        let todo = todo_of(messages).filter(|todo| !todo.is_done());
        let is_planning = plan_mode_of(messages).unwrap_or_default();
        Self {
            todo: todo.map(|todo| todo.text()).unwrap_or_default(),
            plan: if is_planning { PLAN_ON } else { "" },
        }
    }

    /// The note with a block for each of them that there is.
    #[must_use]
    pub fn appended_to(&self, mut note: String) -> String {
        for (name, content) in [(TODO_BLOCK, &*self.todo), (PLAN_BLOCK, self.plan)] {
            if !content.is_empty() {
                note.push_str(&format!("\n\n<{name}>\n{content}\n</{name}>"));
            }
        }
        note
    }
}

/// The last block of a name in a note: what a person said may look like one.
fn block_of<'a>(note: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = note.rsplit_once(&format!("\n\n<{name}>\n"))?;
    rest.rsplit_once(&format!("\n</{name}>")).map(|(block, _)| block)
}
