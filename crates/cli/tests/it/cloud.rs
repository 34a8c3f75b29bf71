//! A model whose requests are signed with keys of the environment.

use quipu_testkit::{Answer, FakeServer, Wire};

use crate::support::*;

const SECRET: &str = "wJalrXUtnFEMIK7MDENGsecretofthetest";

#[test]
fn model_of_a_cloud_is_called_with_its_keys() {
    let world = World::new([]);
    let answer = Answer::on(Wire::Converse).thinking("Hm.", "sig").text("From the cloud.");
    let server = FakeServer::start([answer.usage(7, 8, 9, 10).reply()]);
    let run = |args: &[&str]| {
        let mut command = world.quipu(args);
        command.env("AWS_ACCESS_KEY_ID", "AKIDTEST").env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_REGION", "eu-west-1").env("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url());
        RunningCommand::start(command).wait().ok()
    };
    assert!(run(&["auth"]).text().contains("amazon-bedrock  from AWS_ACCESS_KEY_ID"));
    let models = run(&["models", "--json"]).json_lines();
    let ours: Vec<_> = models.iter().filter(|model| model["provider"] == "amazon-bedrock").collect();
    assert!(ours.len() > 100 && ours.iter().all(|model| model["supported"] == true), "{ours:?}");
    assert!(server.requests().is_empty(), "nobody was asked");

    let said = format!("What is {SECRET}?");
    let output = run(&["-p", "--model", "amazon-bedrock/us.anthropic.claude-opus-4-6-v1", &said]);
    assert_eq!(output.text().trim(), "From the cloud.");
    let requests = server.requests();
    let [request] = requests.as_slice() else { panic!("one request") };
    assert_eq!(request.path, "/model/us.anthropic.claude-opus-4-6-v1/converse-stream");
    let authorization = request.header("authorization").unwrap();
    assert!(authorization.contains("Credential=AKIDTEST/") && authorization.contains("/eu-west-1/bedrock/"));
    // The secret goes nowhere, also where somebody wrote it down.
    assert!(!contains(&request.body, SECRET.as_bytes()));
    for entry in std::fs::read_dir(world.path("home/.quipu")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert!(!contains(&std::fs::read(&path).unwrap(), SECRET.as_bytes()), "{}", path.display());
        }
    }
    let node = world.nodes().into_iter().rfind(|node| node["step"]["call"].is_object()).unwrap();
    let usage = &node["step"]["call"]["attempts"][0];
    assert_eq!(usage["credential"], "AWS_ACCESS_KEY_ID", "{node}");
}
