//! What a client says to a conversation.

use http::StatusCode;
use quipu_protocol::{AuthorClass, Content, Json, Origin, Provenance, UserInput};
use quipu_runtime::{
    Authority, KeyPlace, NewMessage, QueueOverride, QueueSettings, Route, RunRequest, SessionKey,
};
use serde::Deserialize;

use crate::answer::ApiError;
use crate::body::check_object;
use crate::conversations::{DEFAULT_CHANNEL, is_channel};
use crate::path::decoded;

/// Bytes of a name in a request at most: of a sender, a route, an id.
const NAME: usize = 512;
/// Bytes of what a sender sets for commands at most.
const EXEC: usize = 16 << 10;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a message")]
struct MessageBody {
    text: String,
    /// Its id on its channel: the same one is taken once.
    message_id: Option<String>,
    /// The name of the sender, for the model to read.
    from: Option<String>,
    #[serde(default)]
    authority: AuthorityBody,
    route: Option<RouteBody>,
    #[serde(default)]
    queue: QueueOverride,
}

/// With which rights something is said.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default, expecting = "an object for `authority`")]
struct AuthorityBody {
    sender: Option<String>,
    owner: Option<bool>,
    elevation: Option<String>,
    exec: Option<Json>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object for `route`")]
struct RouteBody {
    channel: Option<String>,
    account: Option<String>,
    to: Option<String>,
    thread: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct StopBody {
    authority: AuthorityBody,
}

/// The body of an acknowledgement.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AckBody {
    /// The message as the chat names it.
    pub(super) message: Option<String>,
}

/// The conversation that a part of a path names.
pub(super) fn conversation(part: &str) -> Result<SessionKey, ApiError> {
    let invalid = |message: String| ApiError::new(StatusCode::BAD_REQUEST, "invalid_key", message);
    let text = decoded(part)
        .ok_or_else(|| invalid("the key in the path is not UTF-8 in percent escapes".to_owned()))?;
    let key = SessionKey::parse(&text).map_err(|error| invalid(error.to_string()))?;
    if key.is_heartbeat() {
        return Err(invalid("conversations of heartbeats take no messages".to_owned()));
    }
    Ok(key)
}

/// A JSON body; an empty one is `{}` where nothing is needed.
pub(super) fn read<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    check_object(body)?;
    serde_json::from_slice(body)
        .map_err(|error| ApiError::invalid(format!("the body is not as wanted: {error}")))
}

/// A message for a conversation.
pub(super) fn message(
    key: SessionKey,
    body: &[u8],
    settings: &QueueSettings,
    now: i64,
) -> Result<RunRequest, ApiError> {
    let MessageBody { text, message_id, from, authority, route, queue } = read(body)?;
    if text.trim().is_empty() {
        return Err(ApiError::invalid("`text` is empty"));
    }
    for (name, value) in [("messageId", &message_id), ("from", &from)] {
        check_name(name, value.as_deref())?;
    }
    if message_id.as_deref() == Some("") {
        return Err(ApiError::invalid("`messageId` is empty"));
    }
    let route = route_of(&key, route)?;
    let authority = authority.read()?;
    let author = if authority.is_owner { AuthorClass::Owner } else { AuthorClass::Untrusted };
    let provenance = Provenance::new(Origin::Channel, author).named(route.channel.clone());
    let input = UserInput::new(vec![Content::text(text)]).from_source(provenance);
    let policy = settings.resolve(&route.channel, &QueueOverride::default(), &queue);
    let message = NewMessage { message_id, route, authority, from, input, at: now };
    Ok(RunRequest { key, message, policy })
}

/// Who wants that all stops.
pub(super) fn stop(body: &[u8]) -> Result<Authority, ApiError> {
    read::<StopBody>(body)?.authority.read()
}

impl AuthorityBody {
    /// A program that names no sender speaks for the owner; whom it names does not, unless it says so.
    fn read(self) -> Result<Authority, ApiError> {
        let Self { sender, owner, elevation, exec } = self;
        for (name, value) in [("authority.sender", &sender), ("authority.elevation", &elevation)] {
            check_name(name, value.as_deref())?;
        }
        if exec.as_ref().is_some_and(|exec| exec.get().len() > EXEC) {
            return Err(ApiError::invalid(format!("`authority.exec` has more than {EXEC} bytes")));
        }
        let is_owner = owner.unwrap_or(sender.is_none());
        Ok(Authority { sender, is_owner, exec, elevation })
    }
}

fn check_name(name: &str, value: Option<&str>) -> Result<(), ApiError> {
    let Some(value) = value else { return Ok(()) };
    if value.len() > NAME {
        return Err(ApiError::invalid(format!(
            "`{name}` has {} bytes; at most {NAME} are allowed",
            value.len()
        )));
    }
    if value.chars().any(char::is_control) {
        return Err(ApiError::invalid(format!("`{name}` has a control character")));
    }
    Ok(())
}

/// From where to where: what the message says, and else what the key says. Conversations without a place of their own have one each, so
/// that a reply that nobody takes holds up no other.
fn route_of(key: &SessionKey, given: Option<RouteBody>) -> Result<Route, ApiError> {
    let RouteBody { channel, account, to, thread } =
        given.unwrap_or(RouteBody { channel: None, account: None, to: None, thread: None });
    let parts = [("channel", &channel), ("account", &account), ("to", &to), ("thread", &thread)];
    for (name, value) in parts {
        check_name(&format!("route.{name}"), value.as_deref())?;
    }
    if let Some(channel) = channel.as_deref()
        && !is_channel(channel)
    {
        let message =
            "`route.channel` has 1 to 64 of the letters a-z, digits, `_` and `-`, and is not `sessions`";
        return Err(ApiError::invalid(message));
    }
    let (own_channel, own_account, own_peer, topic) = match key.place() {
        KeyPlace::Direct { channel, account, peer } => {
            (channel.clone(), account.clone(), Some(peer.clone()), None)
        }
        KeyPlace::Room { channel, peer, topic, .. } => {
            (Some(channel.clone()), None, Some(peer.clone()), topic.clone())
        }
        _ => (None, None, None, None),
    };
    let own_channel = own_channel.filter(|own| is_channel(own));
    let is_own = channel.is_none() || channel == own_channel;
    let own = |part: Option<String>| part.filter(|_| is_own && own_channel.is_some());
    let (own_account, own_peer) = (own(own_account), own(own_peer));
    let own_thread = own(key.thread().map(str::to_owned).or(topic));
    Ok(Route {
        channel: channel.or(own_channel.clone()).unwrap_or_else(|| DEFAULT_CHANNEL.to_owned()),
        account: account.or(own_account),
        to: Some(to.or(own_peer).unwrap_or_else(|| key.to_string())),
        thread: thread.or(own_thread),
    })
}

#[cfg(test)]
mod tests {
    use quipu_runtime::BusyMode;
    use serde_json::{Value, json};

    use super::*;

    fn of(key: &str, body: &Value) -> Result<RunRequest, ApiError> {
        message(SessionKey::parse(key).unwrap(), body.to_string().as_bytes(), &QueueSettings::default(), 7)
    }

    #[test]
    fn message_has_the_route_of_its_key() {
        for (key, given, wanted) in [
            ("agent:main:main", json!({}), ("http", None, "agent:main:main", None)),
            ("agent:main:direct:anna", json!({}), ("http", None, "agent:main:direct:anna", None)),
            ("agent:main:irc:direct:anna", json!({}), ("irc", None, "anna", None)),
            (
                "agent:main:sessions:direct:anna",
                json!({}),
                ("http", None, "agent:main:sessions:direct:anna", None),
            ),
            ("agent:main:irc:work:direct:anna", json!({}), ("irc", Some("work"), "anna", None)),
            ("agent:main:irc:group:g:topic:3", json!({}), ("irc", None, "g", Some("3"))),
            ("agent:main:irc:group:g:thread:t", json!({}), ("irc", None, "g", Some("t"))),
            (
                "agent:main:irc:group:g",
                json!({ "channel": "sms" }),
                ("sms", None, "agent:main:irc:group:g", None),
            ),
            ("agent:main:irc:group:g", json!({ "to": "h" }), ("irc", None, "h", None)),
        ] {
            let route = of(key, &json!({ "text": "hi", "route": given })).unwrap().message.route;
            let found = (
                &*route.channel,
                route.account.as_deref(),
                route.to.as_deref().unwrap(),
                route.thread.as_deref(),
            );
            assert_eq!(found, wanted, "{key}");
        }
    }

    #[test]
    fn sender_is_not_the_owner_unless_the_program_says_so() {
        for (authority, is_owner) in [
            (json!({}), true),
            (json!({ "sender": "anna" }), false),
            (json!({ "sender": "anna", "owner": true }), true),
            (json!({ "owner": false }), false),
        ] {
            let request = of("agent:main:main", &json!({ "text": "hi", "authority": authority })).unwrap();
            assert_eq!(request.message.authority.is_owner, is_owner, "{authority}");
            let author = if is_owner { AuthorClass::Owner } else { AuthorClass::Untrusted };
            assert_eq!(
                request.message.input.provenance,
                Provenance::new(Origin::Channel, author).named("http")
            );
        }
        let request =
            of("agent:main:main", &json!({ "text": "hi", "queue": { "mode": "collect" } })).unwrap();
        assert_eq!((request.policy.mode, request.message.at), (BusyMode::Collect, 7));
    }

    #[test]
    fn broken_message_is_refused() {
        for body in [
            json!({}),
            json!([]),
            json!({ "text": " \n" }),
            json!({ "text": 7 }),
            json!({ "text": "hi", "txt": "" }),
            json!({ "text": "hi", "messageId": "" }),
            json!({ "text": "hi", "messageId": "x".repeat(NAME + 1) }),
            json!({ "text": "hi", "from": "a\u{1b}b" }),
            json!({ "text": "hi", "route": { "channel": "chat.completions" } }),
            json!({ "text": "hi", "route": { "channel": "" } }),
            json!({ "text": "hi", "route": { "channel": "sessions" } }),
            json!({ "text": "hi", "route": { "to": "a\nb" } }),
            json!({ "text": "hi", "queue": { "mode": "never" } }),
            json!({ "text": "hi", "queue": 7 }),
            json!({ "text": "hi", "route": 7 }),
            json!({ "text": "hi", "authority": 7 }),
            json!({ "text": "hi", "authority": { "isOwner": true } }),
            json!({ "text": "hi", "authority": { "exec": "x".repeat(EXEC) } }),
        ] {
            let error = of("agent:main:main", &body).unwrap_err();
            assert_eq!(error.status.as_u16(), 400, "{body}: {error:?}");
            assert!(!error.message.contains("struct"), "{error:?}");
        }
        for key in ["", "%", "%ff", "agent", "agent:main", "agent:main:a%0ab", "agent:main:main:heartbeat"] {
            assert_eq!(conversation(key).unwrap_err().code, "invalid_key", "{key}");
        }
        assert_eq!(conversation("agent%3AMain:x%2Fy").unwrap().to_string(), "agent:main:x/y");
    }
}
