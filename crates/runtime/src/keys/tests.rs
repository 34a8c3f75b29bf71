use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<String, KeyError> {
    SessionKey::parse(text).map(|key| key.to_string())
}

fn direct(channel: Option<&str>, account: Option<&str>, peer: &str) -> KeyPlace {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    KeyPlace::Direct { channel: owned(channel), account: owned(account), peer: peer.into() }
}

#[test]
fn keys_of_every_form_are_read() {
    let room = |channel: &str, kind, peer: &str, topic: Option<&str>| KeyPlace::Room {
        channel: channel.into(),
        kind,
        peer: peer.into(),
        topic: topic.map(str::to_owned),
    };
    for (text, agent, place, thread, is_heartbeat) in [
        ("agent:main:main", Some("main"), KeyPlace::Main("main".into()), None, false),
        ("agent:main:direct:+491", Some("main"), direct(None, None, "+491"), None, false),
        ("agent:main:dm:+491", Some("main"), direct(None, None, "+491"), None, false),
        ("agent:a:signal:direct:+1", Some("a"), direct(Some("signal"), None, "+1"), None, false),
        ("agent:a:signal:dm:+1", Some("a"), direct(Some("signal"), None, "+1"), None, false),
        ("agent:a:signal:work:dm:+1", Some("a"), direct(Some("signal"), Some("work"), "+1"), None, false),
        ("agent:a:irc:group:#x", Some("a"), room("irc", RoomKind::Group, "#x", None), None, false),
        (
            "agent:a:matrix:channel:!r:host:thread:$e:host",
            Some("a"),
            room("matrix", RoomKind::Channel, "!r:host", None),
            Some("$e:host"),
            false,
        ),
        (
            "agent:a:telegram:group:-100:topic:7",
            Some("a"),
            room("telegram", RoomKind::Group, "-100", Some("7")),
            None,
            false,
        ),
        ("agent:a:main:thread:1.5", Some("a"), KeyPlace::Main("main".into()), Some("1.5"), false),
        ("agent:a:cron:job-1", Some("a"), KeyPlace::Cron("job-1".into()), None, false),
        ("cron:job-1", None, KeyPlace::Cron("job-1".into()), None, false),
        ("hook:12-34", None, KeyPlace::Hook("12-34".into()), None, false),
        ("agent:a:subagent:u1", Some("a"), KeyPlace::Subagent("u1".into()), None, false),
        (
            "agent:a:subagent:u1:subagent:u2",
            Some("a"),
            KeyPlace::Subagent("u1:subagent:u2".into()),
            None,
            false,
        ),
        ("agent:a:acp:x:y", Some("a"), KeyPlace::Acp("x:y".into()), None, false),
        ("agent:a:main:heartbeat", Some("a"), KeyPlace::Main("main".into()), None, true),
        ("agent:a:main:thread:1:heartbeat", Some("a"), KeyPlace::Main("main".into()), Some("1"), true),
        ("agent:a:heartbeat", Some("a"), KeyPlace::Main("heartbeat".into()), None, false),
        ("global", None, KeyPlace::Global, None, false),
        ("unknown", None, KeyPlace::Unknown, None, false),
        ("agent:a:global", Some("a"), KeyPlace::Main("global".into()), None, false),
        ("main:whatsapp:+123", None, KeyPlace::Other("main:whatsapp:+123".into()), None, false),
    ] {
        let key = SessionKey::parse(text).unwrap();
        let read = (key.agent().map(AgentId::as_str), key.place().clone(), key.thread(), key.is_heartbeat());
        assert_eq!(read, (agent, place, thread, is_heartbeat), "{text}");
    }
}

#[test]
fn broken_keys_are_forgiven_or_refused() {
    for (text, expect) in [
        ("  AGENT:Main:Telegram:DM:42 ", "agent:main:telegram:direct:42"),
        ("agent::main:::x", "agent:main:x"),
        ("agent:main:x:", "agent:main:x"),
        (": agent : main : x y :", "agent:main:x y"),
        ("agent:Ops & Builds!:main", "agent:ops-builds:main"),
        ("agent:../../etc:main", "agent:etc:main"),
        ("agent:äöü:main", "agent:main:main"),
        ("agent:a:main:heartbeat:heartbeat", "agent:a:main:heartbeat"),
        ("agent:a:main:thread:", "agent:a:main:thread"),
        ("agent:a:thread:1", "agent:a:thread:1"),
        ("agent:a:dm", "agent:a:dm"),
        ("agent:a:telegram:group", "agent:a:telegram:group"),
        ("agent:a:telegram:group:g:topic", "agent:a:telegram:group:g:topic"),
        ("cron", "cron"),
        ("GLOBAL", "global"),
    ] {
        assert_eq!(parse(text).as_deref(), Ok(expect), "{text}");
    }
    assert_eq!(parse(""), Err(KeyError::Empty));
    assert_eq!(parse(" : :: "), Err(KeyError::Empty));
    assert_eq!(parse("agent"), Err(KeyError::Incomplete { key: "agent".into() }));
    assert_eq!(parse("agent:main:"), Err(KeyError::Incomplete { key: "agent:main:".into() }));
    assert_eq!(parse("agent:a:b\nc"), Err(KeyError::Control { code: 10, at: 9 }));
    assert_eq!(parse("agent:a:b\u{0}"), Err(KeyError::Control { code: 0, at: 9 }));
    assert_eq!(parse("agent:a:\u{9b}2J"), Err(KeyError::Control { code: 0x9b, at: 8 }));
}

#[test]
fn keys_of_megabytes_are_refused() {
    let long = "agent:main:".to_owned() + &"x".repeat(8 << 20);
    assert_eq!(parse(&long), Err(KeyError::TooLong { bytes: long.len() }));
    let agent = AgentId::default();
    let peer = "x:".repeat(4 << 20);
    let keys = DirectKeys { scope: DirectScope::PerPeer, ..DirectKeys::default() };
    assert_eq!(keys.key(&agent, "c", None, &peer), Err(KeyError::TooLong { bytes: peer.len() }));
    // Each letter is longer in lower case.
    let letters = "İ".repeat(KEY_LIMIT / 2);
    assert_eq!(parse(&letters), Err(KeyError::TooLong { bytes: KEY_LIMIT / 2 * 3 }));
    assert_eq!(AgentId::normalise(&"!x".repeat(1 << 20)).as_str().len(), AGENT_ID_LIMIT);
    let mut key = SessionKey::main(&agent, "main").unwrap();
    let refused = loop {
        match key.subagent("0199a-b") {
            Ok(below) => key = below,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, KeyError::TooLong { .. }), "{refused}");
}

#[test]
fn agent_ids_are_normalised() {
    for (text, expect) in [
        ("main", "main"),
        ("Main", "main"),
        ("a-", "a-"),
        ("a b", "a-b"),
        ("a \t/b", "a-b"),
        ("a--b c", "a--b-c"),
        ("-a b-", "a-b"),
        ("__", "main"),
        ("_x!", "x"),
        ("", "main"),
        ("K!", "k"),
    ] {
        assert_eq!(AgentId::normalise(text).as_str(), expect, "{text}");
    }
    assert_eq!(AgentId::normalise(&"x".repeat(65)).as_str(), "x".repeat(64));
    assert_eq!(AgentId::normalise(&("x".repeat(63) + "  y")).as_str(), "x".repeat(63) + "-");
}

#[test]
fn parts_that_would_be_another_key_are_refused() {
    let agent = AgentId::default();
    let room = |channel: &str, peer: &str| SessionKey::room(&agent, channel, RoomKind::Group, peer, None);
    for (channel, peer) in [
        ("telegram", "-100:topic:7"),
        ("slack", "c1:thread:99"),
        ("slack", "c1:heartbeat"),
        ("telegram:direct", "x"),
        ("direct", "x"),
        ("subagent", "x"),
        ("a:b", "x"),
    ] {
        let refused = room(channel, peer).unwrap_err();
        assert!(matches!(refused, KeyError::Ambiguous { .. }), "{channel} {peer}: {refused}");
    }
    assert_eq!(room("c", " : "), Err(KeyError::EmptyPart { part: "room" }));
    assert_eq!(room("", "x"), Err(KeyError::EmptyPart { part: "channel" }));
    assert_eq!(room("c", "a\u{7}"), Err(KeyError::Control { code: 7, at: 20 }));
    let keys = DirectKeys { scope: DirectScope::PerAccountChannelPeer, ..DirectKeys::default() };
    let key = |account, peer| keys.key(&agent, "c", account, peer);
    assert!(matches!(key(Some("direct"), "x"), Err(KeyError::Ambiguous { .. })));
    assert!(matches!(key(Some("group"), "x"), Err(KeyError::Ambiguous { .. })));
    assert!(matches!(key(None, "x:thread:1"), Err(KeyError::Ambiguous { .. })));
    assert_eq!(key(None, ""), Err(KeyError::EmptyPart { part: "peer" }));
    assert!(matches!(SessionKey::main(&agent, "dm:x"), Err(KeyError::Ambiguous { .. })));
    assert_eq!(
        SessionKey::hook("main:heartbeat").unwrap_err().to_string(),
        "`main:heartbeat` cannot be the hook of a session key: as `hook:main:heartbeat` it would name another conversation"
    );
}

#[test]
fn direct_keys_follow_their_scope() {
    let agent = AgentId::normalise("Bot");
    for (scope, account, expect) in [
        ("main", None, "agent:bot:home"),
        ("per-peer", None, "agent:bot:direct:7"),
        ("per-channel-peer", None, "agent:bot:telegram:direct:7"),
        ("per-account-channel-peer", None, "agent:bot:telegram:default:direct:7"),
        ("per-account-channel-peer", Some("Work"), "agent:bot:telegram:work:direct:7"),
    ] {
        let scope = DirectScope::of(scope).unwrap();
        let keys = DirectKeys { scope, main_key: "Home".into(), ..DirectKeys::default() };
        assert_eq!(keys.key(&agent, "Telegram", account, "7").unwrap().to_string(), expect);
    }
    assert_eq!(DirectScope::of("per-room"), None);
    assert_eq!(DirectScope::PerChannelPeer.name(), "per-channel-peer");
}

#[test]
fn identity_links_hold_for_their_channel_only() {
    let links = IdentityLinks::new([("Anna", vec!["Telegram:7", "matrix:@anna:host"])]).unwrap();
    let agent = AgentId::default();
    let keys = DirectKeys { scope: DirectScope::PerChannelPeer, links, ..DirectKeys::default() };
    let key = |channel, peer| keys.key(&agent, channel, None, peer).unwrap().to_string();
    assert_eq!(key("telegram", "7"), "agent:main:telegram:direct:anna");
    assert_eq!(key("MATRIX", "@Anna:host"), "agent:main:matrix:direct:anna");
    assert_eq!(key("discord", "7"), "agent:main:discord:direct:7");
    let main = DirectKeys { scope: DirectScope::Main, ..keys.clone() };
    assert_eq!(main.key(&agent, "telegram", None, "7").unwrap().to_string(), "agent:main:main");
    let two = IdentityLinks::new([("a", vec!["c:1"]), ("b", vec!["C:1"])]);
    let (first, second) = ("a".to_owned(), "b".to_owned());
    assert_eq!(two, Err(LinkError::TwoPeople { link: "c:1".into(), first, second }));
    let bare = IdentityLinks::new([("a", vec!["anna"])]);
    assert_eq!(bare, Err(LinkError::NoChannel { link: "anna".into(), name: "a".into() }));
}

#[test]
fn subagents_of_subagents_nest() {
    let main = SessionKey::parse("agent:ops:main").unwrap();
    let one = main.subagent("U1").unwrap();
    let two = one.subagent("u2").unwrap();
    assert_eq!(two.to_string(), "agent:ops:subagent:u1:subagent:u2");
    assert_eq!((main.depth(), one.depth(), two.depth()), (0, 1, 2));
    assert!(matches!(main.subagent("x:thread:y"), Err(KeyError::Ambiguous { .. })));
    assert_eq!(two.heartbeat().heartbeat().to_string(), "agent:ops:subagent:u1:subagent:u2:heartbeat");
}

/// Texts that are mostly words of the format.
fn texts() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "agent",
        "main",
        "direct",
        "dm",
        "group",
        "channel",
        "topic",
        "thread",
        "heartbeat",
        "subagent",
        "cron",
        "hook",
        "acp",
        "global",
        "unknown",
        "Telegram",
        "+49",
        "İ",
        "Σ",
        " ",
        "",
        "ﬁ",
        "a b",
        "-",
        "_",
        "é",
        "\u{85}",
    ]);
    let word = prop_oneof![4 => words.prop_map(str::to_owned), 1 => "\\PC{0,4}"];
    prop::collection::vec(word, 0..9).prop_map(|words| words.join(":"))
}

proptest! {
    #[test]
    fn parsing_what_is_written_changes_nothing(text in texts()) {
        if let Ok(key) = SessionKey::parse(&text) {
            let written = key.to_string();
            prop_assert_eq!(SessionKey::parse(&written), Ok(key), "{}", text);
            prop_assert_eq!(parse(&written), Ok(written));
        }
    }

    #[test]
    fn parsing_gives_back_what_was_built(
        agent in texts(), channel in texts(), account in prop::option::of(texts()), peer in texts(),
        topic in prop::option::of(texts()), thread in texts(), scope in 0..4_usize,
    ) {
        let agent = AgentId::normalise(&agent);
        let keys = DirectKeys { scope: DirectScope::ALL[scope].1, main_key: peer.clone(), ..DirectKeys::default() };
        let built = [
            keys.key(&agent, &channel, account.as_deref(), &peer),
            SessionKey::room(&agent, &channel, RoomKind::Channel, &peer, topic.as_deref()),
            SessionKey::cron(Some(&agent), &peer),
            SessionKey::hook(&peer),
        ];
        for key in built.into_iter().flatten() {
            let more = [key.with_thread(&thread), key.subagent(&peer), Ok(key.heartbeat())];
            for key in more.into_iter().flatten().chain([key.clone()]) {
                prop_assert_eq!(SessionKey::parse(&key.to_string()), Ok(key));
            }
        }
    }

    #[test]
    fn agent_ids_are_valid_and_stay_what_they_are(text in prop_oneof![texts(), "\\PC{0,80}", "[-_a ]{0,80}"]) {
        let id = AgentId::normalise(&text);
        let bytes = id.as_str().as_bytes();
        prop_assert!((1..=AGENT_ID_LIMIT).contains(&bytes.len()));
        prop_assert!(bytes[0].is_ascii_lowercase() || bytes[0].is_ascii_digit());
        prop_assert!(bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')));
        prop_assert_eq!(AgentId::normalise(id.as_str()), id);
    }
}
