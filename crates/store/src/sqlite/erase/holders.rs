//! The parts of a store as places that hold content.

use std::sync::Arc;

use quipu_protocol::NodeId;
use rusqlite::{Connection, params};

use super::super::failure::Outcome;
use super::super::{SqliteStore, dreams, file, job_runs, recall, rows, shrink};
use super::{rewrite, scope, scrub, seek};
use crate::{
    ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptReason, Needles, Selection, StoreError,
};

/// Whether the owner of a lease is known to be dead, so that the lease does not count.
pub type OwnerDeathCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Which part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nodes, texts, bytes, what sessions left open, the action log.
    Graph,
    Jobs,
    /// What dreams keep: recalled texts, progress, promotions.
    Dreams,
    /// The indexes of the search by words.
    Search,
    /// The vectors.
    Semantic,
    /// What sessions are called, what was done to files, by whom and when.
    Activity,
}

/// A table of derived rows, and the column with the row of the node that each was made of. In the order of their names, in which
/// they are found.
const SEARCH: [(&str, &str); 2] = [("quipu_x_parts", "rowid"), ("quipu_x_words", "rowid")];
const SEMANTIC: [(&str, &str); 1] = [("quipu_x_vector", "seq")];
const ACTIVITY: [(&str, &str); 7] = [
    ("quipu_x_asked", "seq"),
    ("quipu_x_file", "seq"),
    ("quipu_x_held", "seq"),
    ("quipu_x_mark", "seq"),
    ("quipu_x_session", "titled"),
    ("quipu_x_state", "seq"),
    ("quipu_x_touch", "seq"),
];

/// The words of notes, which have no row of a node.
const NOTES: &str = "quipu_x_note_word";

impl Part {
    const ALL: [Self; 6] =
        [Self::Graph, Self::Jobs, Self::Dreams, Self::Search, Self::Semantic, Self::Activity];

    fn name(self) -> &'static str {
        match self {
            Self::Graph => "store.graph",
            Self::Jobs => "store.jobs",
            Self::Dreams => "store.memory-dreams",
            Self::Search => "store.search",
            Self::Semantic => "store.semantic",
            Self::Activity => "store.activity",
        }
    }

    /// The part that a table or an index of this name belongs to.
    fn of(name: &str) -> Self {
        let begins = |beginnings: &[&str]| {
            beginnings
                .iter()
                .any(|beginning| name.trim_start_matches("sqlite_autoindex_").starts_with(beginning))
        };
        if begins(&["quipu_job"]) {
            Self::Jobs
        } else if begins(&["quipu_recall", "quipu_dream", "quipu_promotion"]) {
            Self::Dreams
        } else if begins(&[
            "quipu_x_search",
            "quipu_x_late",
            "quipu_x_words",
            "quipu_x_parts",
            "quipu_x_recall",
            "quipu_x_note",
        ]) {
            Self::Search
        } else if begins(&["quipu_x_meaning", "quipu_x_vector"]) {
            Self::Semantic
        } else if begins(&["quipu_x_"]) {
            Self::Activity
        } else {
            Self::Graph
        }
    }

    fn derived(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Graph | Self::Jobs | Self::Dreams => &[],
            Self::Search => &SEARCH,
            Self::Semantic => &SEMANTIC,
            Self::Activity => &ACTIVITY,
        }
    }
}

/// A part of a store as a place that holds content.
///
/// `store.graph` erases for all parts that are derived from it: they are made anew. The others erase from themselves alone,
/// and what the graph still has comes back when they are made anew.
pub struct StoreHolder {
    store: Arc<SqliteStore>,
    part: Part,
    is_dead: OwnerDeathCheck,
}

impl StoreHolder {
    /// The parts of a store. `is_dead` knows owners of leases that do not live any more.
    pub fn all(store: &Arc<SqliteStore>, is_dead: &OwnerDeathCheck) -> Vec<Self> {
        let of = |part| Self { store: Arc::clone(store), part, is_dead: Arc::clone(is_dead) };
        Part::ALL.into_iter().map(of).collect()
    }

    async fn find_page(&self, query: &ContentQuery) -> Result<FoundPage, HolderError> {
        let needles = Needles::of(&query.selection)?;
        let (query, part) = (query.clone(), self.part);
        let work = move |connection: &Connection| match part {
            Part::Graph => seek::find(connection, &query, &needles),
            Part::Jobs => find_jobs(connection, &query, &needles),
            Part::Dreams => find_dreams(connection, &query, &needles),
            Part::Search | Part::Semantic | Part::Activity => {
                find_derived(connection, part, &query, &needles)
            }
        };
        Ok(self.store.read_indexed(work).await?)
    }

    async fn erase_all(&self, targets: &EraseTargets) -> Result<EraseReport, HolderError> {
        let needles = Needles::of(&targets.selection)?;
        let query = ContentQuery { limit: 1, ..ContentQuery::of(targets.selection.clone()) };
        let marked = self.part == Part::Graph && self.store.read(scrub::is_marked).await?;
        // What is only in what stays is told all the same.
        let tells = match self.part {
            Part::Graph => !needles.is_empty(),
            // Which notes an index was made of is not in the store.
            Part::Search => !needles.is_empty() && self.store.read(recall::notes::exist).await?,
            _ => false,
        };
        if !marked && !tells && self.find_page(&query).await?.found.is_empty() {
            return Ok(EraseReport::default());
        }
        let (targets, part, is_dead) = (targets.clone(), self.part, Arc::clone(&self.is_dead));
        let place = FoundPlace::File { path: self.store.path().to_owned(), line: None };
        let in_memory = self.store.readers.is_none();
        let work = move |connection: &Connection| {
            let mut erased = scrub::transaction(connection, |connection| {
                let erased = match part {
                    Part::Graph => rewrite::erase(connection, &targets, &needles, &*is_dead)?,
                    Part::Jobs => erase_jobs(connection, &targets, &needles)?,
                    Part::Dreams => erase_dreams(connection, &targets, &needles)?,
                    Part::Search | Part::Semantic | Part::Activity => {
                        erase_derived(connection, part, &targets, &needles)?
                    }
                };
                if erased.count > 0 {
                    scrub::mark(connection)?;
                }
                Ok(erased)
            })?;
            if !in_memory
                && scrub::is_marked(connection)?
                && let Some(why) = scrub::scrub(connection)?
            {
                erased.keep(place, KeptReason::Remnants, why);
            }
            Ok(erased)
        };
        Ok(self.store.writer()?.alone("erase from", work).await?)
    }
}

impl ContentHolder for StoreHolder {
    fn name(&self) -> &str {
        self.part.name()
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(self.find_page(query))
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, EraseReport> {
        Box::pin(self.erase_all(targets))
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        let part = self.part;
        let wal = file::size(&file::sibling_path(self.store.path(), "-wal"));
        let work = move |connection: &Connection| bytes_of(connection, part);
        Box::pin(async move {
            let bytes = self.store.read(work).await?;
            Ok(if part == Part::Graph { bytes + wal } else { bytes })
        })
    }
}

/// Bytes of the pages that a part takes; what is free counts for the graph.
fn bytes_of(connection: &Connection, part: Part) -> Outcome<u64> {
    let mut statement = connection.prepare("SELECT name FROM main.sqlite_master WHERE rootpage > 0")?;
    let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut size = connection
        .prepare("SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name = ?1 AND aggregate = TRUE")?;
    let mut bytes = 0;
    for name in names.iter().filter(|name| Part::of(name) == part) {
        bytes += size.query_row([name], |row| row.get::<_, i64>(0))?.unsigned_abs();
    }
    if part == Part::Graph {
        bytes += shrink::free(connection)?;
        // The schema itself.
        bytes += size.query_row(["sqlite_schema"], |row| row.get::<_, i64>(0))?.unsigned_abs();
    }
    Ok(bytes)
}

/// A job that holds what is looked for.
struct FoundJob {
    row: i64,
    key: String,
    bytes: u64,
    runs: bool,
}

fn jobs(connection: &Connection, needles: &Needles) -> Outcome<Vec<FoundJob>> {
    let mut found = Vec::new();
    if needles.is_empty() {
        return Ok(found);
    }
    let mut statement = connection
        .prepare("SELECT rowid, key, payload, coalesce(error, ''), state FROM quipu_job ORDER BY rowid")?;
    let mut all = statement.query([])?;
    while let Some(row) = all.next()? {
        let owned = |column| rows::text(row, column).map(|text| text.unwrap_or_default().into_owned());
        let (key, payload, error) = (owned(1)?, owned(2)?, owned(3)?);
        if [&key, &payload, &error].into_iter().any(|text| needles.are_in(text.as_bytes())) {
            let bytes = (payload.len() + error.len()) as u64;
            found.push(FoundJob { row: row.get(0)?, key, bytes, runs: owned(4)? == "running" });
        }
    }
    Ok(found)
}

impl FoundJob {
    fn place(&self) -> FoundPlace {
        FoundPlace::Row { table: "quipu_job".to_owned(), key: self.key.clone() }
    }
}

fn find_jobs(connection: &Connection, query: &ContentQuery, needles: &Needles) -> Outcome<FoundPage> {
    let mut page = FoundPage::begin(query);
    for job in jobs(connection, needles)? {
        let content = FoundContent { place: job.place(), bytes: job.bytes };
        if !page.push(&format!("{:020}", job.row), content) {
            return Ok(page);
        }
    }
    job_runs::find(connection, query, needles, &mut page)?;
    Ok(page)
}

/// A job is its payload: it goes as a whole.
fn erase_jobs(connection: &Connection, targets: &EraseTargets, needles: &Needles) -> Outcome<EraseReport> {
    let mut erased = EraseReport::default();
    for job in jobs(connection, needles)? {
        if job.runs {
            erased.keep(job.place(), KeptReason::InUse, "the job is running; erase again when it is done");
            continue;
        }
        connection.execute("DELETE FROM quipu_job WHERE rowid = ?1", [job.row])?;
        erased.add(job.bytes);
    }
    job_runs::erase(connection, &targets.selection, needles, &mut erased)?;
    Ok(erased)
}

/// A row of a dream that holds what is looked for.
struct DreamRow {
    table: &'static str,
    column: &'static str,
    memory: String,
    key: String,
    bytes: u64,
}

fn dream_rows(connection: &Connection, selection: &Selection, needles: &Needles) -> Outcome<Vec<DreamRow>> {
    let mut found = Vec::new();
    if !dreams::exist(connection)? || (needles.is_empty() && selection.nodes.is_empty()) {
        return Ok(found);
    }
    // A row names a node as text.
    let nodes: Vec<String> = selection.nodes.iter().map(ToString::to_string).collect();
    for (table, column, content) in dreams::CONTENT {
        let mut statement =
            connection.prepare(&format!("SELECT memory, {column}, {content} FROM {table} ORDER BY 1, 2"))?;
        let mut all = statement.query([])?;
        while let Some(row) = all.next()? {
            let owned = |at| rows::text(row, at).map(|text| text.unwrap_or_default().into_owned());
            let (memory, key, text) = (owned(0)?, owned(1)?, owned(2)?);
            if needles.are_in(text.as_bytes()) || nodes.iter().any(|node| text.contains(node.as_str())) {
                found.push(DreamRow { table, column, memory, key, bytes: text.len() as u64 });
            }
        }
    }
    Ok(found)
}

fn find_dreams(connection: &Connection, query: &ContentQuery, needles: &Needles) -> Outcome<FoundPage> {
    let mut page = FoundPage::begin(query);
    let mut rows = dream_rows(connection, &query.selection, needles)?;
    rows.sort_by_cached_key(DreamRow::order);
    for row in rows {
        let place = FoundPlace::Row { table: row.table.to_owned(), key: row.key.clone() };
        if !page.push(&row.order(), FoundContent { place, bytes: row.bytes }) {
            break;
        }
    }
    Ok(page)
}

/// A dream that is under way begins anew without the row of its progress.
fn erase_dreams(connection: &Connection, targets: &EraseTargets, needles: &Needles) -> Outcome<EraseReport> {
    let mut erased = EraseReport::default();
    for row in dream_rows(connection, &targets.selection, needles)? {
        let statement = format!("DELETE FROM {} WHERE memory = ?1 AND {} = ?2", row.table, row.column);
        connection.execute(&statement, [&row.memory, &row.key])?;
        erased.add(row.bytes);
    }
    Ok(erased)
}

impl DreamRow {
    fn order(&self) -> String {
        format!("{}\n{}\n{}", self.table, self.memory, self.key)
    }
}

fn exists(connection: &Connection, table: &str) -> Outcome<bool> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = ?1")?;
    Ok(statement.exists([table])?)
}

/// The nodes that are looked for, by their rows.
fn wanted(connection: &Connection, selection: &Selection, needles: &Needles) -> Outcome<Vec<(i64, NodeId)>> {
    let mut found = scope::nodes(connection, selection)?;
    let texts = seek::texts(connection, selection, needles, &mut |_| {})?.into_iter().collect();
    found.extend(scope::users_of(connection, &texts)?);
    found.sort_unstable_by_key(|(row, _)| *row);
    found.dedup_by_key(|(row, _)| *row);
    Ok(found)
}

fn find_derived(
    connection: &Connection,
    part: Part,
    query: &ContentQuery,
    needles: &Needles,
) -> Outcome<FoundPage> {
    let mut page = FoundPage::begin(query);
    if part == Part::Search {
        let mut says = false;
        for needle in &query.selection.needles {
            says = says || recall::notes::may_say(connection, &String::from_utf8_lossy(needle))?;
        }
        let place = FoundPlace::Row { table: NOTES.to_owned(), key: "words".to_owned() };
        if says && !page.push(NOTES, FoundContent { place, bytes: 0 }) {
            return Ok(page);
        }
    }
    let wanted = wanted(connection, &query.selection, needles)?;
    for (table, column) in part.derived() {
        if !exists(connection, table)? {
            continue;
        }
        let mut has = connection.prepare(&format!("SELECT 1 FROM {table} WHERE {column} = ?1"))?;
        for (row, id) in &wanted {
            let key = format!("{table} {row:020}");
            if page.is_past(&key) || !has.exists([row])? {
                continue;
            }
            let place = FoundPlace::Row { table: (*table).to_owned(), key: id.to_string() };
            // How much of an index a node takes is not known.
            if !page.push(&key, FoundContent { place, bytes: 0 }) {
                return Ok(page);
            }
        }
    }
    Ok(page)
}

fn erase_derived(
    connection: &Connection,
    part: Part,
    targets: &EraseTargets,
    needles: &Needles,
) -> Outcome<EraseReport> {
    let mut erased = EraseReport::default();
    let wanted = wanted(connection, &targets.selection, needles)?;
    // That of notes has words of lines that are gone, too.
    let has_notes = !needles.is_empty() && recall::notes::exist(connection)?;
    if part == Part::Search && (has_notes || !wanted.is_empty()) {
        // The index for questions has no row of a node: it is made anew when the next one is asked.
        match wanted.is_empty() {
            true => recall::notes::reset(connection)?,
            false => recall::reset(connection)?,
        }
        if has_notes {
            erased.add(0);
        }
    }
    for (table, column) in part.derived() {
        if !exists(connection, table)? {
            continue;
        }
        let remove = match *table {
            "quipu_x_session" => {
                "UPDATE quipu_x_session SET title = '', titled = NULL WHERE titled = ?1".to_owned()
            }
            table => format!("DELETE FROM {table} WHERE {column} = ?1"),
        };
        let mut has = connection.prepare(&format!("SELECT 1 FROM {table} WHERE {column} = ?1"))?;
        let mut remove = connection.prepare(&remove)?;
        let before = erased.count;
        for (row, _) in &wanted {
            if has.exists([row])? {
                remove.execute(params![row])?;
                erased.add(0);
            }
        }
        if part == Part::Search && erased.count > before {
            // The words of a removed row stand in the index until its pieces are merged.
            connection.execute(&format!("INSERT INTO {table} ({table}) VALUES ('optimize')"), [])?;
        }
    }
    Ok(erased)
}

impl SqliteStore {
    /// Whether an erasure has still to write the file anew: it was ended before, or somebody read meanwhile. Erasing from
    /// `store.graph` again goes on with it.
    ///
    /// # Errors
    /// `Busy`, `Corrupt`, `Io`.
    pub async fn has_remnants(&self) -> Result<bool, StoreError> {
        self.read(scrub::is_marked).await
    }
}
