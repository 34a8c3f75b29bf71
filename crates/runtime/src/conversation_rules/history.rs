//! How many turns of a conversation a request has.

use std::num::NonZeroU32;

use quipu::TurnLimit;
use quipu_host::TurnLimits;

use crate::keys::{KeyPlace, SessionKey};

/// How many turns of the user requests of a conversation have: what is set for the person comes before the channel, that before the kind,
/// and that before what holds for all. A thread has the limit of what it is a part of. Jobs, hooks and sub-agents have none. A heartbeat
/// sees nothing of those before it.
#[must_use]
pub fn turn_limit(limits: &TurnLimits, key: &SessionKey) -> TurnLimit {
    if key.is_heartbeat() {
        return TurnLimit::Newest(NonZeroU32::MIN);
    }
    conversation_limit(limits, key)
}

/// The same where a heartbeat goes on with those before it, as the conversation that it is beside does.
pub(crate) fn conversation_limit(limits: &TurnLimits, key: &SessionKey) -> TurnLimit {
    let turns = match key.place() {
        KeyPlace::Direct { channel: Some(channel), peer, .. } => {
            let channel = limits.by_channel.get(channel);
            let own = channel.and_then(|channel| channel.people.get(peer).copied().or(channel.direct));
            own.or(limits.direct).or(limits.turns)
        }
        KeyPlace::Main(_) | KeyPlace::Direct { channel: None, .. } | KeyPlace::Global => {
            limits.direct.or(limits.turns)
        }
        KeyPlace::Room { channel, .. } => {
            let own = limits.by_channel.get(channel).and_then(|channel| channel.group);
            own.or(limits.group).or(limits.turns)
        }
        KeyPlace::Unknown | KeyPlace::Other(_) => limits.turns,
        KeyPlace::Cron(_) | KeyPlace::Hook(_) | KeyPlace::Subagent(_) | KeyPlace::Acp(_) => None,
    };
    turns.and_then(NonZeroU32::new).map_or(TurnLimit::All, TurnLimit::Newest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quipu_host::ChannelTurns;

    use super::*;

    #[test]
    fn limits_are_those_of_person_channel_and_kind() {
        let telegram = ChannelTurns {
            direct: Some(5),
            group: Some(3),
            people: BTreeMap::from([("7".to_owned(), 9), ("8".to_owned(), 0)]),
        };
        let slack = ChannelTurns { group: Some(0), ..ChannelTurns::default() };
        let channels = BTreeMap::from([("telegram".to_owned(), telegram), ("slack".to_owned(), slack)]);
        let all = TurnLimits { turns: Some(20), direct: Some(10), group: None, by_channel: channels };
        let few = TurnLimits { turns: None, direct: None, ..all.clone() };
        for (key, with_all, without) in [
            ("agent:main:telegram:direct:7", 9, 9),
            ("agent:main:telegram:direct:8", 0, 0),
            ("agent:main:telegram:direct:9", 5, 5),
            ("agent:main:telegram:account:direct:7:thread:4", 9, 9),
            ("telegram:dm:1", 5, 5),
            ("agent:main:telegram:group:-1:topic:3", 3, 3),
            ("agent:main:slack:channel:c", 0, 0),
            ("agent:main:slack:direct:7", 10, 0),
            ("agent:main:irc:group:c", 20, 0),
            ("agent:main:main", 10, 0),
            ("agent:main:main:heartbeat", 1, 1),
            ("agent:main:telegram:direct:8:heartbeat", 1, 1),
            ("ann", 10, 0),
            ("main:whatsapp:+123", 20, 0),
            ("cron:x", 0, 0),
            ("agent:main:subagent:x", 0, 0),
        ] {
            let key = SessionKey::parse(key).unwrap();
            let limit = |turns: u32| NonZeroU32::new(turns).map_or(TurnLimit::All, TurnLimit::Newest);
            assert_eq!(turn_limit(&all, &key), limit(with_all), "{key}");
            assert_eq!(turn_limit(&few, &key), limit(without), "{key}");
        }
        let beside = SessionKey::parse("agent:main:main:heartbeat").unwrap();
        assert_eq!(conversation_limit(&few, &beside), TurnLimit::All);
    }
}
