//! The index of all path patterns: from a path to the lists of the rules whose patterns match it, all of them and no other.
//!
//! One tree by segments for each host group. A node has children by text (found by hash), by capture with a text before or
//! behind it (by hash, once for each pair of lengths in use there) and by bare capture; a search follows all that fit at
//! once, so it visits each node at most once and never goes back. Its work is bounded by the patterns that share the path's
//! beginning, whatever the number of rules. A router that returns its one best route, such as matchit's, would not do: the
//! rule that is first in the file need not be the most specific, and many pairs of patterns that are fine here it refuses.

use std::collections::HashMap;

use super::hash::{BuildKeyHasher, hash, mix};
use super::pattern::{PathPattern, Rest, Segment};

/// A list of rules in file order: a range of the index's postings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl List {
    const fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The rules whose patterns end here.
    ends: List,
    /// The rules whose patterns take the rest of the path from here on.
    rests: List,
    /// The child behind a bare capture; 0, the first root, where there is none.
    any: u32,
    /// The shapes of the children that are neither text nor bare capture.
    shapes: List,
    has_texts: bool,
}

/// How an edge reads a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The whole segment is the edge's text.
    Text,
    /// A capture between so many bytes of prefix and of suffix; the edge's text is both.
    Capture(u32, u32),
    /// The rest of the path, which begins with the edge's text of that length.
    Rest(u32),
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    parent: u32,
    shape: Shape,
    text: List,
    child: u32,
    /// The next edge with the same hash, counted from 1; 0 where there is none.
    next: u32,
}

#[derive(Debug, Default)]
struct Edges {
    list: Vec<Edge>,
    /// The first edge of each hash.
    by_hash: HashMap<u64, u32, BuildKeyHasher>,
    texts: Vec<u8>,
}

impl Edges {
    #[inline]
    fn hash(parent: u32, shape: Shape, front: &[u8], back: &[u8]) -> u64 {
        let code = match shape {
            Shape::Text => 0,
            Shape::Capture(front, back) => 1 | u64::from(front) << 34 | u64::from(back) << 2,
            Shape::Rest(length) => 2 | u64::from(length) << 2,
        };
        let first = hash(front, mix(u64::from(parent) ^ 0x51_7c_c1_b7_27_22_0a_95, code ^ 0x9E37_79B9_7F4A_7C15));
        if back.is_empty() { first } else { hash(back, first) }
    }

    #[inline]
    fn child(&self, parent: u32, shape: Shape, front: &[u8], back: &[u8]) -> Option<u32> {
        let mut at = *self.by_hash.get(&Self::hash(parent, shape, front, back))?;
        loop {
            let edge = self.list.get(at as usize)?;
            let text = self.texts.get(edge.text.start as usize..edge.text.end as usize)?;
            if edge.parent == parent
                && edge.shape == shape
                && text.split_at_checked(front.len()).is_some_and(|(ours, rest)| ours == front && rest == back)
            {
                return Some(edge.child);
            }
            at = edge.next.checked_sub(1)?;
        }
    }

    fn add(&mut self, parent: u32, shape: Shape, front: &[u8], back: &[u8], child: u32) {
        let start = count(self.texts.len());
        self.texts.extend_from_slice(front);
        self.texts.extend_from_slice(back);
        let text = List { start, end: count(self.texts.len()) };
        let position = count(self.list.len());
        let before = self.by_hash.insert(Self::hash(parent, shape, front, back), position);
        self.list.push(Edge { parent, shape, text, child, next: before.map_or(0, |before| before + 1) });
    }
}

/// A position or length in the index. Rule files are far below 4 GiB; what is beyond can't be found.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A node while patterns come in.
#[derive(Debug, Default)]
struct Draft {
    ends: Vec<u32>,
    rests: Vec<u32>,
    any: u32,
    shapes: Vec<Shape>,
    has_texts: bool,
}

/// Collects patterns.
#[derive(Debug)]
pub(super) struct Builder {
    drafts: Vec<Draft>,
    edges: Edges,
    postings: Vec<u32>,
}

impl Builder {
    pub(super) fn new() -> Self {
        // No child is node 0, so that 0 can mean "none".
        Self { drafts: vec![Draft::default()], edges: Edges::default(), postings: Vec::new() }
    }

    /// A new tree; gives its root.
    pub(super) fn root(&mut self) -> u32 {
        self.drafts.push(Draft::default());
        count(self.drafts.len() - 1)
    }

    /// Adds a pattern of `rule` to the tree under `root`. Rules come in file order.
    pub(super) fn insert(&mut self, root: u32, pattern: &PathPattern, rule: u32) {
        let mut node = root;
        for segment in &pattern.segments {
            node = match segment {
                Segment::Text(text) => self.child(node, Shape::Text, text, ""),
                Segment::Capture { prefix, suffix, .. } if prefix.is_empty() && suffix.is_empty() => self.bare(node),
                Segment::Capture { prefix, suffix, .. } => {
                    self.child(node, Shape::Capture(count(prefix.len()), count(suffix.len())), prefix, suffix)
                }
            };
        }
        match &pattern.rest {
            None => self.note(node, rule, |draft| &mut draft.ends),
            Some(Rest { prefix, .. }) => {
                if !prefix.is_empty() {
                    node = self.child(node, Shape::Rest(count(prefix.len())), prefix, "");
                }
                self.note(node, rule, |draft| &mut draft.rests);
            }
        }
    }

    fn child(&mut self, node: u32, shape: Shape, front: &str, back: &str) -> u32 {
        let (front, back) = (front.as_bytes(), back.as_bytes());
        if let Some(child) = self.edges.child(node, shape, front, back) {
            return child;
        }
        let child = self.root();
        self.edges.add(node, shape, front, back, child);
        if let Some(draft) = self.drafts.get_mut(node as usize) {
            match shape {
                Shape::Text => draft.has_texts = true,
                Shape::Capture(..) | Shape::Rest(_) if draft.shapes.contains(&shape) => {}
                Shape::Capture(..) | Shape::Rest(_) => draft.shapes.push(shape),
            }
        }
        child
    }

    fn bare(&mut self, node: u32) -> u32 {
        let known = self.drafts.get(node as usize).map_or(0, |draft| draft.any);
        if known != 0 {
            return known;
        }
        let child = self.root();
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

    pub(super) fn finish(mut self) -> Index {
        let mut shapes = Vec::new();
        let mut nodes = Vec::with_capacity(self.drafts.len());
        for draft in &self.drafts {
            nodes.push(Node {
                ends: append(&mut self.postings, &draft.ends),
                rests: append(&mut self.postings, &draft.rests),
                any: draft.any,
                shapes: append(&mut shapes, &draft.shapes),
                has_texts: draft.has_texts,
            });
        }
        Index { nodes, edges: self.edges, shapes, postings: self.postings }
    }
}

fn append<T: Copy>(all: &mut Vec<T>, part: &[T]) -> List {
    let start = count(all.len());
    all.extend_from_slice(part);
    List { start, end: count(all.len()) }
}

/// The finished index.
#[derive(Debug)]
pub(super) struct Index {
    nodes: Vec<Node>,
    edges: Edges,
    shapes: Vec<Shape>,
    postings: Vec<u32>,
}

impl Index {
    /// The rule at a position of the postings.
    #[inline]
    pub(super) fn rule_at(&self, position: u32) -> Option<u32> {
        self.postings.get(position as usize).copied()
    }

    /// Calls `found` with each list of rules under `root` whose patterns match `path`. `nodes` is working memory.
    pub(super) fn search(&self, root: u32, path: &str, nodes: &mut (Vec<u32>, Vec<u32>), mut found: impl FnMut(List)) {
        let (here, next) = nodes;
        let Some((b'/', mut rest)) = path.as_bytes().split_first() else { return };
        here.clear();
        here.push(root);
        loop {
            next.clear();
            let slash = memchr::memchr(b'/', rest);
            let segment = slash.and_then(|slash| rest.get(..slash)).unwrap_or(rest);
            for &at in here.iter() {
                self.step(at, segment, rest, next, &mut found);
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
    fn step(&self, at: u32, segment: &[u8], rest: &[u8], next: &mut Vec<u32>, found: &mut impl FnMut(List)) {
        let Some(node) = self.nodes.get(at as usize) else { return };
        if !node.rests.is_empty() {
            found(node.rests);
        }
        if node.has_texts {
            next.extend(self.edges.child(at, Shape::Text, segment, b""));
        }
        if node.any != 0 && !segment.is_empty() {
            next.push(node.any);
        }
        for &shape in self.shapes.get(node.shapes.start as usize..node.shapes.end as usize).unwrap_or_default() {
            match shape {
                Shape::Text => {}
                Shape::Capture(front, back) => {
                    let (front, back) = (front as usize, back as usize);
                    if segment.len() > front + back
                        && let Some((front, behind)) = segment.split_at_checked(front)
                        && let Some((_, back)) = behind.split_at_checked(behind.len() - back)
                    {
                        next.extend(self.edges.child(at, shape, front, back));
                    }
                }
                Shape::Rest(length) => {
                    if let Some(front) = rest.get(..length as usize)
                        && let Some(child) = self.edges.child(at, shape, front, b"")
                        && let Some(node) = self.nodes.get(child as usize)
                    {
                        found(node.rests);
                    }
                }
            }
        }
    }
}
