//! `quipu context --report`: the sizes of a session's system prompt, of its files, tools and skills.

use std::io::Write as _;

use quipu_host::{FileSize, Home, PromptReport, SectionSize, SkillSize, ToolSize, prompt_report};
use quipu_protocol::NodeId;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::print::{grouped, one_line, trust_name};

pub(crate) async fn show(home: &Home, session: &str, head: NodeId, as_json: bool) -> Result<(), Failure> {
    let engine = home.engine(home.store().await?, &home.settings())?;
    let report = prompt_report(&engine, head).await?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if as_json {
        writeln!(out, "{}", as_value(session, &report))?;
    } else {
        for line in lines(session, &report) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(out.flush()?)
}

fn as_value(session: &str, report: &PromptReport) -> Value {
    let sections = report.sections.iter().map(|SectionSize { source, id, trust, start, characters }| {
        json!({ "source": source, "id": id, "trust": trust.map(trust_name), "start": start, "characters": characters })
    });
    let files = report
        .files
        .iter()
        .map(|FileSize { name, raw, injected }| json!({ "name": name, "raw": raw, "injected": injected }));
    let skills = report
        .skills
        .iter()
        .map(|SkillSize { name, characters }| json!({ "name": name, "characters": characters }));
    let tools = report.tools.iter().map(|ToolSize { name, description, schema }| {
        json!({ "name": name, "description": description, "schema": schema })
    });
    json!({
        "session": session,
        "systemPrompt": { "bytes": report.bytes, "characters": report.characters },
        "cacheBoundary": { "byte": report.boundary, "character": report.boundary_characters },
        "sections": sections.collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "skills": skills.collect::<Vec<_>>(),
        "tools": tools.collect::<Vec<_>>(),
    })
}

/// For people: numbers in front, as names may be long.
fn lines(session: &str, report: &PromptReport) -> Vec<String> {
    let number = |number: usize| grouped(number as u64);
    let mut lines = vec![
        format!("session {session}"),
        format!(
            "system prompt: {} characters; cache boundary after {} (byte {})",
            number(report.characters),
            number(report.boundary_characters),
            number(report.boundary),
        ),
        String::new(),
        "Sections of the system prompt, in characters:".to_owned(),
    ];
    let mut is_before = true;
    for SectionSize { source, id, trust, start, characters } in &report.sections {
        if is_before && *start >= report.boundary {
            lines.push("            -- cache boundary --".to_owned());
            is_before = false;
        }
        let id = one_line(id, 200);
        let name = match (source, trust) {
            (Some(source), Some(trust)) => format!("{}: {id} ({})", one_line(source, 40), trust_name(*trust)),
            _ => id,
        };
        lines.push(format!("{:>11} {name}", number(*characters)));
    }
    let mut table = |title: &str, rows: Vec<String>| {
        if !rows.is_empty() {
            lines.extend([String::new(), title.to_owned()]);
            lines.extend(rows);
        }
    };
    let files = report.files.iter().map(|FileSize { name, raw, injected }| {
        let raw = raw.map_or("?".to_owned(), number);
        format!("{raw:>11} {:>11} {}", number(*injected), one_line(name, 200))
    });
    table("Files, in characters: of the file, and in the prompt:", files.collect());
    let skills = report
        .skills
        .iter()
        .map(|SkillSize { name, characters }| format!("{:>11} {}", number(*characters), one_line(name, 80)));
    table("Skills, in characters of their lines:", skills.collect());
    let tools = report.tools.iter().map(|ToolSize { name, description, schema }| {
        format!("{:>11} {:>11} {}", number(*description), number(*schema), one_line(name, 80))
    });
    table("Tools, in characters: description, and schema:", tools.collect());
    lines
}
