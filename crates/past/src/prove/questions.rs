//! Questions about a past whose answers are known.

use std::str::FromStr as _;

use quipu_protocol::NodeId;
use serde::Deserialize;

/// Questions of a file at most, and bytes of a line.
const QUESTIONS: usize = 10_000;
const LINE: usize = 64 << 10;

/// A question, and what its answer has to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofQuestion {
    /// The question.
    pub text: String,
    /// Words, each of which the answer has.
    pub answer: Vec<String>,
    /// Nodes that say it.
    pub evidence: Vec<NodeId>,
}

/// Why questions cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionFault {
    /// A line is no question.
    #[error("line {line} is no question: {why}")]
    Line {
        /// Which, counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// There are none.
    #[error("there is no question in it")]
    Empty,
    /// There are too many.
    #[error("it has more than {QUESTIONS} questions")]
    TooMany,
}

#[derive(Deserialize)]
struct QuestionLine {
    question: String,
    answer: ExpectedWords,
    #[serde(default)]
    evidence: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ExpectedWords {
    Number(serde_json::Number),
    Text(String),
    List(Vec<String>),
}

/// Reads questions, a JSON object on each line: `question`, `answer` (a text, a number, or a list of texts that all have to occur) and, if known,
/// `evidence` (ids of nodes).
///
/// # Errors
/// [`QuestionFault`].
pub fn read_questions(text: &str) -> Result<Vec<ProofQuestion>, QuestionFault> {
    let mut questions = Vec::new();
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let fault = |why: String| QuestionFault::Line { line: line + 1, why };
        if text.len() > LINE {
            return Err(fault(format!("it is longer than {LINE} bytes")));
        }
        let read: QuestionLine = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
        let answer = match read.answer {
            ExpectedWords::Number(number) => vec![number.to_string()],
            ExpectedWords::Text(text) => vec![text],
            ExpectedWords::List(list) => list,
        };
        if read.question.trim().is_empty() {
            return Err(fault("`question` is empty".to_owned()));
        }
        if answer.is_empty() || answer.iter().any(|words| plain(words).is_empty()) {
            return Err(fault("`answer` has no words".to_owned()));
        }
        let evidence = read.evidence.iter().map(|id| NodeId::from_str(id)).collect::<Result<Vec<_>, _>>();
        let evidence =
            evidence.map_err(|_| fault("`evidence` has something that is no id of a node".to_owned()))?;
        questions.push(ProofQuestion { text: read.question, answer, evidence });
        if questions.len() > QUESTIONS {
            return Err(QuestionFault::TooMany);
        }
    }
    if questions.is_empty() { Err(QuestionFault::Empty) } else { Ok(questions) }
}

impl ProofQuestion {
    /// Whether an answer has all the words that are expected, each of them whole.
    #[must_use]
    pub fn is_right(&self, answer: &str) -> bool {
        let answer = format!(" {} ", plain(answer));
        self.answer.iter().all(|words| answer.contains(&format!(" {} ", plain(words))))
    }
}

/// Words in small letters, one space between them. A point or comma within a number stays.
pub(super) fn plain(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut plain = String::with_capacity(text.len());
    for (at, letter) in letters.iter().enumerate() {
        let digit = |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(char::is_ascii_digit);
        let is_within = matches!(letter, '.' | ',') && digit(at.checked_sub(1)) && digit(Some(at + 1));
        if letter.is_alphanumeric() || is_within {
            plain.extend(letter.to_lowercase());
        } else if !plain.is_empty() && !plain.ends_with(' ') {
            plain.push(' ');
        }
    }
    plain.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_and_faults_are_named() {
        let read = read_questions("{\"question\":\"Where?\",\"answer\":\"Oslo\"}\n\n{\"question\":\"When?\",\"answer\":[\"7 May\",\"2023\"]}\n")
            .unwrap();
        assert_eq!(read.len(), 2);
        assert!(read[1].is_right("On 7 May, 2023.") && !read[1].is_right("On 17 May 2023"));
        let number = read_questions("{\"question\":\"How many?\",\"answer\":31}").unwrap();
        assert!(number[0].is_right("31 files") && !number[0].is_right("310") && !number[0].is_right("31.5"));
        for (text, wanted) in [
            ("", "no question"),
            ("{\"question\":\"Where?\",\"answer\":\"Oslo\"}\nnonsense", "line 2"),
            ("{\"question\":\" \",\"answer\":\"Oslo\"}", "`question` is empty"),
            ("{\"question\":\"Where?\",\"answer\":\"?!\"}", "`answer` has no words"),
            ("{\"question\":\"Where?\",\"answer\":\"Oslo\",\"evidence\":[\"xyz\"]}", "no id"),
        ] {
            let why = read_questions(text).unwrap_err().to_string();
            assert!(why.contains(wanted), "{why}");
        }
    }
}
