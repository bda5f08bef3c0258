//! Options of `thalweg serve` and of the commands that talk to a server.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[cfg(feature = "flink")]
use super::flink_arguments::{FlinkArguments, FlinkSubmitArguments};

/// The data directory that everything is in unless an option says so.
pub const DATA_DIR: &str = "thalweg-data";

/// `thalweg serve`
#[derive(Args, Debug)]
pub struct ServeArguments {
    /// Where jobs, snapshots, tokens and secrets are kept
    #[arg(long, value_name = "DIR", env = "THALWEG_DATA_DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// The file of options [default: server.toml in the data directory]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port of the REST interface [default: 127.0.0.1:7373]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Sets an option of the server
    #[arg(long = "option", short = 'o', value_name = "KEY=VALUE", value_parser = super::arguments::key_and_value)]
    pub options: Vec<(String, String)>,
    /// Starts no job by itself
    #[arg(long)]
    pub hold: bool,
    /// Reads the files of the web page from this folder, for those who change it
    #[arg(long, value_name = "DIR")]
    pub page_dir: Option<PathBuf>,
    /// Prints every option with where its value comes from, and ends
    #[arg(long)]
    pub print_config: bool,
}

/// Which server, and how answers print.
#[derive(Args, Clone, Debug)]
pub struct ServerArguments {
    /// The data directory of a server of this machine
    #[arg(long, value_name = "DIR", env = "THALWEG_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// The address of another server, such as http://127.0.0.1:7373
    #[arg(long, value_name = "URL", env = "THALWEG_SERVER")]
    pub server: Option<String>,
    /// The file with the token for it [default: the variable THALWEG_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Prints the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// `thalweg ls`
#[derive(Args, Debug)]
pub struct JobsArguments {
    /// Only jobs in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Only jobs with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg top`
#[derive(Args, Debug)]
pub struct TopArguments {
    /// What jobs are sorted by
    #[arg(long, value_name = "COLUMN", default_value = "trouble")]
    pub sort: TopSort,
    /// Only jobs whose name, state, tag or condition has this text
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Seconds until the server is asked again
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub interval: f64,
    /// Prints the jobs once
    #[arg(long)]
    pub once: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// What jobs are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopSort {
    /// Those that need a person first
    #[default]
    Trouble,
    /// By name
    Name,
    /// By state
    State,
    /// The most rows read first
    In,
    /// The most rows written first
    Out,
    /// The furthest behind first
    Lag,
    /// The slowest results first
    P99,
    /// The most late rows first
    Late,
    /// The most bad rows first
    Bad,
    /// The most state first
    Kept,
    /// The busiest first
    Busy,
    /// The oldest snapshot first
    Snapshot,
}

impl TopSort {
    /// What comes behind it.
    pub fn next(self) -> TopSort {
        let all = TopSort::value_variants();
        let place = all.iter().position(|sort| *sort == self).unwrap_or_default();
        all[(place + 1) % all.len()]
    }

    /// Its name.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// `thalweg trial`
#[derive(Args, Debug)]
pub struct TrialArguments {
    /// The job
    pub job: String,
    /// The file of statements that are to be tried
    pub file: PathBuf,
    /// For this number of seconds, at most 600
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub seconds: u64,
    /// From this snapshot [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Replaces ${NAME} in the statements
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = super::arguments::key_and_value)]
    pub params: Vec<(String, String)>,
    /// Sets an option before the first statement
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::arguments::key_and_value)]
    pub settings: Vec<(String, String)>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg dead`
#[derive(Args, Debug)]
pub struct DeadArguments {
    /// The job
    pub job: String,
    /// Only rows of this table
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// Rows at most
    #[arg(long, value_name = "ROWS", default_value_t = 20)]
    pub limit: u64,
    /// Also rows that were read again
    #[arg(long)]
    pub replayed: bool,
    /// Reads them again with the statements that the job has now: those with these names, or all
    #[arg(long, value_name = "ID", num_args = 0.., conflicts_with_all = ["limit", "replayed"])]
    pub replay: Option<Vec<String>>,
    /// Of those only rows for which a condition in SQL is true, over file, line, reason and raw
    #[arg(long, value_name = "CONDITION", requires = "replay")]
    pub r#where: Option<String>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg demo`
#[derive(Args, Debug)]
pub struct DemoArguments {
    /// What to do with a demo that runs
    #[command(subcommand)]
    pub command: Option<DemoCommand>,
    /// The folder of the demo, which is made, and removed at the end
    #[arg(long = "dir", value_name = "DIR", default_value = "thalweg-demo", global = true)]
    pub folder: PathBuf,
    /// Address and port of the page; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// Opens no page
    #[arg(long)]
    pub no_open: bool,
}

/// What to do with a demo that runs.
#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    /// Let the job wait this many seconds for rows that are late
    Wait {
        /// Seconds
        #[arg(value_parser = clap::value_parser!(u32).range(0..=59))]
        seconds: u32,
    },
    /// Let an airport fall silent, and ask which input holds the results back
    Why {
        /// For how many seconds it is silent
        #[arg(long = "for", value_name = "SECONDS", default_value_t = 120)]
        seconds: u32,
    },
}

/// `thalweg docs`
#[derive(Args, Debug)]
pub struct DocsArguments {
    /// The page, such as `cli` or `late-data` [default: the list of pages]
    #[arg(value_name = "PAGE")]
    pub page: Option<String>,
    /// Prints the lines of all pages that hold this text, whatever its case
    #[arg(long, short = 's', value_name = "TEXT", conflicts_with = "page")]
    pub search: Option<String>,
}

/// `thalweg why`
#[derive(Args, Debug)]
pub struct WhyArguments {
    /// The job
    pub job: String,
    /// The name or identifier of a stage [default: the output that is furthest behind]
    #[arg(long, value_name = "STAGE")]
    pub stage: Option<String>,
    /// At a moment of the last 24 hours: a time of UTC, such as 10:03:12 or '2026-01-31
    /// 10:03:12', or how long ago it is, such as '5 min' [default: now]
    #[arg(long, value_name = "MOMENT", value_parser = super::moment::parse)]
    pub at: Option<i64>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg late`
#[derive(Args, Debug)]
pub struct LateArguments {
    /// The job
    pub job: String,
    /// Only rows that were late for this stage
    #[arg(long, value_name = "STAGE")]
    pub stage: Option<String>,
    /// Rows at most
    #[arg(long, value_name = "ROWS", default_value_t = 20)]
    pub limit: u64,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg support-bundle`
#[derive(Args, Debug)]
pub struct BundleArguments {
    /// The job
    pub job: String,
    /// The file that is written, which must not be there [default: JOB.zip]
    #[arg(long, short = 'f', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg tap`
#[derive(Args, Debug)]
pub struct TapArguments {
    /// The job
    pub job: String,
    /// What this table gives
    #[arg(long, value_name = "TABLE")]
    pub table: Option<String>,
    /// What this stage gives
    #[arg(long, value_name = "STAGE", conflicts_with = "table")]
    pub stage: Option<String>,
    /// What this output is given
    #[arg(long, value_name = "TABLE")]
    pub sink: Option<String>,
    /// What this stage takes
    #[arg(long, value_name = "STAGE", conflicts_with = "sink")]
    pub into: Option<String>,
    /// Only rows for which this is true
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Ends after this number of rows
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<u64>,
    /// Rows a second at most [default: 1000]
    #[arg(long, value_name = "ROWS")]
    pub rate: Option<f64>,
    /// Writes the rows that tables give as a test into this file, which must not be there
    #[arg(
        long,
        value_name = "FILE.test.md",
        conflicts_with_all = ["stage", "sink", "into", "condition"]
    )]
    pub record: Option<PathBuf>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

impl TapArguments {
    /// Of all outputs of a job.
    pub fn of(job: &str, rate: Option<f64>, server: ServerArguments) -> TapArguments {
        let (job, table, stage, sink) = (job.to_owned(), None, None, None);
        let (into, condition, limit, record) = (None, None, None, None);
        TapArguments { job, table, stage, sink, into, condition, limit, rate, record, server }
    }
}

/// A command about one job.
#[derive(Args, Debug)]
pub struct JobArguments {
    /// The job
    pub job: String,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg start`
#[derive(Args, Debug)]
pub struct StartArguments {
    /// The job
    pub job: String,
    /// Where it begins: newest, nothing, or the number of a snapshot
    #[arg(long, value_name = "SNAPSHOT", default_value = "newest")]
    pub from: String,
    /// State that the statements have no use for is dropped
    #[arg(long)]
    pub drop_state: bool,
    /// What its outputs hold of earlier runs is replaced
    #[arg(long)]
    pub overwrite: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg stop`
#[derive(Args, Debug)]
pub struct StopArguments {
    /// The job
    pub job: String,
    /// With a last snapshot, with all windows closed before, or at once
    #[arg(long, value_name = "HOW", default_value = "snapshot")]
    pub how: StopWay,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
    /// The Flink cluster, if it is one.
    #[cfg(feature = "flink")]
    #[command(flatten)]
    pub flink: FlinkArguments,
    /// The folder for the savepoint [default: execution.checkpointing.savepoint-dir of the cluster]
    #[cfg(feature = "flink")]
    #[arg(long, value_name = "URI", requires = "flink", help_heading = "Apache Flink")]
    pub savepoint_dir: Option<String>,
    /// With a savepoint, which is the default: the same as --how snapshot
    #[cfg(feature = "flink")]
    #[arg(long, requires = "flink", conflicts_with = "how", help_heading = "Apache Flink")]
    pub savepoint: bool,
}

/// Ways to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StopWay {
    /// A last snapshot is kept
    Snapshot,
    /// Windows close as if the inputs had ended
    Drain,
    /// At once; the snapshot before stays
    Cancel,
}

/// `thalweg approve`
#[derive(Args, Debug)]
pub struct ApproveArguments {
    /// The job
    pub job: String,
    /// Identifiers of the stages whose state may be dropped; `thalweg describe` shows them
    #[arg(required = true)]
    pub stages: Vec<String>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg submit`
#[derive(Args, Debug)]
pub struct SubmitArguments {
    /// The file of statements
    pub file: PathBuf,
    /// The job's name [default: the file's, without its ending]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Replaces ${NAME} in the statements
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = super::arguments::key_and_value)]
    pub params: Vec<(String, String)>,
    /// Sets an option before the first statement
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = super::arguments::key_and_value)]
    pub settings: Vec<(String, String)>,
    /// What the job may keep in memory, such as 512mb
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// A word to find it by
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Only keeps the statements; the job does not start
    #[arg(long)]
    pub draft: bool,
    /// Only says what would become of the job's state
    #[arg(long)]
    pub dry_run: bool,
    /// State that the new statements have no use for is dropped
    #[arg(long)]
    pub drop_state: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
    /// The Flink cluster, if it is one.
    #[cfg(feature = "flink")]
    #[command(flatten)]
    pub flink: FlinkArguments,
    /// How it runs there.
    #[cfg(feature = "flink")]
    #[command(flatten)]
    pub on_flink: FlinkSubmitArguments,
}

/// `thalweg events`
#[derive(Args, Debug)]
pub struct EventsArguments {
    /// The job
    pub job: String,
    /// Also prints events to come
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg logs`
#[derive(Args, Debug)]
pub struct LogsArguments {
    /// The job
    pub job: String,
    /// Also prints lines to come
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
    /// The Flink cluster, if it is one.
    #[cfg(feature = "flink")]
    #[command(flatten)]
    pub flink: FlinkArguments,
}

/// `thalweg status`
#[derive(Args, Debug)]
pub struct StatusArguments {
    /// Only says whether the server is ready
    #[arg(long)]
    pub ready: bool,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
    /// The job of a Flink cluster [default: all of its jobs]
    #[cfg(feature = "flink")]
    #[arg(requires = "flink")]
    pub job: Option<String>,
    /// The Flink cluster, if it is one.
    #[cfg(feature = "flink")]
    #[command(flatten)]
    pub flink: FlinkArguments,
}

/// `thalweg query`
#[derive(Args, Debug)]
pub struct QueryArguments {
    /// Declarations and one SELECT
    pub sql: String,
    /// Prints the rows of a materialized table, named JOB.TABLE in place of a SELECT, and then what
    /// changes
    #[arg(long)]
    pub follow: bool,
    /// Rows at most
    #[arg(long, value_name = "ROWS", default_value_t = 1000)]
    pub limit: u64,
    /// Seconds at most
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub timeout: f64,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `thalweg token`
#[derive(Args, Debug)]
pub struct TokenArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What is done with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, once
    Create {
        /// Its name, which the audit log has
        name: String,
        /// What it allows: read, operate, write or admin
        #[arg(long, value_name = "ROLE", default_value = "read")]
        role: String,
        /// After how many seconds it ends [default: never]
        #[arg(long, value_name = "SECONDS")]
        lifetime: Option<u64>,
        /// What the names of jobs begin with that it is for [default: all jobs]
        #[arg(long, value_name = "PREFIX")]
        jobs: Option<String>,
        /// The server.
        #[command(flatten)]
        server: ServerArguments,
    },
    /// List tokens
    Ls {
        /// The server.
        #[command(flatten)]
        server: ServerArguments,
    },
    /// Do away with a token
    Rm {
        /// Its name
        name: String,
        /// The server.
        #[command(flatten)]
        server: ServerArguments,
    },
}

/// `thalweg cancel`
#[cfg(feature = "flink")]
#[derive(Args, Debug)]
pub struct CancelArguments {
    /// The job, by its name or identifier
    pub job: String,
    /// The cluster.
    #[command(flatten)]
    pub flink: FlinkArguments,
}
