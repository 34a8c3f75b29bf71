//! How programs that share the store list our nodes: as entries of a session file, each with an id and its parent's.
//!
//! Such a reader makes a message of most nodes by itself, under the node's own id. What is no message it takes from the `pi_meta`
//! part as it stands there, so id and parent stand in it; without them, all that came before would be lost to it.

use quipu_dag::{Blob, Node, quoted};
use quipu_protocol::{Compaction, Entry, Epoch, Json, UnixMs};

use crate::blocks::member;
use crate::exact::Canonical;
use crate::own_part::Draft;
use crate::{COMPACTION, INTERNAL, Lookup};

/// Under which ids a node is listed.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    /// Its own, which is the node's.
    pub id: &'a str,
    /// The nearest node before it that is listed ([`listed_as`]); `None` for the first.
    pub parent: Option<&'a str>,
    /// Of a compaction: the oldest node that stays in the context.
    pub first_kept: Option<&'a str>,
    /// When the node is written.
    pub at: UnixMs,
}

/// What a node is: its role, but for a compaction, whose own role says to others that it is no message.
pub fn role_of<'a>(node: &'a Node, lookup: &dyn Lookup) -> &'a str {
    let role = node.record.role.as_str();
    if role != INTERNAL || node.record.parts.len() < 2 {
        return role;
    }
    let found = crate::own_part::find(node, lookup).is_some_and(|(own, _)| own.is_compaction());
    if found { COMPACTION } else { role }
}

/// The same of a node that is read.
pub fn role_with<'a>(node: &'a Node, entry: &Entry) -> &'a str {
    match entry {
        Entry::Compaction(_) => COMPACTION,
        Entry::Message(_) | Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => &node.record.role,
    }
}

/// The id under which a node is listed; `None` for one that is not.
pub fn listed_as(node: &Node, lookup: &dyn Lookup) -> Option<String> {
    let blobs = || node.record.parts.iter().filter_map(|part| lookup.blob(part));
    for blob in blobs() {
        let whole = match blob.kind.as_str() {
            "pi_entry" | "pi_meta" => Json::parse(&blob.content).ok(),
            _ => None,
        };
        if let Some(json) = whole
            && (blob.kind == "pi_entry" || member(&json, "type").is_some() && member(&json, "role").is_none())
        {
            return member(&json, "id");
        }
    }
    let says = |blob: &Blob| {
        matches!(blob.kind.as_str(), "text" | "thinking" | "tool_call" | "tool_result" | "pi_meta")
    };
    if node.record.role == INTERNAL && !blobs().any(says) {
        return None;
    }
    Some(node.record.external_id.clone().unwrap_or_else(|| node.id.to_string().chars().take(8).collect()))
}

/// An entry in the making: the members that all have, then its own.
struct ListedEntry(String);

impl ListedEntry {
    fn new(kind: &str, listing: &Listing<'_>) -> Self {
        let mut entry = Self(format!("{{\"type\":{}", quoted(kind)));
        entry.place(listing);
        entry
    }

    fn place(&mut self, listing: &Listing<'_>) {
        self.text("id", listing.id);
        match listing.parent {
            Some(parent) => self.text("parentId", parent),
            None => self.raw("parentId", "null"),
        }
        self.text("timestamp", &iso(listing.at));
    }

    fn raw(&mut self, name: &str, json: &str) {
        let between = if self.0.len() > 1 { "," } else { "" };
        self.0.push_str(&format!("{between}{}:{json}", quoted(name)));
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name, &quoted(text));
    }

    fn json(&mut self, name: &str, json: Option<&Json>) {
        if let Some(json) = json {
            self.raw(name, json.get());
        }
    }

    fn blob(mut self) -> Option<Blob> {
        self.0.push('}');
        Blob::new("pi_meta", self.0).ok()
    }
}

/// The beginning of a session, or a change of what it is set to: other programs know the model of both.
pub(crate) fn settings(epoch: &Epoch, kind: &str, listing: &Listing<'_>) -> Option<Blob> {
    let Epoch { provider, model, .. } = epoch;
    let mut entry;
    if model.is_empty() {
        entry = ListedEntry::new("custom", listing);
        entry.text("customType", kind);
    } else {
        entry = ListedEntry::new("model_change", listing);
        entry.text("provider", provider);
        entry.text("modelId", model);
    }
    entry.blob()
}

pub(crate) fn compaction(compaction: &Compaction, listing: &Listing<'_>) -> Option<Blob> {
    let Compaction { summary, tokens_before, details, usage, from_hook, .. } = compaction;
    let entry = |details: Option<&Json>| {
        let mut entry = ListedEntry::new("compaction", listing);
        entry.text("summary", summary);
        // Where nothing stays, it names itself: it does not stand before itself.
        entry.text("firstKeptEntryId", listing.first_kept.unwrap_or(listing.id));
        entry.raw("tokensBefore", &tokens_before.to_string());
        entry.json("details", details);
        entry.json("usage", usage.as_ref().and_then(|usage| Json::of(usage).ok()).as_ref());
        entry.json("fromHook", from_hook.and_then(|hook| Json::of(&hook).ok()).as_ref());
        entry.blob()
    };
    // Without what is too deep for other readers.
    entry(details.as_ref()).or_else(|| entry(None))
}

/// An entry of our own that is no message, with its ids before the rest of it. `None` for one that has an id, or that
/// others take for a message.
pub(crate) fn meta(json: &Json, draft: &mut Draft, listing: &Listing<'_>) -> Option<Blob> {
    let text = json.get();
    let is_entry = member(json, "type").is_some();
    let has = |name: &str| crate::blocks::members_of(text).is_some_and(|members| members.contains_key(name));
    if !is_entry || ["id", "parentId", "timestamp", "role"].into_iter().any(has) {
        return None;
    }
    let mut entry = ListedEntry("{".to_owned());
    entry.place(listing);
    let mut place = entry.0;
    place.push(',');
    let begins = i64::try_from(place.len()).ok()?;
    let blob = Blob::new("pi_meta", format!("{place}{}", text.strip_prefix('{')?)).ok()?;
    draft.set("listed", Canonical::from(begins));
    Some(blob)
}

/// A message that has no list of blocks, as the entry of it: others take it for a block of another one where it stands by
/// itself.
pub(crate) fn message(json: &Json, draft: &mut Draft, listing: &Listing<'_>) -> Option<Blob> {
    let mut entry = ListedEntry::new("message", listing);
    entry.raw("message", "");
    let begins = i64::try_from(entry.0.len()).ok()?;
    entry.0.push_str(json.get());
    let blob = entry.blob()?;
    draft.set("wrapped", Canonical::from(begins));
    Some(blob)
}

/// What is ours of a part that other programs list: behind so many bytes for them, or between so many and the last.
pub(crate) fn unlisted(content: &str, listed: usize, wrapped: usize) -> Option<Json> {
    match (listed, wrapped) {
        (0, 0) => Json::parse(content).ok(),
        (0, _) => Json::parse(content.get(wrapped..)?.strip_suffix('}')?).ok(),
        (_, _) => Json::parse(&format!("{{{}", content.get(listed..)?)).ok(),
    }
}

/// The words of a summary as others read them.
pub(crate) fn summary_in(json: &Json) -> Option<(String, u64)> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Summary {
        #[serde(rename = "type")]
        _kind: String,
        summary: String,
        #[serde(default)]
        tokens_before: u64,
    }
    json.read::<Summary>().ok().map(|found| (found.summary, found.tokens_before))
}

/// A time as session files have it: `2023-11-14T22:13:20.000Z`. What lies outside of the years 1970 to 9999 stands at their
/// end.
pub(crate) fn iso(at: UnixMs) -> String {
    let at = at.clamp(0, 253_402_300_799_999);
    let (day, rest) = (at / 86_400_000, at % 86_400_000);
    // Days since the first of March of the year 0, so that the day that comes every fourth year is a year's last.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
}

#[cfg(test)]
mod tests {
    use super::iso;

    #[test]
    fn times_are_written_as_in_session_files() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (-5, "1970-01-01T00:00:00.000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso(at), text);
        }
    }
}
