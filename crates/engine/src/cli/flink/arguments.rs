//! Options of the commands that talk to an Apache Flink cluster.

use clap::Args;

use super::super::arguments::key_and_value;

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
    /// Submits the file although the check finds something that Flink refuses
    #[arg(long, requires = "flink", help_heading = "Apache Flink")]
    pub unchecked: bool,
}
