//! Chunks as a forest, whatever was wrong with them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use quipu_protocol::{NodeId, UnixMs};

use super::item::{CoverItem, Fault, Span};

/// Chunks in the order of time, with their children by place. What contains each other is drawn together into one.
#[derive(Debug, Clone)]
pub struct Forest {
    /// By start, end and id.
    pub(super) items: Vec<CoverItem>,
    pub(super) places: HashMap<NodeId, u32, BuildHasherDefault<IdHasher>>,
    /// By time, each once, none that leads back.
    pub(super) children: Vec<Vec<u32>>,
    owners: OwnerLists,
    /// From the first to the last millisecond of all.
    pub(super) extent: Option<Span>,
    /// Whether a child is not among the chunks.
    pub(super) lacks_child: Vec<bool>,
    /// Children come before those that contain them.
    pub(super) order: Vec<u32>,
    /// Who stands for it: itself, or the widest of its cycle.
    heads: Vec<u32>,
    /// When those without children begin, by time.
    pub(super) leaves: Vec<UnixMs>,
    pub(super) faults: Vec<Fault>,
}

impl Forest {
    /// Puts the chunks in order and says what is wrong with them.
    #[must_use]
    pub fn new(mut items: Vec<CoverItem>) -> Self {
        items.sort_unstable_by(|a, b| (a.span, a.id).cmp(&(b.span, b.id)).then_with(|| a.cmp(b)));
        let mut faults = Vec::new();
        let mut places = HashMap::with_capacity_and_hasher(items.len(), BuildHasherDefault::default());
        items.retain(|item| {
            let next = place(places.len());
            let is_first = next < u32::MAX && *places.entry(item.id).or_insert(next) == next;
            if !is_first {
                faults.push(Fault::Duplicate { id: item.id });
            }
            is_first
        });
        let mut lacks_child = vec![false; items.len()];
        let mut children: Vec<Vec<u32>> = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            if item.span.start > item.span.end {
                faults.push(Fault::BadSpan { id: item.id });
            }
            let mut found = Vec::with_capacity(item.children.len());
            for child in &item.children {
                match places.get(child) {
                    Some(place) => found.push(*place),
                    None => {
                        lacks_child[at] = true;
                        faults.push(Fault::MissingChild { id: item.id, child: *child });
                    }
                }
            }
            found.sort_unstable();
            found.dedup();
            children.push(found);
        }
        let (cycles, mut order) = components(&children);
        let mut heads: Vec<u32> = (0..items.len()).map(place).collect();
        for members in &cycles {
            let widest = |at: &&u32| (items[**at as usize].span.width(), std::cmp::Reverse(**at));
            let Some(head) = members.iter().max_by_key(widest).copied() else { continue };
            let mut of: Vec<NodeId> = members.iter().map(|at| items[*at as usize].id).collect();
            of.sort_unstable();
            faults.push(Fault::Cycle { id: items[head as usize].id, of });
            let mut all = Vec::new();
            for member in members {
                heads[*member as usize] = head;
                lacks_child[head as usize] |= lacks_child[*member as usize];
                all.append(&mut children[*member as usize]);
            }
            children[head as usize] = all;
        }
        if !cycles.is_empty() {
            for (at, list) in children.iter_mut().enumerate() {
                list.iter_mut().for_each(|child| *child = heads[*child as usize]);
                list.sort_unstable();
                list.dedup();
                list.retain(|child| *child != place(at));
            }
        }
        let is_drawn_in: Vec<bool> = (0..items.len()).map(|at| heads[at] != place(at)).collect();
        order.retain(|at| !is_drawn_in[*at as usize]);
        let owners = OwnerLists::of(&children);
        for (at, item) in items.iter().enumerate() {
            let all = owners.of_place(place(at));
            if all.len() < 2 {
                continue;
            }
            // What was superseded shares its children with what stands in its place.
            let of =
                all.iter().map(|owner| &items[*owner as usize]).filter(|owner| owner.exclusion.is_none());
            let of: Vec<NodeId> = of.map(|owner| owner.id).collect();
            if of.len() > 1 {
                faults.push(Fault::SharedChild { id: item.id, of });
            }
        }
        let valid = || items.iter().map(|item| item.span).filter(|span| span.start <= span.end);
        let start = valid().map(|span| span.start).min();
        let end = valid().map(|span| span.end).max();
        let extent = start.zip(end).map(|(start, end)| Span { start, end });
        let is_leaf = |(at, item): &(usize, &CoverItem)| {
            children[*at].is_empty() && !is_drawn_in[*at] && item.span.start <= item.span.end
        };
        let leaves = items.iter().enumerate().filter(is_leaf).map(|(_, item)| item.span.start).collect();
        faults.sort();
        faults.dedup();
        Self { items, places, children, owners, extent, lacks_child, order, heads, leaves, faults }
    }

    /// The same with these parts as the children of chunks, in the place of those that they have.
    #[must_use]
    pub fn with_parts(&self, parts: Vec<(NodeId, Vec<CoverItem>)>) -> Self {
        let mut items = self.items.clone();
        for (of, parts) in parts {
            let Some(item) = self.places.get(&of).and_then(|at| items.get_mut(*at as usize)) else {
                continue;
            };
            item.children = parts.iter().map(|part| part.id).collect();
            items.extend(parts);
        }
        Self::new(items)
    }

    /// How many chunks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Those that have it as a child.
    pub(super) fn owners(&self, place: u32) -> &[u32] {
        self.owners.of_place(place)
    }

    /// Whether another one of its cycle stands for it.
    pub(super) fn is_drawn_in(&self, at: usize) -> bool {
        self.heads[at] != place(at)
    }

    pub(super) fn roots(&self) -> impl Iterator<Item = u32> + '_ {
        let is_root = |at: &usize| self.owners(place(*at)).is_empty() && !self.is_drawn_in(*at);
        (0..self.items.len()).filter(is_root).map(place)
    }
}

/// Owners of all places in one list.
#[derive(Debug, Clone)]
struct OwnerLists {
    /// Where those of each place begin, and the end.
    starts: Vec<u32>,
    owners: Vec<u32>,
}

impl OwnerLists {
    fn of(children: &[Vec<u32>]) -> Self {
        let mut starts = vec![0_u32; children.len() + 1];
        for child in children.iter().flatten() {
            starts[*child as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut owners = vec![0; starts.last().map_or(0, |end| *end as usize)];
        for (at, list) in children.iter().enumerate() {
            for child in list {
                let next = &mut next[*child as usize];
                owners[*next as usize] = place(at);
                *next += 1;
            }
        }
        Self { starts, owners }
    }

    fn of_place(&self, place: u32) -> &[u32] {
        let at = place as usize;
        &self.owners[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// Ids are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(whole)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_usize(&mut self, _: usize) {}
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// What contains each other (sorted places, more than one or one that contains itself), and an order in which children come
/// before those that contain them. Tarjan's algorithm without recursion: a chain may be as long as there are chunks.
fn components(children: &[Vec<u32>]) -> (Vec<Vec<u32>>, Vec<u32>) {
    const NEW: u32 = u32::MAX;
    let mut number = vec![NEW; children.len()];
    let mut low = vec![0_u32; children.len()];
    let mut is_open = vec![false; children.len()];
    let mut open: Vec<u32> = Vec::new();
    let mut path: Vec<(u32, usize)> = Vec::new();
    let mut next = 0;
    let mut found = Vec::new();
    let mut order = Vec::with_capacity(children.len());
    for root in 0..place(children.len()) {
        if number[root as usize] != NEW {
            continue;
        }
        path.push((root, 0));
        while let Some((at, seen)) = path.last_mut() {
            let place = *at as usize;
            if *seen == 0 {
                number[place] = next;
                low[place] = next;
                next += 1;
                open.push(*at);
                is_open[place] = true;
            }
            if let Some(child) = children[place].get(*seen) {
                *seen += 1;
                match (number[*child as usize], is_open[*child as usize]) {
                    (NEW, _) => path.push((*child, 0)),
                    (number, true) => low[place] = low[place].min(number),
                    (_, false) => {}
                }
                continue;
            }
            // A leaf is entered and left with none seen.
            let at = *at;
            path.pop();
            if let Some((above, _)) = path.last() {
                low[*above as usize] = low[*above as usize].min(low[place]);
            }
            if low[place] == number[place] {
                let mut members = Vec::new();
                while let Some(member) = open.pop() {
                    is_open[member as usize] = false;
                    members.push(member);
                    if member == at {
                        break;
                    }
                }
                members.sort_unstable();
                order.extend(&members);
                if members.len() > 1 || children[place].binary_search(&at).is_ok() {
                    found.push(members);
                }
            }
        }
    }
    (found, order)
}

/// How much chunks have to do with the question.
pub(super) struct Levels {
    /// Of each by itself, as given.
    pub(super) values: Vec<f64>,
    /// Those above 0.
    pub(super) relevant: Vec<u32>,
    /// From 0 to 8: of a chunk and all that it contains.
    pub(super) subtree: Vec<u8>,
    /// From 0 to 8: of what it contains alone.
    pub(super) below: Vec<u8>,
}

impl Forest {
    pub(super) fn levels(&self, relevance: &[(NodeId, f64)]) -> Levels {
        let mut values = vec![0.0; self.items.len()];
        for (id, value) in relevance {
            if let Some(at) = self.places.get(id)
                && value.is_finite()
            {
                let known: &mut f64 = &mut values[self.heads[*at as usize] as usize];
                *known = known.max(*value);
            }
        }
        let best = values.iter().copied().fold(0.0, f64::max);
        let relevant: Vec<u32> = (0..values.len()).filter(|at| values[*at] > 0.0).map(place).collect();
        let mut subtree = vec![0; values.len()];
        for at in &relevant {
            subtree[*at as usize] = level(values[*at as usize] / best);
        }
        let mut below = vec![0; values.len()];
        if !relevant.is_empty() {
            for at in &self.order {
                let at = *at as usize;
                below[at] = self.children[at].iter().map(|child| subtree[*child as usize]).max().unwrap_or(0);
                subtree[at] = subtree[at].max(below[at]);
            }
        }
        Levels { values, relevant, subtree, below }
    }
}

/// Eighths of the best, rounded up.
fn level(share: f64) -> u8 {
    (1..8).find(|level| share * 8.0 <= f64::from(*level)).unwrap_or(8)
}
