//! The options that a table may have whatever its connector: how its source is sorted, and how it
//! is looked up. The planner reads them; connectors never see them.

use thalweg_core::connector::{ConnectorDescription, OptionDescription, option_table};

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

/// Options of every table that is read.
pub const SOURCE_OPTIONS: &[OptionDescription] = &option_table! {
    SORT_WITHIN: Duration, of_source(),
        but_flink("Flink does not sort a source; its windows take rows in any order")
        => "sorts the rows by their row time, as long as none is further behind the newest one \
            than this; a row that is fails the job ([three contracts about \
            order](order.md#event_time))";
};

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
