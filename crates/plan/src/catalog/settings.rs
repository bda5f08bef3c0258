//! The values of SET, checked when they are set and read by type.
//!
//! Values are kept as written, under the key that an alias stands for; each getter falls back to
//! the default in [`super::KEYS`]. A value that was accepted can always be read.
//!
//! Settings hold for the statements after them: each statement is planned with those of its time.
//! What a job does later, SET changes no more.
//!
//! A key that is not known is an error, unless it belongs to a family of Flink's keys that concern
//! its cluster: then it is kept, shown by SET, and a note says that it has no effect. A slip in one
//! of our own keys is an error also inside of such a family, or `execution.checkpointing.intervall`
//! would be ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono_tz::Tz;
use thalweg_core::connector::{Access, AllowedTargets, Secrets, check_places, names_secret};
use thalweg_core::{Error, OrderContract, Result};
use thalweg_expr::build::Misfit;

use super::keys::{INERT_PREFIXES, KEYS, LATER_WORDS, Origin, SettingKind, find};
use super::quantity::{parse_duration, parse_size_bytes};
use super::{SettingKey, TextRows};
use crate::diagnostic::nearest;

/// What happens to rows that are late for all their windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LateData {
    /// They are counted and dropped.
    Drop,
    /// The job fails.
    Fail,
    /// They go to this table.
    Table(String),
}

/// Whether results come as rows come, or once at the end.
/// It changes the plan, not the runtime: see `logical::changes` and `physical`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuntimeMode {
    /// Results follow the rows; some are updated.
    #[default]
    Streaming,
    /// All inputs end, the watermark moves at the end only, and results are final.
    Batch,
}

/// Whether the rows of each primary key are kept in front of a table that takes upserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpsertMaterialize {
    /// Never: whoever sets it knows that the changes of each key come in order.
    None,
    /// Where the query updates its rows by another key.
    Auto,
    /// Always.
    Force,
}

/// Which work comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// What the next externalization moment needs.
    Nem,
    /// Each stage in turn.
    RoundRobin,
    /// The stage furthest downstream.
    LastInPipeline,
    /// The stage with the lowest normalized throughput.
    CurrentThroughput,
    /// The stage with the most work waiting.
    EstimatedTime,
    /// The earliest stage whose output queue is short.
    QueueSizeThrottling,
}

/// How much memory a job may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Percent of what the control group or the machine has, 1 to 100.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

/// The key that no later statement changes.
const ALLOWED_TARGETS: &str = "network.allowed-targets";

/// The options that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    // By the key's own name, whichever alias was used.
    values: BTreeMap<&'static str, String>,
    // Keys without effect, as written.
    inert: BTreeMap<String, String>,
}

impl Settings {
    /// Sets a key. Returns a note if it changes nothing here.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Option<String>> {
        let name = name.trim();
        let Some(key) = find(name) else { return self.set_unknown(name, value).map(Some) };
        check(key, value)?;
        if key.name == ALLOWED_TARGETS && self.values.get(name).is_some_and(|set| set != value) {
            return Err(stays(name));
        }
        match key.origin {
            Origin::Inert(reason) => {
                self.inert.insert(name.to_owned(), value.to_owned());
                return Ok(Some(inert_note(name, reason)));
            }
            Origin::AliasOf(real) => self.values.insert(real, value.to_owned()),
            Origin::Flink | Origin::Ours => self.values.insert(key.name, value.to_owned()),
        };
        Ok(None)
    }

    fn set_unknown(&mut self, name: &str, value: &str) -> Result<String> {
        let reason = inert_reason(name).ok_or_else(|| unknown_key(name))?;
        self.inert.insert(name.to_owned(), value.to_owned());
        Ok(inert_note(name, reason))
    }

    /// Brings a default back.
    pub fn reset(&mut self, name: &str) -> Result<()> {
        match find(name).map(|key| (key.name, key.origin)) {
            Some((_, Origin::AliasOf(real))) => drop(self.values.remove(real)),
            Some((name, _)) if name == ALLOWED_TARGETS && self.values.contains_key(name) => {
                return Err(stays(name));
            }
            Some((name, _)) => drop((self.values.remove(name), self.inert.remove(name))),
            None if inert_reason(name).is_some() => drop(self.inert.remove(name)),
            None => return Err(unknown_key(name)),
        }
        Ok(())
    }

    /// Brings all defaults back but that of which hosts may be talked to.
    pub(super) fn reset_all(&mut self) {
        self.values.retain(|name, _| *name == ALLOWED_TARGETS);
        self.inert.clear();
    }

    /// What is set, key by key.
    pub fn rows(&self) -> TextRows {
        let shown = |key: &str, value: &String| match find(key).map(|key| key.kind) {
            Some(SettingKind::Secret) if !names_secret(value) => "***".to_owned(),
            _ => value.clone(),
        };
        let set = self.values.iter().map(|(key, value)| ((*key).to_owned(), shown(key, value)));
        let inert = self.inert.iter().map(|(key, value)| (key.clone(), value.clone()));
        let mut rows: Vec<Vec<String>> =
            set.chain(inert).map(|(key, value)| vec![key, value]).collect();
        rows.sort();
        TextRows::new(&["key", "value"], rows)
    }

    /// The value of a key, or its default; empty without either.
    pub fn get(&self, name: &str) -> &str {
        let default = || find(name).map_or("", |key| key.default);
        self.values.get(name).map_or_else(default, String::as_str)
    }

    /// The value that was set for a key.
    pub(crate) fn set_value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }

    pub(super) fn count(&self, name: &str) -> Option<usize> {
        self.get(name).trim().parse().ok()
    }

    pub(super) fn duration(&self, name: &str) -> Duration {
        parse_duration(self.get(name)).unwrap_or_default()
    }

    /// `secrets.file`, `network.allowed-targets`, and what is set of object stores.
    pub fn access(&self, base_dir: &Path, allowed_roots: &[PathBuf]) -> Access {
        let file = self.text("secrets.file").map(|file| base_dir.join(file));
        let targets = self.values.get(ALLOWED_TARGETS).and_then(|list| list.parse().ok());
        let secrets = Secrets { folder: None, file, allowed_roots: allowed_roots.to_vec() };
        let stores = self.values.iter().filter(|(name, _)| name.starts_with("s3."));
        let stores = stores.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Access { secrets, targets: targets.unwrap_or_default(), stores, ..Access::default() }
    }

    /// `table.local-time-zone`
    pub fn zone(&self) -> Tz {
        parse_zone(self.get("table.local-time-zone")).unwrap_or(Tz::UTC)
    }
    /// `pipeline.name`
    pub fn pipeline_name(&self) -> Option<&str> {
        self.text("pipeline.name")
    }
    /// `pipeline.workers`; `None` for one per core.
    pub fn workers(&self) -> Option<usize> {
        self.count("pipeline.workers")
    }
    /// `pipeline.scheduler`
    pub fn scheduler(&self) -> Scheduler {
        match self.get("pipeline.scheduler").to_ascii_lowercase().as_str() {
            "round-robin" => Scheduler::RoundRobin,
            "lp" => Scheduler::LastInPipeline,
            "ct" => Scheduler::CurrentThroughput,
            "et" => Scheduler::EstimatedTime,
            "qst" => Scheduler::QueueSizeThrottling,
            _ => Scheduler::Nem,
        }
    }
    /// `pipeline.scheduler.window`
    pub fn scheduler_window(&self) -> Duration {
        self.duration("pipeline.scheduler.window")
    }
    /// `pipeline.order`
    pub fn order(&self) -> OrderContract {
        self.get("pipeline.order").parse().unwrap_or_default()
    }
    /// `table.exec.state.ttl` in milliseconds; `None` keeps state for ever.
    pub fn state_ttl_ms(&self) -> Option<i64> {
        let ttl = parse_duration(self.get("table.exec.state.ttl")).ok()?;
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        (ttl_ms > 0).then_some(ttl_ms)
    }

    /// `table.dml-sync`: true if an INSERT is awaited before the next statement begins.
    pub fn awaits_inserts(&self) -> bool {
        self.get("table.dml-sync").eq_ignore_ascii_case("true")
    }

    /// `table.plan.force-recompile`: COMPILE PLAN replaces a file.
    pub fn recompiles_plans(&self) -> bool {
        self.get("table.plan.force-recompile").eq_ignore_ascii_case("true")
    }

    /// `table.exec.mini-batch.enabled`
    pub fn mini_batch(&self) -> bool {
        self.get("table.exec.mini-batch.enabled").eq_ignore_ascii_case("true")
    }

    /// `table.exec.sink.upsert-materialize`
    pub fn upsert_materialize(&self) -> UpsertMaterialize {
        match self.get("table.exec.sink.upsert-materialize").to_ascii_lowercase().as_str() {
            "none" => UpsertMaterialize::None,
            "force" => UpsertMaterialize::Force,
            _ => UpsertMaterialize::Auto,
        }
    }

    /// `table.exec.sink.type-length-enforcer`
    pub fn length_misfit(&self) -> Misfit {
        match self.get("table.exec.sink.type-length-enforcer").to_ascii_lowercase().as_str() {
            "trim_pad" => Misfit::TrimPad,
            "error" => Misfit::Error,
            _ => Misfit::Ignore,
        }
    }

    /// `table.exec.sink.not-null-enforcer`: true if rows with a NULL in a NOT NULL column are left
    /// out.
    pub fn drops_nulls(&self) -> bool {
        self.get("table.exec.sink.not-null-enforcer").eq_ignore_ascii_case("drop")
    }

    /// `pipeline.order.allow-nondeterministic`
    pub fn allows_nondeterministic(&self) -> bool {
        self.get("pipeline.order.allow-nondeterministic").eq_ignore_ascii_case("true")
    }
    /// `execution.runtime-mode`
    pub fn runtime_mode(&self) -> RuntimeMode {
        match self.get("execution.runtime-mode") {
            word if word.eq_ignore_ascii_case("batch") => RuntimeMode::Batch,
            _ => RuntimeMode::Streaming,
        }
    }
    /// `pipeline.bundle-rows-max`
    pub fn bundle_rows_max(&self) -> usize {
        self.count("pipeline.bundle-rows-max").unwrap_or(64 * 1024)
    }
    /// `pipeline.spin`
    pub fn spin(&self) -> Duration {
        self.duration("pipeline.spin")
    }

    /// `pipeline.bundle-linger`
    pub fn bundle_linger(&self) -> Duration {
        self.duration("pipeline.bundle-linger")
    }
    /// `memory.limit`
    pub fn memory_limit(&self) -> MemoryLimit {
        parse_memory(self.get("memory.limit")).unwrap_or(MemoryLimit::Percent(70))
    }
    /// `late.data`
    pub fn late_data(&self) -> LateData {
        match self.get("late.data") {
            word if word.eq_ignore_ascii_case("drop") => LateData::Drop,
            word if word.eq_ignore_ascii_case("fail") => LateData::Fail,
            table => LateData::Table(table.to_owned()),
        }
    }
    /// `watermark.idle-timeout`; `None` if inputs are never idle.
    pub fn idle_timeout(&self) -> Option<Duration> {
        Some(self.duration("watermark.idle-timeout")).filter(|timeout| !timeout.is_zero())
    }
    /// `watermark.max-future-skew`; `None` if it is off.
    pub fn max_future_skew(&self) -> Option<Duration> {
        parse_duration(self.get("watermark.max-future-skew")).ok()
    }
}

/// The error of a key that a script can't loosen.
fn stays(name: &str) -> Error {
    Error::plan(format!("'{name}' is set and can't be changed any more"))
        .hint("it is set where the job is started, or once at the beginning of the script")
}

fn inert_note(name: &str, reason: &str) -> String {
    format!("the option '{name}' changes nothing here: {reason}")
}

fn inert_reason(name: &str) -> Option<&'static str> {
    if near_key(name).is_some() {
        return None;
    }
    INERT_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, reason)| *reason)
}

/// A key that differs by a slip of the pen only.
/// Two edits at most, a swap of neighbours being one.
fn near_key(name: &str) -> Option<&'static str> {
    let near = |key: &SettingKey| strsim::damerau_levenshtein(key.name, &name.to_lowercase()) <= 2;
    KEYS.iter().find(|key| near(key)).map(|key| key.name)
}

fn unknown_key(name: &str) -> Error {
    let names = || KEYS.iter().map(|key| key.name);
    let tail = |key: &&'static str| key.rsplit('.').next() == name.rsplit('.').next();
    let near = near_key(name)
        .map(str::to_owned)
        .or_else(|| nearest(name, names()))
        .or_else(|| names().find(tail).map(str::to_owned));
    let error = Error::plan(format!("there is no option '{name}'"));
    match near {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None => {
            let ours = KEYS.iter().filter(|key| !matches!(key.origin, Origin::Inert(_)));
            let list: Vec<&str> = ours.map(|key| key.name).collect();
            error.hint(format!("there are {}", list.join(", ")))
        }
    }
}

fn check(key: &SettingKey, value: &str) -> Result<()> {
    let refuse = |expected: &str| {
        Err(Error::plan(format!(
            "invalid value '{value}' for option '{}'; expected {expected}",
            key.name
        )))
    };
    match key.kind {
        SettingKind::Text if value.trim().is_empty() => refuse("a text that is not empty"),
        SettingKind::Text | SettingKind::Unchecked => Ok(()),
        SettingKind::Zone if parse_zone(value).is_some() => Ok(()),
        SettingKind::Zone => refuse(
            "a time zone such as 'UTC', 'Europe/Berlin' or, in whole hours, 'GMT+08:00' \
             (half hours have names such as 'Asia/Kolkata')",
        ),
        SettingKind::Count(low, high) => match value.trim().parse::<usize>() {
            Ok(count) if (low..=high).contains(&count) => Ok(()),
            _ => refuse(&format!("a whole number between {low} and {high}")),
        },
        SettingKind::Duration => parse_duration(value).map(drop),
        SettingKind::DurationOrOff if value.eq_ignore_ascii_case("off") => Ok(()),
        SettingKind::DurationOrOff => parse_duration(value).map(drop),
        SettingKind::Secret => check_places(value),
        SettingKind::Targets => value.parse::<AllowedTargets>().map(drop),
        SettingKind::Memory if parse_memory(value).is_some() => Ok(()),
        SettingKind::Memory => refuse("a size such as '4 gb', or a share such as '70%'"),
        SettingKind::Word(words) => {
            match words.iter().find(|word| word.eq_ignore_ascii_case(value)) {
                Some(word) if LATER_WORDS.contains(word) => Err(not_yet(key, word)),
                Some(_) => Ok(()),
                None => {
                    let list: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                    refuse(&list.join(", "))
                }
            }
        }
    }
}

fn not_yet(key: &SettingKey, word: &str) -> Error {
    Error::unsupported(format!("'{}' = '{word}' is not supported yet", key.name))
        .hint(format!("leave it at '{}': {}", key.default, key.doc))
}

/// `70%`, or a size of at least one byte.
fn parse_memory(text: &str) -> Option<MemoryLimit> {
    if let Some(number) = text.trim().strip_suffix('%') {
        let percent: u8 = number.trim().parse().ok()?;
        return (1..=100).contains(&percent).then_some(MemoryLimit::Percent(percent));
    }
    parse_size_bytes(text).ok().filter(|bytes| *bytes > 0).map(MemoryLimit::Bytes)
}

/// A zone by name, or by whole hours (`GMT+08:00`, `UTC-5`, `+01:00`).
fn parse_zone(text: &str) -> Option<Tz> {
    let text = text.trim();
    if let Ok(zone) = text.parse() {
        return Some(zone);
    }
    let offset = text.strip_prefix("GMT").or_else(|| text.strip_prefix("UTC")).unwrap_or(text);
    let (sign, digits) = match offset.split_at_checked(1)? {
        ("+", digits) => ("-", digits),
        ("-", digits) => ("+", digits),
        _ => return None,
    };
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "00"));
    let hours: u8 = hours.parse().ok()?;
    let is_whole = minutes.parse() == Ok(0u8);
    // The names of the database count westwards: Etc/GMT-8 lies east of Greenwich.
    if is_whole { format!("Etc/GMT{sign}{hours}").parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &str, value: &str) -> Result<Settings> {
        let mut settings = Settings::default();
        settings.set(key, value)?;
        Ok(settings)
    }

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(check(key, key.default).is_ok(), "{}", key.name);
        }
        let defaults = Settings::default();
        assert_eq!(defaults.zone(), Tz::UTC);
        assert_eq!((defaults.workers(), defaults.bundle_rows_max()), (None, 65536));
        assert_eq!(defaults.bundle_linger(), Duration::from_millis(1));
        assert_eq!(defaults.memory_limit(), MemoryLimit::Percent(70));
        assert_eq!(defaults.idle_timeout(), Some(Duration::from_secs(30)));
        assert_eq!((defaults.max_future_skew(), defaults.pipeline_name()), (None, None));
        assert_eq!((defaults.late_data(), defaults.scheduler()), (LateData::Drop, Scheduler::Nem));
    }

    #[test]
    fn values_are_read_by_type_and_aliases_are_the_same_key() -> Result<()> {
        assert_eq!(set("parallelism.default", "4")?.workers(), Some(4));
        assert_eq!(set("table.exec.source.idle-timeout", "0 s")?.idle_timeout(), None);
        assert_eq!(set("memory.limit", "4gb")?.memory_limit(), MemoryLimit::Bytes(4 << 30));
        assert_eq!(set("late.data", "late_rows")?.late_data(), LateData::Table("late_rows".into()));
        assert_eq!(set("pipeline.scheduler", "round-robin")?.scheduler(), Scheduler::RoundRobin);
        let skew = set("watermark.max-future-skew", "1 h")?;
        assert_eq!(skew.max_future_skew(), Some(Duration::from_secs(3600)));
        assert_eq!(set("table.local-time-zone", "GMT+08:00")?.zone(), Tz::Etc__GMTMinus8);
        assert_eq!(set("table.local-time-zone", "Asia/Kolkata")?.zone(), Tz::Asia__Kolkata);
        let mut settings = set("parallelism.default", "4")?;
        settings.reset("pipeline.workers")?;
        assert_eq!(settings, Settings::default());
        Ok(())
    }

    #[test]
    fn contracts_and_policies_are_words() -> Result<()> {
        for order in ["epoch", "arrival", "event_time"] {
            assert_eq!(set("pipeline.order", order)?.order().to_string(), order);
        }
        let policies = ["nem", "round-robin", "lp", "ct", "et", "qst"]
            .map(|word| set("pipeline.scheduler", word).expect("a policy").scheduler() as u8);
        assert!(policies.is_sorted_by(|a, b| a < b), "each word is a policy of its own");
        assert!(!Settings::default().allows_nondeterministic());
        assert!(set("pipeline.order.allow-nondeterministic", "TRUE")?.allows_nondeterministic());
        Ok(())
    }

    #[test]
    fn wrong_keys_and_values_are_refused_with_a_way_out() {
        let cases = [
            ("pipeline.wrokers", "2", "did you mean 'pipeline.workers'?"),
            ("table.local-timezone", "UTC", "did you mean 'table.local-time-zone'?"),
            ("workers", "2", "did you mean 'pipeline.workers'?"),
            ("nonsense", "2", "there are table.local-time-zone"),
            ("pipeline.workers", "0", "a whole number between 1 and 1024"),
            ("memory.limit", "170%", "'70%'"),
            ("table.local-time-zone", "Europe/Berln", "Europe/Berlin"),
            ("table.local-time-zone", "GMT+05:30", "'Asia/Kolkata'"),
            ("watermark.idle-timeout", "soon", "'30 s'"),
            ("pipeline.order", "chaos", "'epoch', 'arrival', 'event_time'"),
        ];
        for (key, value, help) in cases {
            let error = set(key, value).expect_err(key);
            let text = format!("{error} {}", error.help().unwrap_or_default());
            assert!(text.contains(help), "{key}: {text}");
        }
        let error = set("execution.runtime-mode", "AUTOMATIC").expect_err("one or the other");
        assert_eq!(error.kind(), thalweg_core::ErrorKind::Unsupported);
    }

    #[test]
    fn keys_of_a_flink_cluster_are_accepted_with_a_note() -> Result<()> {
        let mut settings = Settings::default();
        for key in [
            "execution.checkpointing.externalized-checkpoint-retention",
            "table.exec.resource.default-parallelism",
            "pipeline.auto-watermark-interval",
        ] {
            let note = settings.set(key, "200 ms")?;
            assert!(note.is_some_and(|note| note.contains(key)), "{key}");
        }
        assert_eq!(settings.rows().rows.len(), 3);
        Ok(())
    }

    #[test]
    fn what_may_be_talked_to_is_set_once() {
        let mut settings = Settings::default();
        let key = ALLOWED_TARGETS;
        assert!(settings.access(Path::new("/"), &[]).targets.check("anything", 1).is_ok());
        assert!(settings.set(key, "a b").is_err());
        settings.set(key, "kafka:9092").expect("a host");
        settings.set(key, "kafka:9092").expect("the same");
        assert!(settings.set(key, "*").is_err() && settings.reset(key).is_err());
        settings.set("secrets.file", "s.txt").expect("a file");
        let access = settings.access(Path::new("/base"), &[]);
        assert_eq!(access.secrets.file, Some(PathBuf::from("/base/s.txt")));
        settings.reset_all();
        let access = settings.access(Path::new("/base"), &[]);
        assert!(access.targets.check("db", 5432).is_err() && access.secrets.file.is_none());
    }
}
