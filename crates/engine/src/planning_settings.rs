//! Whether a session has plan mode and to-do lists.

/// What a session has of plan mode and to-do lists. Nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanningSettings {
    /// Whether there is plan mode; the model has the tool `plan` then.
    pub plan: bool,
    /// Whether the session begins in it; `None`: as its conversation left it, and a new one does not.
    pub start: Option<bool>,
    /// Whether a person named the model for this opening: where the session begins in plan mode, it has that one and not the
    /// one of the purpose [`PLANS_PURPOSE`](crate::PLANS_PURPOSE).
    pub named_model: bool,
    /// Whether the model has the tool `todo`.
    pub todo: bool,
}
