//! What a message says.

use quipu_protocol::{Content, Json, ThinkingContent, ToolCall};
use quipu_seal::Sealer;

use crate::Report;
use crate::export::Files;
use crate::json::{Members, list, text_of};

/// A message split into its members.
pub(super) struct ParsedMessage<'a> {
    pub(super) members: Members<'a>,
    metadata: Option<Members<'a>>,
    content: Option<Members<'a>>,
    /// Of its content.
    pub(super) kind: String,
    pub(super) role: String,
    /// Of the tool that says it.
    pub(super) name: Option<String>,
    /// The tool that it is for.
    pub(super) to: Option<String>,
}

/// Members of a message that stand elsewhere, or change while it is the same.
const ELSEWHERE: [&str; 6] = ["id", "content", "create_time", "update_time", "status", "weight"];

impl<'a> ParsedMessage<'a> {
    pub(super) fn of(message: &'a str) -> Option<Self> {
        let members = Members::of(message)?;
        let author = members.get("author").and_then(Members::of);
        let of_author = |name: &str| author.as_ref().and_then(|author| author.string(name)).map(Into::into);
        let content = members.get("content").and_then(Members::of);
        let kind = content.as_ref().and_then(|content| content.string("content_type")).unwrap_or_default();
        let to = members.string("recipient").filter(|to| !to.is_empty() && to != "all").map(Into::into);
        Some(Self {
            kind: kind.into_owned(),
            role: of_author("role").unwrap_or_default(),
            name: of_author("name"),
            to,
            metadata: members.get("metadata").and_then(Members::of),
            content,
            members,
        })
    }

    pub(super) fn metadata(&self, name: &str) -> Option<&'a str> {
        self.metadata.as_ref()?.get(name)
    }

    /// Whether the answer is still being written.
    pub(super) fn is_unfinished(&self) -> bool {
        self.role == "assistant" && self.members.string("status").as_deref() == Some("in_progress")
    }

    /// Whether a model would be shown it as what the user, the model or a tool said.
    pub(super) fn is_said(&self) -> bool {
        let is_hidden = self.metadata("is_visually_hidden_from_conversation") == Some("true");
        match self.role.as_str() {
            "user" => !is_hidden && self.kind != "user_editable_context",
            "assistant" => !matches!(self.kind.as_str(), "reasoning_recap" | "model_editable_context"),
            "tool" => self.kind != "model_editable_context",
            _ => false,
        }
    }

    /// The text of its content, in whatever member it stands.
    fn words(&self) -> String {
        let Some(content) = &self.content else { return String::new() };
        ["text", "result", "content"]
            .iter()
            .find_map(|name| content.get(name).and_then(text_of))
            .unwrap_or_default()
    }

    /// The call that a message to a tool is.
    pub(super) fn call(&self, id: &str) -> Option<Content> {
        let name = self.to.clone().filter(|_| self.role == "assistant")?;
        let parts = self
            .content
            .as_ref()
            .map(|content| list(content.get("parts").unwrap_or("[]")))
            .unwrap_or_default();
        let mut text: String = parts.into_iter().filter_map(text_of).collect();
        if text.is_empty() {
            text = self.words();
        }
        let object = Json::parse(text.trim()).ok().filter(|json| json.get().starts_with('{'));
        let plain =
            || Json::parse(&format!("{{\"input\":{}}}", quipu_dag::quoted(&text))).unwrap_or_default();
        let arguments = object.unwrap_or_else(plain);
        Some(Content::ToolCall(ToolCall {
            id: id.into(),
            name,
            arguments,
            thought_signature: None,
            namespace: None,
        }))
    }

    /// All that it says, with the files that it names.
    pub(super) fn blocks(
        &self,
        line: u64,
        files: &mut Files,
        sealer: &Sealer,
        report: &mut Report,
    ) -> Vec<Content> {
        let mut blocks = Vec::new();
        let mut named = Vec::new();
        if self.kind == "thoughts" {
            let thoughts = self.content.as_ref().and_then(|content| content.get("thoughts")).unwrap_or("[]");
            for thought in list(thoughts).into_iter().filter_map(Members::of) {
                let words = |name: &str| thought.get(name).and_then(text_of).filter(|text| !text.is_empty());
                let thinking = words("content").or_else(|| words("summary")).unwrap_or_default();
                if !thinking.is_empty() {
                    blocks
                        .push(Content::Thinking(ThinkingContent { thinking, ..ThinkingContent::default() }));
                }
            }
        } else {
            let parts = self.content.as_ref().map(|content| list(content.get("parts").unwrap_or("[]")));
            for part in parts.iter().flatten() {
                let Some(members) = Members::of(part) else {
                    blocks.extend(text_of(part).filter(|text| !text.is_empty()).map(Content::text));
                    continue;
                };
                if let Some(text) = members.get("text").and_then(text_of) {
                    blocks.push(Content::text(text));
                    continue;
                }
                let Some(id) = members.string("asset_pointer").map(|pointer| id_of(&pointer).to_owned())
                else {
                    blocks.push(Content::Other(Json::parse(part).unwrap_or_default()));
                    continue;
                };
                let name = self.name_of(&id).unwrap_or_else(|| id.clone());
                let found = files.asset(&id, &name, line, sealer, report);
                blocks.push(found.unwrap_or_else(|| Content::Other(Json::parse(part).unwrap_or_default())));
                named.push(id);
            }
            if parts.is_none_or(|parts| parts.is_empty()) {
                blocks.extend(Some(self.words()).filter(|text| !text.is_empty()).map(Content::text));
            }
        }
        for attachment in
            list(self.metadata("attachments").unwrap_or("[]")).into_iter().filter_map(Members::of)
        {
            let Some(id) = attachment.string("id").filter(|id| !named.iter().any(|one| one == id)) else {
                continue;
            };
            let name = attachment.get("name").and_then(text_of).unwrap_or_else(|| id.clone().into_owned());
            blocks.extend(files.asset(&id, &name, line, sealer, report));
        }
        blocks
    }

    /// What the user called a file.
    fn name_of(&self, id: &str) -> Option<String> {
        let attachments = list(self.metadata("attachments").unwrap_or("[]"));
        let found = attachments
            .into_iter()
            .filter_map(Members::of)
            .find(|one| one.string("id").as_deref() == Some(id));
        found?.get("name").and_then(text_of)
    }

    /// The members that no entry holds.
    pub(super) fn rest(&self) -> Json {
        #[derive(serde::Serialize)]
        struct UnmappedMembers {
            message: Json,
            #[serde(skip_serializing_if = "Option::is_none")]
            content: Option<Json>,
        }
        let content =
            self.content.as_ref().map(|content| content.without(&["content_type", "parts", "text"]));
        let content = content.filter(|rest| rest.get() != "{}" || self.kind != "text").map(|rest| match rest
            .get()
        {
            "{}" => Json::of(&self.kind).unwrap_or_default(),
            _ => self.content.as_ref().map(|content| content.without(&["parts", "text"])).unwrap_or_default(),
        });
        Json::of(&UnmappedMembers { message: self.members.without(&ELSEWHERE), content }).unwrap_or_default()
    }

    /// The whole, for what is not shown.
    pub(super) fn whole(&self) -> Json {
        self.members.without(&["update_time", "status", "weight"])
    }
}

/// The id in the name of a file: what stands behind its scheme, without what stands behind a `#` or `?`.
fn id_of(pointer: &str) -> &str {
    let id = pointer.split_once("://").map_or(pointer, |(_, id)| id);
    id.split(['#', '?']).next().unwrap_or_default()
}
