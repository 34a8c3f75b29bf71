//! What the models of this wire have and want, read from their ids and names: the id of a profile of one's own says
//! nothing of the model behind it, so its name may.

use quipu_protocol::{Json, Model};
use serde::Serialize;

use super::place::BedrockPlace;
use crate::CacheRetention;

/// What is particular to one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits {
    /// A Claude: its thinking is asked for, and proved by signatures.
    pub(super) is_claude: bool,
    /// Thinks as much as an effort says, not by a budget.
    pub(super) is_adaptive: bool,
    /// Its thinking can be asked for in summary.
    pub(super) has_display: bool,
    /// Keeps what stands before a mark.
    pub(super) has_cache: bool,
    /// Can keep it for an hour.
    pub(super) has_long_cache: bool,
}

impl Traits {
    pub(super) fn of(model: &Model, place: &BedrockPlace) -> Self {
        let texts = [model.id.as_str(), model.name.as_str()].map(str::to_ascii_lowercase);
        let version = texts.iter().find_map(|text| claude_version(text));
        let is_claude = texts.iter().any(|text| text.contains("claude"));
        let old_with_cache = ["3-7-sonnet", "3-5-haiku", "3.7 sonnet", "3.5 haiku"];
        let has_cache = match version {
            Some(version) if version >= (4, 0) => true,
            Some(_) | None if is_claude => {
                texts.iter().any(|text| old_with_cache.iter().any(|name| text.contains(name)))
            }
            Some(_) | None => place.force_cache,
        };
        let compat = model.compat.as_ref().map(Json::value).unwrap_or_default();
        let flag = |name: &str| compat.get(name).and_then(serde_json::Value::as_bool);
        let is_adaptive = flag("forceAdaptiveThinking").unwrap_or_else(|| version >= Some((4, 6)));
        let id = &texts[0];
        let in_government = place.region.starts_with("us-gov-")
            || id.starts_with("us-gov.")
            || id.starts_with("arn:aws-us-gov:");
        Self {
            is_claude,
            is_adaptive: is_claude && is_adaptive,
            has_display: !in_government,
            has_cache,
            has_long_cache: flag("supportsLongCacheRetention").unwrap_or(true),
        }
    }

    /// The mark for the end of what is to be kept; `None` when nothing is.
    pub(super) fn mark(self, retention: CacheRetention) -> Option<CachePoint> {
        let ttl = match retention {
            CacheRetention::Off => return None,
            CacheRetention::Long if self.has_long_cache => Some("1h"),
            CacheRetention::Long | CacheRetention::Short => None,
        };
        self.has_cache.then_some(CachePoint { kind: "default", ttl })
    }
}

/// The end of a prefix that the server keeps.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CachePoint {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

/// The version in a lower-case id or name: `claude-opus-4-6-v1`, `claude-3-7-sonnet-20250219`, `claude sonnet 4.5`.
fn claude_version(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once("claude")?;
    let parts = rest.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    // A date is no version.
    let number = |part: &str| Some(part).filter(|part| part.len() <= 2).and_then(|part| part.parse().ok());
    let mut parts = parts.skip_while(|part| number(part).is_none());
    let major = number(parts.next()?)?;
    Some((major, parts.next().and_then(number).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn traits(id: &str, name: &str) -> Traits {
        let model = Model { id: id.into(), name: name.into(), ..Model::default() };
        Traits::of(&model, &place("us-east-1"))
    }

    fn place(region: &str) -> BedrockPlace {
        BedrockPlace { base_url: String::new(), region: region.into(), force_cache: false }
    }

    #[test]
    fn models_are_known_by_ids_and_names() {
        let check = |id: &str, name: &str, expect: (bool, bool, bool)| {
            let got = traits(id, name);
            assert_eq!((got.is_claude, got.has_cache, got.is_adaptive), expect, "{id} {name}");
        };
        check("anthropic.claude-3-haiku-20240307-v1:0", "", (true, false, false));
        check("anthropic.claude-instant-v1", "", (true, false, false));
        check("anthropic.claude-3-5-sonnet-20241022-v2:0", "", (true, false, false));
        check("anthropic.claude-3-5-haiku-20241022-v1:0", "", (true, true, false));
        check("us.anthropic.claude-3-7-sonnet-20250219-v1:0", "", (true, true, false));
        check("us.anthropic.claude-sonnet-4-20250514-v1:0", "", (true, true, false));
        check("anthropic.claude-opus-4-5-20251101-v1:0", "", (true, true, false));
        check("global.anthropic.claude-opus-4-6-v1", "", (true, true, true));
        check("anthropic.claude-fable-5", "", (true, true, true));
        let arn = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc4-6";
        check(arn, "", (false, false, false));
        check(arn, "Team Claude Sonnet 4.6", (true, true, true));
        check(arn, "Claude Sonnet 3.7", (true, false, false));
        check("amazon.nova-pro-v1:0", "Nova Pro", (false, false, false));
        check("deepseek.v3.2", "", (false, false, false));
    }

    /// What the catalogue of the vendor's own servers says of a model holds here too.
    #[test]
    fn thinking_of_the_catalogue_is_known() {
        let own = catalogue::models("anthropic");
        let mut known = 0;
        for model in catalogue::models(super::super::PROVIDER) {
            let Some((_, name)) = model.id.split_once("anthropic.") else { continue };
            let Some(same) = own.iter().find(|own| own.id == name) else { continue };
            let compat = same.compat.as_ref().map(Json::value).unwrap_or_default();
            let expect = compat["forceAdaptiveThinking"].as_bool().unwrap_or(false);
            assert_eq!(traits(&model.id, &model.name).is_adaptive, expect, "{}", model.id);
            known += 1;
        }
        assert!(known > 20, "{known}");
    }

    #[test]
    fn marks_need_a_cache_and_can_be_long() {
        let claude = traits("anthropic.claude-opus-4-8", "");
        let text = |traits: Traits, retention| serde_json::to_string(&traits.mark(retention)).unwrap();
        assert_eq!(text(claude, CacheRetention::Short), r#"{"type":"default"}"#);
        assert_eq!(text(claude, CacheRetention::Long), r#"{"type":"default","ttl":"1h"}"#);
        assert_eq!(text(claude, CacheRetention::Off), "null");
        let arn = Model { id: "arn:aws:bedrock:x:1:p/abc".into(), ..Model::default() };
        assert_eq!(text(Traits::of(&arn, &place("x")), CacheRetention::Short), "null");
        let forced = BedrockPlace { force_cache: true, ..place("x") };
        assert_eq!(text(Traits::of(&arn, &forced), CacheRetention::Short), r#"{"type":"default"}"#);
        let old = Model { id: "anthropic.claude-3-haiku-20240307-v1:0".into(), ..Model::default() };
        assert_eq!(text(Traits::of(&old, &forced), CacheRetention::Short), "null");
        assert!(claude.has_display);
        let model = Model { id: "anthropic.claude-opus-4-8".into(), ..Model::default() };
        assert!(!Traits::of(&model, &place("us-gov-west-1")).has_display);
        let model = Model { id: "us-gov.anthropic.claude-opus-4-8".into(), ..Model::default() };
        assert!(!Traits::of(&model, &place("us-east-1")).has_display);
    }
}
