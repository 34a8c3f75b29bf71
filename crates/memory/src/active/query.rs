//! What is searched for, and how well something fits.

use std::collections::{HashSet, VecDeque};

use quipu::RunStart;
use quipu_protocol::{AddedBlock, Content, Origin, own_blocks};

/// Characters of a query at most.
const QUERY: usize = 480;
/// A prompt of fewer characters says too little by itself.
const SHORT: usize = 12;
/// Characters of the prompt before that stand before a short one.
const BEFORE: usize = 120;
/// Prompts and answers that a model is shown, and characters of each.
const TURNS: (usize, usize) = (2, 1);
const TURN: (usize, usize) = (220, 180);
/// Letters of a word that counts.
const WORD: usize = 3;
/// Words of a query that count for how well a hit fits: of a longer one, nothing need have more.
const COUNTED: usize = 9;
/// Bytes of each block of a prompt that are looked at.
const LOOKED_AT: usize = 16_000;
/// Words that are in every question.
const COMMON: [&str; 48] = [
    "the", "and", "for", "are", "was", "were", "with", "that", "this", "what", "when", "where", "which",
    "who", "how", "why", "did", "does", "you", "your", "our", "can", "could", "should", "would", "please",
    "from", "into", "have", "has", "had", "not", "but", "all", "any", "its", "them", "they", "then", "there",
    "use", "make", "let", "now", "again", "about", "will", "just",
];

/// The beginning of a text, cut between two words where that is possible.
pub(super) fn cut(text: &str, characters: usize) -> String {
    let text = text.trim();
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some((end, _)) => {
            let begin = &text[..end];
            let word = begin.rfind(char::is_whitespace).filter(|at| *at > end / 2);
            format!("{}…", begin[..word.unwrap_or(end)].trim_end())
        }
    }
}

/// What a person said, without what stands beside it: what was remembered earlier is no question. Where nothing else was said,
/// files and piped text count.
#[must_use]
pub fn said(start: &RunStart) -> String {
    let text = |added: &[AddedBlock]| {
        let own = own_blocks(&start.prompt, added);
        without_quotes(own.filter_map(Content::as_text))
    };
    let own = text(&start.added);
    if !own.is_empty() {
        return own;
    }
    let of_hooks = |one: &&AddedBlock| one.provenance.origin == Origin::Hook;
    text(&start.added.iter().filter(of_hooks).cloned().collect::<Vec<_>>())
}

/// Texts without quoted code and data.
#[must_use]
pub fn without_quotes<'a>(blocks: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for block in blocks {
        // The mark that ends what is quoted.
        let mut fence: Option<&str> = None;
        for line in block[..block.floor_char_boundary(LOOKED_AT)].lines() {
            let mark = fence_of(line);
            match fence {
                Some(open) if mark.is_some_and(|mark| mark.starts_with(open)) => fence = None,
                Some(_) => {}
                None if mark.is_some() => fence = mark,
                None => {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    text.trim().to_owned()
}

/// The marks that a line of quoted code begins or ends with.
fn fence_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ['`', '~'].into_iter().find_map(|mark| {
        let end = line.find(|letter| letter != mark).unwrap_or(line.len());
        (end >= 3).then(|| &line[..end])
    })
}

/// What is searched for: the prompt, and a short one behind the end of the one before. `None` where nothing was said.
#[must_use]
pub fn search_query(prompt: &str, before: Option<&str>) -> Option<String> {
    let prompt = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    if prompt.is_empty() {
        return None;
    }
    let earlier = before.filter(|_| prompt.chars().count() < SHORT).map(|before| cut(before, BEFORE));
    let query = match earlier.filter(|earlier| !earlier.is_empty()) {
        Some(earlier) => format!("{earlier} {prompt}"),
        None => prompt,
    };
    Some(query.chars().take(QUERY).collect())
}

/// Letters of scripts that put no spaces between words.
const fn is_unspaced(letter: char) -> bool {
    matches!(letter,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// The words that count; of scripts without spaces, each two letters that follow each other.
fn words(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        let letters: Vec<char> = word.chars().collect();
        if letters.iter().copied().any(is_unspaced) {
            let pairs = letters.windows(2).filter(|pair| pair.iter().copied().all(is_unspaced));
            found.extend(pairs.map(|pair| pair.iter().collect::<String>()));
            let others = word.split(is_unspaced).filter(|word| word.chars().count() >= WORD);
            found.extend(others.map(str::to_lowercase));
        } else if letters.len() >= WORD {
            let word = word.to_lowercase();
            if !COMMON.contains(&word.as_str()) {
                found.insert(word);
            }
        }
    }
    found
}

/// The share of the words of a query that a text has, and how many. Of a long query a few words are enough.
#[must_use]
pub fn coverage(query: &str, text: &str) -> (f64, usize) {
    let (wanted, has) = (words(query), words(text));
    let found = wanted.iter().filter(|word| has.contains(*word)).count();
    let all = wanted.len().clamp(1, COUNTED);
    // Counts of words are small.
    #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
    let share = (found as f64 / all as f64).min(1.0);
    (share, found)
}

/// The last prompts and answers of a session, as far as they are known here.
#[derive(Debug, Clone, Default)]
pub struct RecentTurns {
    prompts: VecDeque<String>,
    answers: VecDeque<String>,
}

impl RecentTurns {
    /// A prompt was said.
    pub fn prompt(&mut self, text: &str) {
        self.prompts.push_back(cut(text, TURN.0));
        while self.prompts.len() > TURNS.0 {
            self.prompts.pop_front();
        }
    }

    /// An answer was given.
    pub fn answer(&mut self, text: &str) {
        self.answers.push_back(cut(text, TURN.1));
        while self.answers.len() > TURNS.1 {
            self.answers.pop_front();
        }
    }

    /// The prompt before.
    #[must_use]
    pub fn last_prompt(&self) -> Option<&str> {
        self.prompts.back().map(String::as_str)
    }

    /// All of them, for a model.
    #[must_use]
    pub fn as_text(&self) -> String {
        let prompts = self.prompts.iter().map(|text| format!("User: {text}\n"));
        prompts.chain(self.answers.iter().map(|text| format!("Assistant: {text}\n"))).collect()
    }
}
