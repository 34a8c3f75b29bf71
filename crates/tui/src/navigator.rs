//! The session as a tree to walk: fold, search, filter, label, go there. Pure, and only what is seen is laid out.

use std::collections::HashSet;

use quipu_protocol::{NodeId, SessionId};

use crate::host::{PastRow, Reach, TreeKind, TreeRow};
use crate::picker::{TOGETHER, cut, numbered, one_line, pages, turned};
use crate::{Key, KeyCode, Line, Modifiers, Size, Style, Theme, clean, width};

/// Branches inside each other that are indented.
const DEEPEST: usize = 8;
/// Columns at which the preview stands beside the tree.
const SIDE_BY_SIDE: usize = 100;

/// Which rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    Default,
    NoTools,
    UserOnly,
    Labeled,
    All,
}

const FILTERS: [Filter; 5] =
    [Filter::Default, Filter::NoTools, Filter::UserOnly, Filter::Labeled, Filter::All];

impl Filter {
    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::NoTools => "no tools",
            Self::UserOnly => "user only",
            Self::Labeled => "labeled",
            Self::All => "all",
        }
    }

    fn shows(self, row: &TreeRow) -> bool {
        let folded = matches!(row.kind, TreeKind::Folded { .. });
        match self {
            _ if row.head => true,
            Self::Default => row.kind != TreeKind::Other || !row.label.is_empty(),
            Self::NoTools => !matches!(row.kind, TreeKind::Tool | TreeKind::Other),
            Self::UserOnly => {
                folded || matches!(row.kind, TreeKind::User | TreeKind::Session | TreeKind::Past)
            }
            Self::Labeled => !row.label.is_empty(),
            Self::All => true,
        }
    }
}

/// The effect of a key on the navigator.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NavigatorResult {
    Open,
    Closed,
    Go(NodeId),
    /// A node of another session.
    Elsewhere(NodeId, SessionId),
    Session(SessionId),
    /// The nodes of a session are wanted below its row.
    Nodes(SessionId),
    /// With the label that it has.
    Label(NodeId, String),
    Unfold(TreeRow),
    Preview(NodeId),
    Compare(NodeId, NodeId),
    Wider(Reach),
    /// What can be done with a past, or with a chunk of it.
    Past(PastRow),
    /// What stands below the row of one is wanted, with the name of that row.
    Below(PastRow),
    /// The nodes that a chunk stands on are wanted.
    Sources(PastRow),
}

pub(crate) struct Navigator {
    rows: Vec<TreeRow>,
    /// What is looked through.
    keys: Vec<String>,
    /// Rows that are shown, in their order.
    shown: Vec<usize>,
    at: usize,
    filter: Filter,
    query: String,
    /// Beginnings of branches that are folded.
    folded: HashSet<NodeId>,
    preview: Option<(NodeId, String)>,
    reach: Reach,
    /// The session that is open.
    home: SessionId,
    /// Sessions whose nodes stand below them.
    opened: HashSet<SessionId>,
    /// Pasts and chunks whose parts stand below them.
    unfolded: Vec<PastRow>,
    /// The end of one branch, while the other is looked for.
    marked: Option<NodeId>,
    /// The first row that is listed where rows have numbers.
    from: usize,
}

impl Navigator {
    /// Rows, the oldest first; where the session stands is chosen.
    pub(crate) fn new(rows: Vec<TreeRow>, reach: Reach, home: SessionId) -> Self {
        let keys = rows.iter().map(key).collect();
        let mut navigator = Self {
            rows,
            keys,
            shown: Vec::new(),
            at: 0,
            filter: Filter::Default,
            query: String::new(),
            folded: HashSet::new(),
            preview: None,
            reach,
            home,
            opened: HashSet::new(),
            unfolded: Vec::new(),
            marked: None,
            from: 0,
        };
        navigator.show(None);
        let is_here = |row: &TreeRow| row.head || row.session.as_ref() == Some(&navigator.home);
        if let Some(place) = navigator.shown.iter().position(|row| is_here(&navigator.rows[*row])) {
            navigator.at = place;
        }
        navigator.from = navigator.at.saturating_sub(TOGETHER - 1);
        navigator
    }

    /// The rows that a row stood for.
    pub(crate) fn unfold(&mut self, below: NodeId, mut rows: Vec<TreeRow>) {
        let place = self
            .rows
            .iter()
            .position(|row| matches!(row.kind, TreeKind::Folded { below: of, .. } if of == below));
        let Some(place) = place else { return };
        let of = &self.rows[place].of;
        rows.iter_mut().for_each(|row| row.of.clone_from(of));
        self.keys.splice(place..=place, rows.iter().map(key));
        self.rows.splice(place..=place, rows);
        self.show(None);
        // The row of a session is named by the same node as its first one.
        let first = self.shown.iter().position(|row| *row >= place);
        self.at = first.unwrap_or(self.at);
        self.from = self.at.saturating_sub(TOGETHER - 1);
    }

    /// The nodes of a session, to stand below its row.
    pub(crate) fn open(&mut self, session: &SessionId, mut rows: Vec<TreeRow>) {
        let place = self.rows.iter().position(|row| row.session.as_ref() == Some(session));
        let Some(place) = place.filter(|_| self.opened.insert(session.clone())) else { return };
        let level = self.rows[place].level + 1;
        let of = Some(session).filter(|session| **session != self.home);
        for row in &mut rows {
            row.level += level;
            row.of = of.cloned();
        }
        if let Some(first) = rows.first_mut() {
            first.starts = true;
        }
        let chosen = self.rows[place].node;
        self.keys.splice(place + 1..place + 1, rows.iter().map(key));
        self.rows.splice(place + 1..place + 1, rows);
        self.show(Some(chosen));
    }

    /// The parts of a past or of a chunk, to stand below its row; whether there are any.
    pub(crate) fn open_past(&mut self, past: &PastRow, mut rows: Vec<TreeRow>) -> bool {
        let is_it = |row: &TreeRow| row.past.as_ref() == Some(past);
        let place = self.rows.iter().position(is_it).filter(|_| !self.unfolded.contains(past));
        let (Some(place), false) = (place, rows.is_empty()) else { return !rows.is_empty() };
        self.unfolded.push(past.clone());
        let level = self.rows[place].level + 1;
        for row in &mut rows {
            row.level += level;
            row.of.take_if(|session| *session == self.home);
        }
        // The rows that were shown before are other ones afterwards.
        let chosen = self.shown.get(self.at).copied();
        let count = rows.len();
        self.keys.splice(place + 1..place + 1, rows.iter().map(key));
        self.rows.splice(place + 1..place + 1, rows);
        self.show_at(chosen.map(|at| if at > place { at + count } else { at }));
        true
    }

    /// What a node says.
    pub(crate) fn previewed(&mut self, node: NodeId, text: &str) {
        self.preview = Some((node, clean(text).into_owned()));
    }

    fn name(&self) -> &'static str {
        match self.reach {
            Reach::Session(_) => "Tree",
            Reach::Project => "Sessions of this directory",
            Reach::All => "All sessions",
        }
    }

    fn chosen(&self) -> Option<&TreeRow> {
        self.shown.get(self.at).and_then(|row| self.rows.get(*row))
    }

    /// Finds the rows that are shown; the chosen one stays chosen where it is among them.
    fn show(&mut self, chosen: Option<NodeId>) {
        let current = self.shown.get(self.at).copied();
        let is_current =
            |node| current.is_some_and(|row| self.rows.get(row).is_some_and(|row| row.node == node));
        let first = |node| self.rows.iter().position(|row| row.node == node);
        // A node may stand in several places: as itself, and as a source.
        self.show_at(match chosen {
            Some(node) if !is_current(node) => first(node),
            _ => current,
        });
    }

    /// The same; `chosen` is the place of a row among all.
    fn show_at(&mut self, chosen: Option<usize>) {
        let query = self.query.to_lowercase();
        let words: Vec<&str> = query.split_whitespace().collect();
        let mut hidden_below: Option<usize> = None;
        let mut shown = Vec::new();
        for (place, (row, key)) in self.rows.iter().zip(&self.keys).enumerate() {
            // Rows of a branch that is folded follow its beginning, and are as deep or deeper.
            if let Some(level) = hidden_below {
                if row.level > level || (row.level == level && !row.starts) {
                    continue;
                }
                hidden_below = None;
            }
            if self.folded.contains(&row.node) && row.starts {
                hidden_below = Some(row.level);
            }
            if (words.is_empty() || words.iter().all(|word| key.contains(word))) && self.filter.shows(row) {
                shown.push(place);
            }
        }
        self.shown = shown;
        let place = chosen.and_then(|row| self.shown.iter().position(|shown| *shown == row));
        self.at = place.unwrap_or(self.at).min(self.shown.len().saturating_sub(1));
        self.from = self.at.saturating_sub(TOGETHER - 1);
    }

    pub(crate) fn paste(&mut self, text: &str) {
        self.query.extend(text.chars().filter(|letter| !letter.is_control()).take(200));
        self.show(None);
    }

    pub(crate) fn on_key(&mut self, key: Key, size: Size) -> NavigatorResult {
        let last = self.shown.len().saturating_sub(1);
        let page = size.rows.saturating_sub(4).max(1);
        match (key.code, key.modifiers.control, key.modifiers.alt) {
            (KeyCode::Escape, ..) if !self.query.is_empty() => {
                self.query.clear();
                self.show(None);
            }
            (KeyCode::Escape, ..) | (KeyCode::Char('c'), true, _) => return NavigatorResult::Closed,
            (KeyCode::Enter, ..) => {
                return match self.chosen() {
                    Some(TreeRow { past: Some(past), .. }) => NavigatorResult::Past(past.clone()),
                    Some(TreeRow { session: Some(session), .. }) => NavigatorResult::Session(session.clone()),
                    Some(row) if matches!(row.kind, TreeKind::Folded { .. }) => {
                        NavigatorResult::Unfold(row.clone())
                    }
                    Some(TreeRow { of: Some(session), node, .. }) => {
                        NavigatorResult::Elsewhere(*node, session.clone())
                    }
                    Some(row) => NavigatorResult::Go(row.node),
                    None => NavigatorResult::Open,
                };
            }
            (KeyCode::Up, ..) | (KeyCode::Char('p'), true, _) => self.at = self.at.saturating_sub(1),
            (KeyCode::Down, ..) | (KeyCode::Char('n'), true, _) => self.at = (self.at + 1).min(last),
            (KeyCode::PageUp, ..) => self.at = self.at.saturating_sub(page),
            (KeyCode::PageDown, ..) => self.at = (self.at + page).min(last),
            (KeyCode::Home, ..) => self.at = 0,
            (KeyCode::End, ..) => self.at = last,
            (KeyCode::Right, ..) => {
                if let Some(row) = self.chosen() {
                    if matches!(row.kind, TreeKind::Folded { .. }) {
                        return NavigatorResult::Unfold(row.clone());
                    }
                    let node = row.node;
                    if row.starts && self.folded.contains(&node) {
                        self.folded.remove(&node);
                        self.show(Some(node));
                        return NavigatorResult::Open;
                    }
                    if let Some(session) = row.session.as_ref().filter(|it| !self.opened.contains(*it)) {
                        return NavigatorResult::Nodes(session.clone());
                    }
                    if let Some(past) = row.past.as_ref().filter(|it| !self.unfolded.contains(*it)) {
                        return NavigatorResult::Below(past.clone());
                    }
                    self.folded.remove(&node);
                    self.show(Some(node));
                }
            }
            (KeyCode::Left, ..) => self.fold(),
            (KeyCode::Tab, ..) => {
                let next = FILTERS.iter().position(|filter| *filter == self.filter).unwrap_or(0) + 1;
                self.filter = FILTERS[next % FILTERS.len()];
                self.show(None);
            }
            (KeyCode::Char('l'), _, true) | (KeyCode::Char('l'), true, _) => {
                if let Some(row) = self.chosen().filter(|row| row.session.is_none() && row.past.is_none()) {
                    return NavigatorResult::Label(row.node, row.label.clone());
                }
            }
            (KeyCode::Char('a'), true, _) => {
                return NavigatorResult::Wider(match self.reach {
                    Reach::Session(_) => Reach::Project,
                    Reach::Project => Reach::All,
                    Reach::All => Reach::Session(self.home.clone()),
                });
            }
            (KeyCode::Char('s'), _, true) => {
                let chunk =
                    self.chosen().and_then(|row| row.past.as_ref()).filter(|past| past.chunk.is_some());
                if let Some(past) = chunk {
                    return NavigatorResult::Sources(past.clone());
                }
            }
            (KeyCode::Char('d'), _, true) => {
                let chosen = self.chosen().filter(|row| row.past.is_none()).map(|row| row.node);
                match (self.marked.take(), chosen) {
                    (Some(a), Some(b)) if a != b => return NavigatorResult::Compare(a, b),
                    (None, Some(a)) => self.marked = Some(a),
                    _ => {}
                }
            }
            (KeyCode::Char(' '), false, false) if self.query.is_empty() => {
                if self.preview.take().is_none()
                    && let Some(row) = self.chosen().filter(|row| row.kind != TreeKind::Past)
                {
                    return NavigatorResult::Preview(row.node);
                }
            }
            (KeyCode::Backspace, ..) => {
                self.query.pop();
                self.show(None);
            }
            (KeyCode::Char(letter), false, false) => {
                self.query.push(letter);
                self.show(None);
            }
            _ => {}
        }
        match (&self.preview, self.chosen()) {
            (Some(_), Some(row)) if row.kind == TreeKind::Past => {
                self.preview = None;
                NavigatorResult::Open
            }
            (Some((node, _)), Some(row)) if *node != row.node => NavigatorResult::Preview(row.node),
            _ => NavigatorResult::Open,
        }
    }

    /// Where rows have numbers: takes words as they are typed on a line, and says which key they come to.
    pub(crate) fn read(&mut self, words: &str) -> Option<Key> {
        self.preview = None;
        if turned(words, &mut self.from, self.shown.len()) {
            return None;
        }
        let held = |letter, control, alt| Key {
            code: KeyCode::Char(letter),
            modifiers: Modifiers { control, alt, shift: false },
        };
        let (what, number) = words.split_once(' ').unwrap_or(("", words));
        let key = match what {
            "" => Some(KeyCode::Enter.into()),
            "p" => Some(held(' ', false, false)),
            "l" => Some(held('l', false, true)),
            "s" => Some(held('s', false, true)),
            "o" => Some(KeyCode::Right.into()),
            "c" => Some(held('d', false, true)),
            _ => None,
        };
        if let (Some(key), Some(row)) = (key, numbered(number.trim(), self.from, self.shown.len())) {
            self.at = row;
            self.query.clear();
            let node = self.chosen().map(|row| row.node);
            self.show(node);
            return Some(key);
        }
        match words {
            "f" => return Some(KeyCode::Tab.into()),
            "w" => return Some(held('a', true, false)),
            _ => {}
        }
        self.query.clear();
        self.paste(words);
        None
    }

    /// The rows with numbers, to be heard; or what a node says.
    pub(crate) fn spoken(&self) -> Vec<String> {
        if let Some((node, text)) = &self.preview {
            let mut lines = vec![format!("Node {}:", node.short())];
            lines.extend(text.lines().take(200).map(str::to_owned));
            return lines;
        }
        let with = if self.query.is_empty() { "" } else { " with " };
        let (query, count) = (&self.query, self.shown.len());
        let mut lines = vec![format!("{}, {}{with}{query}: {count} rows.", self.name(), self.filter.name())];
        for (place, row) in self.shown.iter().skip(self.from).take(TOGETHER).enumerate() {
            let Some(row) = self.rows.get(*row) else { continue };
            let mut line = format!("{}. ", place + 1);
            if row.level > 0 {
                let begins = if row.starts { "begins: " } else { ": " };
                line.push_str(&format!("branch {}{begins}", row.level));
            }
            line.push_str(&one_line(&row.text));
            if !row.label.is_empty() {
                line.push_str(&format!(", label {}", row.label));
            }
            line.push_str(if row.head { ", current node" } else { "" });
            line.push_str(if self.marked == Some(row.node) { ", to be compared" } else { "" });
            lines.push(line);
        }
        if count == 0 {
            lines.push("No match in the nodes loaded so far; /search searches all sessions.".to_owned());
        }
        if self.rows.iter().any(|row| row.kind == TreeKind::Chunk) {
            lines.push("s and the number of a chunk lists the nodes that it stands on.".to_owned());
        }
        lines.push(match self.marked {
            Some(_) => "c and the number of another branch compares both; the number of the same row cancels.".to_owned(),
            None => format!(
                "A number goes there. With a letter before the number: p previews, l labels, o opens what is below, c compares two branches. f changes the filter, w shows more sessions, words search{}; Enter alone cancels.",
                pages(self.from, count)
            ),
        });
        lines
    }

    /// Folds the branch that the chosen row is in.
    fn fold(&mut self) {
        let Some(place) = self.shown.get(self.at).copied() else { return };
        let level = self.rows[place].level;
        let start = self.rows[..=place].iter().rposition(|row| row.level == level && row.starts);
        if let Some(start) = start.filter(|_| level > 0) {
            let node = self.rows[start].node;
            self.folded.insert(node);
            self.show_at(Some(start));
        }
    }

    pub(crate) fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        let columns = size.columns;
        let rows = size.rows;
        let mut title = Line::styled(self.name(), theme.heading);
        title.push(format!("  {}", self.filter.name()), theme.accent);
        let query =
            if self.query.is_empty() { "type to search".to_owned() } else { clean(&self.query).into_owned() };
        title.push(format!("  {}", cut(&query, columns / 3)), theme.muted);
        let mut lines = vec![title];
        let preview = self.preview.as_ref().map(|(_, text)| text.as_str());
        let side_by_side = preview.is_some() && columns >= SIDE_BY_SIDE;
        let below = if preview.is_some() && !side_by_side { (rows / 3).max(1) } else { 0 };
        let room = rows.saturating_sub(2 + below).max(1);
        let tree_columns = if side_by_side { columns / 2 } else { columns };
        let top = self.at.saturating_sub(room / 2).min(self.shown.len().saturating_sub(room));
        for (place, row) in self.shown.iter().enumerate().skip(top).take(room) {
            if let Some(row) = self.rows.get(*row) {
                lines.push(self.row(row, place == self.at, tree_columns, theme));
            }
        }
        if self.shown.is_empty() {
            let text = "  no match in the nodes loaded so far; Tab shows more, /search searches all sessions";
            lines.push(Line::styled(cut(text, columns), theme.muted));
        }
        if let Some(text) = preview {
            let inner = if side_by_side { columns - tree_columns - 3 } else { columns };
            let count = if side_by_side { room } else { below };
            let shown = crate::render::plain(text, inner.max(1), theme.output, count);
            if side_by_side {
                for (at, text) in shown.into_iter().enumerate().take(room) {
                    while lines.len() < at + 2 {
                        lines.push(Line::default());
                    }
                    let line = &mut lines[at + 1];
                    let gap = tree_columns.saturating_sub(line.width());
                    line.push(format!("{} │ ", " ".repeat(gap)), theme.border);
                    line.spans.extend(text.spans);
                }
            } else {
                lines.extend(shown.into_iter().take(below));
            }
        }
        let help = match self.marked {
            Some(_) => "Alt+D on another branch compares both; on the same row it cancels",
            None if self.chosen().is_some_and(|row| row.past.is_some()) => {
                "Enter commands · ←→ fold · Alt+S sources · Space preview · Tab filter · Ctrl+A wider · Esc"
            }
            None => {
                "Enter go · ←→ fold · Space preview · Tab filter · Alt+L label · Alt+D compare · Ctrl+A wider · Esc"
            }
        };
        lines.push(Line::styled(cut(help, columns), theme.muted));
        lines
    }

    fn row(&self, row: &TreeRow, chosen: bool, columns: usize, theme: &Theme) -> Line {
        let mut line = Line::styled(if chosen { "› " } else { "  " }, theme.accent);
        let level = row.level.min(DEEPEST);
        let mut gutter = "│ ".repeat(if row.starts { level.saturating_sub(1) } else { level });
        if row.starts && level > 0 {
            gutter.push_str(if self.folded.contains(&row.node) { "├▸" } else { "├─" });
        }
        line.push(gutter, theme.border);
        let style = match row.kind {
            _ if chosen => theme.selection,
            TreeKind::User => theme.user,
            TreeKind::Assistant => theme.text,
            TreeKind::Tool => theme.tool,
            TreeKind::Summary | TreeKind::Other | TreeKind::Folded { .. } => theme.muted,
            TreeKind::Session | TreeKind::Past => theme.link,
            TreeKind::Chunk => theme.output,
        };
        let mut marks = Line::default();
        if !row.label.is_empty() {
            marks.push(format!(" [{}]", cut(&clean(&row.label), 30.min(columns / 3))), theme.label);
        }
        if row.head {
            marks.push(" ◂ here", theme.accent);
        }
        if self.marked == Some(row.node) {
            marks.push(" ◆ compared", theme.accent);
        }
        let left = columns.saturating_sub(line.width() + marks.width());
        line.push(cut(&clean(&one_line(&row.text)), left), style);
        line.spans.extend(marks.spans);
        if width(&line.text()) > columns {
            return Line::styled(cut(&line.text(), columns), Style::default());
        }
        line
    }
}

fn key(row: &TreeRow) -> String {
    format!("{} {}", row.text, row.label).to_lowercase()
}

#[cfg(test)]
mod tests {
    use quipu_host::past::PastScope;
    use quipu_host::{PastChunkRow, PastId};

    use super::*;
    use crate::Modifiers;

    const SIZE: Size = Size { columns: 100, rows: 12 };

    fn row(at: u8, level: usize, starts: bool, kind: TreeKind) -> TreeRow {
        TreeRow { level, starts, ..TreeRow::new(NodeId([at; 32]), kind, format!("row {at}")) }
    }

    fn session(at: u8, id: &str) -> TreeRow {
        TreeRow { session: Some(id.into()), ..row(at, 0, false, TreeKind::Session) }
    }

    fn all_sessions() -> Navigator {
        Navigator::new(
            vec![session(1, "one"), session(2, "home"), session(3, "three")],
            Reach::All,
            "home".into(),
        )
    }

    fn press(navigator: &mut Navigator, key: KeyCode) -> NavigatorResult {
        navigator.on_key(key.into(), SIZE)
    }

    fn shown(navigator: &Navigator) -> Vec<String> {
        navigator.shown.iter().map(|row| navigator.rows[*row].text.clone()).collect()
    }

    #[test]
    fn session_nodes_are_listed_below_its_row() {
        let mut navigator = all_sessions();
        assert_eq!(navigator.chosen().map(|row| row.node), Some(NodeId([2; 32])), "where the session is");
        press(&mut navigator, KeyCode::Down);
        assert_eq!(press(&mut navigator, KeyCode::Right), NavigatorResult::Nodes("three".into()));
        let nodes = vec![
            row(10, 0, false, TreeKind::User),
            row(11, 1, true, TreeKind::Assistant),
            row(12, 0, false, TreeKind::Assistant),
        ];
        navigator.open(&"three".into(), nodes.clone());
        navigator.open(&"three".into(), nodes);
        assert_eq!(shown(&navigator), ["row 1", "row 2", "row 3", "row 10", "row 11", "row 12"]);
        press(&mut navigator, KeyCode::Down);
        let elsewhere = NavigatorResult::Elsewhere(NodeId([10; 32]), "three".into());
        assert_eq!(press(&mut navigator, KeyCode::Enter), elsewhere);
        // Folded as a branch is, and opened again without reading it.
        press(&mut navigator, KeyCode::Left);
        assert_eq!(shown(&navigator), ["row 1", "row 2", "row 3", "row 10"]);
        assert_eq!(press(&mut navigator, KeyCode::Right), NavigatorResult::Open);
        assert_eq!(shown(&navigator).len(), 6);
        // At home a node is gone to.
        press(&mut navigator, KeyCode::Home);
        press(&mut navigator, KeyCode::Down);
        assert_eq!(press(&mut navigator, KeyCode::Right), NavigatorResult::Nodes("home".into()));
        navigator.open(&"home".into(), vec![row(20, 0, false, TreeKind::User)]);
        press(&mut navigator, KeyCode::Down);
        assert_eq!(press(&mut navigator, KeyCode::Enter), NavigatorResult::Go(NodeId([20; 32])));
    }

    #[test]
    fn one_key_reaches_further_and_back() {
        let modifiers = Modifiers { control: true, ..Modifiers::default() };
        let key = Key { code: KeyCode::Char('a'), modifiers };
        for (from, to) in [
            (Reach::Session("home".into()), Reach::Project),
            (Reach::Project, Reach::All),
            (Reach::All, Reach::Session("home".into())),
        ] {
            let mut navigator = Navigator::new(vec![session(2, "home")], from, "home".into());
            assert_eq!(navigator.on_key(key, SIZE), NavigatorResult::Wider(to));
        }
    }

    #[test]
    fn a_branch_is_marked_and_compared_with_another() {
        let mut navigator = all_sessions();
        let modifiers = Modifiers { alt: true, ..Modifiers::default() };
        let key = Key { code: KeyCode::Char('d'), modifiers };
        assert_eq!(navigator.on_key(key, SIZE), NavigatorResult::Open);
        assert_eq!(navigator.on_key(key, SIZE), NavigatorResult::Open, "the same row leaves it");
        assert_eq!(navigator.marked, None);
        navigator.on_key(key, SIZE);
        press(&mut navigator, KeyCode::Down);
        assert_eq!(navigator.on_key(key, SIZE), NavigatorResult::Compare(NodeId([2; 32]), NodeId([3; 32])));
    }

    fn past(chunk: Option<u8>) -> PastRow {
        let chunk = chunk.map(|at| PastChunkRow {
            id: PastId([at; 32]),
            key: format!("key {at}"),
            range: "2026-05-01".to_owned(),
        });
        PastRow { scope: PastScope::All, name: "all sessions".to_owned(), chunk }
    }

    fn chunk(at: u8) -> TreeRow {
        TreeRow { past: Some(past(Some(at))), ..row(at, 0, at == 20, TreeKind::Chunk) }
    }

    #[test]
    fn chunks_stand_below_their_past_and_sources_below_them() {
        let header = TreeRow { past: Some(past(None)), ..row(9, 0, false, TreeKind::Past) };
        let source = TreeRow { of: Some("home".into()), ..row(2, 0, true, TreeKind::User) };
        let rows = vec![header, row(1, 0, false, TreeKind::User), row(2, 0, false, TreeKind::User)];
        let mut navigator = Navigator::new(rows, Reach::Session("home".into()), "home".into());
        let alt = Modifiers { alt: true, ..Modifiers::default() };
        let sources = Key { code: KeyCode::Char('s'), modifiers: alt };
        assert_eq!(press(&mut navigator, KeyCode::Enter), NavigatorResult::Past(past(None)));
        assert_eq!(navigator.on_key(sources, SIZE), NavigatorResult::Open, "a past is no chunk");
        assert_eq!(press(&mut navigator, KeyCode::Char(' ')), NavigatorResult::Open, "nor a node");
        assert_eq!(press(&mut navigator, KeyCode::Right), NavigatorResult::Below(past(None)));
        assert!(!navigator.open_past(&past(None), Vec::new()));
        for _ in 0..2 {
            assert!(navigator.open_past(&past(None), vec![chunk(20), chunk(21)]));
        }
        assert_eq!(shown(&navigator), ["row 9", "row 20", "row 21", "row 1", "row 2"]);
        press(&mut navigator, KeyCode::Down);
        assert_eq!(press(&mut navigator, KeyCode::Enter), NavigatorResult::Past(past(Some(20))));
        assert_eq!(navigator.on_key(sources, SIZE), NavigatorResult::Sources(past(Some(20))));
        assert_eq!(press(&mut navigator, KeyCode::Right), NavigatorResult::Below(past(Some(20))));
        navigator.open_past(&past(Some(20)), vec![source]);
        assert_eq!(shown(&navigator), ["row 9", "row 20", "row 2", "row 21", "row 1", "row 2"]);
        // A node of this session is gone to, and its own row stays chosen when the list changes.
        press(&mut navigator, KeyCode::Down);
        assert_eq!(press(&mut navigator, KeyCode::Enter), NavigatorResult::Go(NodeId([2; 32])));
        press(&mut navigator, KeyCode::End);
        press(&mut navigator, KeyCode::Char('r'));
        assert_eq!(navigator.shown.get(navigator.at), Some(&5));
        // All of them fold together.
        press(&mut navigator, KeyCode::Escape);
        press(&mut navigator, KeyCode::Home);
        press(&mut navigator, KeyCode::Down);
        press(&mut navigator, KeyCode::Left);
        assert_eq!(shown(&navigator), ["row 9", "row 20", "row 1", "row 2"]);
        let view: Vec<String> = navigator.view(SIZE, &Theme::dark()).iter().map(Line::text).collect();
        assert!(view.last().unwrap().contains("Alt+S sources"), "{view:?}");
        assert!(navigator.spoken().iter().any(|line| line.starts_with("s and the number of a chunk")));
    }

    #[test]
    fn folded_chunks_are_shown_again_by_one_key() {
        let header = TreeRow { past: Some(past(None)), ..row(9, 0, false, TreeKind::Past) };
        let mut navigator = Navigator::new(vec![header], Reach::Session("home".into()), "home".into());
        assert!(navigator.open_past(&past(None), vec![chunk(20), chunk(21)]));
        press(&mut navigator, KeyCode::Down);
        press(&mut navigator, KeyCode::Left);
        assert_eq!(shown(&navigator), ["row 9", "row 20"]);
        assert_eq!(press(&mut navigator, KeyCode::Right), NavigatorResult::Open);
        assert_eq!(shown(&navigator), ["row 9", "row 20", "row 21"]);
        assert_eq!(press(&mut navigator, KeyCode::Right), NavigatorResult::Below(past(Some(20))));
    }

    #[test]
    fn a_large_tree_moves_and_narrows_as_a_small_one() {
        let row = |at: u32| {
            let mut node = [0; 32];
            node[..4].copy_from_slice(&at.to_le_bytes());
            TreeRow { node: NodeId(node), text: format!("row {at}"), ..row(0, 0, false, TreeKind::User) }
        };
        let mut navigator = Navigator::new((0..100_000).map(row).collect(), Reach::All, "home".into());
        for key in [KeyCode::End, KeyCode::PageUp, KeyCode::Home, KeyCode::Down] {
            press(&mut navigator, key);
            let lines = navigator.view(SIZE, &Theme::dark());
            assert!(lines.len() <= SIZE.rows && lines.iter().any(|line| line.text().starts_with('›')));
        }
        for letter in "99999".chars() {
            press(&mut navigator, KeyCode::Char(letter));
        }
        assert_eq!(shown(&navigator), ["row 99999"]);
    }
}
