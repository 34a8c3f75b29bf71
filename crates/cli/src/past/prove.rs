//! Whether a past can be believed.

use std::io::Write as _;

use quipu_host::past::{ModelReader, RecordedRequests};
use quipu_host::{Home, now};
use quipu_past::prove::{
    AblationAsk, Answers, GroundingProof, ProofQuestion, UngroundedChunk, ask_questions, ground_all,
    keep_proof, prove_structure, read_questions,
};
use quipu_past::{AblationRecord, CoverDetail, CoverStock, PastIndex, ProofRecord, StructureRecord};
use serde_json::{Value, json};

use super::cover::CHARGE;
use super::{PastStore, ProveArgs};
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::print::{Paint, Progress, dollars, note, printable};

/// Findings that are printed without `--json`.
const SHOWN: usize = 20;
/// Bytes of a file of questions.
const FILE: u64 = 16 << 20;

pub(super) async fn prove(args: &ProveArgs) -> Result<(), Failure> {
    let questions = args.questions.as_deref().map(read).transpose()?;
    let home = home(&args.of.out.store)?;
    let past = args.of.open_to_write().await?;
    // Before anything is read: who may not be asked is named at once.
    let reader = match &questions {
        Some(_) => Some(ModelReader::new(&home, past.store.clone(), args.model.as_deref(), args.budget)?),
        None => None,
    };
    let shown = Progress::new();
    shown.show("requests of sessions");
    let judge = RecordedRequests::new(&home, past.store.clone());
    let structure = prove_structure(&*past.store, &past.scope, &judge, args.requests).await;
    shown.clear();
    shown.show("chunks and their sources");
    let index = past.index().await?;
    let grounding = ground_all(&*past.store, &past.scope, &index).await;
    shown.clear();
    let structure = structure.map_err(quipu_host::Failure::from)?;
    let grounding = grounding.map_err(quipu_host::Failure::from)?;
    let (ablation, answers) = match (questions, reader) {
        (Some(questions), Some(reader)) => {
            shown.show("questions");
            let asked = ask(args, &home, &past, &index, &questions, &reader).await;
            shown.clear();
            let (record, answers) = asked?;
            (Some(record), answers)
        }
        (_, _) => (None, Vec::new()),
    };
    let is_whole = ablation.as_ref().is_none_or(|ablation| ablation.failed.is_none());
    let counts = grounding.counts.clone();
    let proof = ProofRecord { at: now(), structure, grounding: counts, ablation };
    let verdicts = grounding.verdicts.clone();
    let keep = keep_proof(&*past.store, &past.scope, &index, verdicts, Some(proof.clone()), now());
    // The findings are printed, whether they can be kept or not.
    let kept;
    let mut out = crate::console::stdout();
    if args.of.out.json {
        kept = keep.await;
        let mut value = as_json(&proof, &grounding, &answers);
        value["scope"] = json!(past.scope);
        value["node"] = json!(kept.as_ref().ok().copied().flatten());
        writeln!(out, "{value}")?;
    } else {
        tell_structure(&mut out, &proof.structure)?;
        tell_grounding(&mut out, &grounding)?;
        if let Some(ablation) = &proof.ablation {
            tell_ablation(&mut out, ablation)?;
        }
        out.flush()?;
        kept = keep.await;
    }
    out.flush()?;
    let node = kept.map_err(quipu_host::Failure::from)?;
    if let Some(node) = node.filter(|_| !args.of.out.json) {
        note(format!("The proof is node {}.", node.short()));
    }
    if proof.holds() && is_whole { Ok(()) } else { Err(Failure::silent(Exit::Failed)) }
}

fn read(path: &std::path::Path) -> Result<Vec<ProofQuestion>, Failure> {
    use std::io::Read as _;
    let failed = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
    let file = std::fs::File::open(crate::console::in_current_dir(path)?).map_err(|error| failed(&error))?;
    let mut text = String::new();
    file.take(FILE + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > FILE {
        return Err(failed(&format!("it is larger than {FILE} bytes")));
    }
    read_questions(&text).map_err(|fault| failed(&fault))
}

async fn ask(
    args: &ProveArgs,
    home: &Home,
    past: &PastStore,
    index: &PastIndex,
    questions: &[ProofQuestion],
    reader: &ModelReader,
) -> Result<(AblationRecord, Vec<Answers>), Failure> {
    let stock = CoverStock::read(&*past.store, &past.scope, index, CHARGE).await;
    let stock = stock.map_err(quipu_host::Failure::from)?;
    // Before anything is paid for: nothing may fail afterwards.
    let sealer = home.engine(past.store.clone(), &home.settings())?.sealer().clone();
    let (tokens, chunks, is_blind, seed) = (args.tokens, args.chunks, args.blind, args.seed);
    let ask = AblationAsk { tokens, chunks, is_blind, boundary: now(), seed };
    let search = past.search(quipu_host::local_vectors(home)?, CoverDetail::Chunks);
    let asked = ask_questions(&search, index, &stock, questions, (ask, reader)).await;
    let (mut record, answers) = asked;
    record.model = reader.model().to_owned();
    record.cost = reader.spent();
    // What is kept is sealed, as everything is.
    for asked in &mut record.questions {
        asked.question = sealer.seal(&asked.question).into_owned();
    }
    Ok((record, answers))
}

fn as_json(proof: &ProofRecord, grounding: &GroundingProof, answers: &[Answers]) -> Value {
    let mut value = json!(proof);
    let chunks = grounding.chunks.iter().map(|chunk| {
        let UngroundedChunk { id, key, findings, is_kept_out } = chunk;
        json!({ "id": id, "key": key, "findings": findings, "keptOut": is_kept_out })
    });
    value["grounding"]["list"] = chunks.collect();
    if let Some(questions) = value["ablation"]["questions"].as_array_mut() {
        for (asked, answers) in questions.iter_mut().zip(answers) {
            let Answers { with, without, disturbed } = answers;
            asked["answers"] = json!({ "with": with, "without": without, "disturbed": disturbed });
        }
    }
    value["holds"] = proof.holds().into();
    value
}

fn tell_structure(out: &mut impl std::io::Write, found: &StructureRecord) -> Result<(), Failure> {
    let paint = Paint::stdout();
    writeln!(out, "{}", paint.bold("Structure"))?;
    writeln!(
        out,
        "  {} of {} requests of {} sessions equal what the graph gives, to the byte; {} differ",
        found.equal,
        found.requests,
        found.sessions,
        found.different.len()
    )?;
    for different in found.different.iter().take(SHOWN) {
        writeln!(out, "  node {}: differs at {}", different.node.short(), printable(&different.at))?;
    }
    if found.different.len() > SHOWN {
        writeln!(out, "  … {} more", found.different.len() - SHOWN)?;
    }
    for (why, count) in &found.unchecked {
        writeln!(out, "  {count} not checked: {}", printable(why))?;
    }
    if found.skipped > 0 {
        writeln!(out, "  {} not looked at; `--requests` looks at more of each session", found.skipped)?;
    }
    Ok(())
}

fn tell_grounding(out: &mut impl std::io::Write, found: &GroundingProof) -> Result<(), Failure> {
    let paint = Paint::stdout();
    let counts = &found.counts;
    writeln!(out, "{}", paint.bold("Grounding"))?;
    writeln!(
        out,
        "  {} chunks with {} claims; {} chunks say what their sources do not, {} of them are kept out of covers",
        counts.chunks, counts.claims, counts.ungrounded, counts.kept_out
    )?;
    if counts.unchecked > 0 {
        writeln!(out, "  {} not checked: a source or a child of theirs is not there", counts.unchecked)?;
    }
    for chunk in found.chunks.iter().take(SHOWN) {
        let said: Vec<String> = chunk.findings.iter().take(5).map(|found| printable(&found.text)).collect();
        let more = if chunk.findings.len() > said.len() { ", …" } else { "" };
        writeln!(out, "  {} {}: {}{more}", chunk.id.short(), printable(&chunk.key), said.join(", "))?;
    }
    if found.chunks.len() > SHOWN {
        writeln!(out, "  … {} more; `--json` has all", found.chunks.len() - SHOWN)?;
    }
    Ok(())
}

fn tell_ablation(out: &mut impl std::io::Write, found: &AblationRecord) -> Result<(), Failure> {
    let paint = Paint::stdout();
    let [with, without, disturbed] = found.right();
    let of = found.questions.len();
    writeln!(out, "{}", paint.bold("Ablation"))?;
    writeln!(
        out,
        "  {} answers {with} of {of} questions with the cover, {without} without it, {disturbed} with a disturbed one; cost {}",
        printable(&found.model),
        dollars(found.cost)
    )?;
    let chunks = || found.questions.iter().flat_map(|asked| &asked.chunks);
    writeln!(
        out,
        "  of {} single chunks, {} change the answer when they are removed, {} when they are disturbed",
        chunks().count(),
        chunks().filter(|chunk| chunk.changed_removed).count(),
        chunks().filter(|chunk| chunk.changed_disturbed).count()
    )?;
    let evidence = found.questions.iter().map(|asked| asked.evidence).sum::<usize>();
    if evidence > 0 {
        let served = found.questions.iter().map(|asked| asked.evidence_served).sum::<usize>();
        writeln!(out, "  {served} of {evidence} nodes of evidence are summed up by a chunk of the cover")?;
    }
    if found.unasked > 0 {
        let why = found.failed.as_deref().unwrap_or("the budget is spent");
        writeln!(out, "  {} questions were not asked: {}", found.unasked, printable(why))?;
    }
    Ok(())
}
