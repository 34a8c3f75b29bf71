//! What the models of this wire have and want, read from their ids and the catalogue.

use quipu_protocol::{Json, Model, Thinking};
use serde_json::Value;

use super::wire::ThinkingConfig;
use crate::prepare::MIN_ANSWER;
use crate::thinking::mapped;
use crate::{ThinkingBudgets, clamp_level, level_name};

/// What is particular to one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits {
    /// Thinks by levels, not by budgets.
    thinks_by_level: bool,
    /// Calls and their results have ids.
    pub(super) has_call_ids: bool,
    /// Results may hold images.
    pub(super) has_result_images: bool,
    /// Refuses a call without a signature.
    pub(super) needs_signatures: bool,
}

impl Traits {
    pub(super) fn of(model: &Model) -> Self {
        let id = model.id.to_ascii_lowercase();
        let name = id.rsplit('/').next().unwrap_or_default();
        let family = name.strip_prefix("gemini-");
        // The names without a version are those of the newest models.
        let is_recent =
            family.is_some_and(|rest| rest.ends_with("-latest") || version(rest).is_some_and(|it| it >= 3));
        let has_levels = match model.thinking_level_map.as_ref().map(Json::value) {
            Some(Value::Object(map)) => map.values().any(Value::is_string),
            Some(_) | None => false,
        };
        let foreign = name.starts_with("claude-") || name.starts_with("gpt-oss-");
        Self {
            thinks_by_level: is_recent || has_levels || name.starts_with("gemma-4"),
            has_call_ids: is_recent || foreign,
            has_result_images: is_recent,
            needs_signatures: is_recent,
        }
    }
}

/// The number that the rest of a name begins with.
fn version(rest: &str) -> Option<u32> {
    let rest = rest.strip_prefix("live-").unwrap_or(rest);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

/// Tokens for each level, from minimal to high, of models that count them.
const BUDGETS: &[(&str, [i64; 4])] = &[
    ("2.5-pro", [128, 2_048, 8_192, 32_768]),
    ("2.5-flash-lite", [512, 2_048, 8_192, 24_576]),
    ("2.5-flash", [128, 2_048, 8_192, 24_576]),
];
/// The model decides.
const ANY_BUDGET: i64 = -1;

/// The `thinkingConfig` of `model` at the level `wanted`, within `max_tokens` of output; `None` for one that does not
/// think. What it thinks is shown only when somebody asked for thinking.
pub(super) fn thinking(
    model: &Model,
    wanted: Thinking,
    budgets: ThinkingBudgets,
    max_tokens: u64,
) -> Option<ThinkingConfig> {
    if !model.reasoning {
        return None;
    }
    let level = clamp_level(model, wanted);
    let include_thoughts = (wanted != Thinking::Off).then_some(true);
    if Traits::of(model).thinks_by_level {
        // No model that has levels can be told not to think.
        let level = if level == Thinking::Off { lowest(&model.id) } else { level };
        let name = mapped(model, level).unwrap_or_else(|| {
            let highest = level.min(Thinking::High);
            level_name(highest).to_owned()
        });
        let thinking_level = Some(name.to_ascii_uppercase());
        return Some(ThinkingConfig { include_thoughts, thinking_level, thinking_budget: None });
    }
    let row = BUDGETS.iter().find(|(part, _)| model.id.contains(part)).map(|(_, row)| row);
    // The first of these always thinks.
    let least = if row == BUDGETS.first().map(|(_, row)| row) { 128 } else { 0 };
    let budget = match level {
        Thinking::Off => least,
        level => {
            let set = budgets.of(level);
            let own = row.map_or(ANY_BUDGET, |row| row[place(level)]);
            let is_set = set != ThinkingBudgets::default().of(level);
            let budget = if is_set { i64::try_from(set).unwrap_or(i64::MAX) } else { own };
            let room = i64::try_from(max_tokens.saturating_sub(MIN_ANSWER)).unwrap_or(i64::MAX);
            budget.min(room).max(if budget == ANY_BUDGET { ANY_BUDGET } else { least })
        }
    };
    Some(ThinkingConfig { include_thoughts, thinking_level: None, thinking_budget: Some(budget) })
}

/// The lowest level of a model with levels of which the catalogue says nothing.
fn lowest(id: &str) -> Thinking {
    if id.contains("-pro") { Thinking::Low } else { Thinking::Minimal }
}

fn place(level: Thinking) -> usize {
    match level {
        Thinking::Off | Thinking::Minimal => 0,
        Thinking::Low => 1,
        Thinking::Medium => 2,
        Thinking::High | Thinking::Xhigh | Thinking::Max => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: &str, map: &str) -> Model {
        Model {
            id: id.into(),
            reasoning: true,
            thinking_level_map: Json::parse(map).ok(),
            ..Model::default()
        }
    }

    #[test]
    fn models_are_known_by_their_ids() {
        let check = |id: &str, recent: bool, ids: bool| {
            let traits = Traits::of(&model(id, "{}"));
            let got = (traits.needs_signatures, traits.has_result_images, traits.has_call_ids);
            assert_eq!(got, (recent, recent, ids), "{id}");
        };
        for id in ["gemini-3-flash-preview", "models/Gemini-3.1-pro", "gemini-4-argon", "gemini-pro-latest"] {
            check(id, true, true);
        }
        for id in ["gemini-live-3-x", "gemini-10", "gemini-flash-lite-latest"] {
            check(id, true, true);
        }
        for id in
            ["gemini-2.5-pro", "gemini-live-2.5-flash", "gemini-", "gemma-4-31b-it", "x", "", "gemini-3é/"]
        {
            check(id, false, false);
        }
        check("claude-x", false, true);
        check("gpt-oss-20b", false, true);
    }

    #[test]
    fn thinking_is_a_level_or_a_budget() {
        let check = |model: &Model, wanted: Thinking, max_tokens: u64, shown: bool, expect: &str| {
            let got = thinking(model, wanted, ThinkingBudgets::default(), max_tokens).unwrap();
            let said = got.thinking_level.or(got.thinking_budget.map(|budget| budget.to_string()));
            assert_eq!((got.include_thoughts, said.as_deref()), (shown.then_some(true), Some(expect)));
        };
        let (off, high) = (Thinking::Off, Thinking::High);
        let pro = model("gemini-2.5-pro", "{}");
        check(&pro, off, 64_000, false, "128");
        check(&pro, Thinking::Minimal, 64_000, true, "128");
        check(&pro, Thinking::Medium, 64_000, true, "8192");
        check(&pro, high, 64_000, true, "32768");
        check(&pro, high, 2_000, true, "976");
        check(&pro, high, 10, true, "128");
        let flash = model("gemini-2.5-flash", "{}");
        check(&flash, off, 64_000, false, "0");
        check(&flash, high, 64_000, true, "24576");
        check(&flash, high, 10, true, "0");
        check(&model("gemini-2.5-flash-lite", "{}"), Thinking::Minimal, 64_000, true, "512");
        check(&model("other", "{}"), Thinking::Max, 64_000, true, "-1");
        check(&model("other", "{}"), Thinking::Max, 1, true, "-1");
        check(&model("other", "{}"), off, 1, false, "0");
        let map = r#"{"off":null,"minimal":null,"low":"low","medium":"medium","high":"high","xhigh":null}"#;
        let levels = model("gemini-3.1-pro-preview", map);
        check(&levels, off, 64_000, false, "LOW");
        check(&levels, Thinking::Medium, 64_000, true, "MEDIUM");
        check(&levels, Thinking::Max, 64_000, true, "HIGH");
        check(&model("gemini-3-pro", "{}"), off, 64_000, false, "LOW");
        check(&model("gemini-3-flash", "{}"), off, 64_000, false, "MINIMAL");
        let gemma = model(
            "gemma-4-31b-it",
            r#"{"off":null,"minimal":"MINIMAL","low":null,"medium":null,"high":"HIGH"}"#,
        );
        check(&gemma, off, 64_000, false, "MINIMAL");
        check(&gemma, Thinking::Low, 64_000, true, "HIGH");
        let set = ThinkingBudgets { medium: 5_000, ..ThinkingBudgets::default() };
        let got = thinking(&pro, Thinking::Medium, set, 64_000).unwrap();
        assert_eq!(got.thinking_budget, Some(5_000));
        assert_eq!(thinking(&Model { reasoning: false, ..pro }, high, set, 1), None);
    }
}
