//! Stable identifiers of stages: what a stage computes, and from what, as a short hash.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::logical::dag::post_order;
use crate::logical::{LogicalKind, LogicalPlan, Node};

/// Gives identifiers, each once.
#[derive(Default)]
pub(super) struct Identities {
    hashes: HashMap<*const LogicalPlan, u64>,
    given: HashSet<String>,
}

impl Identities {
    /// The identifier of a stage of this kind that computes this text from these nodes.
    pub(super) fn give(&mut self, kind: &str, text: &str, nodes: &[&Node]) -> String {
        let mut hash = fnv(FNV_START, text.as_bytes());
        for node in nodes {
            hash = fnv(hash, &self.hash(node).to_le_bytes());
        }
        // 48 bits: short to read, and a handful of stages will not collide.
        let base = format!("{kind}-{:012x}", hash >> 16);
        let mut id = base.clone();
        let mut copy = 2;
        while !self.given.insert(id.clone()) {
            id = format!("{base}-{copy}");
            copy += 1;
        }
        id
    }

    /// A hash of what a node computes, with everything below it.
    fn hash(&mut self, node: &Node) -> u64 {
        if let Some(&hash) = self.hashes.get(&Arc::as_ptr(node)) {
            return hash;
        }
        let mut hash = fnv(FNV_START, node.describe().as_bytes());
        for input in node.inputs() {
            hash = fnv(hash, &self.hash(input).to_le_bytes());
        }
        self.hashes.insert(Arc::as_ptr(node), hash);
        hash
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: simple, and the same on every machine and in every version.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The name of the first table that a node reads.
pub(super) fn table_name(node: &Node) -> String {
    let name = |below: &Node| match &below.kind {
        LogicalKind::Scan { table, .. } => Some(table.name.clone()),
        _ => None,
    };
    let nodes = post_order(std::slice::from_ref(node));
    nodes.iter().find_map(name).unwrap_or_else(|| "values".to_string())
}
