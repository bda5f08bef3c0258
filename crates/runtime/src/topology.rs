//! NUMA nodes and their cores, as the system tells.

/// The machine as far as placing work is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// For each NUMA node its cores, by the system's numbers. Never empty.
    pub nodes: Vec<Vec<usize>>,
}

impl Topology {
    /// Reads the topology, or answers one node with all cores where it can't be read.
    pub fn detect() -> Self {
        Self::from_folder("/sys/devices/system/node").unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Topology { nodes: vec![(0..cores).collect()] }
        })
    }

    /// Reads `node0/cpulist`, `node1/cpulist`, … in a folder.
    fn from_folder(folder: &str) -> Option<Self> {
        let nodes: Vec<Vec<usize>> = (0..)
            .map_while(|n| std::fs::read_to_string(format!("{folder}/node{n}/cpulist")).ok())
            .map(|text| parse_list(&text))
            .filter(|cores| !cores.is_empty())
            .collect();
        (!nodes.is_empty()).then_some(Topology { nodes })
    }

    /// The core and the node for a worker: nodes are filled one after the other, and workers
    /// beyond the cores start over.
    pub fn place(&self, worker: usize) -> (usize, usize) {
        let all: Vec<(usize, usize)> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, cores)| cores.iter().map(move |&core| (core, node)))
            .collect();
        all[worker % all.len()]
    }

    /// How many nodes.
    pub fn numa_nodes(&self) -> usize {
        self.nodes.len()
    }
}

/// Reads a list such as `0-3,8,10-11`. What can't be read is skipped.
fn parse_list(text: &str) -> Vec<usize> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_list("\n"), Vec::<usize>::new());
    }

    #[test]
    fn workers_fill_node_after_node() {
        let topology = Topology { nodes: vec![vec![0, 1], vec![4, 5]] };
        let places: Vec<_> = (0..5).map(|worker| topology.place(worker)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (4, 1), (5, 1), (0, 0)]);
    }
}
