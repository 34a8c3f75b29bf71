//! Hosts that rules open to confined commands.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use quipu_rules::{Effect, Rule, RuleSet};
use quipu_workspace::{CommandNeeds, HostRules, Sandbox, ShellEnd};

use crate::confined::{World, namespaces};
use crate::namespaces::inside;

fn rules(texts: &[&str]) -> RuleSet {
    RuleSet::new(texts.iter().map(|text| (Effect::Allow, Rule::parse(text).unwrap())).collect())
}

/// A server on this machine that answers each request; its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for arrived in listener.incoming() {
            let mut arrived = arrived.unwrap();
            let mut head = [0; 4096];
            let got = arrived.read(&mut head).unwrap();
            let first = String::from_utf8_lossy(&head[..got]).lines().next().unwrap_or_default().to_owned();
            let body = format!("served {first}");
            write!(
                arrived,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    port
}

async fn run(world: &World, sandbox: &Sandbox, command: &str) -> (ShellEnd, String) {
    world.run_in(Some(sandbox), CommandNeeds::default(), command).await.unwrap()
}

/// A client that speaks to the proxy by itself, and one that does not.
const TUNNEL: &str = r#"python3 -c '
import os,socket,sys
host,port=os.environ["https_proxy"].removeprefix("http://").split(":")
s=socket.create_connection((host,int(port)))
s.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\r\n\r\n".encode())
answer=b""
while b"\r\n\r\n" not in answer: answer+=s.recv(4096)
if b" 200 " in answer: s.sendall(b"GET /tunnel HTTP/1.1\r\n\r\n")
while True:
  more=s.recv(4096)
  if not more: break
  answer+=more
print(answer.decode())' "#;

#[tokio::test]
async fn commands_reach_the_hosts_of_rules_and_no_others() {
    let Some(world) = inside() else { return };
    let port = server();
    let hosts = Arc::new(HostRules::default());
    let sandbox = Sandbox::new(vec![world.path("ws")])
        .with_namespaces(Some(namespaces(&world.path(""))))
        .with_hosts(hosts.clone());
    // With no rule nothing is different.
    let (_, output) = run(&world, &sandbox, "echo ${HTTP_PROXY-none} ${https_proxy-none}").await;
    assert!(output.contains("none none"), "{output}");
    hosts.set(rules(&[
        &format!("network(127.0.0.1:{port})"),
        "network(localhost)",
        "network(*.example.com)",
    ]));
    let (end, output) = run(&world, &sandbox, &format!("{TUNNEL} 127.0.0.1:{port}")).await;
    assert_eq!(end, ShellEnd::Exited(0), "{output}");
    assert!(output.contains("served GET /tunnel"), "{output}");
    let (_, output) = run(&world, &sandbox, &format!("{TUNNEL} localhost:{port}")).await;
    assert!(output.contains("served GET /tunnel"), "{output}");
    let (_, output) = run(&world, &sandbox, &format!("{TUNNEL} 127.0.0.2:{port}")).await;
    assert!(output.contains("403 Forbidden") && output.contains("`network(127.0.0.2)`"), "{output}");
    let (_, output) = run(&world, &sandbox, &format!("{TUNNEL} other.example.org:443")).await;
    assert!(output.contains("403 Forbidden") && output.contains("`network(other.example.org)`"), "{output}");
    assert_eq!(hosts.take_refused(), ["network(127.0.0.2)", "network(other.example.org)"]);
    // A socket that does not go through the proxy leads nowhere.
    let direct = format!("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\",{port}),5)'");
    let (end, output) = run(&world, &sandbox, &direct).await;
    assert_ne!(end, ShellEnd::Exited(0), "{output}");
    // Servers of the session are reached without it.
    let own = "python3 -c 'import socket\ns=socket.create_server((\"127.0.0.1\",0))\nopen(\"own\",\"w\").write(str(s.getsockname()[1]))\nc,_=s.accept()\nc.sendall(b\"own\")' & while ! test -s own; do sleep 0.01; done; cat < /dev/tcp/127.0.0.1/$(cat own)";
    let (_, output) = run(&world, &sandbox, own).await;
    assert!(output.contains("own"), "{output}");
    // A rule that is taken back holds for the next connection.
    hosts.set(rules(&["network(*.example.com)"]));
    let (_, output) = run(&world, &sandbox, &format!("{TUNNEL} 127.0.0.1:{port}")).await;
    assert!(output.contains("403 Forbidden"), "{output}");
}

#[tokio::test]
async fn curl_goes_through_the_proxy() {
    let Some(world) = inside() else { return };
    if !std::path::Path::new("/usr/bin/curl").exists() {
        eprintln!("note: curl is not here; not tested");
        return;
    }
    let port = server();
    let hosts = Arc::new(HostRules::default());
    hosts.set(rules(&[&format!("network(127.0.0.2:{port})")]));
    let sandbox = Sandbox::new(vec![world.path("ws")])
        .with_namespaces(Some(namespaces(&world.path(""))))
        .with_hosts(hosts.clone());
    // The server listens at another address of this machine, for which curl uses the proxy.
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for arrived in listener.incoming() {
            let mut arrived = arrived.unwrap();
            let mut head = [0; 4096];
            let got = arrived.read(&mut head).unwrap();
            assert!(got > 0);
            arrived
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved")
                .unwrap();
        }
    });
    hosts.set(rules(&[&format!("network(127.0.0.2:{port})")]));
    let (end, output) = run(&world, &sandbox, &format!("curl -sS http://127.0.0.2:{port}/x")).await;
    assert_eq!((end, output.trim()), (ShellEnd::Exited(0), "served"));
    let (_, output) = run(&world, &sandbox, "curl -sS http://other.example.org/x").await;
    assert!(output.contains("`network(other.example.org)` would allow it"), "{output}");
    let (end, output) = run(&world, &sandbox, "curl -sS https://other.example.org/x").await;
    assert_ne!(end, ShellEnd::Exited(0));
    assert!(output.contains("403"), "{output}");
    let (end, output) =
        run(&world, &sandbox, &format!("curl -sS --noproxy '*' http://127.0.0.2:{port}/x")).await;
    assert_ne!(end, ShellEnd::Exited(0), "{output}");
}
