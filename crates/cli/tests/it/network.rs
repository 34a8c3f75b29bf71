//! What stands between the command and a model's server: proxies, and authorities that only the user knows. Each case
//! is a process with its own environment, a real proxy and a real TLS server on the loopback address.

use std::io::{Read, Write};

use quipu_testkit::{Answer, Authority, CapturedRequest, FakeProxy, FakeServer, Identity, Reply, Validity};
use serde_json::json;

use crate::support::*;

/// Whose name is in no list of addresses: only the proxy knows where it is.
const HOST: &str = "model.test";
const PASSWORD: &str = "s3cret-proxy-word";
/// `user` and [`PASSWORD`], as a proxy is told them.
const AUTHORIZATION: &str = "Basic dXNlcjpzM2NyZXQtcHJveHktd29yZA==";

/// A name that no resolver asks anybody about: its first part is longer than names may be.
fn unknown_host() -> String {
    format!("{}.corp.test", "long".repeat(20))
}

fn answer() -> Reply {
    Answer::new().text("Here.").reply()
}

/// Asks the model, with these variables.
fn ask(world: &World, env: &[(&str, &str)]) -> CommandOutput {
    let mut command = world.quipu(&["-p", "first"]);
    command.envs(env.iter().copied());
    RunningCommand::start(command).wait()
}

/// A world whose model is at `url`, and a proxy that takes every host for its server.
fn behind_proxy(url: &str, script: impl IntoIterator<Item = Reply>) -> (World, FakeProxy) {
    let world = World::new(script);
    let proxy = FakeProxy::to(&world.server);
    world.configure(url);
    (world, proxy)
}

/// A port that nobody listens on any more.
fn nobody() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// What was asked for, without its host.
fn asked(requests: &[CapturedRequest]) -> Vec<(String, String)> {
    requests.iter().map(|request| (request.method.clone(), request.path.clone())).collect()
}

#[test]
fn plain_requests_go_through_the_proxy_of_the_environment() {
    let host = unknown_host();
    // `PROXY` stands for its address; whether it is used.
    let cases: &[(&[(&str, &str)], bool)] = &[
        (&[("HTTP_PROXY", "http://PROXY")], true),
        (&[("http_proxy", "http://PROXY")], true),
        (&[("HTTP_PROXY", "PROXY")], true),
        (&[("ALL_PROXY", "http://PROXY/")], true),
        (&[("all_proxy", "http://PROXY")], true),
        (&[("HTTP_PROXY", "http://PROXY"), ("ALL_PROXY", "http://127.0.0.1:1")], true),
        (&[("HTTP_PROXY", "http://PROXY"), ("NO_PROXY", "other.test, 10.0.0.0/8")], true),
        (&[("HTTPS_PROXY", "http://PROXY")], false),
        (&[("HTTP_PROXY", "http://PROXY"), ("NO_PROXY", "HOST")], false),
        (&[("HTTP_PROXY", "http://PROXY"), ("NO_PROXY", "other.test, .corp.test")], false),
        (&[("HTTP_PROXY", "http://PROXY"), ("NO_PROXY", "corp.test")], false),
        (&[("HTTP_PROXY", "http://PROXY"), ("no_proxy", ".TEST")], false),
        (&[("ALL_PROXY", "http://PROXY"), ("NO_PROXY", "*")], false),
        // An exception counts even where the address of the proxy is none.
        (&[("HTTP_PROXY", "ftp://PROXY"), ("NO_PROXY", "*")], false),
    ];
    for (variables, through) in cases {
        let (world, proxy) = behind_proxy(&format!("http://{host}:8080/base"), [answer()]);
        let fill = |value: &str| value.replace("PROXY", &proxy.address()).replace("HOST", &host);
        let filled: Vec<(&str, String)> =
            variables.iter().map(|(name, value)| (*name, fill(value))).collect();
        let env: Vec<(&str, &str)> = filled.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let ran = ask(&world, &env);
        let expect = if *through {
            assert_eq!(ran.ok().text(), "Here.\n", "{variables:?}");
            vec![("POST".to_owned(), format!("http://{host}:8080/base/v1/messages"))]
        } else {
            ran.fails(1, &["could not be reached", &host]);
            Vec::new()
        };
        assert_eq!(asked(&proxy.requests()), expect, "{variables:?}");
        assert_eq!(world.requests().len(), expect.len());
    }
}

#[test]
fn secure_requests_are_tunnelled_through_the_proxy() {
    let authority = Authority::new("Private");
    let cases: &[(&str, &str, &str)] = &[
        ("HTTPS_PROXY", "http://PROXY", "CONNECT"),
        ("https_proxy", "http://PROXY", "CONNECT"),
        ("ALL_PROXY", "PROXY", "CONNECT"),
        ("all_proxy", "socks5h://PROXY", "SOCKS5"),
    ];
    for (variable, value, method) in cases {
        let mut world = World::new([]);
        world.server = FakeServer::start_tls([answer()], &authority.issue(&[HOST], Validity::Now));
        world.configure(&format!("https://{HOST}"));
        let proxy = FakeProxy::to(&world.server);
        let file = world.file("ca.pem", authority.pem()).display().to_string();
        let env = [(*variable, &*value.replace("PROXY", &proxy.address())), ("SSL_CERT_FILE", &*file)];
        assert_eq!(ask(&world, &env).ok().text(), "Here.\n", "{variable}");
        assert_eq!(asked(&proxy.requests()), [((*method).to_owned(), format!("{HOST}:443"))]);
        assert_eq!(world.requests()[0].path, "/v1/messages");
    }
    // The proxy of plain requests is not that of secure ones.
    let (world, proxy) = behind_proxy(&format!("https://{}", unknown_host()), []);
    ask(&world, &[("HTTP_PROXY", &format!("http://{}", proxy.address()))])
        .fails(1, &["could not be reached"]);
    assert_eq!(proxy.requests().len(), 0);
}

#[test]
fn servers_on_this_machine_are_reached_directly_unless_told() {
    let dead = format!("http://{}", nobody());
    let world = World::new([answer(), answer()]);
    let port = world.server.address().port();
    for url in [world.server.url(), format!("http://localhost:{port}")] {
        world.configure(&url);
        let env = [("HTTP_PROXY", &*dead), ("HTTPS_PROXY", &*dead), ("all_proxy", &*dead)];
        assert_eq!(ask(&world, &env).ok().text(), "Here.\n");
    }

    let told = json!({ "retry": { "baseDelayMs": 1 }, "proxyLocalServers": true }).to_string();
    let (world, proxy) = behind_proxy("", [answer(), answer()]);
    std::fs::write(world.path("home/.quipu/settings.json"), told).unwrap();
    world.configure(&world.server.url());
    let named = format!("http://{}", proxy.address());
    for (exception, count) in [("other.test", 1), ("127.0.0.0/8", 1)] {
        let env = [("HTTP_PROXY", named.as_str()), ("NO_PROXY", exception)];
        assert_eq!(ask(&world, &env).ok().text(), "Here.\n");
        assert_eq!(proxy.requests().len(), count, "{exception}");
    }

    // Nor are those asked through a proxy that nobody has set up.
    let list = json!({ "object": "list", "data": [{ "id": "small:1b" }] }).to_string();
    let server = FakeServer::start([Reply::new(200, "application/json", list)]);
    let servers = json!({ "ollama": format!("{}/v1", server.url()), "llama.cpp": null, "lmstudio": null,
        "vllm": null, "sglang": null, "jan": null, "koboldcpp": null, "docker": null });
    let world = World::new([]);
    std::fs::remove_file(world.path("home/.quipu/models.json")).unwrap();
    let settings = json!({ "localServers": servers }).to_string();
    std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
    let mut command = world.quipu(&["models"]);
    command.env("HTTP_PROXY", &dead).env("ALL_PROXY", &dead);
    assert!(RunningCommand::start(command).wait().ok().text().starts_with("ollama/small:1b"));
}

#[test]
fn a_proxy_is_told_its_password_and_nobody_else_is() {
    let authority = Authority::new("Private");
    let print = bash("t1", "echo \"$HTTP_PROXY$HTTPS_PROXY\" | tee seen");
    for secure in [false, true] {
        let mut world = World::new([print.clone(), answer()]);
        let mut url = format!("http://{HOST}");
        if secure {
            let identity = authority.issue(&[HOST], Validity::Now);
            world.server = FakeServer::start_tls([print.clone(), answer()], &identity);
            url = format!("https://{HOST}");
        }
        world.configure(&url);
        let proxy = FakeProxy::guarded(&world.server, AUTHORIZATION);
        let file = world.path("ca.pem").display().to_string();
        std::fs::write(&file, authority.pem()).unwrap();
        let variable = if secure { "HTTPS_PROXY" } else { "HTTP_PROXY" };
        let with = |who: &str| format!("http://{who}{}", proxy.address());
        let env = |value: &str| ask(&world, &[(variable, value), ("SSL_CERT_FILE", &file)]);
        let address = proxy.address();

        // Without a password, and with a wrong one: said once, not tried again, and not repeated.
        env(&with("")).fails(1, &["could not be reached", &address, "wants a user and a password", variable]);
        let wrong = env(&with("user:wrong-proxy-word@")).fails(1, &["does not take", &address, variable]);
        assert!(!wrong.err.contains("wrong-proxy-word"), "{}", wrong.err);
        assert_eq!(proxy.requests().len(), 2);
        world.unchecked();

        // With the right one. A command that prints it does not tell the model.
        let ran = env(&with(&format!("user:{PASSWORD}@"))).ok();
        assert_eq!(ran.text(), "Here.\n");
        assert!(std::fs::read_to_string(world.path("work/seen")).unwrap().contains(PASSWORD));
        let requests = world.requests();
        assert_eq!(requests.len(), 2);
        let result = wire_text(messages(&requests[1]).last().unwrap());
        assert!(result.contains("[REDACTED:") && result.contains(&address), "{result}");
        assert!(requests.iter().all(|request| request.header("proxy-authorization").is_none()));
        for file in ["quipu.db", "quipu.db-wal"] {
            let kept = std::fs::read(world.path("home/.quipu").join(file)).unwrap_or_default();
            assert!(!contains(&kept, PASSWORD.as_bytes()), "{file}");
        }
    }
}

#[test]
fn a_proxy_that_does_not_do_its_work_is_named() {
    let down = nobody();
    let refusing = |status: u16| FakeProxy::refusing(status);
    let check =
        |url: &str, variable: &str, value: &str, words: &[&str], tries: Option<(&FakeProxy, usize)>| {
            let world = World::new([answer()]);
            world.configure(url);
            let ran = ask(&world, &[(variable, value)]).fails(1, words);
            assert!(ran.message().contains("quipu -p -c"), "{}", ran.err);
            if let Some((proxy, tries)) = tries {
                assert_eq!(proxy.requests().len(), tries, "{}", ran.err);
            }
            // What the proxy answers in its own name looks like an answer of the server.
            world.unchecked();
            world.configure(&world.server.url());
            assert_eq!(world.run(&["-p", "-c", "second"]).ok().text(), "Here.\n");
        };
    let plain = format!("http://{HOST}");
    let secure = format!("https://{HOST}");
    let no_proxy = "NO_PROXY";
    for (url, variable) in [(&plain, "HTTP_PROXY"), (&secure, "HTTPS_PROXY"), (&plain, "all_proxy")] {
        let value = format!("http://{down}");
        let words = ["could not be reached", &down, variable, "Correct or unset", no_proxy, "4 attempts"];
        check(url, variable, &value, &words, None);
        // What is no address at all is said before anything is sent, without the value: it may hold a password.
        for value in ["ftp://proxy.test", "http://user:pass word@proxy.test", "://", "socks9://proxy.test:1"]
        {
            check(url, variable, value, &[variable, "does not hold the address of a proxy"], None);
        }
    }
    let proxy = refusing(502);
    let value = format!("http://{}", proxy.address());
    let words =
        ["502", "proxy words", "came through the proxy", &proxy.address(), "HTTP_PROXY", "4 attempts"];
    check(&plain, "HTTP_PROXY", &value, &words, Some((&proxy, 4)));
    let proxy = refusing(502);
    let value = format!("http://{}", proxy.address());
    let words = ["did not make the connection", &proxy.address(), "HTTPS_PROXY", no_proxy, HOST];
    check(&secure, "HTTPS_PROXY", &value, &words, Some((&proxy, 4)));
    for (url, variable) in [(&plain, "HTTP_PROXY"), (&secure, "HTTPS_PROXY")] {
        let proxy = refusing(407);
        let value = format!("http://{}", proxy.address());
        let words = ["could not be reached", "wants a user and a password", &proxy.address(), variable];
        check(url, variable, &value, &words, Some((&proxy, 1)));
    }
}

#[test]
fn private_authorities_are_believed_when_they_are_named() {
    let authority = Authority::new("Private");
    let other = Authority::new("Another");
    let files = |world: &World| {
        world.file("ca.pem", authority.pem());
        world.file("other.pem", other.pem());
        world.file("damaged.pem", &authority.pem()[..200]);
        world.file("words.pem", "no certificate");
        for (directory, authority) in [("good", Some(&authority)), ("hollow", None)] {
            std::fs::create_dir(world.path("work").join(directory)).unwrap();
            if let Some(authority) = authority {
                world.file(&format!("{directory}/1.pem"), authority.pem());
                world.file(&format!("{directory}/README"), "not a certificate");
            }
        }
    };
    let (file, directory) = ("SSL_CERT_FILE", "SSL_CERT_DIR");
    let (good, late, wrong) = (
        authority.issue(&["localhost", "127.0.0.1"], Validity::Now),
        authority.issue(&["localhost"], Validity::Past),
        authority.issue(&["other.test"], Validity::Now),
    );
    // Names in the current directory; what must be said, nothing where it must work.
    type Case<'a> = (&'a Identity, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (&good, &[(file, "ca.pem")], &[]),
        (&good, &[(directory, "good")], &[]),
        (&good, &[(directory, "hollow:good")], &[]),
        (&good, &[(file, "other.pem"), (directory, "good")], &[]),
        (&good, &[(file, "ca.pem"), (directory, "nowhere")], &[]),
        (&good, &[], &["SSL_CERT_FILE", "authority"]),
        (&good, &[(file, "other.pem")], &["authority", "that SSL_CERT_FILE names"]),
        (&good, &[(file, "nowhere.pem")], &["SSL_CERT_FILE names nowhere.pem", "cannot be read"]),
        (&good, &[(file, "damaged.pem")], &["SSL_CERT_FILE names damaged.pem", "damaged"]),
        (&good, &[(file, "words.pem")], &["SSL_CERT_FILE names words.pem", "no certificate"]),
        (&good, &[(file, ".")], &["SSL_CERT_FILE names .", "not a regular file"]),
        (&good, &[(directory, "hollow")], &["SSL_CERT_DIR names hollow", "no certificate"]),
        (&good, &[(directory, "nowhere")], &["SSL_CERT_DIR names nowhere", "cannot be read"]),
        (&late, &[(file, "ca.pem")], &["has expired", "clock"]),
        (&wrong, &[(file, "ca.pem")], &["another name", "other.test", "base URL"]),
    ];
    for (identity, env, words) in cases {
        let mut world = World::new([]);
        world.server = FakeServer::start_tls([answer(), answer()], identity);
        files(&world);
        let port = world.server.address().port();
        world.configure(&format!("https://localhost:{port}"));
        let ran = ask(&world, env);
        if words.is_empty() {
            assert_eq!(ran.ok().text(), "Here.\n", "{env:?}");
            world.configure(&world.server.url());
            assert_eq!(ask(&world, env).ok().text(), "Here.\n", "{env:?}");
            continue;
        }
        let ran = ran.fails(1, words);
        assert!(ran.message().contains("quipu -p -c"), "{}", ran.err);
        // Nothing gets better by itself.
        assert!(!ran.err.contains("attempts"), "{}", ran.err);
        assert_eq!(world.requests().len(), 0);
    }
}

#[test]
fn tls_failure_is_reported_and_plain_http_needs_no_trust() {
    let world = World::new([answer(), answer()]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    world.configure(&format!("https://{}", listener.local_addr().unwrap()));
    let plain = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_exact(&mut [0; 64]).unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let authority = world.file("ca.pem", Authority::new("Private").pem()).display().to_string();
    ask(&world, &[("SSL_CERT_FILE", &authority)]).fails(1, &["does not speak TLS", "http://"]);
    plain.join().unwrap();
    world.configure(&world.server.url());
    assert_eq!(ask(&world, &[("SSL_CERT_FILE", "/nowhere.pem")]).ok().text(), "Here.\n");
    // Nor do those behind a plain proxy.
    let proxy = FakeProxy::to(&world.server);
    world.configure(&format!("http://{HOST}"));
    let proxy = format!("http://{}", proxy.address());
    assert_eq!(
        ask(&world, &[("SSL_CERT_FILE", "/nowhere.pem"), ("HTTP_PROXY", &proxy)]).ok().text(),
        "Here.\n"
    );
}
