//! Whose lines are where only calls are known, and not how files were: by the content of what the calls wrote.

use std::collections::HashMap;

use quipu_transcript::{Change, FileOpKind};

/// Lines around a change that help to find its place.
const AROUND: usize = 3;
/// Places of a line that are tried at most, when none of a change's lines occurs once.
const PLACES: usize = 256;
/// Letters and digits of a line that is found alone, at least; and of a part of a line.
const TELLING: usize = 3;
/// Bytes of a file's content that is followed from change to change; a larger one is found by the changes alone.
const FOLLOWED: usize = 4 << 20;

/// Which of these changes, the oldest first, made each line; `None` where none is known to have.
pub(super) fn claims(lines: &[&str], changes: &[(FileOpKind, Vec<Change>)]) -> Vec<Option<usize>> {
    let mut follower = Follower::default();
    for (by, (kind, changes)) in changes.iter().enumerate() {
        follower.follow(by, *kind, changes);
    }
    assign(lines, &follower.finish())
}

/// Lines as they stood in the file after a change.
#[derive(Debug, Default)]
struct Fragment {
    /// Each line, and which change made it, as far as that is known.
    lines: Vec<(String, Option<usize>)>,
    /// Whether the first and the last line may be parts of lines.
    partial: bool,
}

/// The content of the file as far as it follows from the changes alone.
#[derive(Debug, Default)]
struct Follower {
    text: Option<String>,
    /// Which change made each line of it; the end of a text that ends with a newline is one as well.
    owners: Vec<Option<usize>>,
    fragments: Vec<Fragment>,
    /// How many fragments there were when it was followed last.
    followed: usize,
}

impl Follower {
    fn follow(&mut self, by: usize, kind: FileOpKind, changes: &[Change]) {
        match kind {
            FileOpKind::Read => {}
            FileOpKind::Remove => self.text = None,
            FileOpKind::Write => {
                let new = lf(changes.first().map_or("", |change| &change.new));
                let old = self.text.take().unwrap_or_default();
                self.owners = owned(by, &old, &self.owners, &new);
                if new.len() <= FOLLOWED {
                    self.text = Some(new);
                    self.keep(0, usize::MAX);
                } else {
                    let lines = new.split('\n').map(str::to_owned).zip(self.owners.drain(..));
                    self.fragments.push(Fragment { lines: lines.collect(), partial: false });
                }
            }
            FileOpKind::Edit => changes.iter().for_each(|change| self.edit(by, change)),
        }
    }

    fn edit(&mut self, by: usize, change: &Change) {
        let (old, new) = (lf(&change.old), lf(&change.new));
        let places: Vec<usize> = match &self.text {
            Some(text) if !old.is_empty() => text.match_indices(&old).map(|(at, _)| at).collect(),
            Some(_) | None => Vec::new(),
        };
        if places.is_empty() {
            // Somebody else changed the file meanwhile, or it was there before: only what changed is known.
            let lines = new.lines().map(str::to_owned).zip(owned(by, &old, &[], &new)).collect();
            self.fragments.push(Fragment { lines, partial: !change.lines });
            return;
        }
        // A text that occurs several times was replaced everywhere, or the call would have failed.
        for at in places.into_iter().rev() {
            let Some(text) = &mut self.text else { return };
            let end = at + old.len();
            let from = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let to = text[end..].find('\n').map_or(text.len(), |newline| end + newline);
            let before = &text[from..to];
            let after = format!("{}{new}{}", &text[from..at], &text[end..to]);
            let first = text[..from].matches('\n').count();
            let last = first + before.matches('\n').count() + 1;
            let owners = owned(by, before, self.owners.get(first..last).unwrap_or_default(), &after);
            let count = owners.len();
            if last <= self.owners.len() {
                self.owners.splice(first..last, owners);
            }
            text.replace_range(at..end, &new);
            self.keep(first.saturating_sub(AROUND), first + count + AROUND);
        }
        if self.text.as_ref().is_some_and(|text| text.len() > FOLLOWED) {
            self.text = None;
        }
    }

    /// Keeps these lines as they are now.
    fn keep(&mut self, from: usize, to: usize) {
        let Some(text) = &self.text else { return };
        let to = to.min(self.owners.len());
        let lines = text.split('\n').map(str::to_owned).zip(self.owners.iter().copied());
        let mut lines: Vec<_> = lines.take(to).skip(from).collect();
        if to == self.owners.len() && (text.is_empty() || text.ends_with('\n')) {
            // What stands behind the last newline is no line.
            lines.pop();
        }
        self.fragments.push(Fragment { lines, partial: false });
        self.followed = self.fragments.len();
    }

    /// What is known, the newest last.
    fn finish(mut self) -> Vec<Fragment> {
        if self.text.is_some() {
            // All of it, where nothing newer is known than what was followed.
            let followed = self.followed;
            self.keep(0, usize::MAX);
            if let Some(whole) = self.fragments.pop() {
                self.fragments.insert(followed, whole);
            }
        }
        self.fragments
    }
}

/// Which change made each line of `new`: this one where it does not stand in `old`, whose lines have these owners.
fn owned(by: usize, old: &str, owners: &[Option<usize>], new: &str) -> Vec<Option<usize>> {
    let mut old_lines: Vec<&str> = if old.is_empty() { Vec::new() } else { old.split('\n').collect() };
    let mut new_lines: Vec<&str> = new.split('\n').collect();
    // What stands behind the last newline is no empty line that could be one of the others.
    let ends = old_lines.last() == Some(&"") && new_lines.last() == Some(&"");
    if ends {
        old_lines.pop();
        new_lines.pop();
    }
    let same = matches(&new_lines, &old_lines, true);
    let mut owned: Vec<Option<usize>> = same
        .into_iter()
        .map(|place| match place {
            Some(place) => owners.get(place).copied().flatten(),
            None => Some(by),
        })
        .collect();
    if ends {
        owned.push(owners.last().copied().flatten());
    }
    owned
}

/// Whose each line is: the newest change that made it.
fn assign(lines: &[&str], fragments: &[Fragment]) -> Vec<Option<usize>> {
    let mut by: Vec<Option<usize>> = vec![None; lines.len()];
    for fragment in fragments.iter().rev() {
        let own: Vec<&str> = fragment.lines.iter().map(|(line, _)| line.as_str()).collect();
        let mut found = matches(&own, lines, own == lines);
        if fragment.partial {
            ends(&own, lines, &mut found, &by);
        }
        for ((_, owner), place) in fragment.lines.iter().zip(found) {
            if let (Some(owner), Some(place)) = (owner, place) {
                by[place].get_or_insert(*owner);
            }
        }
    }
    // Lines that say nothing belong to the block that they stand in.
    let mut before = None;
    let mut waiting: Vec<usize> = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        if by[place].is_none() && letters(line) == 0 {
            waiting.push(place);
            continue;
        }
        if by[place].is_some() && by[place] == before {
            for one in waiting.drain(..) {
                by[one] = before;
            }
        }
        waiting.clear();
        before = by[place];
    }
    by
}

/// The first and the last line of a text that may begin and end within lines.
fn ends(own: &[&str], lines: &[&str], found: &mut [Option<usize>], by: &[Option<usize>]) {
    let Some(last) = own.len().checked_sub(1) else { return };
    if last == 0 && found[0].is_none() && letters(own[0]) >= TELLING {
        let mut places = (0..lines.len()).filter(|at| by[*at].is_none() && lines[*at].contains(own[0]));
        if let (Some(place), None) = (places.next(), places.next()) {
            found[0] = Some(place);
        }
        return;
    }
    if found[0].is_none()
        && let Some(Some(next)) = found.get(1)
        && let Some(place) = next.checked_sub(1)
        && !own[0].is_empty()
        && lines[place].ends_with(own[0])
    {
        found[0] = Some(place);
    }
    if found[last].is_none()
        && let Some(Some(previous)) = last.checked_sub(1).and_then(|at| found.get(at))
        && let Some(line) = lines.get(previous + 1)
        && !own[last].is_empty()
        && line.starts_with(own[last])
    {
        found[last] = Some(previous + 1);
    }
}

/// Where each line of `own` stands in `lines`, in the same order: lines that occur once in both are found first, and what
/// stands beside them is compared from there. With `framed`, both texts are known to begin and end together.
fn matches(own: &[&str], lines: &[&str], framed: bool) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = vec![None; own.len()];
    if own.is_empty() || lines.is_empty() {
        return found;
    }
    if framed {
        let first = own.iter().zip(lines).take_while(|(a, b)| a == b).count();
        (0..first).for_each(|at| found[at] = Some(at));
        let rest = own[first..].iter().rev().zip(lines[first..].iter().rev());
        for back in 1..=rest.take_while(|(a, b)| a == b).count() {
            found[own.len() - back] = Some(lines.len() - back);
        }
    }
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, line) in lines.iter().enumerate().filter(|(_, line)| letters(line) > 0) {
        places.entry(line).or_default().push(place);
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for line in own {
        *counts.entry(line).or_default() += 1;
    }
    let unique: Vec<(usize, usize)> = own
        .iter()
        .enumerate()
        .filter(|(at, line)| counts[*line] == 1 && found[*at].is_none())
        .filter_map(|(at, line)| match places.get(line).map(Vec::as_slice) {
            Some([place]) => Some((at, *place)),
            Some(_) | None => None,
        })
        .collect();
    for (at, place) in increasing(&unique) {
        found[at] = Some(place);
    }
    if found.iter().all(Option::is_none) {
        longest_run(own, lines, &places, &mut found);
    }
    order(&mut found);
    grow(own, lines, &mut found);
    fill(own, &places, lines.len(), &mut found);
    grow(own, lines, &mut found);
    // What stands alone and says little is found by chance.
    if !framed && own.len() > 2 {
        for at in 0..own.len() {
            let beside =
                (at > 0 && found[at - 1].is_some()) || found.get(at + 1).is_some_and(Option::is_some);
            if !beside && letters(own[at]) < TELLING {
                found[at] = None;
            }
        }
    }
    found
}

/// Drops what does not stand in order.
fn order(found: &mut [Option<usize>]) {
    let all: Vec<(usize, usize)> =
        found.iter().enumerate().filter_map(|(at, place)| place.map(|place| (at, place))).collect();
    let kept = increasing(&all);
    found.fill(None);
    kept.into_iter().for_each(|(at, place)| found[at] = Some(place));
}

/// The longest part of pairs, ordered by their first number, in which the second grows as well.
fn increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // The pair that ends the best part of each length, and which pair comes before each.
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (n, (_, place)) in pairs.iter().enumerate() {
        let length = tails.partition_point(|tail| pairs[*tail].1 < *place);
        before.push(length.checked_sub(1).map(|shorter| tails[shorter]));
        if length == tails.len() {
            tails.push(n);
        } else {
            tails[length] = n;
        }
    }
    let mut part = Vec::new();
    let mut next = tails.last().copied();
    while let Some(n) = next {
        part.push(pairs[n]);
        next = before[n];
    }
    part.reverse();
    part
}

/// No line occurs once: the place where most lines in a row are the same.
fn longest_run(
    own: &[&str],
    lines: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    found: &mut [Option<usize>],
) {
    let count = |line: &str| places.get(line).map_or(usize::MAX, Vec::len);
    let Some(at) = (0..own.len()).min_by_key(|at| count(own[*at])) else { return };
    let mut best = 0;
    let mut begin = None;
    let mut alike = false;
    for place in places.get(own[at]).into_iter().flatten().take(PLACES) {
        let back = own[..at].iter().rev().zip(lines[..*place].iter().rev());
        let back = back.take_while(|(a, b)| a == b).count();
        let run = back + own[at..].iter().zip(&lines[*place..]).take_while(|(a, b)| a == b).count();
        alike = run == best || (alike && run < best);
        if run > best {
            best = run;
            begin = Some((at - back, place - back));
        }
    }
    // One line that stands in several places says nothing of which is meant.
    if let Some((at, place)) = begin.filter(|_| best > 1 || !alike) {
        (0..best).for_each(|n| found[at + n] = Some(place + n));
    }
}

/// Compares what stands beside lines that were found.
fn grow(own: &[&str], lines: &[&str], found: &mut [Option<usize>]) {
    let mut last = None;
    for at in 0..own.len() {
        if found[at].is_none()
            && let Some(place) = at.checked_sub(1).and_then(|before| found[before]).map(|place| place + 1)
            && lines.get(place) == Some(&own[at])
            && next(found, at).is_none_or(|limit| place < limit)
        {
            found[at] = Some(place);
        }
        last = found[at].or(last);
    }
    let mut limit = lines.len();
    for at in (0..own.len()).rev() {
        if let Some(place) = found[at] {
            limit = place;
        } else if found.get(at + 1).is_some_and(Option::is_some)
            && let Some(place) = limit.checked_sub(1)
            && lines[place] == own[at]
            && found[..at].iter().rev().find_map(|place| *place).is_none_or(|before| before < place)
        {
            found[at] = Some(place);
            limit = place;
        }
    }
}

/// The next place that is found after a line.
fn next(found: &[Option<usize>], at: usize) -> Option<usize> {
    found[at + 1..].iter().find_map(|place| *place)
}

/// Lines between two that were found, where they occur between their places.
fn fill(own: &[&str], places: &HashMap<&str, Vec<usize>>, end: usize, found: &mut [Option<usize>]) {
    if found.iter().all(Option::is_none) {
        return;
    }
    // The end of the gap that each line stands in.
    let mut limits = vec![end; found.len()];
    for at in (0..found.len().saturating_sub(1)).rev() {
        limits[at] = found[at + 1].unwrap_or(limits[at + 1]);
    }
    let mut from = 0;
    for at in 0..own.len() {
        if let Some(place) = found[at] {
            from = place + 1;
            continue;
        }
        let Some(all) = places.get(own[at]) else { continue };
        if let Some(place) =
            all.get(all.partition_point(|place| *place < from)).filter(|place| **place < limits[at])
        {
            found[at] = Some(*place);
            from = place + 1;
        }
    }
}

fn letters(line: &str) -> usize {
    line.chars().filter(|c| c.is_alphanumeric()).count()
}

fn lf(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    enum TestChange {
        Write(&'static str),
        Edit(&'static str, &'static str),
        Remove,
    }
    use TestChange::{Edit, Remove, Write};

    /// Numbers of the changes, `.` for no agent.
    fn check(changes: &[TestChange], file: &str, expect: &str) {
        let mut follower = Follower::default();
        for (by, did) in changes.iter().enumerate() {
            let (kind, old, new, lines) = match did {
                Write(new) => (FileOpKind::Write, "", *new, true),
                Edit(old, new) => (FileOpKind::Edit, *old, *new, false),
                Remove => (FileOpKind::Remove, "", "", true),
            };
            let change = Change { old: old.into(), new: new.into(), lines };
            follower.follow(by, kind, &[change]);
        }
        let lines: Vec<&str> = file.lines().collect();
        let by: String = assign(&lines, &follower.finish())
            .iter()
            .map(|by| by.map_or('.', |by| char::from_digit(u32::try_from(by).unwrap(), 10).unwrap()))
            .collect();
        assert_eq!(by, expect, "{file}");
    }

    #[test]
    fn lines_belong_to_the_newest_change_that_made_them() {
        check(&[Write("one\ntwo\nthree\n")], "one\ntwo\nthree\n", "000");
        check(&[Write("one\ntwo\nthree\n"), Edit("two", "zwei")], "one\nzwei\nthree\n", "010");
        // A human changed a line, added some, moved the rest.
        check(&[Write("one\ntwo\nthree\n")], "zero\none\nTWO\nthree\nfour\n", ".0.0.");
        // A part of a line, in a file that was there before.
        check(&[Edit("foo", "bar_baz")], "let a = 1;\nlet bar_baz = 2;\n", ".0");
        check(
            &[Edit("a {\n  old", "a {\n  new_one\n  new_two")],
            "fn a {\n  new_one\n  new_two();\n}\n",
            ".00.",
        );
        // The same content written again belongs to who wrote it first.
        check(&[Write("one\ntwo\n"), Write("one\ntwo\nthree\n")], "one\ntwo\nthree\n", "001");
        check(&[Write("one\n"), Remove, Write("one\n")], "one\n", "2");
        check(&[Write("one\r\ntwo\r\n")], "one\ntwo\n", "00");
        check(&[], "one\n", ".");
        check(&[Write("")], "one\n", ".");
        check(&[Write("one\n")], "", "");
    }

    #[test]
    fn common_lines_belong_to_their_block() {
        let file = "fn a() {\n    one();\n}\n\nfn human() {\n    x();\n}\n\nfn b() {\n    two();\n}\n";
        check(
            &[
                Write("fn a() {\n    one();\n}\n"),
                Edit("    one();\n}\n", "    one();\n}\n\nfn b() {\n    two();\n}\n"),
            ],
            file,
            "0001....111",
        );
        // An older function that is gone leaves its bracket to nobody.
        check(&[Write("fn gone() {\n    gone_too();\n}\n")], "fn human() {\n    x();\n}\n", "...");
        check(&[Write("a = 1\n\nb = 2\n")], "a = 1\n\nb = 2\n# by hand\n", "000.");
        check(&[Edit("x", "end")], "end\nend\n", "..");
        // Twice the same call: the block with the lines around it.
        check(&[Edit("g();\nh();", "g();\nnew();\nh();")], "new();\nf();\ng();\nnew();\nh();\n", "...0.");
    }
}
