//! How a user says what is to become of a job: hints speak as the user does.

use thalweg_core::Error;

/// Where jobs come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speech {
    /// Statements, on the command line.
    #[default]
    CommandLine,
    /// A program in Rust, by `JobOptions`.
    Rust,
}

impl Speech {
    /// To go on from the newest snapshot.
    pub(crate) fn resume(self) -> &'static str {
        match self {
            Speech::CommandLine => "use --resume",
            Speech::Rust => "set `resume: ResumeFrom::Newest`",
        }
    }

    /// To go on from a certain one.
    pub(crate) fn from(self, number: u64) -> String {
        match self {
            Speech::CommandLine => format!("--from {number}"),
            Speech::Rust => {
                format!("`ResumeFrom::Snapshot(SnapshotReference::Number({number}))`")
            }
        }
    }

    /// To begin anew.
    pub(crate) fn begin_anew(self) -> &'static str {
        match self {
            Speech::CommandLine => "without --resume",
            Speech::Rust => "with `resume: ResumeFrom::Nothing`",
        }
    }

    /// To let outputs be replaced.
    pub(crate) fn overwrite(self) -> &'static str {
        match self {
            Speech::CommandLine => "--overwrite",
            Speech::Rust => "`overwrites: true`",
        }
    }

    /// To let state go.
    pub(crate) fn drop_state(self) -> &'static str {
        match self {
            Speech::CommandLine => {
                "run the query that the snapshot is of; or let that state go with --drop-state \
                 (`thalweg upgrade --dry-run` shows what would be kept)"
            }
            Speech::Rust => {
                "run the pipeline that the snapshot is of, with the names that its stages had; or let that state \
                 go with `drop_state: true`"
            }
        }
    }

    /// The option that holds the contract.
    pub(crate) fn order(self) -> &'static str {
        match self {
            Speech::CommandLine => "'pipeline.order' =",
            Speech::Rust => "the contract",
        }
    }

    /// Why a job that takes snapshots records and replays nothing.
    pub(crate) fn no_interleaving(self) -> Error {
        let (options, hint) = match self {
            Speech::CommandLine => (
                "--record and --replay do",
                "RESET 'execution.checkpointing.dir' for this run, or run it without --record and --replay",
            ),
            Speech::Rust => (
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
            Speech::CommandLine => "query",
            Speech::Rust => "pipeline",
        }
    }
}
