//! Sliding windows of aggregates that cannot subtract: a ring of slices under a tree of partial
//! states.
//!
//! Leaves are slices by the window with which they expire, in a ring as long as a window has
//! slices. A node is the union of its children. What enters and what expires changes one leaf and
//! the nodes above it, so a slide costs a logarithm of merges, never one per slice, and no slide
//! costs more than another (a two-stack queue would stall at each flip). A node with one child
//! stands for that child and holds nothing.
//!
//! ```text
//!              root                 each node: union of its (up to four) children
//!       /    |     |    \           `Same`: one child only, nothing is copied
//!      n     n     n     n
//!    ////  ////  ////  ////
//!    leaf = slices with the same last window; place = number modulo the count of leaves
//! ```
//!
//! **Invariants**
//! - Numbers of live leaves span less than `leaves`, so two of them never share a place. The caller
//!   removes what has left before it adds what comes a whole turn later.
//! - `changed` is empty whenever `total` is read: `settle` comes between.
//! - `scratch` is empty between calls. `take_all` empties it, so a merge costs the keys of the
//!   nodes and not all keys of the partition.

use std::sync::Arc;

use thalweg_core::Result;

use super::calls::{Calls, Partial};
use super::slices::{Lists, Slice};

/// How many children a node has: four cost a little less time than two, and half the memory.
const FAN_OUT: usize = 4;

enum TreeNode {
    Empty,
    /// The same as this node below.
    Same(usize),
    Own(Arc<Partial>),
}

impl TreeNode {
    fn bytes(&self) -> usize {
        match self {
            TreeNode::Own(partial) => partial.bytes(),
            _ => 0,
        }
    }
}

pub(super) struct Tree {
    /// Node 0 is the root, the children of `n` begin at `4n + 1`; leaves stand behind all others.
    nodes: Vec<TreeNode>,
    leaves: usize,
    /// Indexed by key id, empty between calls.
    scratch: Slice,
    /// Leaves that have changed.
    changed: Vec<usize>,
    /// What the states of all nodes take, added up as they come and go.
    own_bytes: usize,
}

impl Tree {
    /// A tree for at most this many leaves at a time.
    pub fn new(calls: &Calls, leaves: usize) -> Result<Self> {
        let mut full = 1;
        while full < leaves {
            full *= FAN_OUT;
        }
        let above = (full - 1) / (FAN_OUT - 1);
        Ok(Tree {
            nodes: (0..above + full).map(|_| TreeNode::Empty).collect(),
            leaves: full,
            scratch: Slice::new(calls)?,
            changed: Vec::new(),
            own_bytes: 0,
        })
    }

    /// Numbers before 1970 are negative, hence `rem_euclid`.
    fn place(&self, number: i64) -> usize {
        self.nodes.len() - self.leaves + number.rem_euclid(self.leaves as i64) as usize
    }

    /// Adds states to the leaf with this number; what it is then.
    pub fn add(&mut self, number: i64, partial: Partial, groups: usize) -> Result<Arc<Partial>> {
        let place = self.place(number);
        self.scratch.grow(groups);
        let merged = match self.put(place, TreeNode::Empty) {
            TreeNode::Own(before) => {
                self.scratch.merge(&before, |_| ())?;
                self.scratch.merge(&partial, |_| ())?;
                self.scratch.take_all(Lists::default())?
            }
            _ => partial,
        };
        let merged = Arc::new(merged);
        self.put(place, TreeNode::Own(Arc::clone(&merged)));
        self.changed.push(place);
        Ok(merged)
    }

    /// Empties the leaf with this number.
    pub fn remove(&mut self, number: i64) {
        let place = self.place(number);
        self.put(place, TreeNode::Empty);
        self.changed.push(place);
    }

    /// Puts a node in its place; the one that was there.
    fn put(&mut self, place: usize, node: TreeNode) -> TreeNode {
        self.own_bytes += node.bytes();
        let before = std::mem::replace(&mut self.nodes[place], node);
        self.own_bytes -= before.bytes();
        before
    }

    /// Brings the nodes above changed leaves up to date.
    pub fn settle(&mut self) -> Result<()> {
        let mut level = std::mem::take(&mut self.changed);
        while level.first().is_some_and(|&place| place > 0) {
            level.iter_mut().for_each(|place| *place = (*place - 1) / FAN_OUT);
            level.sort_unstable();
            level.dedup();
            for &place in &level {
                let joined = self.join(FAN_OUT * place + 1)?;
                self.put(place, joined);
            }
        }
        level.clear();
        self.changed = level;
        Ok(())
    }

    /// The union of the nodes from this one on that have one parent.
    fn join(&mut self, first: usize) -> Result<TreeNode> {
        let mut full = (first..first + FAN_OUT).filter_map(|child| self.resolve(child));
        let Some(only) = full.next() else { return Ok(TreeNode::Empty) };
        if full.next().is_none() {
            return Ok(TreeNode::Same(only));
        }
        for child in first..first + FAN_OUT {
            let place = self.resolve(child).unwrap_or(child);
            if let TreeNode::Own(partial) = &self.nodes[place] {
                self.scratch.merge(partial, |_| ())?;
            }
        }
        Ok(TreeNode::Own(Arc::new(self.scratch.take_all(Lists::default())?)))
    }

    /// The node that holds the states of this one.
    fn resolve(&self, place: usize) -> Option<usize> {
        match self.nodes[place] {
            TreeNode::Empty => None,
            TreeNode::Same(below) => Some(below),
            TreeNode::Own(_) => Some(place),
        }
    }

    /// All states together. Valid after [`Tree::settle`].
    pub fn total(&self) -> Option<&Partial> {
        debug_assert!(self.changed.is_empty(), "the tree is settled before it is read");
        match &self.nodes[self.resolve(0)?] {
            TreeNode::Own(partial) => Some(partial),
            _ => None,
        }
    }

    pub fn bytes(&self) -> usize {
        self.scratch.bytes() + self.own_bytes + self.nodes.capacity() * size_of::<TreeNode>()
    }
}
