use super::*;

#[test]
fn the_built_in_themes_name_every_role() {
    for (name, text) in BUILT_IN {
        assert_eq!(Theme::read(text).1, [], "{name}");
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        for role in Role::ALL {
            assert!(value["roles"][role.name()].is_string(), "{name} says nothing of `{}`", role.name());
        }
    }
    let plain = Theme::plain();
    for role in Role::ALL {
        let style = plain.style(*role);
        assert_eq!((style.foreground, style.background), Default::default(), "{}", role.name());
    }
}

#[test]
fn a_file_changes_what_it_names() {
    let text = r##"{
  "name": "mine",
  "base": "light",
  "colors": { "ink": "#102030" },
  "roles": { "heading": "bold ink on 236", "link": "underline bright-blue", "code": "#fff" }
}"##;
    let (theme, problems) = Theme::read(text);
    assert_eq!(problems, []);
    let heading = Style {
        foreground: Color::Rgb(0x10, 0x20, 0x30),
        background: Color::Indexed(236),
        bold: true,
        ..Style::default()
    };
    let link = Style { underline: true, ..Style::colored(Color::Ansi(12)) };
    let code = Style::colored(Color::Rgb(255, 255, 255));
    assert_eq!(theme, Theme { heading, link, code, ..Theme::light() });
}

#[test]
fn the_document_says_what_holds() {
    let page = include_str!("../../../../docs/themes.md");
    let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let (theme, problems) = Theme::read(example);
    assert_eq!(problems, []);
    assert_ne!(theme, Theme::dark());
    for role in Role::ALL {
        assert!(page.contains(&format!("`{}`", role.name())), "{}", role.name());
    }
}

#[test]
fn the_theme_to_begin_with() {
    let none = |_: &str| -> std::io::Result<String> { panic!("no file is wanted") };
    for (name, depth, ground, expect) in [
        (None, Depth::Rgb, None, Theme::dark()),
        (None, Depth::Indexed, Some("0;15"), Theme::light()),
        (None, Depth::Rgb, Some("15;0"), Theme::dark()),
        (None, Depth::Ansi, Some("0;15"), Theme::sixteen()),
        (None, Depth::None, None, Theme::plain()),
        (Some("light"), Depth::Rgb, None, Theme::light()),
        (Some("light"), Depth::None, None, Theme::plain()),
    ] {
        assert_eq!(
            Theme::choose(name, depth, ground, none),
            (expect, vec![]),
            "{name:?} {depth:?} {ground:?}"
        );
    }
    let (theme, problems) = Theme::choose(Some("../auth"), Depth::Rgb, None, none);
    assert_eq!(theme, Theme::dark());
    assert!(problems[0].contains("neither"), "{problems:?}");
    let (theme, problems) = Theme::choose(Some("mine"), Depth::Rgb, None, |name| {
        assert_eq!(name, "mine");
        Ok("{\"base\": \"light\",\n\"roles\": {\"link\": \"blau\"}}".into())
    });
    assert_eq!(theme, Theme::light());
    assert!(
        problems.len() == 1 && problems[0].starts_with("themes/mine.json:2: `blau` is not a colour"),
        "{problems:?}"
    );
    let missing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let (theme, problems) = Theme::choose(Some("mine"), Depth::Ansi, None, missing);
    assert_eq!(theme, Theme::sixteen());
    assert!(problems[0].starts_with("themes/mine.json: "), "{problems:?}");
}

#[test]
fn theme_problems_name_their_line() {
    let check = |text: &str, expect: &[(usize, &str)]| {
        let (_, problems) = Theme::read(text);
        let problems: Vec<_> = problems.iter().map(|p| (p.line, p.message.as_str())).collect();
        assert_eq!(problems.len(), expect.len(), "{problems:?}");
        for ((line, message), (expect_line, part)) in problems.iter().zip(expect) {
            assert!(line == expect_line && message.contains(part), "{line}: {message}");
        }
    };
    check("", &[(1, "not a JSON object")]);
    check("{\n\"roles\": {\n}", &[(3, "not a JSON object")]);
    check("[]", &[(1, "not a JSON object")]);
    check(
        "{\n\"roles\": {\n\"headings\": \"bold\",\n\"link\": \"bald\",\n\"code\": 3,\n\"text\": \"#12345\"\n},\n\"x\": 1,\"base\":\"blue\"}",
        &[
            (3, "there is no role `headings`; did you mean `heading`?"),
            (4, "`bald` is not a colour"),
            (5, "must be text such as"),
            (6, "`#12345` is not a colour"),
            (8, "`x` is not a member"),
            (8, "`base` must be `dark`"),
        ],
    );
    check(
        "{\"colors\":{\n\"a\": \"256\"},\n\"roles\":[]}",
        &[(2, "not a colour"), (3, "`roles` must be an object")],
    );
    check(&" ".repeat(THEME_LIMIT + 1), &[(1, "larger than")]);
}
