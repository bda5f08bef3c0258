//! `thalweg snapshot`, as people type it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use thalweg_connectors::output;

/// `thalweg snapshot`
#[derive(Args, Debug)]
pub struct SnapshotArguments {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
    /// Where snapshots are kept: what 'execution.checkpointing.dir' says [default: the variable
    /// THALWEG_SNAPSHOT_DIR]
    #[arg(long, value_name = "DIR", global = true)]
    pub dir: Option<String>,
    /// How the answer prints
    #[arg(long, value_name = "FORMAT", default_value = "table", global = true)]
    pub format: ListFormat,
}

/// How answers print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Aligned columns, for people
    Table,
    /// A JSON object on each line; sizes in bytes, ages in seconds
    Ndjson,
}

impl From<ListFormat> for output::Format {
    fn from(format: ListFormat) -> Self {
        match format {
            ListFormat::Table => output::Format::Table,
            ListFormat::Ndjson => output::Format::Ndjson,
        }
    }
}

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// List the snapshots of a job, or of all jobs
    #[command(after_help = "\
Columns:
  size       everything that going on from it reads
  own size   what deleting it frees: the rest it shares with earlier ones
  state      kept; kept, input ended; damaged: WHY; of a newer version; unfinished (it does not count)

Examples:
  thalweg snapshot ls --dir state
  thalweg snapshot ls flights --dir state --format ndjson")]
    Ls {
        /// The job: 'pipeline.name', or the file without its ending
        job: Option<String>,
    },
    /// Show what a snapshot holds: positions, watermarks, tables of state
    #[command(after_help = "\
A line for each stage, and one for each table of state that it has. Nothing but the manifest is read.
SQL reads the rows of a table: FROM snapshot('FOLDER OR JOB', 'OPERATOR' [, 'TABLE'] [, NUMBER]).

Examples:
  thalweg snapshot show flights --dir state
  thalweg run -e \"SELECT * FROM snapshot('state/flights', 'window flights')\"")]
    Show {
        /// The job
        job: String,
        /// The snapshot's number [default: the newest]
        number: Option<u64>,
    },
    /// Compare every byte of snapshots with their checksums
    #[command(after_help = "\
Exit status: 0 all is as it was written, 1 something is damaged; its path is printed.

Examples:
  thalweg snapshot verify flights --dir state       all of the job's
  thalweg snapshot verify flights 12 --dir state    this one")]
    Verify {
        /// The job
        job: String,
        /// The snapshot's number [default: all of them]
        number: Option<u64>,
    },
    /// Delete a snapshot
    #[command(after_help = "\
What later snapshots need of it stays. A job keeps as many as 'execution.checkpointing.num-retained' says
by itself, and as many of those that runs ended with; those that were asked for stay until they are deleted.

Example:
  thalweg snapshot delete flights 12 --dir state")]
    Delete {
        /// The job
        job: String,
        /// The snapshot's number
        number: u64,
    },
    /// Ask a running job for a snapshot, which stays until it is deleted
    #[command(after_help = "\
Its number is printed when it is kept, and what it made visible is visible. Needs to write to the
job's folder; snapshots in an object store can't be asked for.

Example:
  thalweg snapshot take flights --dir state")]
    Take {
        /// The job
        job: String,
        /// How long to wait for it, in seconds
        #[arg(long = "timeout", value_name = "SECONDS", default_value = "600", value_parser = seconds)]
        timeout: Duration,
    },
    /// Save a snapshot of a job that does not run, together with its outputs
    #[command(after_help = "\
The backup holds what the snapshot holds of each output, and nothing that was written since. Paths below the current
folder are relative in it.

Example:
  thalweg snapshot export flights backups/monday --dir state")]
    Export {
        /// The job
        job: String,
        /// The folder of the backup, empty or new
        to: PathBuf,
        /// The snapshot's number [default: the one that a resume would take]
        number: Option<u64>,
    },
    /// Bring a job and its outputs back from a backup; `thalweg run --resume` continues from there
    #[command(after_help = "\
Outputs get the paths that they had, from the current folder.

Example:
  thalweg snapshot import backups/monday --dir state")]
    Import {
        /// The folder of the backup
        from: PathBuf,
        /// Replaces the state and the outputs that are there
        #[arg(long)]
        overwrite: bool,
        /// Outputs below DIR may be written as well
        #[arg(long, value_name = "DIR")]
        allow_path: Vec<PathBuf>,
    },
}

/// A number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
