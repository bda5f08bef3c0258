//! Options of the commands that talk to an Apache Flink cluster.

use std::path::PathBuf;

use clap::Args;
use thalweg_plan::flink_check::FlinkCluster;

use super::arguments::{ScriptArguments, key_and_value};
use super::server_arguments::ServerArguments;

/// Which cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct FlinkArguments {
    /// The SQL gateway of an Apache Flink cluster, such as http://127.0.0.1:8083, in place of a
    /// server of Thalweg
    #[arg(long, value_name = "URL", env = "THALWEG_FLINK", help_heading = "Apache Flink")]
    pub flink: Option<String>,
    /// Its job manager [default: as the gateway's settings say]
    #[arg(long, value_name = "URL", requires = "flink", help_heading = "Apache Flink")]
    pub flink_rest: Option<String>,
    /// A header of each request to it, for a proxy in front of it; repeatable
    #[arg(long = "flink-header", value_name = "NAME=VALUE", requires = "flink",
          value_parser = key_and_value, help_heading = "Apache Flink")]
    pub flink_headers: Vec<(String, String)>,
}

/// How a file runs there.
#[derive(Args, Clone, Debug, Default)]
pub struct FlinkSubmitArguments {
    /// A jar for the file, as the gateway finds it; repeatable
    #[arg(long = "jar", value_name = "FILE", requires = "flink", help_heading = "Apache Flink")]
    pub jars: Vec<String>,
    /// A jar in the lib folder of the cluster, by its name: the check counts it, and it is not
    /// added again; repeatable
    #[arg(
        long = "lib-jar",
        value_name = "NAME",
        requires = "flink",
        help_heading = "Apache Flink"
    )]
    pub lib_jars: Vec<String>,
    /// Tasks of each operator [default: parallelism.default of the cluster]
    #[arg(long, value_name = "N", requires = "flink", help_heading = "Apache Flink",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub parallelism: Option<u16>,
    /// How often it takes a checkpoint, such as 10s [default: as the file says]
    #[arg(long, value_name = "TIME", requires = "flink", help_heading = "Apache Flink")]
    pub checkpoint_interval: Option<String>,
    /// The savepoint or retained checkpoint that it begins from
    #[arg(long, value_name = "PATH", requires = "flink", help_heading = "Apache Flink")]
    pub savepoint: Option<String>,
    /// Stops a job of the same name with a savepoint first, and begins from that
    #[arg(long, requires = "flink", conflicts_with = "savepoint", help_heading = "Apache Flink")]
    pub replace: bool,
    /// Ends once the job runs; without it the job is followed until it ends
    #[arg(long, requires = "flink", help_heading = "Apache Flink")]
    pub detach: bool,
    /// Replaces ${secret:NAME} by the variable THALWEG_SECRET_NAME in the statements that are sent.
    /// The cluster's administrators can then read it
    #[arg(long, requires = "flink", help_heading = "Apache Flink")]
    pub send_secrets: bool,
    /// Submits the file although the check finds something that Flink refuses
    #[arg(long, requires = "flink", help_heading = "Apache Flink")]
    pub unchecked: bool,
}

impl FlinkSubmitArguments {
    /// What is known of the cluster.
    pub fn cluster(&self) -> FlinkCluster {
        let jars = [&self.jars[..], &self.lib_jars[..]].concat();
        FlinkCluster { jars, gets_secrets: self.send_secrets }
    }
}

/// `thalweg translate`
#[derive(Args, Debug)]
pub struct TranslateArguments {
    /// The statements.
    #[command(flatten)]
    pub script: ScriptArguments,
    /// Writes what Apache Flink accepts
    #[arg(long, required = true)]
    pub flink: bool,
    /// A jar that the Flink cluster has beyond those that come with Flink; repeatable
    #[arg(long = "jar", value_name = "FILE")]
    pub jars: Vec<String>,
    /// Writes to this file in place of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `thalweg compare`
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// The statements.
    #[command(flatten)]
    pub script: ScriptArguments,
    /// The cluster.
    #[command(flatten)]
    pub flink: FlinkArguments,
    /// A jar for the file, as the gateway finds it; repeatable
    #[arg(long = "jar", value_name = "FILE")]
    pub jars: Vec<String>,
    /// A jar in the lib folder of the cluster, by its name; repeatable
    #[arg(long = "lib-jar", value_name = "NAME")]
    pub lib_jars: Vec<String>,
    /// Replaces ${secret:NAME} by the variable THALWEG_SECRET_NAME in the statements that are sent
    #[arg(long)]
    pub send_secrets: bool,
    /// How many different rows are shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rows: usize,
    /// Seconds that a query of Flink's may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u64,
}

/// `thalweg move`
#[derive(Args, Debug)]
pub struct MoveArguments {
    /// The job of a server of this machine, or the file (….sql) of a job that was stopped
    #[arg(value_name = "JOB")]
    pub job: String,
    /// Replaces ${NAME} in the statements of a file
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = key_and_value)]
    pub params: Vec<(String, String)>,
    /// Sets an option before the first statement
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub settings: Vec<(String, String)>,
    /// Stops nothing: prints what would be sent if the job stopped at its newest snapshot
    #[arg(long)]
    pub dry_run: bool,
    /// A topic, where the job reads from, that hands over groups without a window
    #[arg(long, value_name = "TOPIC")]
    pub state_topic: Option<String>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArguments,
    /// The cluster.
    #[command(flatten)]
    pub flink: FlinkArguments,
    /// How the job runs there.
    #[command(flatten)]
    pub on_flink: FlinkSubmitArguments,
}
