//! Names that a newcomer can read and search for: a type is a noun, a retired word stays away.

use super::Finding;
use crate::repo::Repo;
use crate::rust_source::has_word;

/// Participles, pronouns, adverbs, prepositions and verbs that do not name a thing.
const NOT_NOUNS: &str = "
    Again Ahead Alone Along Already Another Around Aside At Away Before Begin Begins Begun Below Beside Both
    Bound Broken Brought Built By Came Chosen Current Cut Cuts Deaf Decides Did Does Doing Done Drawn
    Earlier Early Elsewhere Endless Ends Expect Extra Faulty First Follows Foreseen Forgotten Found Fresh
    From Given Gives Gone Got Grown Hangs Heard Held Here Hidden Hooked Inside Keeps Kept Known Last Leave
    Left Lent Linear Live Look Looks Lost Made Make Means Meant Mended Met Most Naive Near Nearest Newest
    Next Now Odd Of Only Other Others Ours Out Own Plain Ran Ready Recent Rest Right Said Say Says Seen Sell
    Sends Sent Shout Shown Silent Since Slow Sold Spent Stays Still Taken Tell Then There Thinks Three
    Thrown To Told Torn Twice Two Undone Unsaved Until Untyped Unusable Unwritten Up Visible Waits Want Was
    Went What When Which Whichever Whole Whose With Within Worn Written Wrong
";

/// Nouns that end as a participle does.
const NOUNS: &str = "
    Anything Bed Beginning Binding Building Closing Crossing Drawing Embedding Encoding Ending Feed Finding
    Grouping Hashing Heading Indexing King Landing Listing Mapping Meeting Need Nothing Offering Opening
    Padding Ping Pricing Rating Reasoning Recording Rendering Ring Sealing Seed Setting Sibling Speed
    Spelling Spring Streaming String Thing Thinking Timing Warning Wing Wording
";

/// Retired names of types, and the names that replaced them.
const RETIRED_TYPES: &[(&str, &str)] = &[
    ("CarriedBy", "ActiveProvider"),
    ("Copier", "Checkpointer"),
    ("Departed", "ReplayMismatch"),
    ("Departing", "a name of the Jump family"),
    ("Going", "a name of the Jump family"),
    ("Ground", "FileRestorer"),
    ("Jumping", "a name of the Jump family"),
    ("Keeper", "a name that says what is stored"),
    ("Leap", "a name of the Jump family"),
    ("Leaving", "a name of the Jump family"),
    ("Recorded", "CallJob"),
    ("Standing", "SessionStatus"),
    ("Surroundings", "Host"),
    ("Trip", "a name of the Jump family"),
    ("Trouble", "Notice"),
];

/// Retired names of functions, fields and modules, and the names that replaced them.
const RETIRED_WORDS: &[(&str, &str)] = &[
    ("deeds", "activity or file_ops"),
    ("go_on_from", "continue_from"),
    ("goes_on", "continues"),
    ("json_of_nothing", "failed_summary_json"),
    ("left_in_vain", "on_jump_failed"),
    ("not_noted", "on_shell_note_failed"),
    ("off_the_runtime", "run_blocking"),
    ("paid_for_nothing", "record_failed_summary"),
    ("take_record_back", "revoke_pending_call"),
    ("where_they_are", "relocate_queued"),
];

/// Types are nouns.
pub(crate) fn types(repo: &Repo) -> Vec<Finding> {
    each_type(repo, |path, line, name| {
        let last = last_word(name);
        let participle =
            last.len() > 3 && (last.ends_with("ed") || last.ends_with("ing")) && !lists(NOUNS, last);
        (participle || lists(NOT_NOUNS, last))
            .then(|| Finding::fault(path, line, format!("the type {name} is no noun; name what it is")))
    })
}

/// Words that better ones replaced do not return.
pub(crate) fn retired(repo: &Repo) -> Vec<Finding> {
    let mut findings = each_type(repo, |path, line, name| {
        let (old, new) = RETIRED_TYPES.iter().find(|(old, _)| *old == name)?;
        Some(Finding::fault(path, line, format!("{old} is a retired name; use {new}")))
    });
    for (path, file) in &repo.rust {
        for (line, code) in file.source.lines() {
            for (old, new) in RETIRED_WORDS.iter().filter(|(old, _)| has_word(code, old)) {
                findings.push(Finding::fault(path, line, format!("{old} is a retired name; use {new}")));
            }
        }
    }
    findings
}

/// What `check` says of each type that is defined.
fn each_type(repo: &Repo, check: impl Fn(&str, usize, &str) -> Option<Finding>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &repo.rust {
        for (line, code) in file.source.lines() {
            findings.extend(defined_type(code).and_then(|name| check(path, line, name)));
        }
    }
    findings
}

/// The type that the line defines.
fn defined_type(code: &str) -> Option<&str> {
    let code = code.trim_start();
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) if rest.starts_with(' ') => rest.trim_start(),
        _ => code,
    };
    let (keyword, rest) = code.split_once(' ')?;
    let end = rest.find(|next: char| !next.is_alphanumeric()).unwrap_or(rest.len());
    let name = &rest[..end];
    let defines = matches!(keyword, "struct" | "enum" | "trait" | "type" | "union");
    (defines && name.starts_with(char::is_uppercase)).then_some(name)
}

/// True when the word is one of those in the text.
fn lists(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|each| each == word)
}

/// `Reader` of `FileReader`.
fn last_word(name: &str) -> &str {
    name.rfind(char::is_uppercase).map_or(name, |start| &name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn type_that_is_no_noun_is_found() {
        let code = "struct Kept;\npub struct FilesAlong {}\npub(crate) enum Reading { Told }\n    type Told<'a> = u8;\n// struct Said;\nstruct Setting;\nstruct FileReader;\ntrait Feed {}\nfn told() {}\n";
        expect(
            types,
            &[("crates/a/src/lib.rs", code)],
            &[
                "crates/a/src/lib.rs:1: the type Kept is no noun; name what it is",
                "crates/a/src/lib.rs:2: the type FilesAlong is no noun; name what it is",
                "crates/a/src/lib.rs:3: the type Reading is no noun; name what it is",
                "crates/a/src/lib.rs:4: the type Told is no noun; name what it is",
            ],
        );
    }

    #[test]
    fn retired_name_is_found() {
        expect(
            retired,
            &[(
                "crates/a/src/lib.rs",
                "struct Surroundings;\nlet goes_on = off_the_runtime();\nlet text = \"goes_on\"; // deeds\nlet deeds_of = Trip;\n",
            )],
            &[
                "crates/a/src/lib.rs:1: Surroundings is a retired name; use Host",
                "crates/a/src/lib.rs:2: goes_on is a retired name; use continues",
                "crates/a/src/lib.rs:2: off_the_runtime is a retired name; use run_blocking",
            ],
        );
    }
}
