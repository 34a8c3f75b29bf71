//! Tokens of a login: renewed by one process at a time, stored before they are used, sent nowhere else.

use quipu_protocol::ModelErrorKind;
use quipu_testkit::{Answer, FakeServer, Gate, Reply, Wire};
use serde_json::{Value, json};

use crate::credentials::{World, stored};

/// A home whose provider `testing` has a login that has expired, and the server of its tokens and model.
struct Account {
    home: tempfile::TempDir,
    server: FakeServer,
}

fn answer() -> Reply {
    Answer::new().text("x").reply().only_for("messages")
}

fn no() -> Reply {
    Reply::error(401, "authentication_error", "no").only_for("messages")
}

fn json_reply(status: u16, body: &Value) -> Reply {
    Reply::new(status, "application/json", body.to_string()).only_for("grant_type")
}

fn tokens(number: u32) -> Reply {
    json_reply(
        200,
        &json!({ "access_token": format!("access-token-{number}"), "refresh_token": format!("refresh-token-{number}"),
            "expires_in": 3600 }),
    )
}

impl Account {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let server = FakeServer::start(replies);
        let account = Self { home: tempfile::tempdir().unwrap(), server };
        account.row(&json!({ "token_url": format!("{}/token", account.server.url()) }));
        account.has(0, 1);
        account
    }

    fn row(&self, more: &Value) {
        let mut row =
            json!({ "name": "Test Plan", "source": "a test", "date": "2026-11-27", "client_id": "client-1" });
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(self.home.path().join("logins.json"), json!({ "testing": row }).to_string()).unwrap();
    }

    /// Stores the tokens of this number.
    fn has(&self, number: u32, expires: i64) {
        self.write(&entry(number, expires).to_string());
    }

    fn write(&self, text: &str) {
        std::fs::write(self.home.path().join("auth.json"), text).unwrap();
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.home.path().join("auth.json")).unwrap()
    }

    fn world(&self) -> World {
        let (settings, model) = stored(Wire::Messages, self.home.path(), &self.server.url());
        World::of(settings.provider_for(&model, None).unwrap(), model)
    }

    /// What was asked, in order: `token`, or the key or access token of a call.
    fn asked(&self) -> Vec<String> {
        let asked = self.server.requests().into_iter().map(|request| match request.path.as_str() {
            "/token" => "token".to_owned(),
            _ => {
                let token = || request.header("authorization").unwrap_or_default().replace("Bearer ", "");
                request.header("x-api-key").map_or_else(token, str::to_owned)
            }
        });
        asked.collect()
    }
}

fn entry(number: u32, expires: i64) -> Value {
    json!({ "testing": { "type": "oauth", "access": format!("access-token-{number}"),
        "refresh": format!("refresh-token-{number}"), "expires": expires, "accountId": "account-7" },
        "other": { "type": "api_key", "key": "other-key" } })
}

const FUTURE: i64 = 4_102_444_800_000;

#[tokio::test]
async fn expired_token_is_renewed_and_stored_before_it_is_used() {
    let account = Account::new([tokens(1), answer(), answer()]);
    let world = account.world();
    assert_eq!(world.call().await.error, None);
    assert_eq!(world.call().await.error, None);
    assert_eq!(account.asked(), ["token", "access-token-1", "access-token-1"]);
    let asked = &account.server.requests()[0];
    assert_eq!(
        std::str::from_utf8(&asked.body).unwrap(),
        "grant_type=refresh_token&client_id=client-1&refresh_token=refresh-token-0"
    );
    let kept: Value = serde_json::from_str(&account.text()).unwrap();
    let expires = kept["testing"]["expires"].as_i64().unwrap();
    assert!(expires > 1 && kept == entry(1, expires), "{kept}");
    // The new refresh token is sealed, too.
    assert_eq!(world.learned(), ["access-token-1", "refresh-token-1"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |name: &str| {
            let path = account.home.path().join(name);
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode("auth.json"), mode("auth.json.testing.lock")), (0o600, 0o600));
    }
}

#[tokio::test]
async fn refresh_token_that_a_server_keeps_stays() {
    let body = json!({ "access_token": "access-token-1", "expires_in": 3600 });
    let account = Account::new([json_reply(200, &body), answer()]);
    assert_eq!(account.world().call().await.error, None);
    assert!(account.text().contains("refresh-token-0") && account.text().contains("access-token-1"));
}

#[tokio::test]
async fn one_of_many_renews_for_all() {
    let account = Account::new([tokens(1)]);
    let worlds: Vec<_> = (0..10).map(|_| account.world()).collect();
    (0..10).for_each(|_| account.server.push(answer()));
    let ends = futures_util::future::join_all(worlds.iter().map(World::call)).await;
    assert!(ends.iter().all(|end| end.error.is_none()), "{ends:?}");
    let asked = account.asked();
    assert_eq!(asked.iter().filter(|it| *it == "token").count(), 1, "{asked:?}");
    assert_eq!(asked.iter().filter(|it| *it == "access-token-1").count(), 10, "{asked:?}");
}

#[tokio::test]
async fn stale_token_is_renewed_once_after_it_was_refused() {
    let account = Account::new([no(), tokens(1), answer(), no(), tokens(2), no(), no()]);
    account.has(0, FUTURE);
    let world = account.world();
    let end = world.call().await;
    assert_eq!((end.error, end.attempts.len()), (None, 2));
    // A server that refuses what it has just given is not asked for ever.
    let end = world.call().await;
    assert_eq!(end.error.unwrap().kind, ModelErrorKind::Auth);
    let end = world.call().await;
    assert_eq!((end.error.unwrap().kind, end.attempts.len()), (ModelErrorKind::Auth, 1));
    let token = |number: u32| format!("access-token-{number}");
    let calls = ["token".to_owned(), token(1), token(1)];
    assert_eq!(account.asked(), [vec![token(0)], calls.to_vec(), vec![token(1)]].concat());
}

#[tokio::test]
async fn token_that_another_process_renewed_is_used() {
    let account = Account::new([no(), answer()]);
    account.has(0, FUTURE);
    let world = account.world();
    account.has(1, FUTURE);
    assert_eq!(world.call().await.error, None);
    assert_eq!(account.asked(), ["access-token-0", "access-token-1"]);
}

#[tokio::test]
async fn token_that_a_stranger_rotated_meanwhile_is_used() {
    let gate = Gate::new();
    let gone = json!({ "error": "invalid_grant" }).to_string();
    let late = Reply::new(400, "application/json", "").then_gate(&gate).then(gone).only_for("grant_type");
    let account = Account::new([late, answer()]);
    let world = account.world();
    let call = tokio::spawn(async move { world.call().await });
    account.server.wait_for_requests(1).await;
    // A program that knows nothing of our lock was first.
    account.has(7, FUTURE);
    gate.open();
    assert_eq!(call.await.unwrap().error, None);
    assert_eq!(account.asked(), ["token", "access-token-7"]);
    assert_eq!(account.text(), entry(7, FUTURE).to_string());
}

#[tokio::test]
async fn login_that_is_removed_during_a_refresh_stays_removed() {
    let gate = Gate::new();
    let body = json!({ "access_token": "access-token-1", "expires_in": 60 }).to_string();
    let late = Reply::new(200, "application/json", "").then_gate(&gate).then(body).only_for("grant_type");
    let account = Account::new([late]);
    let world = account.world();
    let call = tokio::spawn(async move { world.call().await });
    account.server.wait_for_requests(1).await;
    account.write("{}");
    gate.open();
    assert_eq!(call.await.unwrap().error.unwrap().kind, ModelErrorKind::NoCredential);
    assert_eq!((account.asked().len(), account.text().trim()), (1, "{}"));
}

#[tokio::test]
async fn call_that_is_given_up_loses_no_renewed_token() {
    let gate = Gate::new();
    let body = json!({ "access_token": "access-token-1", "expires_in": 3600 }).to_string();
    let late = Reply::new(200, "application/json", "").then_gate(&gate).then(body).only_for("grant_type");
    let account = Account::new([late, answer()]);
    let world = account.world();
    let call = tokio::spawn(async move { world.call().await });
    account.server.wait_for_requests(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    gate.open();
    // The next call waits for what is under way.
    assert_eq!(account.world().call().await.error, None);
    assert_eq!(account.asked(), ["token", "access-token-1"]);
}

/// Where a refresh comes to this, no call is made, and the error says so.
async fn check_failure(reply: Reply, expect: &str) {
    let account = Account::new([reply.only_for("grant_type")]);
    let before = account.text();
    let error = account.world().call().await.error.unwrap();
    assert_eq!(error.kind, ModelErrorKind::NoCredential);
    assert!(error.message.contains(expect), "{}", error.message);
    assert!(!error.message.contains("-token-0"), "{}", error.message);
    assert!(!error.message.contains('\n'), "{}", error.message);
    assert_eq!((account.asked(), account.text()), (vec!["token".to_owned()], before));
}

#[tokio::test]
async fn refused_refresh_asks_for_a_new_login() {
    let said = json!({ "error": "invalid_grant", "error_description": "refresh-token-0 is\n revoked" });
    let expect = "refused a refresh (HTTP 400): invalid_grant: [credential] is revoked. \
                  Log in to testing again.";
    check_failure(json_reply(400, &said), expect).await;
    check_failure(json_reply(401, &json!({})), "Log in to testing again").await;
    let said = json!({ "error": { "code": "overloaded", "message": "later" } });
    check_failure(json_reply(503, &said), "was not renewed: 127.0.0.1").await;
}

#[tokio::test]
async fn refresh_that_is_answered_with_nonsense_changes_nothing() {
    let good = |name: &str, value: Value| {
        let mut body =
            json!({ "access_token": "access-token-1", "refresh_token": "refresh-token-1", "expires_in": 9 });
        body[name] = value;
        json_reply(200, &body)
    };
    let nonsense = "answered a refresh with something that cannot be used: ";
    for (reply, expect) in [
        (Reply::new(200, "text/html", "<html><body>refresh-token-0"), "it is not JSON"),
        (Reply::new(200, "application/json", ""), "it is not JSON"),
        (json_reply(200, &json!(["refresh-token-0"])), "it is not a JSON object"),
        (json_reply(200, &json!({})), "it has no \"access_token\""),
        (good("access_token", json!(7)), "it has no \"access_token\""),
        (good("access_token", json!("")), "\"access_token\" is not one word of at most 16384 bytes"),
        (good("access_token", json!("a\r\nx-evil: 1")), "\"access_token\" is not one word"),
        (good("access_token", json!("x".repeat(20_000))), "\"access_token\" is not one word"),
        (good("refresh_token", json!(["r"])), "it has no \"refresh_token\""),
        (good("expires_in", json!("soon")), "\"expires_in\" is not a number of seconds"),
        (good("expires_in", json!(-5)), "\"expires_in\" is not a number of seconds"),
        (
            Reply::new(200, "application/json", "").then_repeat("[[[[[[[[", 10_000),
            "it is larger than 65536 bytes",
        ),
    ] {
        check_failure(reply, &format!("{nonsense}{expect}")).await;
    }
    // The server of another machine gets nothing: no redirect is followed.
    let elsewhere = Reply::new(307, "text/plain", "").header("location", "http://127.0.0.1:1/token");
    check_failure(elsewhere, "refused a refresh (HTTP 307)").await;
    check_failure(Reply::reset(), "could not be reached for a refresh").await;
}

#[tokio::test]
async fn refresh_token_never_goes_out_in_the_open() {
    let account = Account::new([]);
    for odd in ["http://example.com/token", "ftp://127.0.0.1/token", "token", "https://u:p@example.com/"] {
        account.row(&json!({ "token_url": odd }));
        let error = account.world().call().await.error.unwrap();
        assert!(error.message.contains("it must be an https address"), "{error}");
    }
    assert_eq!(account.asked().len(), 0);
}

#[tokio::test]
async fn file_of_tokens_that_is_broken_is_left_as_it_is() {
    let account = Account::new([]);
    let world = account.world();
    account.write("{\"testing\": {\"type\": \"oauth\", \"access\": \"access-tok");
    let error = world.call().await.error.unwrap();
    assert!(error.message.contains("auth.json is not valid: it is not JSON"), "{error}");
    assert!(!error.message.contains("access-tok"), "{error}");
    assert!(account.text().ends_with("access-tok"));
    assert_eq!(account.asked().len(), 0);
}

#[tokio::test]
async fn tokens_that_cannot_be_stored_are_not_used() {
    let account = Account::new([tokens(1)]);
    let world = account.world();
    // Nothing can take the place of a directory; the rest can be read.
    let aside = account.home.path().join(format!("auth.json.{}.tmp", std::process::id()));
    std::fs::create_dir(&aside).unwrap();
    let error = world.call().await.error.unwrap();
    assert!(error.message.contains("the renewed tokens could not be stored"), "{error}");
    assert_eq!(account.asked(), ["token"]);
    assert_eq!(account.text(), entry(0, 1).to_string());
}

#[tokio::test]
async fn restricted_login_is_used_only_when_somebody_accepted() {
    let account = Account::new([answer()]);
    let token_url = format!("{}/token", account.server.url());
    account.row(&json!({ "token_url": token_url, "restriction": "Only its own program may use it." }));
    account.has(0, FUTURE);
    let (settings, model) = stored(Wire::Messages, account.home.path(), &account.server.url());
    let error = settings.provider_for(&model, None).err().unwrap();
    assert_eq!(error.kind, ModelErrorKind::NoCredential);
    assert!(error.message.contains("Only its own program may use it."), "{error}");
    let mut accepted = entry(0, FUTURE);
    accepted["testing"]["accepted"] = json!(1);
    account.write(&accepted.to_string());
    assert_eq!(account.world().call().await.error, None);
    assert_eq!(account.asked(), ["access-token-0"]);
}

#[tokio::test]
async fn calls_go_where_their_token_says_with_its_headers() {
    let account = Account::new([]);
    let other = FakeServer::start([answer(), answer()]);
    let host = other.address().to_string();
    let exchange =
        json!({ "url": format!("{}/exchange", account.server.url()), "headers": { "x-editor": "e" } });
    let base = json!({ "field": "proxy-ep", "replace": ["proxy.", ""], "hosts": [host], "scheme": "http",
        "fallback": "http://127.0.0.1:1", "domain_fallback": "http://127.0.0.1:1" });
    let sent = json!({ "headers": { "x-integration": "i" }, "field_headers": { "x-account": "accountId" },
        "base_url": base });
    account.row(&json!({ "token_url": "https://example.com", "exchange": exchange, "sent": sent }));
    let token = |host: &str| {
        let body = json!({ "token": format!("tid=1;proxy-ep={host};x=y"), "expires_at": 4_102_444_800_u64 });
        Reply::new(200, "application/json", body.to_string())
    };
    account.server.push(token(&format!("proxy.{host}")));
    assert_eq!(account.world().call().await.error, None);
    let exchanged = &account.server.requests()[0];
    assert_eq!(exchanged.header("authorization"), Some("Bearer refresh-token-0"));
    assert_eq!(exchanged.header("x-editor"), Some("e"));
    let call = &other.requests()[0];
    assert_eq!((call.header("x-integration"), call.header("x-account")), (Some("i"), Some("account-7")));
    assert_eq!(call.header("authorization").unwrap(), format!("Bearer tid=1;proxy-ep=proxy.{host};x=y"));
    assert!(account.text().contains("refresh-token-0"));
    // One that would lead elsewhere is not used, and not stored.
    account.has(0, 1);
    account.server.push(token("evil.example.com"));
    let error = account.world().call().await.error.unwrap();
    assert!(error.message.contains("evil.example.com, which is not a host of this provider"), "{error}");
    let mut planted = entry(0, FUTURE);
    planted["testing"]["access"] = json!("tid=1;proxy-ep=evil.example.com");
    account.write(&planted.to_string());
    let (settings, model) = stored(Wire::Messages, account.home.path(), &account.server.url());
    assert!(settings.provider_for(&model, None).is_err());
    assert_eq!((account.server.requests().len(), other.requests().len()), (2, 1));
}

/// The account with a second key of its provider.
fn with_key(account: &Account, expires: i64) {
    let mut entries = entry(0, expires);
    entries["testing:work"] = json!({ "type": "api_key", "key": "key-of-work" });
    account.write(&entries.to_string());
}

#[tokio::test]
async fn login_beside_a_key_is_renewed_before_the_key_is_used() {
    // Expired.
    let account = Account::new([tokens(1), answer()]);
    with_key(&account, 1);
    assert_eq!(account.world().call().await.error, None);
    assert_eq!(account.asked(), ["token", "access-token-1"]);
    // Refused.
    let account = Account::new([no(), tokens(1), answer()]);
    with_key(&account, FUTURE);
    assert_eq!(account.world().call().await.error, None);
    assert_eq!(account.asked(), ["access-token-0", "token", "access-token-1"]);
    // Not to be renewed: the key goes on.
    let refused = json_reply(400, &json!({ "error": "invalid_grant" }));
    let account = Account::new([refused, answer()]);
    with_key(&account, 1);
    assert_eq!(account.world().call().await.error, None);
    assert_eq!(account.asked(), ["token", "key-of-work"]);
}
