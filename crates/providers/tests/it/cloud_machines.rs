//! Keys for signed requests that a command prints, or that the service of a virtual machine gives.

use quipu_protocol::ModelErrorKind;
use quipu_testkit::{FakeServer, Reply, Wire};
use serde_json::json;

use crate::cloud_credentials::{SECRET, TOKEN, World, answer, container_keys, is_signed, served};

fn printed(secret: &str, expires_in: Option<i64>) -> String {
    let mut keys =
        json!({ "Version": 1, "AccessKeyId": "AKID", "SecretAccessKey": secret, "SessionToken": TOKEN });
    if let Some(seconds) = expires_in {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        keys["Expiration"] = at.to_string().into();
    }
    keys.to_string()
}

/// A profile whose command prints `keys` and leaves a mark each time.
fn with_process(world: &World, keys: &str) {
    let keys = world.write("keys.json", keys);
    let ran = world.home.path().join("ran");
    let line = format!("printf x >> '{}'; cat '{keys}'", ran.display());
    world.write(".aws/config", &format!("[profile work]\nregion = eu-west-1\ncredential_process = {line}\n"));
}

fn runs(world: &World) -> usize {
    std::fs::read_to_string(world.home.path().join("ran")).unwrap_or_default().len()
}

#[tokio::test]
async fn process_of_a_profile_prints_keys_that_are_kept() {
    let refused = || Reply::error_on(Wire::Converse, 403, "ExpiredTokenException", "expired");
    let (server, world) =
        served([answer(), answer(), refused(), refused(), answer()], &[("AWS_PROFILE", "work")]);
    with_process(&world, &printed(SECRET, Some(3_600)));
    let settings = world.settings();
    let model = settings.models_of("amazon-bedrock")[0].as_ref().clone();
    assert_eq!(settings.credential_source("amazon-bedrock").as_deref(), Some("AWS profile work"));
    assert!(settings.is_available(&model));
    assert_eq!(runs(&world), 0, "nothing runs before a call");
    let call = || crate::cloud_credentials::call(&settings, model.clone());
    let (end, learned) = call().await.unwrap();
    assert_eq!(end.error, None);
    assert!([SECRET, TOKEN].iter().all(|secret| learned.contains(&(*secret).to_owned())));
    assert!(is_signed(&server.requests()[0], SECRET, "eu-west-1"));
    assert_eq!(server.requests()[0].header("x-amz-security-token"), Some(TOKEN));
    // Another session of this process uses the same keys until they end or are refused.
    assert_eq!((call().await.unwrap().0.error, runs(&world)), (None, 1));
    let error = call().await.unwrap().0.error.unwrap();
    assert_eq!((error.kind, runs(&world), server.requests().len()), (ModelErrorKind::Auth, 2, 3));
    world.write("keys.json", &printed("another-secret-key", None));
    let (end, _) = call().await.unwrap();
    assert_eq!((end.error, end.attempts.len(), runs(&world)), (None, 2, 3));
    assert!(is_signed(&server.requests()[4], "another-secret-key", "eu-west-1"));
}

#[tokio::test]
async fn process_whose_keys_end_soon_runs_again() {
    let busy = Reply::error_on(Wire::Converse, 503, "ServiceUnavailableException", "busy");
    let (_server, world) = served([busy, answer()], &[("AWS_PROFILE", "work")]);
    // Within the ten seconds in which keys are fetched again.
    with_process(&world, &printed(SECRET, Some(9)));
    assert_eq!(world.call().await.unwrap().0.error, None);
    assert_eq!(runs(&world), 2);
}

#[tokio::test]
async fn process_that_gives_no_keys_fails_in_words() {
    let (server, world) = served([], &[("AWS_PROFILE", "work")]);
    let secret = format!("printf '{SECRET}'");
    let large = "head -c 70000 /dev/zero | tr '\\0' x";
    for (line, words) in [
        ("exit 3", "failed (exit status: 3). Run the command by hand to see why"),
        (secret.as_str(), "did not print keys as JSON"),
        ("no-such-program-of-the-test", "a program was not found"),
        ("true", "printed nothing"),
        (large, "printed more than 65536 bytes"),
        (r#"printf '{"Version":1,"AccessKeyId":"","SecretAccessKey":"x"}'"#, "printed an empty key"),
    ] {
        world.write(".aws/config", &format!("[profile work]\ncredential_process = {line}\n"));
        let error = world.fails(&["credential_process of the AWS profile \"work\"", words]).await;
        assert_eq!(error.kind, ModelErrorKind::NoCredential);
    }
    with_process(&world, &printed(SECRET, Some(-5)));
    world.fails(&["it has expired"]).await;
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn process_of_a_file_that_a_session_may_change_is_not_run() {
    let (server, mut world) = served([], &[("AWS_PROFILE", "work")]);
    // Below the directory that the process runs in.
    let here = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let config = here.path().join("config");
    let ran = world.home.path().join("ran");
    std::fs::write(&config, format!("[profile work]\ncredential_process = touch {}\n", ran.display()))
        .unwrap();
    world.set("AWS_CONFIG_FILE", config.to_str().unwrap());
    world.fails(&["is not run", "below the current directory", "Start in another directory"]).await;
    let relative = config.strip_prefix(std::env::current_dir().unwrap()).unwrap();
    world.set("AWS_CONFIG_FILE", relative.to_str().unwrap());
    world.fails(&["is not run", "below the current directory"]).await;
    // Where the shell knows that commands may write.
    let text = std::fs::read_to_string(&config).unwrap();
    let config = world.write(".aws/config", &text);
    world.set("AWS_CONFIG_FILE", &config);
    let settings = world.settings().with_shell(std::sync::Arc::new(|line: &str| {
        assert!(line.starts_with(": '/"), "{line}");
        Err(quipu_providers::NoShell("it names a file".into()))
    }));
    let model = settings.models_of("amazon-bedrock")[0].as_ref().clone();
    let (end, _) = crate::cloud_credentials::call(&settings, model).await.unwrap();
    let message = end.error.unwrap().message;
    assert!(message.contains("is not run: it names a file"), "{message}");
    assert!(!ran.exists() && server.requests().is_empty());
}

const TIMEOUT: &str = "AWS_METADATA_SERVICE_TIMEOUT";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";

fn text(status: u16, body: &str) -> Reply {
    Reply::new(status, "text/plain", body.to_owned())
}

/// The keys of the machine are had at a server of the test.
fn on_machine(metadata: &FakeServer, vars: &[(&str, &str)]) -> (FakeServer, World) {
    let (server, mut world) = served([answer()], vars);
    world.set("AWS_EC2_METADATA_DISABLED", "false");
    world.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url());
    world.set(TIMEOUT, "30");
    (server, world)
}

#[tokio::test]
async fn role_of_a_machine_gives_keys_for_a_token() {
    let keys = container_keys(3_600).replacen('{', "{\"Code\":\"Success\",\"Type\":\"AWS-HMAC\",", 1);
    // One answer is lost on the way.
    let metadata = FakeServer::start([
        Reply::reset(),
        text(200, "metadata-token-1"),
        text(200, "my-role\n"),
        text(503, "busy"),
        text(200, &keys),
    ]);
    let (server, world) = on_machine(&metadata, &[("AWS_REGION", "us-west-2")]);
    let settings = world.settings();
    assert_eq!(settings.credential_source("amazon-bedrock").as_deref(), Some("AWS instance role"));
    // It is there for all programs of the machine, so that no session begins with it by itself.
    assert_eq!(settings.default_model(), None);
    assert_eq!(metadata.requests().len(), 0, "nobody is asked before a call");
    let (end, learned) = world.call().await.unwrap();
    assert_eq!(end.error, None);
    assert!([SECRET, TOKEN].iter().all(|secret| learned.contains(&(*secret).to_owned())));
    assert!(is_signed(&server.requests()[0], SECRET, "us-west-2"));
    let asked = metadata.requests();
    let shown: Vec<_> = asked.iter().map(|it| (it.method.as_str(), it.path.as_str())).collect();
    let role = format!("{ROLES}my-role");
    let put = ("PUT", "/latest/api/token");
    assert_eq!(shown, [put, put, ("GET", ROLES), ("GET", &role), ("GET", &role)]);
    assert_eq!(asked[1].header("x-aws-ec2-metadata-token-ttl-seconds"), Some("60"));
    assert!(asked[2..].iter().all(|it| it.header("x-aws-ec2-metadata-token") == Some("metadata-token-1")));
}

#[tokio::test]
async fn machine_that_gives_no_keys_fails_in_words() {
    let token = || text(200, "metadata-token-1");
    let role = || text(200, "my-role");
    let refused =
        json!({ "Code": "AssumeRoleUnauthorizedAccess", "Message": "no, metadata-token-1" }).to_string();
    let silent = || Reply::never();
    let large = || text(200, "").then_repeat(vec![b' '; 1 << 16], 4);
    for (replies, words) in [
        (vec![silent(), silent()], "the hop limit of the instance has to be 2 or more"),
        (vec![text(403, "")], "is turned off for this instance (403)"),
        (vec![text(404, "<html>")], "answered 404 to the request for a token"),
        (vec![text(200, "")], "sent a token that is none"),
        (vec![token(), text(404, "")], "knows no role of this instance. Attach one"),
        (vec![token(), text(401, "bad metadata-token-1")], "answered 401: bad [credential]"),
        (vec![token(), text(200, "../../user-data")], "sent a name of a role that is none"),
        (vec![token(), text(302, "").header("location", "http://192.0.2.1/")], "answered 302"),
        (vec![token(), role(), text(200, &refused)], "AssumeRoleUnauthorizedAccess: no, [credential]"),
        (vec![token(), role(), text(200, "{}")], "sent no access key for the role my-role"),
        (vec![token(), role(), text(200, &container_keys(-5))], "it has expired"),
        (vec![token(), role(), large(), large()], "the limit of 64 KiB"),
    ] {
        let metadata = FakeServer::start(replies);
        let (server, mut world) = on_machine(&metadata, &[]);
        if words.contains("hop limit") {
            // Nothing answers: the usual patience ends soon.
            world.set(TIMEOUT, "");
        }
        let error = world.fails(&[words]).await;
        assert_eq!((error.kind, server.requests().len()), (ModelErrorKind::NoCredential, 0));
        assert!(!error.message.contains("metadata-token-1"), "{error}");
    }
}

#[tokio::test]
async fn service_of_a_machine_can_be_left_out() {
    let metadata = FakeServer::start([]);
    let (_server, mut world) = on_machine(&metadata, &[]);
    world.set("AWS_EC2_METADATA_DISABLED", "TRUE");
    assert_eq!(world.settings().credential_source("amazon-bedrock"), None);
    world.set("AWS_EC2_METADATA_DISABLED", "");
    world.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://192.0.2.1");
    world.fails(&["over plain HTTP", "AWS_EC2_METADATA_SERVICE_ENDPOINT"]).await;
    assert!(metadata.requests().is_empty());
}
