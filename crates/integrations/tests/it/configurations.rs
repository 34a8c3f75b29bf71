//! What is written into the configuration of each host.

use std::path::{Path, PathBuf};

use quipu_integrations::{ConfigurationContent, HOSTS, JsonValue, configuration};

#[test]
fn each_host_has_a_configuration_that_calls_the_program() {
    let program = Path::new("/opt/qui pu/it's/quipu");
    for host in &HOSTS {
        let found = configuration(host.name, program).unwrap();
        let mut calls = 0;
        for file in &found.files {
            let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/u"));
            let path = file.path(&home).unwrap();
            assert!(path.starts_with("/home/u") && path.file_name().is_some(), "{path:?}");
            assert_eq!(file.path(&|_| None), None);
            match &file.content {
                ConfigurationContent::Own(text) => {
                    calls += text.matches("it's/quipu").count() + text.matches(r"it'\\''s/quipu'").count();
                    if path.extension().is_some_and(|end| end == "json") {
                        serde_json::from_str::<serde_json::Value>(text).unwrap();
                    }
                }
                ConfigurationContent::Json(additions) => {
                    for addition in additions {
                        let JsonValue::Element(group) = &addition.value else {
                            // The plugin receives prompts by consent alone.
                            assert_eq!((host.name, &addition.members[2][..]), ("openclaw", "quipu"));
                            let JsonValue::Member(entry) = &addition.value else { unreachable!() };
                            assert_eq!(entry["hooks"]["allowConversationAccess"], true);
                            continue;
                        };
                        assert_eq!(addition.members[0], "hooks");
                        let command = group["hooks"][0]["command"].as_str().unwrap();
                        let event = &addition.members[1];
                        let expected = format!(
                            r"'/opt/qui pu/it'\''s/quipu' hook {} {event} 2>/dev/null || true",
                            host.name
                        );
                        assert_eq!(command, expected);
                        calls += 1;
                    }
                }
            }
        }
        assert!(calls > 0, "{}", host.name);
    }
    assert_eq!(configuration("nobody", program), None);
}

#[test]
fn variable_of_a_host_names_its_directory() {
    let found = configuration(HOSTS[0].name, Path::new("quipu")).unwrap();
    let place = found.files[0].places[0];
    let path = found.files[0].path(&|name| (name == place.variable).then(|| PathBuf::from("/elsewhere")));
    assert_eq!(path.unwrap(), Path::new("/elsewhere").join(place.path));
}

#[test]
fn hooks_of_each_host_use_the_directory_of_the_user() {
    let home = Path::new("/its own/qui'pu");
    for host in &HOSTS {
        let found = configuration(host.name, Path::new("/opt/quipu")).unwrap().with_home(home);
        let texts = found.files.iter().map(|file| match &file.content {
            ConfigurationContent::Own(text) => text.replace(r"\\", r"\"),
            ConfigurationContent::Json(additions) => {
                let JsonValue::Element(group) = &additions[0].value else { return String::new() };
                group["hooks"][0]["command"].as_str().unwrap().to_owned()
            }
        });
        let calls = texts.collect::<Vec<_>>().join("\n");
        let shell = r"QUIPU_HOME='/its own/qui'\''pu' /opt/quipu hook ";
        let plugin = r#"process.env.QUIPU_HOME = "/its own/qui'pu";"#;
        assert!(calls.contains(shell) || calls.contains(plugin), "{calls}");
    }
}
