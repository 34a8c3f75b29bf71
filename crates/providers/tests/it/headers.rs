//! What others change of a call's headers, and what they see of the answer's beginning.

use std::sync::Arc;

use quipu_protocol::{Message, Model, ModelRequest, Thinking};
use quipu_providers::{
    Call, CallOptions, Credential, Credentials, HeaderChanges, PROTECTED_HEADERS, Scheme, Secret,
};
use quipu_testkit::{Answer, FakeServer, Reply};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wires::{self, WIRES};

const KEY: &str = "sk-test-0123456789";

#[tokio::test]
async fn headers_are_changed_but_those_of_the_credential_and_of_http() {
    for wire in WIRES {
        let reply = Answer::on(wire).text("well").reply().header("x-echo", KEY).header("set-cookie", "a=b");
        let server = FakeServer::start([Reply::error_on(wire, 529, "overloaded_error", "later"), reply]);
        let model = Model {
            id: "test-model".into(),
            provider: "testing".into(),
            api: wires::api(wire).into(),
            base_url: server.url(),
            ..Model::default()
        };
        let credentials = Credentials::fixed(Credential::new("a test", Scheme::Key(Secret::new(KEY))));
        let base_delay = std::time::Duration::from_millis(1);
        let options = CallOptions { base_delay, ..CallOptions::default() };
        let configured =
            [("x-old".into(), "1".into()), ("x-kept".into(), "2".into()), ("x-in".into(), KEY.into())];
        let provider = wires::provider(&model, credentials, &configured, options).unwrap();
        let request = Arc::new(ModelRequest {
            model: Arc::new(model),
            system: "".into(),
            tools: Vec::new().into(),
            messages: vec![Arc::new(Message::user("Hi", 0))].into(),
            thinking: Thinking::Off,
            max_tokens: None,
            session: None,
            stable_system: None,
        });
        let (send, mut receive) = mpsc::channel(64);
        let (heads, mut shown) = mpsc::channel(64);
        let body = provider.encode(&request).unwrap();
        let own = ["x-team", "x-old"].map(|name| (name.to_owned(), "new".to_owned()));
        let protected = PROTECTED_HEADERS.map(|name| (name.to_owned(), "evil".to_owned()));
        let headers = HeaderChanges {
            set: own.into_iter().chain(protected).chain([("x-in".to_owned(), "evil".to_owned())]).collect(),
            removed: PROTECTED_HEADERS.iter().map(ToString::to_string).chain(["x-in".into()]).collect(),
        };
        assert!(headers.problem().is_some());
        let call = Call {
            headers,
            responses: Some(heads),
            ..Call::new(request, body, send, CancellationToken::new())
        };
        let end = provider.send(call).await;
        assert_eq!(end.error, None);
        while receive.try_recv().is_ok() {}
        for asked in server.requests() {
            assert_eq!((asked.header("x-team"), asked.header("x-old")), (Some("new"), Some("new")));
            assert_eq!((asked.header("x-kept"), asked.header("x-in")), (Some("2"), Some(KEY)));
            assert!(asked.headers.iter().all(|(_, value)| value != "evil"), "{:?}", asked.headers);
            assert!(asked.headers.iter().any(|(_, value)| value.contains(KEY)));
            assert_eq!(asked.header("content-type"), Some("application/json"));
        }
        let first = shown.recv().await.unwrap();
        assert_eq!((first.attempt, first.status), (1, 529));
        let second = shown.recv().await.unwrap();
        assert_eq!((second.attempt, second.status), (2, 200));
        assert!(second.headers.contains(&("x-echo".into(), "[credential]".into())), "{second:?}");
        assert!(second.headers.iter().all(|(name, value)| name != "set-cookie" && !value.contains(KEY)));
        assert!(shown.recv().await.is_none(), "one for each attempt");
    }
}
