//! Themes: a style for each role that text plays, from a file.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Color, Depth, Style};

/// The themes that are built in, as their files are.
const BUILT_IN: [(&str, &str); 4] = [
    ("dark", include_str!("../../themes/dark.json")),
    ("light", include_str!("../../themes/light.json")),
    ("16", include_str!("../../themes/16.json")),
    ("plain", include_str!("../../themes/plain.json")),
];
/// Bytes of a file of a theme.
pub const THEME_LIMIT: usize = 1 << 20;

macro_rules! roles {
    ($($(#[doc = $what:literal])* $role:ident $field:ident $name:literal;)*) => {
        /// What a piece of text is, which decides how it looks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Role { $($(#[doc = $what])* $role,)* }

        impl Role {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$role,)*];

            /// As it is called in files of themes.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$role => $name,)* }
            }
        }

        /// A style for each [`Role`].
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Theme {
            $($(#[doc = $what])* pub $field: Style,)*
            /// Words stand where marks would: for who hears the text. No file says this.
            pub spoken: bool,
            /// Where links lead; nothing on terminals that know none.
            pub links: Option<crate::Links>,
            /// What images are drawn on; nothing where they are only named.
            pub canvas: Option<crate::Canvas>,
            /// How a folded block is opened, as a key or a command; nothing where it cannot be.
            pub opener: Option<std::sync::Arc<str>>,
        }

        impl Theme {
            /// The style of a role.
            #[must_use]
            pub fn style(&self, role: Role) -> Style {
                match role { $(Role::$role => self.$field,)* }
            }

            fn style_mut(&mut self, role: Role) -> &mut Style {
                match role { $(Role::$role => &mut self.$field,)* }
            }
        }
    };
}

roles! {
    /// Ordinary text.
    Text text "text";
    /// What is beside the matter.
    Muted muted "muted";
    /// What should catch the eye.
    Accent accent "accent";
    /// What went well.
    Success success "success";
    /// What somebody should look at.
    Warning warning "warning";
    /// What went wrong.
    Error error "error";
    /// Frames and rules.
    Border border "border";
    /// The chosen row of a list.
    Selection selection "selection";
    /// Letters that a filter found.
    Matched matched "matched";

    /// What the user said.
    User user "user";
    /// What the model thought.
    Thinking thinking "thinking";
    /// A tool's name and what it works on.
    Tool tool "tool";
    /// What a tool or a command printed.
    Output output "output";
    /// A command line.
    Command command "command";
    /// A question of permission.
    Ask ask "ask";
    /// What waits in the queue.
    Queue queue "queue";
    /// A bookmark or a label.
    Label label "label";
    /// The status line.
    Status status "status";
    /// The border of the editor.
    Editor editor "editor";
    /// The border of the editor when it holds a command.
    EditorCommand editor_command "editor-command";

    /// Headings of Markdown text.
    Heading heading "heading";
    /// Text of heavy emphasis.
    Strong strong "strong";
    /// Text of light emphasis.
    Emphasis emphasis "emphasis";
    /// A link's text.
    Link link "link";
    /// Where a link leads.
    Url url "url";
    /// A quotation, and the bar beside it.
    Quote quote "quote";
    /// What stands before an item of a list.
    Bullet bullet "bullet";
    /// Code within text, and code of no known language.
    Code code "code";
    /// HTML within text.
    Html html "html";

    /// A word of the language.
    Keyword keyword "keyword";
    /// Names of types in code.
    Type type_ "type";
    /// What is called.
    Function function "function";
    /// A string or a character.
    String string "string";
    /// Numbers in code.
    Number number "number";
    /// A value with a name of its own: true, null.
    Constant constant "constant";
    /// Comments in code.
    Comment comment "comment";
    /// A name of a member, an attribute, a key, a variable of the shell.
    Property property "property";
    /// Operators and brackets.
    Punctuation punctuation "punctuation";

    /// A line that a change adds.
    Added added "added";
    /// Words that a change adds.
    AddedWord added_word "added-word";
    /// A line that a change removes.
    Removed removed "removed";
    /// Words that a change removes.
    RemovedWord removed_word "removed-word";
    /// A line beside a change.
    Context context "context";
    /// Numbers in front of lines.
    LineNumber line_number "line-number";
}

/// Something in a file of a theme that is not as it should be. The rest of the file counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThemeProblem {
    /// From 1.
    pub line: usize,
    /// What, and what may stand there.
    pub message: String,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Members<'a>(#[serde(borrow, deserialize_with = "members")] Vec<(String, &'a RawValue)>);

impl Theme {
    /// For light text on a dark ground.
    #[must_use]
    pub fn dark() -> Self {
        Self::built_in("dark").unwrap_or_default()
    }

    /// For dark text on a light ground.
    #[must_use]
    pub fn light() -> Self {
        Self::built_in("light").unwrap_or_default()
    }

    /// Of the 16 colours that the terminal itself defines: fits any ground.
    #[must_use]
    pub fn sixteen() -> Self {
        Self::built_in("16").unwrap_or_default()
    }

    /// Without colour: bold, dim, underlined and reversed text only.
    #[must_use]
    pub fn plain() -> Self {
        Self::built_in("plain").unwrap_or_default()
    }

    /// Without any style, and with words for marks.
    #[must_use]
    pub fn spoken() -> Self {
        Self { spoken: true, ..Self::default() }
    }

    /// A style that leads to a file, where the terminal knows links.
    #[must_use]
    pub fn file(&self, style: Style, path: &str) -> Style {
        Style { link: self.links.as_ref().map_or(style.link, |links| links.file(path)), ..style }
    }

    /// What stands before a text: a mark for the eye, or words for the ear.
    #[must_use]
    pub fn mark<'a>(&self, mark: &'a str, words: &'a str) -> &'a str {
        if self.spoken { words } else { mark }
    }

    /// The names of the themes that are built in.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A theme by its name.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Some(Self::read(text).0)
    }

    /// The theme to begin with, and for people what is wrong with it.
    ///
    /// `name` is a built-in one or a file's; without it the terminal decides: no colours (`plain`), 16 of its own (`16`),
    /// a light ground as `COLORFGBG` tells it (`light`), else `dark`. Where a terminal shows no colours, `plain` always
    /// counts. `read` gives the text of `themes/NAME.json` in the home.
    pub fn choose(
        name: Option<&str>,
        depth: Depth,
        colorfgbg: Option<&str>,
        read: impl FnOnce(&str) -> std::io::Result<String>,
    ) -> (Self, Vec<String>) {
        let ground = colorfgbg.and_then(|colors| colors.rsplit(';').next());
        let own = match depth {
            Depth::None => "plain",
            Depth::Ansi => "16",
            Depth::Indexed | Depth::Rgb if matches!(ground, Some("7" | "15")) => "light",
            Depth::Indexed | Depth::Rgb => "dark",
        };
        let own = || Self::built_in(own).unwrap_or_default();
        let Some(name) = name.filter(|_| depth != Depth::None) else { return (own(), Vec::new()) };
        if let Some(theme) = Self::built_in(name) {
            return (theme, Vec::new());
        }
        let known = BUILT_IN.map(|(name, _)| format!("`{name}`")).join(", ");
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            let text = format!(
                "the theme {name:?} is neither {known} nor a name of letters, digits, `-` and `_`; the terminal's own theme applies"
            );
            return (own(), vec![text]);
        }
        let file = format!("themes/{name}.json");
        match read(name) {
            Ok(text) => {
                let (theme, problems) = Self::read(&text);
                let report =
                    problems.iter().map(|problem| format!("{file}:{}: {}", problem.line, problem.message));
                (theme, report.collect())
            }
            Err(error) => (
                own(),
                vec![format!(
                    "{file}: {error}; the terminal's own theme applies. The built-in themes are {known}"
                )],
            ),
        }
    }

    /// Reads a file of a theme: a JSON object with `base` (a built-in theme that says the rest, `dark` without it),
    /// `colors` (names for colours) and `roles` (a style for each that differs from the base). A style is a text:
    /// `bold`, `dim`, `italic`, `underline`, `reverse`, `strike`, a colour, and after `on` the colour behind it. A colour
    /// is `default`, `#rrggbb`, `#rgb`, a number of the table of 256, one of the 16 by name, or a name of `colors`.
    ///
    /// What is wrong in it is told and left out; the rest counts. A text that is no JSON gives the dark theme.
    #[must_use]
    pub fn read(text: &str) -> (Self, Vec<ThemeProblem>) {
        let mut problems = Vec::new();
        let mut report = |line, message| problems.push(ThemeProblem { line, message });
        if text.len() > THEME_LIMIT {
            report(
                1,
                format!("not used, so the theme `dark` applies: it is larger than {THEME_LIMIT} bytes"),
            );
            return (Self::dark(), problems);
        }
        let members = match serde_json::from_str::<Members<'_>>(text) {
            Ok(members) => members.0,
            Err(error) => {
                let why = error.to_string();
                let why = why.split(" at line ").next().unwrap_or_default();
                report(error.line().max(1), format!("not a JSON object, so the theme `dark` applies: {why}"));
                return (Self::dark(), problems);
            }
        };
        let line_of = |value: &RawValue| {
            let at = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
        };
        let mut theme = Self::default();
        let mut base = None;
        let mut colors = HashMap::new();
        let mut roles = Vec::new();
        for (name, value) in members {
            let inner = || serde_json::from_str::<Members<'_>>(value.get()).map(|members| members.0);
            match name.as_str() {
                "base" => base = Some(value),
                "name" => {}
                "roles" => match inner() {
                    Ok(inner) => roles.extend(inner),
                    Err(_) => {
                        report(line_of(value), "`roles` must be an object with a style for each role".into());
                    }
                },
                "colors" => match inner() {
                    Ok(inner) => {
                        for (name, value) in inner {
                            match serde_json::from_str::<String>(value.get())
                                .ok()
                                .and_then(|text| color(&text))
                            {
                                Some(color) => {
                                    colors.insert(name, color);
                                }
                                None => report(line_of(value), not_a_color(value.get())),
                            }
                        }
                    }
                    Err(_) => report(
                        line_of(value),
                        "`colors` must be an object with a colour for each name".into(),
                    ),
                },
                other => report(
                    line_of(value),
                    format!(
                        "`{other}` is not a member of a theme and is ignored; members are `name`, `base`, `colors`, \
                         `roles`"
                    ),
                ),
            }
        }
        match base.map(|value| (value, serde_json::from_str::<String>(value.get()).unwrap_or_default())) {
            // The built-in files say `none`, and are complete.
            Some((_, name)) if name == "none" => {}
            Some((value, name)) => match Self::built_in(&name) {
                Some(base) => theme = base,
                None => {
                    let names = BUILT_IN.map(|(name, _)| format!("`{name}`")).join(", ");
                    report(
                        line_of(value),
                        format!("`base` must be {names} or `none`, not {}; `dark` applies", value.get()),
                    );
                    theme = Self::dark();
                }
            },
            None => theme = Self::dark(),
        }
        for (name, value) in roles {
            let Some(role) = Role::ALL.iter().find(|role| role.name() == name) else {
                report(line_of(value), format!("there is no role `{name}`{}; it is ignored", nearest(&name)));
                continue;
            };
            match serde_json::from_str::<String>(value.get()) {
                Ok(text) => match style(&text, &colors) {
                    Ok(style) => *theme.style_mut(*role) = style,
                    Err(word) => {
                        let text = format!("{}; `{name}` keeps the style of the base", not_a_color(&word));
                        report(line_of(value), text);
                    }
                },
                Err(_) => {
                    let text = format!(
                        "the style of `{name}` must be text such as \"bold #ffaf00\"; it keeps the style of the base"
                    );
                    report(line_of(value), text);
                }
            }
        }
        problems.sort_by_key(|problem| problem.line);
        (theme, problems)
    }
}

/// The members of an object in their order, duplicates too.
fn members<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<(String, &'de RawValue)>, D::Error> {
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Vec<(String, &'de RawValue)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    d.deserialize_map(Visitor)
}

fn not_a_color(word: &str) -> String {
    format!(
        "{word} is not a colour; use #rrggbb, #rgb, 0 to 255, `default`, a name such as `red` or `bright-red`, or a \
         name of `colors`"
    )
}

/// A role that was perhaps meant.
fn nearest(name: &str) -> String {
    let start = name.split(['-', '_', '.']).next().unwrap_or(name).to_lowercase();
    let like = |role: &&Role| {
        !start.is_empty() && (role.name().starts_with(&start) || start.starts_with(role.name()))
    };
    let likely: Vec<_> = Role::ALL.iter().filter(like).map(|role| format!("`{}`", role.name())).collect();
    if likely.is_empty() { String::new() } else { format!("; did you mean {}?", likely.join(" or ")) }
}

/// A style as a text says it; the word that is neither an attribute nor a colour.
fn style(text: &str, colors: &HashMap<String, Color>) -> Result<Style, String> {
    let mut style = Style::default();
    let mut behind = false;
    for word in text.split_whitespace() {
        match word {
            "bold" => style.bold = true,
            "dim" => style.dim = true,
            "italic" => style.italic = true,
            "underline" => style.underline = true,
            "reverse" => style.reverse = true,
            "strike" => style.strike = true,
            "on" => behind = true,
            word => {
                let color = colors.get(word).copied().or_else(|| color(word));
                let color = color.ok_or_else(|| format!("`{word}`"))?;
                if behind { style.background = color } else { style.foreground = color }
            }
        }
    }
    Ok(style)
}

fn color(text: &str) -> Option<Color> {
    const NAMES: [&str; 8] = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
    if text == "default" {
        return Some(Color::Default);
    }
    if text == "gray" || text == "grey" {
        return Some(Color::Ansi(8));
    }
    let (plain, bright) = text.strip_prefix("bright-").map_or((text, 0), |plain| (plain, 8));
    if let Some(at) = NAMES.iter().position(|name| *name == plain) {
        return u8::try_from(at).ok().map(|at| Color::Ansi(at + bright));
    }
    if let Some(digits) = text.strip_prefix('#') {
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
        let part = |shift: u32, bits: u32| u8::try_from(value >> shift & ((1 << bits) - 1)).ok();
        return match digits.len() {
            6 => Some(Color::Rgb(part(16, 8)?, part(8, 8)?, part(0, 8)?)),
            3 => Some(Color::Rgb(part(8, 4)? * 17, part(4, 4)? * 17, part(0, 4)? * 17)),
            _ => None,
        };
    }
    text.parse().ok().filter(|_| !text.starts_with('+')).map(Color::Indexed)
}
