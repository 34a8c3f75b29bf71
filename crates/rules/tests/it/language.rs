//! The text of rules; paths, hosts and tools.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use quipu_rules::{Effect, FileAccess, Host, Place, Rule, RuleError, RuleSet, Verdict, is_private};

use crate::commands::{judged, rules, word};

fn file(rules: &RuleSet, tool: &str, path: &str, access: FileAccess) -> &'static str {
    let true_path = |path: &Path| path.to_path_buf();
    let place = Place { cwd: Path::new("/work"), home: Some(Path::new("/home/me")), true_path: &true_path };
    word(rules.files(tool, &[PathBuf::from(path)], access, &place).verdict)
}

fn host(rules: &RuleSet, host: &str) -> &'static str {
    match Host::parse(host, Some(443)) {
        Some(host) => word(rules.host(&host).verdict),
        None => "no host",
    }
}

#[test]
fn rules_are_read_or_say_what_is_wrong() {
    for text in [
        "bash",
        "bash(git status *)",
        "bash(git status*)",
        "bash(npm run test:*)",
        "bash(echo 'a;b')",
        "write(docs/**)",
        "read(~/notes/*)",
        "edit(/srv/**)",
        "network(api.example.com)",
        "network(*.example.com:8443)",
        "network(10.0.0.1)",
        "network([::1]:80)",
        "network(domain:example.com)",
        "mcp__server__tool",
        "mcp__server__*",
        "*",
        "apply_patch(src/**)",
    ] {
        let rule = Rule::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(rule.text(), text);
    }
    for (text, error) in [
        ("", RuleError::Empty),
        ("()", RuleError::Empty),
        ("bash()", RuleError::Empty),
        ("bash( )", RuleError::Empty),
        ("bash(git", RuleError::OpenParenthesis),
        ("bash(git) x", RuleError::OpenParenthesis),
        ("b sh", RuleError::BadTool("b sh".into())),
        ("bash(a; b)", RuleError::NotOneCommand(';')),
        ("bash(a && b)", RuleError::NotOneCommand('&')),
        ("bash(a | b)", RuleError::NotOneCommand('|')),
        ("bash(a > b)", RuleError::NotOneCommand('>')),
        ("bash(a $x)", RuleError::NotOneCommand('$')),
        ("bash(a $(b))", RuleError::NotOneCommand('$')),
        ("bash(a 'b)", RuleError::OpenQuote),
        ("bash(a\\)", RuleError::OpenQuote),
        ("write(../x)", RuleError::ParentDirectory),
        ("write(a/../../x)", RuleError::ParentDirectory),
        ("network(a b)", RuleError::BadHost("a b".into())),
        ("network(a.*.com)", RuleError::BadHost("a.*.com".into())),
        ("network(127.1)", RuleError::BadHost("127.1".into())),
        ("network(example.com:0)", RuleError::BadHost("example.com:0".into())),
        ("network(https://example.com)", RuleError::BadHost("https://example.com".into())),
        ("bash(git\u{200b})", RuleError::Unprintable),
        ("bash(git\nrm)", RuleError::NotOneCommand('\n')),
    ] {
        assert_eq!(Rule::parse(text).unwrap_err(), error, "{text}");
    }
    assert_eq!(Rule::parse(&"a".repeat(1025)).unwrap_err(), RuleError::TooLong);
}

#[test]
fn star_in_quotes_is_a_star() {
    let rules = rules(&[(Effect::Allow, "bash(ls '*')")]);
    assert_eq!(judged(&rules, "ls '*'").verdict, Verdict::Allow);
    assert_eq!(judged(&rules, "ls x").verdict, Verdict::NoRule);
    // It becomes names of files.
    assert_eq!(judged(&rules, "ls *").verdict, Verdict::NoRule);
}

#[test]
fn space_in_a_word_is_no_space_between_words() {
    let rules = rules(&[(Effect::Allow, "bash(grep a b)")]);
    assert_eq!(judged(&rules, "grep a b").verdict, Verdict::Allow);
    assert_eq!(judged(&rules, "grep   'a'  \"b\"").verdict, Verdict::Allow);
    assert_eq!(judged(&rules, "grep 'a b'").verdict, Verdict::NoRule);
    assert_eq!(judged(&rules, "grep a b ''").verdict, Verdict::NoRule);
}

#[test]
fn paths_are_of_the_directory_the_home_or_the_top() {
    let rules = rules(&[
        (Effect::Allow, "write(docs/**)"),
        (Effect::Allow, "write(*.md)"),
        (Effect::Allow, "edit(src/*.rs)"),
        (Effect::Allow, "read(~/notes/**)"),
        (Effect::Allow, "read(/srv/data/)"),
        (Effect::Deny, "write(docs/secret/**)"),
        (Effect::Ask, "write(**/Cargo.toml)"),
        (Effect::Deny, "read(**/.env)"),
    ]);
    use FileAccess::{Read, Write};
    for (tool, path, access, expected) in [
        ("write", "/work/docs/a.md", Write, "allow"),
        ("edit", "/work/docs/deep/er/a.md", Write, "allow"),
        ("apply_patch", "/work/docs/a.md", Write, "allow"),
        ("write", "/work/docs", Write, "allow"),
        ("write", "/work/docsx/a.md", Write, "none"),
        ("write", "/other/docs/a.md", Write, "none"),
        ("write", "/work/a.md", Write, "allow"),
        ("write", "/work/sub/a.md", Write, "none"),
        ("write", "/work/docs/secret/a", Write, "deny"),
        ("edit", "/work/src/a.rs", Write, "allow"),
        ("write", "/work/src/a.rs", Write, "none"),
        ("edit", "/work/src/deep/a.rs", Write, "none"),
        ("write", "/work/crates/x/Cargo.toml", Write, "ask"),
        ("write", "/work/Cargo.toml", Write, "ask"),
        ("write", "/work/new/../docs/secret/a", Write, "deny"),
        ("write", "/work/new/../docs/a.md", Write, "none"),
        ("read", "/home/me/notes/a", Read, "allow"),
        ("read", "/home/me/other", Read, "none"),
        ("read", "/srv/data/x/y", Read, "allow"),
        ("read", "/srv/datax", Read, "none"),
        ("read", "/work/docs/a.md", Read, "none"),
        ("grep", "/work/a/.env", Read, "deny"),
    ] {
        assert_eq!(file(&rules, tool, path, access), expected, "{tool} {path}");
    }
}

#[test]
fn tools_are_named_exactly_or_by_a_star() {
    let rules = rules(&[
        (Effect::Allow, "mcp__docs__search"),
        (Effect::Allow, "mcp__files__*"),
        (Effect::Deny, "mcp__files__delete"),
        (Effect::Ask, "web_fetch"),
    ]);
    for (tool, expected) in [
        ("mcp__docs__search", "allow"),
        ("mcp__docs__search2", "none"),
        ("mcp__files__list", "allow"),
        ("mcp__files__delete", "deny"),
        ("web_fetch", "ask"),
        ("bash", "none"),
    ] {
        assert_eq!(word(rules.tool(tool).verdict), expected, "{tool}");
    }
}

#[test]
fn hosts_are_names_ports_and_exact_addresses() {
    let rules = rules(&[
        (Effect::Allow, "network(api.example.com)"),
        (Effect::Allow, "network(*.example.org)"),
        (Effect::Allow, "network(proxy.example.net:8443)"),
        (Effect::Allow, "network(192.0.2.7)"),
        (Effect::Allow, "network([2001:db8::1]:80)"),
        (Effect::Deny, "network(bad.example.org)"),
    ]);
    for (name, expected) in [
        ("api.example.com", "allow"),
        ("API.example.com.", "allow"),
        ("api.example.com:8080", "allow"),
        ("x.api.example.com", "none"),
        ("example.com", "none"),
        ("api.example.com.evil.net", "none"),
        ("a.example.org", "allow"),
        ("a.b.example.org", "allow"),
        ("example.org", "none"),
        ("aexample.org", "none"),
        ("bad.example.org", "deny"),
        ("proxy.example.net:8443", "allow"),
        ("proxy.example.net:443", "none"),
        ("192.0.2.7", "allow"),
        ("192.0.2.8", "none"),
        ("[::ffff:192.0.2.7]", "allow"),
        ("[2001:db8::1]:80", "allow"),
        ("[2001:db8::1]:81", "none"),
        ("127.1", "no host"),
        ("0x7f.0.0.1", "no host"),
        ("2130706433", "no host"),
        ("a..b", "no host"),
        ("a/b", "no host"),
        ("user@api.example.com", "no host"),
        ("api.example.com:99999", "no host"),
        ("api.example.com:+1", "no host"),
        ("", "no host"),
    ] {
        assert_eq!(host(&rules, name), expected, "{name}");
    }
    let every = self::rules(&[(Effect::Allow, "network(*)")]);
    assert_eq!(host(&every, "a.example"), "allow");
    for address in ["127.0.0.1", "10.0.0.1", "8.8.8.8", "[::1]"] {
        assert_eq!(host(&every, address), "none", "{address}");
    }
}

#[test]
fn private_addresses_are_known_in_each_spelling() {
    for text in [
        "127.0.0.1",
        "127.8.9.1",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fd12::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "::127.0.0.1",
        "fec0::1",
    ] {
        assert!(is_private(text.parse::<IpAddr>().unwrap()), "{text}");
    }
    for text in ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808"] {
        assert!(!is_private(text.parse::<IpAddr>().unwrap()), "{text}");
    }
}

#[test]
fn rule_below_a_directory_is_about_its_files_alone() {
    let below = |rule: &str| Rule::parse(rule).unwrap().below(Path::new("/srv/work"));
    let true_path = |path: &Path| path.to_path_buf();
    let place = Place { cwd: Path::new("/elsewhere"), home: None, true_path: &true_path };
    let rules = RuleSet::new(vec![(Effect::Deny, below("read(secret/**)").unwrap())]);
    let judged = |path: &str| rules.files("read", &[path.into()], FileAccess::Read, &place).verdict;
    assert_eq!(judged("/srv/work/secret/key"), Verdict::Deny);
    assert_eq!(judged("/elsewhere/secret/key"), Verdict::NoRule);
    for rule in ["read(/srv/**)", "read(~/notes)", "read", "bash(ls)"] {
        assert_eq!(below(rule), None, "{rule}");
    }
}
