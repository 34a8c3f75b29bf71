//! Whether answers depend on the past: each question is asked with the cover, without it, with a disturbed one, and with single
//! chunks removed or disturbed.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;

use quipu_protocol::{NodeId, UnixMs};

use super::ProofQuestion;
use super::questions::plain;
use crate::cover::{CoverLine, render};
use crate::disturb::disturb;
use crate::evidence::sources_below;
use crate::{
    AblationRecord, AskedQuestion, ChunkChange, CoverSearch, CoverStock, PastCover, PastError, PastIndex,
};

/// What a reader is told to do.
const SYSTEM: &str = "Answer the question from the summaries of earlier times that the message has, and from nothing else. Answer in as few \
     words as you can. Where they do not say it, answer: unknown.";

/// What a reader is given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReaderPrompt {
    /// What it is to do.
    pub system: String,
    /// The cover, and the question.
    pub text: String,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReaderError {
    /// There is no money for it.
    #[error("the budget is spent")]
    Spent,
    /// The model gave none.
    #[error("{0}")]
    Failed(String),
}

/// What a reader is waited for with.
pub type ReaderFut<'a> = Pin<Box<dyn Future<Output = Result<String, ReaderError>> + Send + 'a>>;

/// Answers questions: a model, or a script.
pub trait Reader: Send + Sync {
    /// The answer to a prompt.
    fn answer<'a>(&'a self, prompt: &'a ReaderPrompt) -> ReaderFut<'a>;
}

/// How the questions are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AblationAsk {
    /// Tokens of the cover.
    pub tokens: u64,
    /// Single chunks of a question that are removed and disturbed: those that say what is evidence first, then the most relevant.
    pub chunks: usize,
    /// Whether the cover is chosen without the question.
    pub is_blind: bool,
    /// The first moment of the present: the cover is the one that a session has that begins then.
    pub boundary: UnixMs,
    /// What changes are drawn with.
    pub seed: u64,
}

/// The answers to a question, in words: for who looks at them, not for the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// With the cover.
    pub with: String,
    /// Without it.
    pub without: String,
    /// With a disturbed one.
    pub disturbed: String,
}

/// Asks the questions. The same question with the same text is asked once. Where the budget is spent or an answer fails it ends, and
/// says how many were not asked: what was paid for is told in any case.
pub async fn ask_questions(
    search: &CoverSearch<'_>,
    index: &PastIndex,
    stock: &CoverStock,
    questions: &[ProofQuestion],
    (ask, reader): (AblationAsk, &dyn Reader),
) -> (AblationRecord, Vec<Answers>) {
    let mut record = AblationRecord { tokens: ask.tokens, seed: ask.seed, ..AblationRecord::default() };
    let mut told = Vec::new();
    let mut run = AblationRun { reader, known: HashMap::new() };
    for question in questions {
        let asked = match cover_for(search, index, stock, question, ask).await {
            Ok((stock, served, evidence)) => run.question(&stock, &served, question, &evidence, ask).await,
            Err(error) => Err(ReaderError::Failed(error.to_string())),
        };
        match asked {
            Ok((asked, answers)) => {
                record.questions.push(asked);
                told.push(answers);
            }
            Err(why) => {
                record.unasked = questions.len() - record.questions.len();
                if let ReaderError::Failed(why) = why {
                    record.failed = Some(why);
                }
                break;
            }
        }
    }
    (record, told)
}

/// Of each member that sums up evidence, which.
type MemberEvidence = HashMap<NodeId, BTreeSet<NodeId>>;

/// The cover that a session has for a question, what it is drawn from, and the evidence in it.
async fn cover_for(
    search: &CoverSearch<'_>,
    index: &PastIndex,
    stock: &CoverStock,
    question: &ProofQuestion,
    ask: AblationAsk,
) -> Result<(CoverStock, PastCover, MemberEvidence), PastError> {
    let (stock, about) = match ask.is_blind {
        true => (stock.clone(), None),
        false => (stock.about(search, &question.text, None).await?, Some(question.text.as_str())),
    };
    let served = stock.cover_before(ask.tokens, about, ask.boundary);
    let evidence = evidence_under(search, index, &stock, &served, question).await?;
    Ok((stock, served, evidence))
}

async fn evidence_under(
    search: &CoverSearch<'_>,
    index: &PastIndex,
    stock: &CoverStock,
    served: &PastCover,
    question: &ProofQuestion,
) -> Result<MemberEvidence, PastError> {
    let mut found = HashMap::new();
    if question.evidence.is_empty() {
        return Ok(found);
    }
    let wanted: BTreeSet<NodeId> = question.evidence.iter().copied().collect();
    for member in &served.cover.members {
        let Some(chunk) = stock.id(&member.id).and_then(|id| index.get(&id)) else { continue };
        let below = sources_below(search.store, search.scope, index, chunk).await?;
        let said: BTreeSet<NodeId> = below.into_iter().filter(|node| wanted.contains(node)).collect();
        if !said.is_empty() {
            found.insert(member.id, said);
        }
    }
    Ok(found)
}

struct AblationRun<'a> {
    reader: &'a dyn Reader,
    known: HashMap<String, String>,
}

impl AblationRun<'_> {
    async fn answer(&mut self, lines: &[CoverLine], question: &str) -> Result<String, ReaderError> {
        let text = format!("{}\nQuestion: {question}", render(lines));
        if let Some(known) = self.known.get(&text) {
            return Ok(known.clone());
        }
        let prompt = ReaderPrompt { system: SYSTEM.to_owned(), text };
        let answer = self.reader.answer(&prompt).await?;
        self.known.insert(prompt.text, answer.clone());
        Ok(answer)
    }

    async fn question(
        &mut self,
        stock: &CoverStock,
        served: &PastCover,
        question: &ProofQuestion,
        evidence: &MemberEvidence,
        ask: AblationAsk,
    ) -> Result<(AskedQuestion, Answers), ReaderError> {
        let members: Vec<NodeId> = served.cover.members.iter().map(|member| member.id).collect();
        let lines: Vec<CoverLine> = members.iter().filter_map(|member| stock.line(member)).cloned().collect();
        let disturbed: Vec<(CoverLine, usize)> = lines.iter().map(|line| disturbed(line, ask.seed)).collect();
        let changed: Vec<CoverLine> = disturbed.iter().map(|(line, _)| line.clone()).collect();
        let answers = Answers {
            with: self.answer(&lines, &question.text).await?,
            without: self.answer(&[], &question.text).await?,
            disturbed: self.answer(&changed, &question.text).await?,
        };
        let is_other = |answer: &str| plain(answer) != plain(&answers.with);
        let mut asked = AskedQuestion {
            question: question.text.clone(),
            members: members.len(),
            with: question.is_right(&answers.with),
            without: question.is_right(&answers.without),
            disturbed: question.is_right(&answers.disturbed),
            changed_without: is_other(&answers.without),
            changed_disturbed: is_other(&answers.disturbed),
            evidence_served: evidence.values().flatten().collect::<BTreeSet<_>>().len(),
            evidence: question.evidence.iter().collect::<BTreeSet<_>>().len(),
            chunks: Vec::new(),
        };
        for at in chosen(stock, &members, question, evidence, ask.chunks) {
            let Some(chunk) = members.get(at).and_then(|member| stock.id(member)) else { continue };
            let mut removed = lines.clone();
            removed.remove(at);
            let mut one = lines.clone();
            let Some((line, changes)) = disturbed.get(at) else { continue };
            one[at] = line.clone();
            let removed = self.answer(&removed, &question.text).await?;
            let one = self.answer(&one, &question.text).await?;
            asked.chunks.push(ChunkChange {
                chunk,
                right_removed: question.is_right(&removed),
                changed_removed: is_other(&removed),
                right_disturbed: question.is_right(&one),
                changed_disturbed: is_other(&one),
                changes: *changes,
            });
        }
        Ok((asked, answers))
    }
}

/// A line with other dates, names and numbers, and how many.
fn disturbed(line: &CoverLine, seed: u64) -> (CoverLine, usize) {
    let Some(summary) = &line.summary else { return (line.clone(), 0) };
    let disturbed = disturb(summary, seed);
    let changes = disturbed.changes.len();
    (CoverLine { key: line.key.clone(), summary: Some(disturbed.text) }, changes)
}

/// Which members are looked at one by one.
fn chosen(
    stock: &CoverStock,
    members: &[NodeId],
    question: &ProofQuestion,
    evidence: &MemberEvidence,
    most: usize,
) -> Vec<usize> {
    let scores: HashMap<NodeId, f64> = stock.scores(&question.text).into_iter().collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| {
        let rank = |at: usize| {
            let said = evidence.get(&members[at]).map_or(0, BTreeSet::len);
            (said, scores.get(&members[at]).copied().unwrap_or(0.0))
        };
        let ((said_a, score_a), (said_b, score_b)) = (rank(*a), rank(*b));
        said_b.cmp(&said_a).then(score_b.total_cmp(&score_a)).then(a.cmp(b))
    });
    order.truncate(most);
    order
}
