//! The options that a table may have whatever its connector: how its source is sorted, and how it
//! is looked up. The planner reads them; connectors never see them.
//!
//! `physical::environment` removes them from what a connector is given. Each is described like an
//! option of a connector, so that DESCRIBE CONNECTOR and the check for Flink show it.

use std::time::Duration;

use thalweg_core::connector::{
    ConnectorDescription, OptionDescription, OptionKind, Options, TableRequest, option_table,
};
use thalweg_core::graph::{Alignment, SplitTiming};
use thalweg_core::{Error, Result};

use crate::diagnostic::nearest;
use crate::resolved_table::ResolvedTable;

pub(crate) const CACHE: &str = "lookup.cache";
pub(crate) const MAX_RETRIES: &str = "lookup.max-retries";
pub(crate) const MAX_ROWS: &str = "lookup.partial-cache.max-rows";
pub(crate) const EXPIRES: &str = "lookup.partial-cache.expire-after-write";
pub(crate) const MISSING: &str = "lookup.partial-cache.cache-missing-key";
pub(crate) const STRATEGY: &str = "lookup.full-cache.reload-strategy";
pub(crate) const INTERVAL: &str = "lookup.full-cache.periodic-reload.interval";
pub(crate) const CAPACITY: &str = "lookup.async.capacity";
pub(crate) const TIMEOUT: &str = "lookup.async.timeout";

/// The option that sorts a source.
pub(crate) const SORT_WITHIN: &str = "source.sort-within";

pub(crate) const IDLE_TIMEOUT: &str = "scan.watermark.idle-timeout";
const GROUP: &str = "scan.watermark.alignment.group";
const MAX_DRIFT: &str = "scan.watermark.alignment.max-drift";
const UPDATE_INTERVAL: &str = "scan.watermark.alignment.update-interval";
const EMIT_STRATEGY: &str = "scan.watermark.emit.strategy";
const PROPERTY_VERSION: &str = "property-version";

/// Options of every table that is read.
pub const SOURCE_OPTIONS: &[OptionDescription] = &option_table! {
    SORT_WITHIN: Duration, of_source(),
        but_flink("Flink does not sort a source; its windows take rows in any order")
        => "sorts the rows by their row time, as long as none is further behind the newest one \
            than this; a row that is fails the job ([three contracts about \
            order](order.md#event_time))";
    IDLE_TIMEOUT: Duration, or_else("the setting `watermark.idle-timeout`"), of_source(),
        as_in_flink()
        => "after this silence a split of the table no longer holds the watermark back; `0 s` for \
            never. One that lags behind what there is to read is never idle";
    GROUP: Text, of_source(), as_in_flink()
        => "tables with the same name here are read in step: none of their splits runs further \
            ahead of the last one than `max-drift`";
    MAX_DRIFT: Duration, of_source(), as_in_flink()
        => "how far the watermark of a split may be ahead of the least in the group";
    UPDATE_INTERVAL: Duration, or("1 s"), of_source(), as_in_flink()
        => "how often that is looked at";
    EMIT_STRATEGY: Words(&["on-periodic", "on-event"]), or("on-periodic"), of_source(),
        as_in_flink()
        => "when Flink emits watermarks. Here they follow the data alone, and both words give the \
            same results";
    PROPERTY_VERSION: Words(&["1"]), or("1"), of_source(), as_in_flink()
        => "the version of the table's options";
};

/// Reads the options of sources by type.
const SOURCE: ConnectorDescription = ConnectorDescription {
    options: SOURCE_OPTIONS,
    ..ConnectorDescription::new("", "options of every table that is read")
};

/// What a table says about the watermarks of its splits.
///
/// # Errors
/// If an option is wrong, or needs another one.
pub(crate) fn split_timing(table: &ResolvedTable) -> Result<SplitTiming> {
    let is_of_source = |(name, _): &(&String, &String)| SOURCE.option(name).is_some();
    let own = table.options.iter().filter(is_of_source);
    let options = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    let request = TableRequest { table: table.name.clone(), options, ..TableRequest::default() };
    let options = Options::of(&request, &SOURCE)?;
    for option in SOURCE_OPTIONS {
        if let OptionKind::Words(words) = option.kind {
            let choices: Vec<(&str, ())> = words.iter().map(|word| (*word, ())).collect();
            options.choice(option.name, &choices)?;
        }
    }
    let alignment = match (options.get(GROUP), options.duration_ms(MAX_DRIFT)?) {
        (None, None) => None,
        (Some(group), Some(max_drift_ms)) => Some(Alignment {
            group: group.to_owned(),
            max_drift_ms: i64::try_from(max_drift_ms).unwrap_or(i64::MAX),
            update_interval: Duration::from_millis(
                options.duration_ms(UPDATE_INTERVAL)?.unwrap_or_default(),
            ),
        }),
        _ => {
            return Err(options
                .conflict(&format!("'{GROUP}' and '{MAX_DRIFT}' go together"))
                .hint("set both, or none"));
        }
    };
    let idle_timeout = options.duration_ms(IDLE_TIMEOUT)?.map(Duration::from_millis);
    Ok(SplitTiming { idle_timeout, alignment })
}

/// Refuses a slip of the pen in an option of every table; connectors judge all others.
///
/// # Errors
/// If there is one.
pub(crate) fn check_slips(table: &ResolvedTable, of: &ConnectorDescription) -> Result<()> {
    let is_known = |name: &str| table_option(name).is_some() || of.option(name).is_some();
    let all = || SOURCE_OPTIONS.iter().chain(of.options).map(|option| option.name);
    for name in table.options.keys().filter(|name| !is_known(name) && !of.is_unsupported(name)) {
        if let Some(near) = nearest(name, all()).filter(|near| SOURCE.option(near).is_some()) {
            return Err(Error::plan(format!("table '{}' has no option '{name}'", table.name))
                .hint(format!("did you mean '{near}'?")));
        }
    }
    Ok(())
}

/// Options of every table that a lookup join asks.
pub const LOOKUP_OPTIONS: &[OptionDescription] = &option_table! {
    CACHE: Words(&["NONE", "PARTIAL", "FULL"]),
        or_else("`FULL`; of a table that is asked by key `NONE`"), of_source(), as_in_flink()
        => "what is remembered: `FULL` is the whole table, of one that is read as a whole; \
            `PARTIAL` are rows that came as answers";
    MAX_RETRIES: Number, or("3"), of_source(), as_in_flink()
        => "how often a call of a table that is asked by key is repeated after a failure";
    MAX_ROWS: Number, or("10000"), of_source(), as_in_flink()
        => "how many rows `PARTIAL` remembers at most";
    EXPIRES: Duration, or_else("for ever"), of_source(), as_in_flink()
        => "how long `PARTIAL` remembers a row";
    MISSING: Boolean, or("true"), of_source(), as_in_flink()
        => "`PARTIAL` also remembers that a key has no rows";
    STRATEGY: Words(&["PERIODIC"]), or("PERIODIC"), of_source(), as_in_flink()
        => "when a `FULL` table is read again";
    INTERVAL: Duration, or_else("never"), of_source(), as_in_flink()
        => "how long after it was read a `FULL` table is read again. If that fails the old rows \
            stay; the summary and `--metrics` say how often, and why";
    CAPACITY: Number, or("100"), of_source(),
        but_flink("Flink sets 'table.exec.async-lookup.buffer-capacity'")
        => "how many calls of a table that is asked by key run at once";
    TIMEOUT: Duration, or("3 min"), of_source(),
        but_flink("Flink sets 'table.exec.async-lookup.timeout'")
        => "how long a call may take";
};

/// The option of this name, if it is one of every table.
pub(crate) fn table_option(name: &str) -> Option<&'static OptionDescription> {
    SOURCE_OPTIONS.iter().chain(LOOKUP_OPTIONS).find(|option| option.name == name)
}

/// All options of a connector's tables: its own, those of its formats, and those of every table.
pub fn all_options(
    description: &ConnectorDescription,
) -> impl Iterator<Item = &'static OptionDescription> + use<> {
    let capabilities = description.capabilities;
    let source = capabilities.source.map_or(&[][..], |_| SOURCE_OPTIONS);
    let is_looked_up = capabilities.source.is_some() || capabilities.is_lookup;
    let lookup = if is_looked_up { LOOKUP_OPTIONS } else { &[] };
    description.all_options().chain(source).chain(lookup)
}
