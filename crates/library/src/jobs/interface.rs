//! The interface by which a job was started: hints name its options.

use thalweg_core::Error;

/// What starts jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// Statements, on the command line.
    #[default]
    CommandLine,
    /// A program in Rust, by `JobOptions`.
    Rust,
    /// Requests to a server.
    Server,
    /// A program in Python, by the arguments of `start`.
    Python,
}

impl Interface {
    /// To resume from the newest snapshot.
    pub(crate) fn resume(self) -> &'static str {
        match self {
            Interface::CommandLine => "use --resume",
            Interface::Rust => "set `resume: ResumeFrom::Newest`",
            Interface::Server => "start it with `--from newest`",
            Interface::Python => "start it with `resume=True`",
        }
    }

    /// To resume from a certain one.
    pub(crate) fn from(self, number: u64) -> String {
        match self {
            Interface::CommandLine | Interface::Server => format!("--from {number}"),
            Interface::Python => format!("`resume={number}`"),
            Interface::Rust => {
                format!("`ResumeFrom::Snapshot(SnapshotReference::Number({number}))`")
            }
        }
    }

    /// To start from scratch.
    pub(crate) fn start_from_scratch(self) -> &'static str {
        match self {
            Interface::CommandLine => "without --resume",
            Interface::Rust => "with `resume: ResumeFrom::Nothing`",
            Interface::Server => "with `--from nothing`",
            Interface::Python => "with `resume=False`",
        }
    }

    /// To let outputs be replaced.
    pub(crate) fn overwrite(self) -> &'static str {
        match self {
            Interface::CommandLine | Interface::Server => "--overwrite",
            Interface::Rust => "`overwrites: true`",
            Interface::Python => "`overwrite=True`",
        }
    }

    /// To let state go.
    pub(crate) fn drop_state(self) -> &'static str {
        match self {
            Interface::CommandLine => {
                "run the query that the snapshot is of; or let that state go with --drop-state \
                 (`thalweg upgrade --dry-run` shows what would be kept)"
            }
            Interface::Rust => {
                "run the pipeline that the snapshot is of, with the names that its stages had; or let that state \
                 go with `drop_state: true`"
            }
            Interface::Server => {
                "put back the statements that the snapshot is of; or `thalweg approve` lets that state go"
            }
            Interface::Python => {
                "start the query that the snapshot is of; or let that state go with `drop_state=True`"
            }
        }
    }

    /// The option that holds the contract.
    pub(crate) fn order(self) -> &'static str {
        match self {
            Interface::CommandLine | Interface::Server | Interface::Python => "'pipeline.order' =",
            Interface::Rust => "the contract",
        }
    }

    /// Why a job that takes snapshots records and replays nothing.
    pub(crate) fn no_interleaving(self) -> Error {
        let (options, hint) = match self {
            Interface::CommandLine | Interface::Server | Interface::Python => (
                "--record and --replay do",
                "RESET 'execution.checkpointing.dir' for this run, or run it without --record and --replay",
            ),
            Interface::Rust => (
                "`RunOptions::record` and `replay` do",
                "run the pipeline by `Pipeline::run`, or leave them out",
            ),
        };
        Error::unsupported(format!(
            "{options} not go with snapshots: a recording begins where a job begins, and not in its middle"
        ))
        .hint(hint)
    }

    /// What is run.
    pub(crate) fn job(self) -> &'static str {
        match self {
            Interface::CommandLine | Interface::Server | Interface::Python => "query",
            Interface::Rust => "pipeline",
        }
    }
}
