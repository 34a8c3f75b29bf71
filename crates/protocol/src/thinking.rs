//! Levels of thinking: which ones a model has.

use serde_json::Value;

use crate::{Json, Model, Thinking};

/// All levels, from the lowest to the highest.
pub const LEVELS: [Thinking; 7] = [
    Thinking::Off,
    Thinking::Minimal,
    Thinking::Low,
    Thinking::Medium,
    Thinking::High,
    Thinking::Xhigh,
    Thinking::Max,
];

/// The level's name in settings and maps.
pub fn level_name(level: Thinking) -> &'static str {
    match level {
        Thinking::Off => "off",
        Thinking::Minimal => "minimal",
        Thinking::Low => "low",
        Thinking::Medium => "medium",
        Thinking::High => "high",
        Thinking::Xhigh => "xhigh",
        Thinking::Max => "max",
    }
}

/// The level of this name, in any case.
pub fn parse_level(name: &str) -> Option<Thinking> {
    LEVELS.into_iter().find(|&level| level_name(level).eq_ignore_ascii_case(name))
}

/// The levels that `model` has, in order. `[Off]` for a model that does not think. The two highest exist only
/// where the model's map names them; a level that the map sets to null does not exist.
pub fn levels(model: &Model) -> Vec<Thinking> {
    if !model.reasoning {
        return vec![Thinking::Off];
    }
    let map = map(model);
    let has = |level: Thinking| match map.get(level_name(level)) {
        Some(Value::Null) => false,
        Some(_) => true,
        None => level < Thinking::Xhigh,
    };
    LEVELS.into_iter().filter(|&level| has(level)).collect()
}

/// The level that is used when `wanted` is asked for: itself, or the next higher one that exists, or else the
/// next lower one.
pub fn clamp_level(model: &Model, wanted: Thinking) -> Thinking {
    let levels = levels(model);
    let above = levels.iter().find(|&&level| level >= wanted);
    above.or(levels.last()).copied().unwrap_or_default()
}

fn map(model: &Model) -> Value {
    model.thinking_level_map.as_ref().map(Json::value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_clamped_upward_then_downward() {
        let model = |map: &str| Model {
            reasoning: true,
            thinking_level_map: Json::parse(map).ok(),
            ..Model::default()
        };
        let check = |map, wanted, expect| assert_eq!(clamp_level(&model(map), wanted), expect, "{map}");
        check("{}", Thinking::Medium, Thinking::Medium);
        check("{}", Thinking::Max, Thinking::High);
        check(r#"{"max":"max"}"#, Thinking::Xhigh, Thinking::Max);
        check(r#"{"off":null,"minimal":null}"#, Thinking::Off, Thinking::Low);
        check(r#"{"high":null}"#, Thinking::High, Thinking::Medium);
        check("3", Thinking::Low, Thinking::Low);
        assert_eq!(clamp_level(&Model::default(), Thinking::High), Thinking::Off);
        assert_eq!(parse_level("XHigh"), Some(Thinking::Xhigh));
        assert_eq!(parse_level(""), None);
    }
}
