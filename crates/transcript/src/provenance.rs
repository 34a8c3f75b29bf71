//! Where the text of a node came from, also where the node does not say it.

use quipu_protocol::{AuthorClass, Entry, Message, Origin, Provenance, StepInfo};

/// Where the text of an entry came from: what its node says, else what follows from its kind. `None` for entries that hold
/// no text of anybody's.
///
/// `importer` names the agent whose file the lineage was imported from, as its session node does; `None` for sessions of
/// ours. Everything of an imported lineage is untrusted: anybody may have written the file.
///
/// ```
/// use quipu_protocol::{AuthorClass, Entry, Message, Origin, Provenance, StepInfo};
/// use quipu_transcript::provenance;
///
/// let said = Entry::Message(Message::user("Hello.", 0));
/// let step = StepInfo { provenance: Some(Provenance::quipu()), ..StepInfo::default() };
/// assert_eq!(provenance(&said, &step, None), Some(Provenance::quipu()));
/// // A node of a version that did not say it.
/// assert_eq!(provenance(&said, &StepInfo::default(), None), Some(Provenance::default()));
/// let imported = provenance(&said, &StepInfo::default(), Some("pi")).unwrap();
/// assert_eq!((imported.origin, imported.author), (Origin::Import, AuthorClass::Untrusted));
/// ```
pub fn provenance(entry: &Entry, step: &StepInfo, importer: Option<&str>) -> Option<Provenance> {
    if let Some(provenance) = &step.provenance {
        return Some(provenance.clone());
    }
    if let (Some(agent), Entry::Message(_) | Entry::Compaction(_)) = (importer, entry) {
        return Some(Provenance::new(Origin::Import, AuthorClass::Untrusted).named(agent));
    }
    match entry {
        Entry::Message(message) => match message {
            Message::User(_) => Some(Provenance::default()),
            Message::Assistant(_) | Message::CompactionSummary(_) | Message::BranchSummary(_) => {
                Some(Provenance::model())
            }
            Message::ToolResult(_) => Some(Provenance::tool()),
            Message::BashExecution(_) => Some(Provenance::shell()),
            Message::Custom(_) | Message::Other(_) => Some(Provenance::quipu()),
        },
        Entry::Compaction(_) => Some(Provenance::model()),
        Entry::Session(_) | Entry::Epoch(_) | Entry::Meta(_) => None,
    }
}
