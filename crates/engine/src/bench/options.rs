//! How a query of the benchmark is run.

use std::fmt;

use thalweg_core::OrderContract;

/// Which events there are. The command line says what stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Preset {
    /// Ours, as Flink's suite has them
    Nexmark,
    /// Apache Beam's
    Beam,
    /// Those with which other engines were measured, with queries of its own
    Peer,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Preset::Nexmark => "nexmark",
            Preset::Beam => "beam",
            Preset::Peer => "peer",
        })
    }
}

/// How a query of the benchmark is run.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// How many events: persons, auctions and bids together.
    pub events: u64,
    /// Which ones.
    pub preset: Preset,
    /// How many come in a second. Default: they lie in memory.
    pub rate: Option<u64>,
    /// Worker threads. Default: one for each core.
    pub workers: Option<usize>,
    /// What is promised about the sequence of results.
    pub order: OrderContract,
    /// Computes a number that stands for the result.
    pub check: bool,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions {
            events: 10_000_000,
            preset: Preset::Nexmark,
            rate: None,
            workers: None,
            order: OrderContract::Epoch,
            check: false,
        }
    }
}

impl BenchOptions {
    /// What `${events}` stands for in a query.
    pub(super) fn table_options(&self) -> String {
        let rate = self.rate.map(|rate| format!(", 'rate' = '{rate}'")).unwrap_or_default();
        format!("'preset' = '{}', 'events' = '{}'{rate}", self.preset, self.events)
    }
}
