//! Every key that SET understands, in one table.
//!
//! The table is read by SET (is the key known, is the value right), by the getters of `Settings`
//! (the default) and by the error messages. A new key is one entry here and one getter; a test
//! checks that each default is a value of its key.
//!
//! Keys of Flink keep Flink's name and meaning. Most of ours begin with `pipeline.`, `memory.`,
//! `late.` or `watermark.`, where Flink has no such key.

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Flink has it and it means the same here.
    /// Defaults may differ.
    Flink,
    /// Flink has it; here it is another name of the key given.
    /// Values are kept under the other name, and both are reset together. Its own default is empty.
    AliasOf(&'static str),
    /// Flink has it; here it is accepted and changes nothing, for the reason given.
    Inert(&'static str),
    /// Ours. Flink accepts and ignores it.
    Ours,
}

/// How a value is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// Any text that is not empty.
    Text,
    /// One of these words, in any case.
    Word(&'static [&'static str]),
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
    /// Hosts, as [`thalweg_core::connector::AllowedTargets`] reads them. Once set it stays.
    Targets,
    /// A text that is not shown; `${secret:name}` may stand in it.
    Secret,
    /// Anything.
    Unchecked,
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct SettingKey {
    /// Its name.
    pub name: &'static str,
    /// How its values are checked.
    pub kind: SettingKind,
    /// Its default, as a user would write it; empty if there is none.
    pub default: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// What it means.
    pub doc: &'static str,
}

/// An array of [`SettingKey`]s: name, kind, default and origin of each, then what it means.
macro_rules! keys {
    ($($name:literal: $kind:ident $(($($values:expr),*))? = $default:literal, $origin:ident $(($of:expr))?
        => $doc:literal;)*) => {
        [$(SettingKey {
            name: $name,
            kind: SettingKind::$kind $(($($values),*))?,
            default: $default,
            origin: Origin::$origin $(($of))?,
            doc: $doc,
        }),*]
    };
}

const FLAG: &[&str] = &["false", "true"];
const STRATEGIES: &[&str] =
    &["none", "off", "disable", "fixed-delay", "failure-rate", "exponential-delay"];
/// Words that are understood but not supported.
pub(super) const LATER_WORDS: &[&str] = &["automatic"];
const WATERMARKS: &str = "watermarks follow the data alone";
const RESULT_MODE: &str = "the command line's --format decides how results look";

/// All keys.
pub const KEYS: &[SettingKey] = &keys! {
    "table.local-time-zone": Zone = "UTC", Flink
        => "session time zone: TIMESTAMP_LTZ as text, as TIMESTAMP, and in windows";
    "pipeline.name": Text = "", Flink
        => "the job's name in progress and metrics; default is the file's name";
    "pipeline.order": Word(&["epoch", "arrival", "event_time"]) = "epoch", Ours
        => "what is promised about the sequence of results: epoch (none between two watermarks), \
            arrival (that of one thread, row by row), event_time (inputs merge by time, then as \
            arrival)";
    "pipeline.order.allow-nondeterministic": Word(FLAG) = "false", Ours
        => "admits RAND, NOW, max-future-skew and the like in ordered contracts; runs may differ \
            then";
    "pipeline.scheduler": Word(&["nem", "round-robin", "lp", "ct", "et", "qst"]) = "nem", Ours
        => "which work comes first; results are the same";
    "pipeline.scheduler.window": Duration = "100 ms", Ours
        => "over how long ct compares the time that stages took";
    "pipeline.workers": Count(1, 1024) = "", Ours
        => "worker threads; default is one per core";
    "parallelism.default": Count(1, 1024) = "", AliasOf("pipeline.workers")
        => "worker threads";
    "pipeline.spin": Duration = "0 s", Ours
        => "how long an idle worker looks for work before it parks";
    "pipeline.bundle-rows-max": Count(1, 1 << 20) = "65536", Ours
        => "the largest bundle, in rows";
    "pipeline.bundle-linger": Duration = "1 ms", Ours
        => "how long a source waits for a bundle to fill while the pipeline keeps up";
    "memory.limit": Memory = "70%", Ours
        => "everything that a job may keep in memory: a size, or a share of what there is";
    "late.data": Text = "drop", Ours
        => "rows late for all their windows: drop, fail, or a table that receives them";
    "watermark.idle-timeout": Duration = "30 s", Ours
        => "after this silence an unbounded input holds the watermark back no longer; 0 s for \
            never";
    "table.exec.source.idle-timeout": Duration = "", AliasOf("watermark.idle-timeout")
        => "silence after which an input is idle";
    "watermark.max-future-skew": DurationOrOff = "off", Ours
        => "rows whose time lies further ahead of the wall clock are quarantined";
    "secrets.file": Text = "", Ours
        => "the file with lines name = value in which ${secret:name} is looked up where the \
            environment has no THALWEG_SECRET_NAME";
    "network.allowed-targets": Targets = "*", Ours
        => "the hosts that connectors may talk to: host, host:port, *.domain or address/bits, with \
            ; between them; once set it can't be changed";
    "s3.endpoint": Text = "", Flink
        => "the server of s3:// paths, where it is not Amazon's: http://host:port; http:// is not \
            encrypted";
    "s3.region": Text = "", Flink
        => "the region of s3:// paths";
    "s3.endpoint.region": Text = "", AliasOf("s3.region")
        => "the region of s3:// paths";
    "s3.path-style-access": Word(FLAG) = "", Flink
        => "whether the bucket stands in the path of requests (as a rule), or in the name of the \
            host (false)";
    "s3.path.style.access": Word(FLAG) = "", AliasOf("s3.path-style-access")
        => "whether the bucket stands in the path of requests";
    "s3.access-key": Secret = "", Flink
        => "whose access to s3:// paths it is; without it the environment says (AWS_…)";
    "s3.secret-key": Secret = "", Flink
        => "the secret that goes with it";
    "execution.runtime-mode": Word(&["streaming", "batch", "automatic"]) = "streaming", Flink
        => "streaming (results as rows come), or batch (inputs end, and results are final: no row \
            is late, nothing is updated)";
    "pipeline.auto-watermark-interval": Duration = "", Inert(WATERMARKS)
        => "how often Flink emits watermarks";
    "sql-client.execution.result-mode": Unchecked = "", Inert(RESULT_MODE)
        => "how Flink's client shows results";
    "table.dml-sync": Word(FLAG) = "false", Flink
        => "whether each INSERT after it is awaited before the next statement begins; without it \
            INSERTs run at the same time, and what one writes no later statement reads";
    "table.plan.force-recompile": Word(FLAG) = "false", Flink
        => "whether COMPILE PLAN replaces a file that is there";
    "table.exec.state.ttl": Duration = "0 s", Flink
        => "how long state of results that keep changing is kept after its last use; 0 s for ever";
    "table.exec.mini-batch.enabled": Word(FLAG) = "false", Flink
        => "one update per key and bundle in the place of one per row";
    "table.exec.sink.type-length-enforcer": Word(&["ignore", "trim_pad", "error"]) = "ignore", Flink
        => "what becomes of text and bytes that do not have the length of the column that they are \
            written into";
    "table.exec.sink.not-null-enforcer": Word(&["error", "drop"]) = "error", Flink
        => "whether a NULL in a NOT NULL column of a table that is written fails the job or leaves \
            its row out";
    "table.exec.sink.upsert-materialize": Word(&["none", "auto", "force"]) = "auto", Flink
        => "whether the rows of each primary key are kept in front of a table that takes upserts; \
            auto: where the query updates its rows by another key";
    "execution.checkpointing.dir": Text = "", Flink
        => "where snapshots are kept: a folder, file:///…, s3://bucket/prefix; without it none are \
            taken";
    "state.checkpoints.dir": Text = "", AliasOf("execution.checkpointing.dir")
        => "where snapshots are kept";
    "execution.checkpointing.interval": Duration = "10 s", Flink
        => "from the beginning of one snapshot to that of the next; 0 s for none but those asked \
            for";
    "execution.checkpointing.mode": Word(&["EXACTLY_ONCE", "AT_LEAST_ONCE"]) = "EXACTLY_ONCE", Flink
        => "the guarantee for the output of a job that resumes after a failure: each result once \
            (what sinks write becomes visible with the next snapshot), or none lost (sinks write \
            at once)";
    "execution.checkpointing.num-retained": Count(1, 10_000) = "3", Flink
        => "how many of the newest snapshots are kept; those asked for by hand stay until they are \
            deleted";
    "state.checkpoints.num-retained": Count(1, 10_000) = "",
        AliasOf("execution.checkpointing.num-retained")
        => "how many of the newest snapshots are kept";
    "execution.checkpointing.timeout": Duration = "10 min", Flink
        => "a snapshot that takes longer is given up, and counts as failed";
    "execution.checkpointing.min-pause": Duration = "0 s", Flink
        => "from the end of one snapshot to the beginning of the next, at least";
    "execution.checkpointing.tolerable-failed-checkpoints": Count(0, 1_000_000) = "3", Flink
        => "how many snapshots may fail one after the other before \
            'execution.checkpointing.on-failure' holds";
    "execution.checkpointing.on-failure": Word(&["fail", "pause", "continue"]) = "fail", Ours
        => "when too many snapshots have failed (a full disk): the job fails, reads nothing more \
            until one succeeds, or continues without";
    "execution.checkpointing.incremental": Word(&["true", "false"]) = "true", Flink
        => "operators with much state write what has changed since the last snapshot";
    "restart-strategy.type": Word(STRATEGIES) = "exponential-delay", Flink
        => "how a job that takes snapshots is started again after a failure";
    "restart-strategy": Word(STRATEGIES) = "", AliasOf("restart-strategy.type")
        => "how a job is started again after a failure";
    "restart-strategy.fixed-delay.attempts": Count(0, 1_000_000) = "1", Flink
        => "how often at most";
    "restart-strategy.fixed-delay.delay": Duration = "1 s", Flink
        => "how long to wait before each";
    "restart-strategy.failure-rate.max-failures-per-interval": Count(0, 1_000_000) = "1", Flink
        => "how many failures at most within the interval";
    "restart-strategy.failure-rate.failure-rate-interval": Duration = "1 min", Flink
        => "the interval in which failures are counted";
    "restart-strategy.failure-rate.delay": Duration = "1 s", Flink
        => "how long to wait before each";
    "restart-strategy.exponential-delay.initial-backoff": Duration = "1 s", Flink
        => "how long to wait before the first";
    "restart-strategy.exponential-delay.max-backoff": Duration = "1 min", Flink
        => "how long to wait at most; each wait is half as long again as the one before";
    "restart-strategy.exponential-delay.reset-backoff-threshold": Duration = "1 h", Flink
        => "after this long without a failure it is reset";
    "restart-strategy.exponential-delay.attempts-before-reset-backoff": Count(0, 1_000_000) = "20",
        Flink
        => "how often at most before it is reset";
};

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
pub(super) fn find(name: &str) -> Option<&'static SettingKey> {
    KEYS.iter().find(|key| key.name == name)
}
