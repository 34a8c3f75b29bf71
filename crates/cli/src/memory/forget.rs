//! `quipu memory forget`: what has these words goes from files, from what is derived of them and from every search.

use std::collections::BTreeSet;
use std::io::Write as _;

use quipu_host::holders::EraseTargets;
use quipu_memory::dream::MARK;
use quipu_memory::notes::{FoundLine, Notebook};
use quipu_memory::{ForgetList, MemoryKind};
use quipu_past::chunks_telling;
use quipu_protocol::{Entry, NodeId};
use quipu_store::{Order, SearchQuery, Selection, Sessions};
use serde_json::json;

use super::{ForgetArgs, OpenMemories, open};
use crate::confirm::confirm;
use crate::exit::Failure;
use crate::home::holders;
use crate::print::{note, printable};

/// Nodes that are hidden at once.
const NODES: usize = 1_000;
/// Nodes that are shown.
const SHOWN: usize = 10;
/// What holds lines of memories beside their files. The index of notes follows the files.
const DERIVED: [&str; 1] = ["store.memory-dreams"];
/// Bytes of a line that what is derived of it holds at least.
const DERIVED_TEXT: usize = 120;
/// The shortest text that holders look for.
const NEEDLE: usize = 4;

/// What has the words.
struct FoundWords<'a> {
    lines: Vec<(&'a Notebook, Vec<FoundLine>)>,
    nodes: Vec<(NodeId, String)>,
    /// Whether more nodes have them than are hidden at once.
    more: bool,
}

impl<'a> FoundWords<'a> {
    async fn now(open: &'a OpenMemories, words: &str) -> Result<Self, Failure> {
        let mut lines = Vec::new();
        for book in &open.books {
            book.observe().await.map_err(quipu_host::Failure::from)?;
            lines.push((book, book.find_lines(words)));
        }
        let (mut nodes, more) = nodes(open, words).await?;
        // What was made of them tells it too, whether it has the words or not.
        let found: BTreeSet<NodeId> = nodes.iter().map(|(node, _)| *node).collect();
        let telling =
            chunks_telling(&**open.engine.store(), &found).await.map_err(quipu_host::Failure::from)?;
        let summaries = telling.difference(&found).map(|node| (*node, "a summary made of these".to_owned()));
        nodes.extend(summaries);
        Ok(Self { lines, nodes, more })
    }

    /// What was not among what was shown: a line that only moved is not new.
    fn without(&self, shown: &Self) -> Self {
        let mut lines = Vec::new();
        for ((book, now), (_, before)) in self.lines.iter().zip(&shown.lines) {
            let mut before: Vec<_> = before.iter().map(|line| (&line.name, &line.text)).collect();
            let is_new =
                |line: &&FoundLine| match before.iter().position(|one| *one == (&line.name, &line.text)) {
                    Some(at) => {
                        before.swap_remove(at);
                        false
                    }
                    None => true,
                };
            lines.push((*book, now.iter().filter(is_new).cloned().collect()));
        }
        let known: BTreeSet<NodeId> = shown.nodes.iter().map(|(node, _)| *node).collect();
        let nodes = self.nodes.iter().filter(|(node, _)| !known.contains(node)).cloned().collect();
        Self { lines, nodes, more: self.more }
    }

    fn add(&mut self, new: Self) {
        for ((_, lines), (_, new)) in self.lines.iter_mut().zip(new.lines) {
            lines.extend(new);
        }
        self.nodes.extend(new.nodes);
        self.more = new.more;
    }

    fn line_count(&self) -> usize {
        self.lines.iter().map(|(_, lines)| lines.len()).sum()
    }

    fn is_empty(&self) -> bool {
        self.line_count() == 0 && self.nodes.is_empty()
    }

    fn plan(&self) -> String {
        format!("{} line(s) and {} node(s)", self.line_count(), self.nodes.len())
    }

    fn show(&self, json: bool, out: &mut impl std::io::Write) -> Result<(), Failure> {
        for (book, lines) in &self.lines {
            for line in lines {
                let FoundLine { name, line, text } = line;
                if json {
                    let row = json!({ "type": "line", "memory": book.place().id, "path": name.as_str(), "line": line, "text": text });
                    writeln!(out, "{row}")?;
                } else {
                    let shown = printable(&quipu_memory::context::visible(text));
                    writeln!(out, "{}/{name}#L{line}  {shown}", book.place().id)?;
                }
            }
        }
        for (node, text) in self.nodes.iter().take(if json { NODES } else { SHOWN }) {
            if json {
                writeln!(out, "{}", json!({ "type": "node", "node": node.to_string(), "text": text }))?;
            } else {
                writeln!(out, "node {}  {}", node.short(), printable(text))?;
            }
        }
        if !json && self.nodes.len() > SHOWN {
            writeln!(out, "and {} more nodes", self.nodes.len() - SHOWN)?;
        }
        Ok(out.flush()?)
    }
}

pub(super) async fn forget(args: &ForgetArgs) -> Result<(), Failure> {
    let open = open(&args.out.store).await?;
    let words = args.words.join(" ");
    let mut found = FoundWords::now(&open, &words).await?;
    let mut stdout = crate::console::stdout();
    found.show(args.out.json, &mut stdout)?;
    if found.is_empty() {
        note("Nothing has these words.");
        return Ok(());
    }
    if args.dry_run {
        return Ok(());
    }
    let mut is_asked = args.yes;
    while !is_asked {
        let plan = found.plan();
        let question =
            format!("Forget {plan}? The lines go from their files; no search shows the nodes any more.");
        confirm(&question, &format!("{plan} are forgotten"), "nothing was forgotten")?;
        // What was written while the person thought was not agreed to.
        let new = FoundWords::now(&open, &words).await?.without(&found);
        is_asked = new.is_empty();
        if is_asked {
            continue;
        }
        note("Meanwhile these came to have the words:");
        new.show(args.out.json, &mut stdout)?;
        found.add(new);
    }
    let mut kept = remove(&open, &found.lines, found.nodes.iter().map(|(node, _)| *node)).await?;
    let writable = open.books.iter().filter(|book| book.place().kind != MemoryKind::Repository);
    let late: usize = writable.map(|book| book.find_lines(&words).len()).sum();
    if late > 0 {
        kept.push(format!("{late} line(s) have these words now; forget them again"));
    }
    let (count, nodes, more) = (found.line_count(), found.nodes.len(), found.more);
    if args.out.json {
        let end = json!({ "type": "end", "lines": count, "nodes": nodes, "kept": kept, "more": more });
        writeln!(stdout, "{end}")?;
        return Ok(stdout.flush()?);
    }
    note(format!("Forgot {count} line(s) and {nodes} node(s)."));
    for kept in kept {
        note(format!("Not removed: {kept}"));
    }
    if more {
        note(format!("More than {NODES} nodes have these words; forget them again."));
    }
    note(
        "No request, search or prompt has it from now on. The graph keeps the nodes and the former files, and exports have them, \
         until they are erased; `quipu undo` of the memory's session brings lines back.",
    );
    Ok(())
}

/// Takes lines out of their files, remembers that nothing of it comes back, and clears what is derived. What could not be
/// removed, in words.
async fn remove(
    open: &OpenMemories,
    lines: &[(&Notebook, Vec<FoundLine>)],
    nodes: impl IntoIterator<Item = NodeId>,
) -> Result<Vec<String>, Failure> {
    let mut kept = Vec::new();
    let texts: BTreeSet<&str> =
        lines.iter().flat_map(|(_, lines)| lines).map(|line| line.text.as_str()).collect();
    // First, so that nothing is learned again of what goes now.
    let nodes: Vec<NodeId> = nodes.into_iter().collect();
    // A line of a dream has the heading that its source stood below.
    let promoted = texts.iter().filter(|text| text.contains(MARK)).filter_map(|text| text.split_once(": "));
    let names = names(open, &nodes).await?;
    // As a prompt shows it.
    let shown: Vec<String> = texts.iter().map(|text| quipu_memory::context::visible(text)).collect();
    let all = texts.iter().copied().chain(promoted.map(|(_, line)| line));
    let all = all.chain(shown.iter().map(String::as_str)).chain(names.iter().map(String::as_str));
    ForgetList::add(&open.memory, all, nodes.iter().copied()).map_err(quipu_host::Failure::from)?;
    for (book, lines) in lines {
        if lines.is_empty() {
            continue;
        }
        if book.place().kind == MemoryKind::Repository {
            kept.push(format!(
                "{} line(s) stay in the files of the repository, which are only read. No search and no new session shows \
                 them; remove them there.",
                lines.len()
            ));
            continue;
        }
        if let Err(error) = book.remove_lines(lines, "forget").await {
            kept.push(error.to_string());
        }
    }
    // The next question makes it again, of what is left.
    if !texts.is_empty()
        && let Some(index) = open.engine.store().recall_index()
        && let Err(error) = index.drop_notes().await
    {
        kept.push(format!("the index of notes: {error}"));
    }
    let holders = holders(&open.home);
    let why = "forgotten by the owner of the memory";
    let needles = texts.iter().map(|text| bare(text)).filter(|text| text.len() >= NEEDLE);
    let mut targets: Vec<EraseTargets> = needles.map(|text| EraseTargets::of_needle(text, why)).collect();
    if !nodes.is_empty() {
        let selection = Selection { nodes, ..Selection::default() };
        targets.push(EraseTargets { selection, why: why.to_owned() });
    }
    for targets in targets {
        for name in DERIVED {
            match holders.erase_in(name, &targets).await.map(|answer| answer.answer) {
                None => {}
                Some(Ok(report)) => kept.extend(report.kept.iter().map(|kept| kept.detail.clone())),
                Some(Err(fault)) => kept.push(format!("{name}: {fault}")),
            }
        }
    }
    Ok(kept)
}

/// What nodes name: lists show names beside the nodes that gave them.
async fn names(open: &OpenMemories, nodes: &[NodeId]) -> Result<Vec<String>, Failure> {
    let store = &**open.engine.store();
    let mut names = Vec::new();
    for some in nodes.chunks(64) {
        let found: Vec<_> = store.nodes(some).await?.into_iter().flatten().collect();
        for decoded in quipu_store::decode_whole(store, &found).await? {
            if let Entry::Meta(json) = decoded.entry
                && let Ok(meta) = json.read::<serde_json::Value>()
            {
                let named = ["name", "label"].into_iter().filter_map(|member| meta[member].as_str());
                names.extend(named.map(str::to_owned));
            }
        }
    }
    Ok(names)
}

/// Nodes of sessions that have all of the words, and whether there are more.
async fn nodes(open: &OpenMemories, words: &str) -> Result<(Vec<(NodeId, String)>, bool), Failure> {
    let forgotten = ForgetList::read(&open.memory).map_err(quipu_host::Failure::from)?;
    let query = SearchQuery {
        words: words.to_owned(),
        sessions: Sessions::All,
        order: Order::Newest,
        limit: NODES,
        withdrawn: true,
        ..SearchQuery::default()
    };
    let found = open.engine.store().search(query).await?;
    let more = found.hits.len() >= NODES;
    let hits = found.hits.into_iter().filter(|hit| !forgotten.hides_node(&hit.node));
    Ok((hits.map(|hit| (hit.node, hit.excerpt.text)).collect(), more))
}

/// The beginning of a line without the marks of a list and of a dream, as what is derived of it holds it.
fn bare(line: &str) -> &str {
    let line = line.split(MARK).next().unwrap_or_default();
    let line = line.trim().trim_start_matches(['-', '*', '+', ' ']);
    &line[..line.floor_char_boundary(DERIVED_TEXT)]
}
