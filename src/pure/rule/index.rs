//! The index of all path patterns: from a path to the lists of the rules whose patterns match it, all of them and no other.
//!
//! One tree by segments for each host group. A node has children by text, by capture with a text before or behind it (once
//! for each pair of lengths in use there) and by bare capture; a search follows all that fit at once, so it visits each node
//! at most once and never goes back. Its work is bounded by the patterns that share the path's beginning, whatever the
//! number of rules. What belongs to one group lies side by side, because a search among many rules waits for memory.
//!
//! A router that returns its one best route, such as matchit's, would not do: the rule that is first in the file need not be
//! the most specific, and many pairs of patterns that are fine here it refuses.

use std::collections::HashMap;

use super::hash::{BuildKeyHasher, hash};
use super::pattern::{PathPattern, Rest, Segment};

/// A range of one of the index's arrays: of its postings, a list of rules in file order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl List {
    pub(super) const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// What it covers of its array.
    pub(super) fn of<T>(self, array: &[T]) -> &[T] {
        array.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Appends `part` to an array, and gives its place there.
pub(super) fn append<T: Clone>(array: &mut Vec<T>, part: &[T]) -> List {
    let start = count(array.len());
    array.extend_from_slice(part);
    List { start, end: count(array.len()) }
}

/// A position or length in the index. Rule files are far below 4 GiB; what is beyond can't be found.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The rules whose patterns end here.
    ends: List,
    /// The rules whose patterns take the rest of the path from here on.
    rests: List,
    /// The child behind a bare capture; 0, which is no child, where there is none.
    any: u32,
    /// The table of the other children: a power of two of branches, found by their tags.
    table: List,
    /// The shapes of those among them that are no plain text.
    shapes: List,
}

/// How a branch reads a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shape {
    /// The whole segment is its text.
    Text,
    /// A capture between so many bytes of prefix and of suffix; its text is both.
    Capture(u32, u32),
    /// The rest of the path, which begins with its text of that length.
    Rest(u32),
}

/// A way from a node to a child.
#[derive(Clone, Copy, Debug)]
struct Branch {
    /// A part of the hash of shape and text.
    tag: u32,
    /// 0: nothing here.
    child: u32,
    shape: Shape,
    text: List,
}

const NO_BRANCH: Branch = Branch { tag: 0, child: 0, shape: Shape::Text, text: List { start: 0, end: 0 } };

#[inline]
fn tag(shape: Shape, front: &[u8], back: &[u8]) -> u32 {
    let hash = match shape {
        Shape::Text => hash(front, 0),
        Shape::Capture(..) => hash(back, hash(front, 1)),
        Shape::Rest(_) => hash(front, 2),
    };
    hash as u32
}

/// A node while patterns come in.
#[derive(Debug, Default)]
struct Draft {
    ends: Vec<u32>,
    rests: Vec<u32>,
    any: u32,
    children: Vec<(Shape, Box<str>, u32)>,
}

/// Collects patterns.
#[derive(Debug)]
pub(super) struct Builder {
    drafts: Vec<Draft>,
    /// Children by parent, shape and text.
    known: HashMap<(u32, Shape, Box<str>), u32, BuildKeyHasher>,
    roots: Vec<u32>,
    postings: Vec<u32>,
}

impl Builder {
    pub(super) fn new() -> Self {
        // No child is node 0, so that 0 can mean "none".
        Self { drafts: vec![Draft::default()], known: HashMap::default(), roots: Vec::new(), postings: Vec::new() }
    }

    /// A new tree; gives its number.
    pub(super) fn tree(&mut self) -> u32 {
        let root = self.draft();
        self.roots.push(root);
        count(self.roots.len() - 1)
    }

    fn draft(&mut self) -> u32 {
        self.drafts.push(Draft::default());
        count(self.drafts.len() - 1)
    }

    /// Adds a pattern of `rule` to a tree. Rules come in file order.
    pub(super) fn insert(&mut self, tree: u32, pattern: &PathPattern, rule: u32) {
        let Some(mut node) = self.roots.get(tree as usize).copied() else { return };
        for segment in &pattern.segments {
            node = match segment {
                Segment::Text(text) => self.child(node, Shape::Text, text.as_str().into()),
                Segment::Capture { prefix, suffix, .. } if prefix.is_empty() && suffix.is_empty() => self.bare(node),
                Segment::Capture { prefix, suffix, .. } => {
                    let shape = Shape::Capture(count(prefix.len()), count(suffix.len()));
                    self.child(node, shape, format!("{prefix}{suffix}").into())
                }
            };
        }
        match &pattern.rest {
            None => self.note(node, rule, |draft| &mut draft.ends),
            Some(Rest { prefix, .. }) => {
                if !prefix.is_empty() {
                    node = self.child(node, Shape::Rest(count(prefix.len())), prefix.as_str().into());
                }
                self.note(node, rule, |draft| &mut draft.rests);
            }
        }
    }

    fn child(&mut self, node: u32, shape: Shape, text: Box<str>) -> u32 {
        let key = (node, shape, text);
        if let Some(child) = self.known.get(&key) {
            return *child;
        }
        let child = self.draft();
        if let Some(draft) = self.drafts.get_mut(node as usize) {
            draft.children.push((shape, key.2.clone(), child));
        }
        self.known.insert(key, child);
        child
    }

    fn bare(&mut self, node: u32) -> u32 {
        let known = self.drafts.get(node as usize).map_or(0, |draft| draft.any);
        if known != 0 {
            return known;
        }
        let child = self.draft();
        if let Some(draft) = self.drafts.get_mut(node as usize) {
            draft.any = child;
        }
        child
    }

    fn note(&mut self, node: u32, rule: u32, list: impl FnOnce(&mut Draft) -> &mut Vec<u32>) {
        if let Some(list) = self.drafts.get_mut(node as usize).map(list)
            && list.last() != Some(&rule)
        {
            list.push(rule);
        }
    }

    /// A list of rules outside of any tree.
    pub(super) fn list(&mut self, rules: &[u32]) -> List {
        append(&mut self.postings, rules)
    }

    /// Lays each tree out in one piece, level by level.
    pub(super) fn finish(mut self) -> Index {
        let mut index = Index {
            roots: Vec::with_capacity(self.roots.len()),
            // As in the drafts, node 0 is none.
            nodes: vec![Node { ends: NONE, rests: NONE, any: 0, table: NONE, shapes: NONE }],
            branches: Vec::new(),
            shapes: Vec::new(),
            texts: Vec::new(),
            postings: std::mem::take(&mut self.postings),
        };
        let mut queue = std::collections::VecDeque::new();
        for root in self.roots {
            let first = count(index.nodes.len());
            index.roots.push(first);
            queue.push_back(root);
            // The number of the next child: nodes are numbered in the order in which they are queued.
            let mut next = first + 1;
            while let Some(draft) = queue.pop_front().and_then(|draft| self.drafts.get(draft as usize)) {
                let mut number = |child: u32| {
                    queue.push_back(child);
                    next += 1;
                    next - 1
                };
                let any = if draft.any == 0 { 0 } else { number(draft.any) };
                let children: Vec<_> =
                    draft.children.iter().map(|(shape, text, child)| (*shape, &**text, number(*child))).collect();
                index.push(draft, any, &children);
            }
        }
        index
    }
}

const NONE: List = List { start: 0, end: 0 };

/// The finished index.
#[derive(Debug)]
pub(super) struct Index {
    /// The root of each tree.
    roots: Vec<u32>,
    nodes: Vec<Node>,
    branches: Vec<Branch>,
    shapes: Vec<Shape>,
    texts: Vec<u8>,
    postings: Vec<u32>,
}

impl Index {
    fn push(&mut self, draft: &Draft, any: u32, children: &[(Shape, &str, u32)]) {
        let mut shapes: Vec<Shape> = Vec::new();
        for (shape, _, _) in children {
            if *shape != Shape::Text && !shapes.contains(shape) {
                shapes.push(*shape);
            }
        }
        let size = if children.is_empty() { 0 } else { (children.len() + children.len() / 3).next_power_of_two() };
        let mut table = vec![NO_BRANCH; size];
        for (shape, text, child) in children {
            let front = match shape {
                Shape::Text | Shape::Rest(_) => text.len(),
                Shape::Capture(front, _) => *front as usize,
            };
            let (front, back) = text.as_bytes().split_at_checked(front).unwrap_or_default();
            let branch = Branch {
                tag: tag(*shape, front, back),
                child: *child,
                shape: *shape,
                text: append(&mut self.texts, text.as_bytes()),
            };
            let free = (0..size).map(|step| (branch.tag as usize + step) & (size - 1));
            let mut free = free.filter(|at| table.get(*at).is_some_and(|branch| branch.child == 0));
            if let Some(slot) = free.next().and_then(|at| table.get_mut(at)) {
                *slot = branch;
            }
        }
        self.nodes.push(Node {
            ends: append(&mut self.postings, &draft.ends),
            rests: append(&mut self.postings, &draft.rests),
            any,
            table: append(&mut self.branches, &table),
            shapes: append(&mut self.shapes, &shapes),
        });
    }

    /// The rule at a position of the postings.
    #[inline]
    pub(super) fn rule_at(&self, position: u32) -> Option<u32> {
        self.postings.get(position as usize).copied()
    }

    /// Calls `found` with each list of rules of a tree whose patterns match `path`. `nodes` is working memory.
    pub(super) fn search(&self, tree: u32, path: &str, nodes: &mut (Vec<u32>, Vec<u32>), mut found: impl FnMut(List)) {
        let (here, next) = nodes;
        let Some((b'/', mut rest)) = path.as_bytes().split_first() else { return };
        here.clear();
        here.extend(self.roots.get(tree as usize));
        loop {
            next.clear();
            let slash = memchr::memchr(b'/', rest);
            let segment = slash.and_then(|slash| rest.get(..slash)).unwrap_or(rest);
            let step = Step { segment, rest, tag: tag(Shape::Text, segment, b"") };
            for &at in here.iter() {
                if let Some(node) = self.nodes.get(at as usize) {
                    self.step(node, &step, next, &mut found);
                }
            }
            std::mem::swap(here, next);
            if here.is_empty() {
                return;
            }
            match slash.and_then(|slash| rest.get(slash + 1..)) {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        for &at in here.iter() {
            if let Some(node) = self.nodes.get(at as usize)
                && !node.ends.is_empty()
            {
                found(node.ends);
            }
        }
    }

    #[inline]
    fn step(&self, node: &Node, step: &Step<'_>, next: &mut Vec<u32>, found: &mut impl FnMut(List)) {
        if !node.rests.is_empty() {
            found(node.rests);
        }
        next.extend(self.child(node.table, Shape::Text, step.tag, step.segment, b""));
        if node.any != 0 && !step.segment.is_empty() {
            next.push(node.any);
        }
        for &shape in node.shapes.of(&self.shapes) {
            match shape {
                Shape::Text => {}
                Shape::Capture(front, back) => {
                    let (front, back) = (front as usize, back as usize);
                    if step.segment.len() > front + back
                        && let Some((front, behind)) = step.segment.split_at_checked(front)
                        && let Some((_, back)) = behind.split_at_checked(behind.len() - back)
                    {
                        next.extend(self.child(node.table, shape, tag(shape, front, back), front, back));
                    }
                }
                Shape::Rest(length) => {
                    if let Some(front) = step.rest.get(..length as usize)
                        && let Some(child) = self.child(node.table, shape, tag(shape, front, b""), front, b"")
                        && let Some(node) = self.nodes.get(child as usize)
                    {
                        found(node.rests);
                    }
                }
            }
        }
    }

    #[inline]
    fn child(&self, table: List, shape: Shape, tag: u32, front: &[u8], back: &[u8]) -> Option<u32> {
        let table = table.of(&self.branches);
        let mask = table.len().wrapping_sub(1);
        for step in 0..table.len() {
            let branch = table.get((tag as usize + step) & mask)?;
            if branch.child == 0 {
                return None;
            }
            if branch.tag == tag && branch.shape == shape {
                let text = branch.text.of(&self.texts);
                if text.split_at_checked(front.len()).is_some_and(|(ours, rest)| ours == front && rest == back) {
                    return Some(branch.child);
                }
            }
        }
        None
    }
}

/// One segment of a path.
struct Step<'p> {
    segment: &'p [u8],
    /// The segment and all that follows.
    rest: &'p [u8],
    /// The segment's tag as a plain text.
    tag: u32,
}
