//! The command line as people type it: commands, options and the help that teaches them.
//!
//! Nothing is read or opened here. What an option means is decided where it is used.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use thalweg::jobs::SnapshotReference;
use thalweg_connectors::output;
use thalweg_plan::explain::ExplainFormat;

use super::bench::BenchArguments;
#[cfg(feature = "flink")]
use super::flink_arguments::{CompareArguments, MoveArguments, TranslateArguments};
#[cfg(feature = "flink")]
use super::server_arguments::CancelArguments;
#[cfg(feature = "server")]
use super::server_arguments::{
    ApproveArguments, BundleArguments, DeadArguments, DemoArguments, DocsArguments,
    EventsArguments, JobArguments, JobsArguments, LateArguments, LogsArguments, QueryArguments,
    ServeArguments, StartArguments, StatusArguments, StopArguments, SubmitArguments, TapArguments,
    TokenArguments, TopArguments, TrialArguments, WhyArguments,
};
use super::snapshot::{ListFormat, SnapshotArguments};

const EXAMPLES: &str = "\
Examples:
  thalweg run delays.sql                        run the statements of a file
  thalweg run -e 'SHOW FUNCTIONS'               run what stands on the command line
  cat job.sql | thalweg run -                   run what comes in
  thalweg run report.sql --format csv > out.csv data go to standard output, and nothing else does
  thalweg validate --flink delays.sql           check it, and say what Apache Flink would refuse
  thalweg explain delays.sql                    show how it would run

A first query over a CSV file:
  thalweg run -e \"CREATE TABLE t (name STRING, n INT)
    WITH ('connector'='filesystem', 'format'='csv', 'path'='t.csv');
    SELECT name, n FROM t WHERE n > 10\"

Exit status: 0 done, 1 the job failed, 2 the SQL or the command line is wrong, 130 stopped by Ctrl-C.";

const TEST_EXAMPLE: &str = "\
A file totals.test.md, of which all other text is for readers:

  sql orders.sql

  input orders

  | at       | ts                            | item | amount |
  |----------|-------------------------------|------|--------|
  | 09:00:06 | 2026-01-01 09:00:05           | tea  | 2      |
  | 10:00:10 | watermark 2026-01-01 10:00:00 |      |        |

  expect totals

  | item | total |
  |------|-------|
  | tea  | 2     |

The statements are those of production: every table that is read gets its rows from the test, what is
written is kept, and nothing outside is touched. `at` is the clock, which is virtual. A case runs in
two contracts about order, with 1 and with 4 workers.

Examples:
  thalweg test                        all files *.test.md below this folder
  thalweg test totals.test.md
  thalweg test --update               what comes out is what is expected from now on

Exit status: 0 all passed, 1 some failed, 2 a file or the command line is wrong.";

/// What `--version` prints; `-V` prints the first word of it. `build.rs` finds out the rest.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("THALWEG_BUILD_COMMIT"),
    "\nfeatures: ",
    env!("THALWEG_BUILD_FEATURES"),
    "\ntarget: ",
    env!("THALWEG_BUILD_TARGET"),
);

/// Stream processing for one machine: Flink SQL on every core.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, long_version = LONG_VERSION)]
#[command(after_help = EXAMPLES, max_term_width = 100)]
#[command(arg_required_else_help = true, disable_help_subcommand = false)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the statements of a file
    #[command(after_help = "\
Examples:
  thalweg run delays.sql
  thalweg run --param day=2013-05-01 --set late.data=fail day.sql
  thalweg run --limit 10 -e 'SELECT …'

INSERTs and statement sets run at the same time, each as a job; SELECTs are awaited one after the other.
With SET 'table.dml-sync' = 'true' each INSERT is awaited, too. The run ends when all jobs have ended.
A job that fails stops the others (--keep-going: it does not).

Ctrl-C stops the jobs: what is complete is written, unfinished files keep the name NAME.partial.
A second Ctrl-C ends the process at once.

With SET 'execution.checkpointing.dir' = 'FOLDER' a job takes snapshots, also when it is stopped by
Ctrl-C or SIGTERM, is started again after a failure, and continues with
  thalweg run --resume job.sql")]
    Run(Box<RunArguments>),
    /// Check the statements of a file; run nothing
    #[command(after_help = "\
Every statement is parsed and planned; no table is opened. Exit status: 0 all is well, 2 there is
an error, 1 (with --flink) Thalweg runs the file and Apache Flink would refuse it.")]
    Validate(ValidateArguments),
    /// Write the file that Apache Flink accepts
    #[cfg(feature = "flink")]
    #[command(after_help = "\
What is lost stands as a comment before its statement. Exit status: 0 Flink takes the file, 1 something
in it has no translation (standard error says what), 2 the SQL is wrong.

Examples:
  thalweg translate --flink orders.sql > orders-flink.sql
  thalweg translate --flink --param day=2026-01-01 -o flink.sql orders.sql")]
    Translate(TranslateArguments),
    /// Run the queries of a file on Apache Flink as well, and compare the results
    #[cfg(feature = "flink")]
    #[command(after_help = "\
Each SELECT, and the query of each INSERT, runs on both; nothing is written. Inputs must end. Compared is
what is left when all changes were applied. Exit status: 0 all are equal, 1 some are different.

Example:
  thalweg compare --flink http://127.0.0.1:8083 report.sql")]
    Compare(CompareArguments),
    /// Run tests of SQL: what comes in, when, and what has to come out, in Markdown files
    #[command(after_help = TEST_EXAMPLE)]
    Test(TestArguments),
    /// Stop a job and continue it on Apache Flink, each result once
    #[cfg(feature = "flink")]
    #[command(after_help = "\
The job is stopped with a last snapshot. Flink reads its topics from the first row on that belongs to a
window that is open, and writes the windows that were not written. A job that holds what no rows can bring
back is refused, and runs on. Exit statuses are those of `thalweg submit --flink`.

Examples:
  thalweg move --flink http://127.0.0.1:8083 --dry-run counts      what would be sent, and why not
  thalweg move --flink http://127.0.0.1:8083 --jar flink-sql-connector-kafka.jar counts
  thalweg move --flink http://127.0.0.1:8083 counts.sql            a job of `thalweg run`, once it was stopped")]
    Move(Box<MoveArguments>),
    /// Show how the queries of a file would run
    #[command(after_help = "\
For each INSERT, statement set and SELECT: the logical plan with types and time attributes, and the
stages that would run, with their keys, watermark rule and late policy. Nothing is opened.

As a picture:
  thalweg explain --format dot delays.sql | dot -Tsvg > delays.svg")]
    Explain(ExplainArguments),
    /// List, show, verify, delete and ask for snapshots of jobs
    #[command(after_help = "\
Jobs take snapshots with SET 'execution.checkpointing.dir' = 'FOLDER', and resume from them with
`thalweg run --resume`.

Examples:
  thalweg snapshot ls --dir state                 every job and its snapshots
  thalweg snapshot show flights --dir state       what the newest one holds
  thalweg snapshot take flights --dir state       ask a running job for one, now
  thalweg snapshot verify flights --dir state     is every byte as it was written?
  export THALWEG_SNAPSHOT_DIR=state               so that --dir can be left out

Exit status: 0 done, 1 it failed or something is damaged, 2 the command line is wrong.")]
    Snapshot(SnapshotArguments),
    /// Show what becomes of a job's state when its statements change; change nothing
    #[command(after_help = "\
For each source, operator and sink: does it keep its state, does it begin empty, is its state removed?
A stage keeps its state while it computes the same from the same. A source keeps its position as long as
its table has the same name and connector.

Examples:
  thalweg upgrade --dry-run flights new.sql                     newest snapshot of the job 'flights'
  thalweg upgrade --dry-run state/flights/snapshots/0000000012 new.sql
  thalweg upgrade --dry-run old.sql new.sql                     before there is any snapshot

Exit status: 0 it resumes with all of its state, 1 some would have to be dropped (--drop-state), or it
cannot resume; 2 the SQL or the command line is wrong.")]
    Upgrade(UpgradeArguments),
    /// Run a server: many jobs in one process, steered over HTTP
    #[cfg(feature = "server")]
    #[command(after_help = "\
Examples:
  thalweg serve                                   keep everything in ./thalweg-data
  thalweg serve -o start.concurrency=8 --hold     set an option, start no job
  thalweg submit orders.sql                       make a job of a file, and start it
  thalweg ls                                      what the jobs do

The first Ctrl-C or SIGTERM stops all jobs, each with a snapshot; the next server continues with them.
A second one cuts off what still runs, which is as safe as a crash.")]
    Serve(ServeArguments),
    /// Show a job over rows that come out of order, with its page
    #[cfg(feature = "server")]
    #[command(after_help = "\
Departures of three airports are made here, most reported within a second, some 25 s later. A job counts them
in windows of 10 s, and waits 5 s for late ones. Nothing is downloaded, and nothing listens but on this machine.

Examples:
  thalweg demo                 begin, and open the page
  thalweg demo wait 20         in another terminal: wait 20 s; fewer rows are late, results come later
  thalweg demo why             one airport falls silent; who holds the results back?

Ctrl-C ends it, and removes its folder.")]
    Demo(DemoArguments),
    /// Show the documentation of this version, which is part of the program
    #[cfg(feature = "server")]
    #[command(after_help = "\
Pages are printed as Markdown. A server shows the same pages in a browser, at /docs.

Examples:
  thalweg docs                       list the pages
  thalweg docs cli                   print one
  thalweg docs --search idle         lines of all pages that hold a word

Exit status: 0 done, 1 no line holds the text, 2 there is no such page.")]
    Docs(DocsArguments),
    /// List the jobs of a server
    #[cfg(feature = "server")]
    Ls(JobsArguments),
    /// Watch the jobs of a server
    #[cfg(feature = "server")]
    #[command(after_help = "\
Keys: / filters, s sorts, enter shows stages, w says why results are where they are, p takes a snapshot,
S stops a job, ? lists all of them, q leaves. Without a terminal it prints once, as --once does.

Examples:
  thalweg top
  thalweg top --sort lag --filter held
  thalweg top --once --json")]
    Top(TopArguments),
    /// Look at rows of a job of a server, as they pass from stage to stage
    #[cfg(feature = "server")]
    #[command(after_help = "\
Of each bundle it shows the first rows at most: a look at them, and not all of them. It does not slow
the job, ends by itself after 10 minutes, and is written into the audit log, since rows are data.

Examples:
  thalweg tap orders                              what outputs are given
  thalweg tap orders --table items --limit 10     what a table gives
  thalweg tap orders --into 'window o' --where \"item = 'tea'\"
  thalweg tap orders --limit 50 --record orders.test.md   what tables give, as a test: see `thalweg test`")]
    Tap(TapArguments),
    /// Show rows of a job of a server that came too late
    #[cfg(feature = "server")]
    #[command(after_help = "\
Shown are the last rows of the run that were late for all their windows, with their time, the watermark that
had passed it, and the stage that judged them; at most 10,000 are kept. They are kept here also where the
job only counts them. SET 'late.data' = 'TABLE' keeps all of them, for good.

Examples:
  thalweg late orders
  thalweg late orders --stage 'window o' --limit 100 --json")]
    Late(LateArguments),
    /// Show rows of a job of a server that could not be read, or read them again
    #[cfg(feature = "server")]
    #[command(after_help = "\
Rows are read again with the statements that the job has now: those that can be read become rows of the job, each
once, and are not shown any more. Event time decides whether they are late by then.

Examples:
  thalweg dead orders
  thalweg dead orders --replay                                 all of them
  thalweg dead orders --replay --where \"reason LIKE '%price%'\"
  thalweg dead orders --replay orders:1042 orders:2210         these")]
    Dead(DeadArguments),
    /// Run new statements on a copy of a job's state, writing nothing
    #[cfg(feature = "server")]
    #[command(after_help = "\
The statements begin from the job's newest snapshot, read what its inputs have behind that, and write nowhere. What
came of it is printed: rows, late and bad ones, state, latency, first rows, and where they differ from those of now.

Examples:
  thalweg trial orders orders.sql --seconds 30
  thalweg trial orders orders.sql --from 17 --json")]
    Trial(TrialArguments),
    /// Write what a bug report about a job of a server needs into a ZIP file
    #[cfg(feature = "server")]
    SupportBundle(BundleArguments),
    /// Show a job of a server, with its stages
    #[cfg(feature = "server")]
    Describe(JobArguments),
    /// Say which input holds the results of a job back, since when, and why
    #[cfg(feature = "server")]
    Why(WhyArguments),
    /// Make a job of a file and start it, or change the statements of a job
    #[cfg(feature = "server")]
    #[command(after_help = "\
Examples:
  thalweg submit orders.sql                                    to the server of ./thalweg-data
  thalweg submit --flink http://127.0.0.1:8083 orders.sql      to an Apache Flink cluster

A file that goes to Flink is checked and translated first (`thalweg translate --flink`); --dry-run prints
what would be sent. The job is then followed until it ends: Ctrl-C ends the following, not the job.")]
    Submit(SubmitArguments),
    /// Start a job of a server
    #[cfg(feature = "server")]
    Start(StartArguments),
    /// Stop a job of a server
    #[cfg(feature = "server")]
    Stop(StopArguments),
    /// End a job of a Flink cluster without a savepoint
    #[cfg(feature = "flink")]
    Cancel(CancelArguments),
    /// Let a job of a server read nothing for a while
    #[cfg(feature = "server")]
    Pause(JobArguments),
    /// Let a job that is paused read again
    #[cfg(feature = "server")]
    Resume(JobArguments),
    /// Stop a job with a snapshot and start it from that
    #[cfg(feature = "server")]
    Restart(JobArguments),
    /// Let a job drop state that its statements have no use for
    #[cfg(feature = "server")]
    Approve(ApproveArguments),
    /// Print what a job of a server has said
    #[cfg(feature = "server")]
    Logs(LogsArguments),
    /// Print what happened to a job of a server
    #[cfg(feature = "server")]
    Events(EventsArguments),
    /// Ask a server a SELECT
    #[cfg(feature = "server")]
    Query(QueryArguments),
    /// Say whether a server is there
    #[cfg(feature = "server")]
    Status(StatusArguments),
    /// Make, list and delete tokens of a server
    #[cfg(feature = "server")]
    Token(TokenArguments),
    /// Print what makes a shell complete commands and options
    #[command(after_help = "\
Examples:
  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh  > ~/.zfunc/_thalweg
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish")]
    Completions(CompletionArguments),
    /// Write the manual pages of all commands into a folder
    #[command(name = "man", hide = true)]
    Manual(ManualArguments),
    /// Measure how fast known queries run on this machine
    Bench(BenchArguments),
}

/// Where the statements come from and what they may touch.
#[derive(Args, Clone, Debug)]
pub struct ScriptArguments {
    /// The file with the statements; `-` reads standard input
    #[arg(value_name = "FILE", required_unless_present = "execute")]
    pub file: Option<PathBuf>,
    /// Takes the statements from the command line
    #[arg(
        short = 'e',
        long = "execute",
        value_name = "SQL",
        conflicts_with = "file",
        allow_hyphen_values = true
    )]
    pub execute: Option<String>,
    /// Sets an option before the first statement, as `SET 'KEY' = 'VALUE'` does; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub settings: Vec<(String, String)>,
    /// Replaces ${NAME} in the statements; repeatable
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = key_and_value)]
    pub parameters: Vec<(String, String)>,
    /// Lets the statements read and write files below this folder as well; repeatable. Without it:
    /// the folder of FILE and the current one
    #[arg(long = "allow-path", value_name = "DIR")]
    pub allow_paths: Vec<PathBuf>,
    /// Colors in messages
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
}

/// `thalweg run`
#[derive(Args, Debug)]
pub struct RunArguments {
    /// The statements.
    #[command(flatten)]
    pub script: ScriptArguments,
    /// How SELECTs print [default: table on a terminal, else csv]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<ResultFormat>,
    /// Prints what is left of a result that changes, once its input has ended, in place of the
    /// changes
    #[arg(long = "final")]
    pub is_final: bool,
    /// How NULL prints in CSV
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub null: String,
    /// Worker threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Stops each SELECT after N rows
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Everything that a job, or all jobs that run at the same time, may keep in memory, such as
    /// 4gb or 50% [default: 70%]
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Takes down in FILE in which sequence the rows of several inputs came in ('pipeline.order' =
    /// 'arrival')
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Lets the inputs come in as FILE says, which an earlier run has recorded
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Resumes from the newest snapshot of each job ('execution.checkpointing.dir'), if it has one
    #[arg(long, conflicts_with = "from")]
    pub resume: bool,
    /// Resumes from this snapshot: its number, or its folder (…/JOB/snapshots/0000000012)
    #[arg(long, value_name = "SNAPSHOT", value_parser = snapshot)]
    pub from: Option<SnapshotReference>,
    /// Lets go of state in the snapshot that the query has no use for any more
    #[arg(long)]
    pub drop_state: bool,
    /// Replaces what an earlier run has written where this one is to write; with --from also what
    /// outputs hold beyond the snapshot
    #[arg(long)]
    pub overwrite: bool,
    /// Closes windows before a job with snapshots is stopped by Ctrl-C or SIGTERM, as if its input
    /// had ended
    #[arg(long)]
    pub drain: bool,
    /// Lets jobs that run at the same time as one that fails continue to their end; the exit status
    /// is that of the failure all the same
    #[arg(long)]
    pub keep_going: bool,
    /// Prints no progress, no summary, and no warning about late and bad rows
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// Prints what each operator did, and result latencies, at the end on standard error
    #[arg(long)]
    pub metrics: bool,
}

/// `thalweg validate`
#[derive(Args, Debug)]
pub struct ValidateArguments {
    /// The statements.
    #[command(flatten)]
    pub script: ScriptArguments,
    /// Lists what Apache Flink would refuse, and what it would ignore
    #[arg(long)]
    pub flink: bool,
    /// A jar that the Flink cluster has beyond those that come with Flink, by its name or path;
    /// repeatable
    #[arg(long = "jar", value_name = "FILE", requires = "flink")]
    pub jars: Vec<String>,
}

/// `thalweg test`
#[derive(Args, Debug)]
pub struct TestArguments {
    /// Files of tests, and folders in which all files NAME.test.md are taken [default: the current
    /// folder]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Runs only cases whose name, or file, holds this text
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Writes the rows that came out into the files, in the place of those that were expected
    #[arg(long)]
    pub update: bool,
    /// Prints a JSON object for each case
    #[arg(long)]
    pub json: bool,
    /// Sets an option before the first statement, as `SET 'KEY' = 'VALUE'` does; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub settings: Vec<(String, String)>,
    /// Replaces ${NAME} in the statements; repeatable
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = key_and_value)]
    pub parameters: Vec<(String, String)>,
    /// Colors in messages
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,
}

/// `thalweg explain`
#[derive(Args, Debug)]
pub struct ExplainArguments {
    /// The statements.
    #[command(flatten)]
    pub script: ScriptArguments,
    /// Worker threads to plan for [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// In words, or as a graph for Graphviz
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: PlanFormat,
}

/// `thalweg upgrade`
#[derive(Args, Debug)]
pub struct UpgradeArguments {
    /// What there is: a job (its newest snapshot), the folder of a snapshot, or the old statements
    /// (….sql)
    #[arg(value_name = "OLD")]
    pub old: String,
    /// The new statements.
    #[command(flatten)]
    pub script: ScriptArguments,
    /// Compares and changes nothing; `thalweg run` resumes the job
    #[arg(long, required = true)]
    pub dry_run: bool,
    /// Where snapshots are kept
    /// [default: the variable THALWEG_SNAPSHOT_DIR, else what the new statements say]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<String>,
    /// How the answer prints
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ListFormat,
}

/// `thalweg completions`
#[derive(Args, Debug)]
pub struct CompletionArguments {
    /// The shell that is to complete commands
    pub shell: clap_complete::Shell,
}

/// `thalweg man`
#[derive(Args, Debug)]
pub struct ManualArguments {
    /// The folder, which is made if it is missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// How plans print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// In words
    Text,
    /// The DOT language of Graphviz
    Dot,
}

impl From<PlanFormat> for ExplainFormat {
    fn from(format: PlanFormat) -> Self {
        match format {
            PlanFormat::Text => ExplainFormat::Text,
            PlanFormat::Dot => ExplainFormat::Graphviz,
        }
    }
}

/// When messages are colored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How results print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// Aligned columns, for people
    Table,
    /// Comma-separated values with a header
    Csv,
    /// A JSON object on each line
    Ndjson,
}

impl From<ResultFormat> for output::Format {
    fn from(format: ResultFormat) -> Self {
        match format {
            ResultFormat::Table => output::Format::Table,
            ResultFormat::Csv => output::Format::Csv,
            ResultFormat::Ndjson => output::Format::Ndjson,
        }
    }
}

fn snapshot(text: &str) -> Result<SnapshotReference, String> {
    text.parse().map_err(|error: thalweg_core::Error| error.to_string())
}

/// Splits `KEY=VALUE` at the first `=`.
pub fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("write KEY=VALUE, without spaces around the `=`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn values_may_hold_an_equals_sign() {
        assert_eq!(key_and_value("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(key_and_value("a="), Ok(("a".to_owned(), String::new())));
        assert!(key_and_value("=b").is_err());
        assert!(key_and_value("a").is_err());
    }

    #[test]
    fn a_file_or_a_text_is_needed_and_not_both() {
        let parse = |words: &[&str]| Arguments::try_parse_from(words);
        assert!(parse(&["thalweg", "run"]).is_err());
        assert!(parse(&["thalweg", "run", "-"]).is_ok());
        assert!(parse(&["thalweg", "run", "-e", "SELECT 1"]).is_ok());
        assert!(parse(&["thalweg", "run", "f.sql", "-e", "SELECT 1"]).is_err());
    }
}
