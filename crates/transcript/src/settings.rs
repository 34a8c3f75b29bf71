//! What entries of other programs say about the model.

use quipu_protocol::{AssistantMessage, Epoch, Json, Thinking};
use serde::Deserialize;

/// The last change of each setting, collected from entries that are read from the newest to the oldest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingChanges {
    model: Option<(String, String)>,
    thinking: Option<Thinking>,
}

impl SettingChanges {
    /// Takes in an entry that is older than those before.
    pub fn earlier(&mut self, entry: &Json) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", tag = "type", rename_all_fields = "camelCase")]
        enum Change {
            #[serde(rename = "model_change")]
            Model { provider: String, model_id: String },
            #[serde(rename = "thinking_level_change")]
            Thinking { thinking_level: Thinking },
        }
        // Most entries are something else: told apart without reading them.
        if !entry.get().contains("_change") {
            return;
        }
        match entry.read() {
            Ok(Change::Model { provider, model_id }) => {
                self.model.get_or_insert((provider, model_id));
            }
            Ok(Change::Thinking { thinking_level }) => {
                self.thinking.get_or_insert(thinking_level);
            }
            Err(_) => {}
        }
    }

    /// Takes in an answer that is older than those before: the model that was asked is the one that is set, where nobody
    /// changed it since. Whether it names one: programs write answers in a model's place under names such as
    /// `<synthetic>`.
    pub fn earlier_answer(&mut self, answer: &AssistantMessage) -> bool {
        let AssistantMessage { provider, model, .. } = answer;
        let is_none = |name: &&String| name.is_empty() || *name == "unknown" || name.starts_with('<');
        let names = ![provider, model].iter().any(is_none);
        if names {
            self.model.get_or_insert_with(|| (provider.clone(), model.clone()));
        }
        names
    }

    /// The epoch that they leave of the one before them.
    #[must_use]
    pub fn applied_to(self, mut epoch: Epoch) -> Epoch {
        if let Some((provider, model)) = self.model {
            (epoch.provider, epoch.model) = (provider, model);
        }
        epoch.thinking = self.thinking.unwrap_or(epoch.thinking);
        epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_change_of_each_setting_counts() {
        let mut changes = SettingChanges::default();
        for entry in [
            r#"{"type":"label","targetId":"model_change"}"#,
            r#"{"type":"thinking_level_change","thinkingLevel":"no such level"}"#,
            r#"{"type":"thinking_level_change","thinkingLevel":"high","id":"x"}"#,
            r#"{"type":"model_change","provider":"p2","modelId":"m2"}"#,
            r#"{"type":"model_change","provider":"p1","modelId":"m1"}"#,
            r#"{"type":"thinking_level_change","thinkingLevel":"low"}"#,
        ] {
            changes.earlier(&Json::parse(entry).unwrap());
        }
        let epoch = Epoch { provider: "p0".into(), model: "m0".into(), ..Epoch::default() };
        let expect =
            Epoch { provider: "p2".into(), model: "m2".into(), thinking: Thinking::High, ..Epoch::default() };
        assert_eq!(changes.applied_to(epoch.clone()), expect);
        assert_eq!(SettingChanges::default().applied_to(epoch.clone()), epoch);
    }
}
