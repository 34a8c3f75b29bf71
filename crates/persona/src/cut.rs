//! Shortening a text to a number of characters.

/// Characters of a line in a digest at most.
const LINE: usize = 240;
/// Words that make a line of rules important, in lower case.
const STRONG: [&str; 9] =
    ["must", "never", "always", "do not", "don't", "required", "forbidden", "important", "only if"];

/// The number of characters.
pub(crate) fn chars(text: &str) -> usize {
    text.chars().count()
}

/// The first so many characters.
pub(crate) fn head(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(at, _)| text.get(..at).unwrap_or(text))
}

/// The last so many characters.
pub(crate) fn tail(text: &str, count: usize) -> &str {
    match count.checked_sub(1) {
        None => "",
        Some(last) => {
            text.char_indices().nth_back(last).map_or(text, |(at, _)| text.get(at..).unwrap_or(text))
        }
    }
}

/// Cuts the middle out of a text of more than `budget` characters: three quarters are its beginning, one its end.
pub(crate) fn middle_out(name: &str, text: &str, budget: usize) -> String {
    let all = chars(text);
    if all <= budget {
        return text.to_owned();
    }
    let Some(room) = budget.checked_sub(chars(&marker(name, all, all, all))).filter(|room| *room > 0) else {
        return head(text, budget).to_owned();
    };
    let first = room * 3 / 4;
    let last = room - first;
    format!("{}{}{}", head(text, first), marker(name, first, last, all), tail(text, last))
}

/// Cuts a text of rules of more than `budget` characters: its beginning, the lines of the middle that say most, its end.
pub(crate) fn with_digest(name: &str, text: &str, budget: usize) -> String {
    let all = chars(text);
    if all <= budget {
        return text.to_owned();
    }
    let marks = chars(&marker(name, all, all, all)) + chars(DIGEST);
    let Some(room) = budget.checked_sub(marks).filter(|room| *room >= 19) else {
        return head(text, budget).to_owned();
    };
    let (first, last) = (room * 9 / 19, room * 3 / 19);
    let lines = digest(between(text, all, first, last), room - first - last);
    // What the lines leave is for the beginning and the end; of the shorter middle no more lines are there.
    let (spare, most) = (room - first - last - chars(&lines), chars(&lines));
    let (first, last) = (first + spare * 3 / 4, last + (spare - spare * 3 / 4));
    let lines = digest(between(text, all, first, last), most + 1);
    if lines.is_empty() {
        return middle_out(name, text, budget);
    }
    format!("{}{DIGEST}{lines}{}{}", head(text, first), marker(name, first, last, all), tail(text, last))
}

/// A text of `all` characters without its first and last ones.
fn between(text: &str, all: usize, first: usize, last: usize) -> &str {
    head(tail(text, all.saturating_sub(first)), all.saturating_sub(first).saturating_sub(last))
}

const DIGEST: &str = "\n[Lines of the part that is left out:]\n";

/// What stands where something was cut out.
fn marker(name: &str, first: usize, last: usize, all: usize) -> String {
    format!(
        "\n[{name} is shortened here; read it to see all of it.]\n[First {first} and last {last} of {all} characters.]\n"
    )
}

/// Headings, items of lists and lines with strong words, those with strong words first where not all fit; in their order.
fn digest(text: &str, budget: usize) -> String {
    let lines: Vec<(usize, u8, &str)> = text
        .lines()
        .enumerate()
        .filter_map(|(at, line)| rank(line).map(|rank| (at, rank, head(line.trim(), LINE))))
        .collect();
    let mut by_rank: Vec<&(usize, u8, &str)> = lines.iter().collect();
    by_rank.sort_by_key(|(at, rank, _)| (*rank, *at));
    let (mut taken, mut left) = (Vec::new(), budget);
    for (at, _, line) in by_rank {
        // With the end of its line.
        let Some(rest) = left.checked_sub(chars(line) + 1) else { continue };
        left = rest;
        taken.push((*at, *line));
    }
    taken.sort_unstable();
    taken.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n")
}

/// How important a line is, 0 most; `None` for one that is left out.
fn rank(line: &str) -> Option<u8> {
    let line = line.trim();
    if line.is_empty() {
        return None;
    }
    let lower = line.to_lowercase();
    let is_strong = STRONG.iter().any(|word| lower.contains(word));
    let is_heading = line.starts_with('#');
    let is_item = ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark))
        || line.split_once(['.', ')']).is_some_and(|(number, _)| {
            !number.is_empty() && number.len() <= 3 && number.bytes().all(|byte| byte.is_ascii_digit())
        });
    match (is_strong, is_heading, is_item) {
        (true, ..) => Some(0),
        (false, true, _) => Some(1),
        (false, false, true) => Some(2),
        (false, false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn head_and_tail_count_characters() {
        assert_eq!((head("äöü", 2), tail("äöü", 2), tail("äöü", 0), head("ä", 9)), ("äö", "öü", "", "ä"));
    }

    #[test]
    fn middle_is_cut_three_to_one() {
        let text = "ab".repeat(5_000);
        let cut = middle_out("X.md", &text, 1_000);
        assert!(chars(&cut) <= 1_000 && chars(&cut) > 980, "{}", chars(&cut));
        assert!(cut.contains("X.md is shortened here"), "{cut}");
        assert!(cut.contains("of 10000 characters"), "{cut}");
        let (before, behind) = cut.split_once("\n[").unwrap();
        let behind = behind.rsplit_once("]\n").unwrap().1;
        assert!(chars(before).abs_diff(3 * chars(behind)) <= 3, "{} {}", chars(before), chars(behind));
    }

    #[test]
    fn digest_keeps_strong_lines_before_headings_and_items() {
        let filler = "plain words that say little\n".repeat(200);
        let text = format!(
            "start\n{filler}# Heading in the middle\n- an item\nNever push to main.\n{}{filler}end",
            "x".repeat(500) + " must\n"
        );
        let cut = with_digest("AGENTS.md", &text, 1_500);
        assert!(chars(&cut) <= 1_500);
        for part in ["start", "Never push to main.", "# Heading in the middle", "- an item", "end"] {
            assert!(cut.contains(part), "{part}: {cut}");
        }
        // A long line is cut, not left out.
        assert!(cut.contains(&"x".repeat(240)) && !cut.contains(&"x".repeat(241)), "{cut}");
        // The order of the file.
        let at = |part: &str| cut.find(part).unwrap();
        assert!(chars(&cut) > 1_450, "the room is used: {}", chars(&cut));
        assert!(at("# Heading") < at("- an item") && at("- an item") < at("Never push"));
        // Where there is room for one line it is the strong one.
        let cut = with_digest("AGENTS.md", &text, 250);
        assert!(cut.contains("Never push") && !cut.contains("# Heading"), "{cut}");
    }

    proptest! {
        #[test]
        fn cut_text_is_within_its_budget(text in "(\\PC|\n|# |- |never ){0,900}", budget in 0_usize..1_000) {
            for cut in [middle_out("SOUL.md", &text, budget), with_digest("AGENTS.md", &text, budget)] {
                prop_assert!(chars(&cut) <= budget.max(chars(&text).min(budget)));
                if chars(&text) <= budget {
                    prop_assert_eq!(&cut, &text);
                }
            }
        }
    }
}
