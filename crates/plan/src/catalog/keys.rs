//! Every key that SET understands, in one table.

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Flink has it and it means the same here.
    Flink,
    /// Flink has it; here it is another name of the key given.
    AliasOf(&'static str),
    /// Flink has it; here it is accepted and changes nothing, for the reason given.
    Inert(&'static str),
    /// Ours. Flink accepts and ignores it.
    Ours,
}

/// How a value is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text that is not empty.
    Text,
    /// One of these words; `None` for a word that is understood but not supported.
    Word(&'static [(&'static str, bool)]),
    /// A time zone.
    Zone,
    /// A whole number between the two.
    Count(usize, usize),
    /// A duration such as `30 s`.
    Duration,
    /// A duration or `off`.
    DurationOrOff,
    /// `70%`, or a size such as `4 gb`.
    Memory,
    /// Anything.
    Unchecked,
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// How its values are checked.
    pub kind: Kind,
    /// Its default, as a user would write it; empty if there is none.
    pub default: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// What it means.
    pub doc: &'static str,
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    origin: Origin,
    doc: &'static str,
) -> Key {
    Key { name, kind, default, origin, doc }
}

const WATERMARKS: &str = "watermarks follow the data alone";
const RESULT_MODE: &str = "the command line's --format decides how results look";

/// All keys.
pub const KEYS: &[Key] = &[
    key(
        "table.local-time-zone",
        Kind::Zone,
        "UTC",
        Origin::Flink,
        "session time zone: TIMESTAMP_LTZ as text, as TIMESTAMP, and in windows",
    ),
    key(
        "pipeline.name",
        Kind::Text,
        "",
        Origin::Flink,
        "the job's name in progress and metrics; default is the file's name",
    ),
    key(
        "pipeline.order",
        Kind::Word(&[("epoch", true), ("arrival", true), ("event_time", true)]),
        "epoch",
        Origin::Ours,
        "what is promised about the sequence of results: epoch (none between two watermarks), arrival \
         (that of one thread, row by row), event_time (inputs merge by time, then as arrival)",
    ),
    key(
        "pipeline.order.allow-nondeterministic",
        Kind::Word(&[("false", true), ("true", true)]),
        "false",
        Origin::Ours,
        "admits RAND, NOW, max-future-skew and the like in ordered contracts; runs may differ then",
    ),
    key(
        "pipeline.scheduler",
        Kind::Word(&[
            ("nem", true),
            ("round-robin", true),
            ("lp", true),
            ("ct", true),
            ("et", true),
            ("qst", true),
        ]),
        "nem",
        Origin::Ours,
        "which work comes first; results are the same",
    ),
    key(
        "pipeline.scheduler.window",
        Kind::Duration,
        "100 ms",
        Origin::Ours,
        "over how long ct compares the time that stages took",
    ),
    key(
        "pipeline.workers",
        Kind::Count(1, 1024),
        "",
        Origin::Ours,
        "worker threads; default is one per core",
    ),
    key(
        "parallelism.default",
        Kind::Count(1, 1024),
        "",
        Origin::AliasOf("pipeline.workers"),
        "worker threads",
    ),
    key(
        "pipeline.spin",
        Kind::Duration,
        "0 s",
        Origin::Ours,
        "how long an idle worker looks for work before it parks",
    ),
    key(
        "pipeline.bundle-rows-max",
        Kind::Count(1, 1 << 20),
        "65536",
        Origin::Ours,
        "the largest bundle, in rows",
    ),
    key(
        "pipeline.bundle-linger",
        Kind::Duration,
        "1 ms",
        Origin::Ours,
        "how long a source waits for a bundle to fill while the pipeline keeps up",
    ),
    key(
        "memory.limit",
        Kind::Memory,
        "70%",
        Origin::Ours,
        "everything that a job may keep in memory: a size, or a share of what there is",
    ),
    key(
        "late.data",
        Kind::Text,
        "drop",
        Origin::Ours,
        "rows late for all their windows: drop, fail, or a table that receives them",
    ),
    key(
        "watermark.idle-timeout",
        Kind::Duration,
        "30 s",
        Origin::Ours,
        "after this silence an unbounded input holds the watermark back no longer; 0 s for never",
    ),
    key(
        "table.exec.source.idle-timeout",
        Kind::Duration,
        "",
        Origin::AliasOf("watermark.idle-timeout"),
        "silence after which an input is idle",
    ),
    key(
        "watermark.max-future-skew",
        Kind::DurationOrOff,
        "off",
        Origin::Ours,
        "rows whose time lies further ahead of the wall clock are quarantined",
    ),
    key(
        "execution.runtime-mode",
        Kind::Word(&[("streaming", true), ("batch", true), ("automatic", false)]),
        "streaming",
        Origin::Flink,
        "streaming (results as rows come), or batch (inputs end, and results are final: no row is late, \
         nothing is updated)",
    ),
    key(
        "pipeline.auto-watermark-interval",
        Kind::Duration,
        "",
        Origin::Inert(WATERMARKS),
        "how often Flink emits watermarks",
    ),
    key(
        "sql-client.execution.result-mode",
        Kind::Unchecked,
        "",
        Origin::Inert(RESULT_MODE),
        "how Flink's client shows results",
    ),
    key(
        "table.exec.state.ttl",
        Kind::Duration,
        "0 s",
        Origin::Flink,
        "how long state of results that keep changing is kept after its last use; 0 s for ever",
    ),
    key(
        "table.exec.mini-batch.enabled",
        Kind::Word(&[("false", true), ("true", true)]),
        "false",
        Origin::Flink,
        "one update per key and bundle in the place of one per row",
    ),
    key(
        "table.exec.sink.type-length-enforcer",
        Kind::Word(&[("ignore", true), ("trim_pad", true), ("error", true)]),
        "ignore",
        Origin::Flink,
        "what becomes of text and bytes that do not have the length of the column that they are written into",
    ),
    key(
        "table.exec.sink.not-null-enforcer",
        Kind::Word(&[("error", true), ("drop", true)]),
        "error",
        Origin::Flink,
        "whether a NULL in a NOT NULL column of a table that is written fails the job or leaves its row out",
    ),
    key(
        "table.exec.sink.upsert-materialize",
        Kind::Word(&[("none", true), ("auto", true), ("force", true)]),
        "auto",
        Origin::Flink,
        "whether the rows of each primary key are kept in front of a table that takes upserts; auto: where the query updates its rows by another key",
    ),
    key(
        "execution.checkpointing.dir",
        Kind::Text,
        "",
        Origin::Flink,
        "where snapshots are kept: a folder, file:///…, s3://bucket/prefix; without it none are taken",
    ),
    key(
        "state.checkpoints.dir",
        Kind::Text,
        "",
        Origin::AliasOf("execution.checkpointing.dir"),
        "where snapshots are kept",
    ),
    key(
        "execution.checkpointing.interval",
        Kind::Duration,
        "10 s",
        Origin::Flink,
        "from the beginning of one snapshot to that of the next; 0 s for none but those asked for",
    ),
    key(
        "execution.checkpointing.mode",
        Kind::Word(&[("EXACTLY_ONCE", true), ("AT_LEAST_ONCE", true)]),
        "EXACTLY_ONCE",
        Origin::Flink,
        "the guarantee for the output of a job that resumes after a failure: each result once (what sinks \
         write becomes visible with the next snapshot), or none lost (sinks write at once)",
    ),
    key(
        "execution.checkpointing.num-retained",
        Kind::Count(1, 10_000),
        "3",
        Origin::Flink,
        "how many of the newest snapshots are kept; those asked for by hand stay until they are deleted",
    ),
    key(
        "state.checkpoints.num-retained",
        Kind::Count(1, 10_000),
        "",
        Origin::AliasOf("execution.checkpointing.num-retained"),
        "how many of the newest snapshots are kept",
    ),
    key(
        "execution.checkpointing.timeout",
        Kind::Duration,
        "10 min",
        Origin::Flink,
        "a snapshot that takes longer is given up, and counts as failed",
    ),
    key(
        "execution.checkpointing.min-pause",
        Kind::Duration,
        "0 s",
        Origin::Flink,
        "from the end of one snapshot to the beginning of the next, at least",
    ),
    key(
        "execution.checkpointing.tolerable-failed-checkpoints",
        Kind::Count(0, 1_000_000),
        "3",
        Origin::Flink,
        "how many snapshots may fail one after the other before 'execution.checkpointing.on-failure' holds",
    ),
    key(
        "execution.checkpointing.on-failure",
        Kind::Word(&[("fail", true), ("pause", true), ("continue", true)]),
        "fail",
        Origin::Ours,
        "when too many snapshots have failed (a full disk): the job fails, reads nothing more until one \
         succeeds, or continues without",
    ),
    key(
        "execution.checkpointing.incremental",
        Kind::Word(&[("true", true), ("false", true)]),
        "true",
        Origin::Flink,
        "operators with much state write what has changed since the last snapshot",
    ),
    key(
        "restart-strategy.type",
        Kind::Word(&[
            ("none", true),
            ("off", true),
            ("disable", true),
            ("fixed-delay", true),
            ("failure-rate", true),
            ("exponential-delay", true),
        ]),
        "exponential-delay",
        Origin::Flink,
        "how a job that takes snapshots is started again after a failure",
    ),
    key(
        "restart-strategy",
        Kind::Word(&[
            ("none", true),
            ("off", true),
            ("disable", true),
            ("fixed-delay", true),
            ("failure-rate", true),
            ("exponential-delay", true),
        ]),
        "",
        Origin::AliasOf("restart-strategy.type"),
        "how a job is started again after a failure",
    ),
    key(
        "restart-strategy.fixed-delay.attempts",
        Kind::Count(0, 1_000_000),
        "1",
        Origin::Flink,
        "how often at most",
    ),
    key(
        "restart-strategy.fixed-delay.delay",
        Kind::Duration,
        "1 s",
        Origin::Flink,
        "how long to wait before each",
    ),
    key(
        "restart-strategy.failure-rate.max-failures-per-interval",
        Kind::Count(0, 1_000_000),
        "1",
        Origin::Flink,
        "how many failures at most within the interval",
    ),
    key(
        "restart-strategy.failure-rate.failure-rate-interval",
        Kind::Duration,
        "1 min",
        Origin::Flink,
        "the interval in which failures are counted",
    ),
    key(
        "restart-strategy.failure-rate.delay",
        Kind::Duration,
        "1 s",
        Origin::Flink,
        "how long to wait before each",
    ),
    key(
        "restart-strategy.exponential-delay.initial-backoff",
        Kind::Duration,
        "1 s",
        Origin::Flink,
        "how long to wait before the first",
    ),
    key(
        "restart-strategy.exponential-delay.max-backoff",
        Kind::Duration,
        "1 min",
        Origin::Flink,
        "how long to wait at most; each wait is half as long again as the one before",
    ),
    key(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        Kind::Duration,
        "1 h",
        Origin::Flink,
        "after this long without a failure it is reset",
    ),
    key(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        Kind::Count(0, 1_000_000),
        "20",
        Origin::Flink,
        "how often at most before it is reset",
    ),
];

/// Families of Flink's keys that concern its cluster, its state or its optimizer.
pub(super) const INERT_PREFIXES: [(&str, &str); 20] = [
    ("execution.checkpointing.", "it tunes Flink's checkpoints"),
    ("execution.", "it concerns a Flink cluster"),
    ("state.", "it tunes Flink's state"),
    ("restart-strategy", "it tunes Flink's restarts"),
    ("table.exec.", "it tunes Flink's operators"),
    ("table.optimizer.", "it tunes Flink's optimizer"),
    ("table.", "it tunes Flink's planner"),
    ("sql-client.", "it concerns Flink's client"),
    ("taskmanager.", "there is no cluster"),
    ("jobmanager.", "there is no cluster"),
    ("cluster.", "there is no cluster"),
    ("high-availability", "there is no cluster"),
    ("heartbeat.", "there is no cluster"),
    ("rest.", "there is no cluster"),
    ("web.", "there is no cluster"),
    ("metrics.", "metrics are printed with --metrics"),
    ("python.", "it concerns Flink's Python workers"),
    ("pipeline.max-parallelism", "keys are spread over 256 virtual partitions"),
    ("pipeline.object-reuse", "it tunes Flink's operators"),
    ("pipeline.operator-chaining", "stateless operators are always fused"),
];

/// The key of this name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}
