//! The options of `jdbc`.

use std::time::Duration;

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, Options, TableRequest,
    option_table,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result};

use crate::postgres::decode::check_types;
use crate::postgres::settings::Settings;

/// What the connector says of itself.
pub const DESCRIPTION: ConnectorDescription = ConnectorDescription {
    capabilities: Capabilities::LOOKUP
        .reading(Boundedness::Bounded, &[AcceptedChanges::Inserts])
        .writing(
            &[AcceptedChanges::Upserts, AcceptedChanges::Inserts],
            SinkGuarantee::Transactional,
        ),
    options: &option_table! {
        "url": Other("a JDBC URL"), required(), as_in_flink()
            => "`jdbc:postgresql://HOST:PORT/DATABASE`, with `?sslmode=…`, `sslrootcert`, `connectTimeout`, \
                `ApplicationName`, `currentSchema` behind it. Settings of the Java driver alone are ignored. Other \
                databases are not supported yet";
        "table-name": Text, of_state(), required(), as_in_flink()
            => "the table, with its schema in front where it is not in the search path: `schema.table`. A name that is \
                not found as it is written is looked for in lower case, and so are columns";
        "username": Text, as_in_flink()
            => "who signs in; with `password`, or neither";
        "password": Secret, as_in_flink()
            => "with this password";
        "driver": Text, as_in_flink()
            => "ignored: a class of Java";
        "compatible-mode": Text, as_in_flink()
            => "ignored: a setting of other databases";
        "connection.max-retry-timeout": Duration, or("60 s"), as_in_flink()
            => "how long a server that can't be reached is tried, with growing pauses, before the job fails";
        "scan.partition.column": Text, of_state(), of_source(), as_in_flink()
            => "a numeric column by whose ranges the table is read over several connections; the four \
                `scan.partition.` options belong together";
        "scan.partition.num": Number, of_state(), of_source(), as_in_flink()
            => "how many ranges";
        "scan.partition.lower-bound": Number, of_state(), of_source(), as_in_flink()
            => "the least value; rows below it, and NULLs, are not read";
        "scan.partition.upper-bound": Number, of_state(), of_source(), as_in_flink()
            => "the greatest value; rows above it are not read";
        "scan.fetch-size": Number, or("0"), of_source(), as_in_flink()
            => "ignored: rows are always taken as the server sends them";
        "scan.auto-commit": Boolean, or("true"), of_source(), as_in_flink()
            => "ignored, for the same reason";
        "filter.handling.policy": Words(&["always", "never"]), or("always"), of_source(), as_in_flink()
            => "ignored: rows are filtered in the job";
        "sink.buffer-flush.max-rows": Number, or("100"), of_sink(), as_in_flink()
            => "the most rows that are written together; `0` for no limit";
        "sink.buffer-flush.interval": Duration, or("1 s"), of_sink(), as_in_flink()
            => "the longest that a row waits for others while more come; it is also written when nothing more comes, \
                and before a snapshot";
        "sink.parallelism": Number, of_sink(), as_in_flink()
            => "ignored: each table is written by one thread";
        "sink.max-retries": Number, or("3"), of_sink(), as_in_flink()
            => "how often rows are written again that the server refused for the moment, after 1 s, 2 s, …";
        "sink.delivery-guarantee": Words(&["at-least-once", "exactly-once"]), of_state(), or("at-least-once"), of_sink(),
            but_flink("Flink writes at least once")
            => "what a job with snapshots promises ([below](#exactly-once-into-postgresql)). Rows with a `PRIMARY KEY` \
                are there once in either case";
    },
    unsupported: &[
        "lookup.cache.max-rows",
        "lookup.cache.ttl",
        "lookup.cache.caching-missing-key",
        "lookup.partial-cache.expire-after-access",
    ],
    is_in_flink: true,
    ..ConnectorDescription::new("jdbc", "tables of PostgreSQL")
};

/// The ranges by which a table is read.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// The column.
    pub column: String,
    /// The least and the greatest value of each range, in order.
    pub bounds: Vec<(i64, i64)>,
}

/// The options of a table.
#[derive(Clone)]
pub struct JdbcOptions {
    /// Where the database is.
    pub settings: Settings,
    /// The table's name there.
    pub table_name: String,
    /// How long a server that can't be reached is tried.
    pub give_up_after: Duration,
    /// The ranges by which the table is read; `None` for all of it at once.
    pub ranges: Option<Ranges>,
    /// The most rows that are written together.
    pub flush_rows: usize,
    /// The longest that a row waits for others.
    pub flush_interval: Duration,
    /// How often rows are written again.
    pub max_retries: u32,
    /// Rows become visible with their snapshot, once.
    pub is_exactly_once: bool,
}

impl JdbcOptions {
    /// Reads them, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn open(request: &TableRequest) -> Result<JdbcOptions> {
        let read = JdbcOptions::read(request)?;
        let settings = read.settings.with_password(&Options::of(request, &DESCRIPTION)?)?;
        Ok(JdbcOptions { settings, ..read })
    }

    /// Reads them, to check them: secrets are not looked up.
    ///
    /// # Errors
    /// If one is unknown or wrong, or the server may not be talked to.
    pub fn read(request: &TableRequest) -> Result<JdbcOptions> {
        let options = Options::of(request, &DESCRIPTION)?;
        let in_table = |error: Error| options.about(&error);
        let mut settings = Settings::from_url(options.required("url")?).map_err(in_table)?;
        let table_name = options.required("table-name")?.to_owned();
        match (options.get("username"), options.get("password")) {
            (None, None) => {}
            (Some(user), Some(password)) => {
                (settings.user, settings.password) = (user.to_owned(), password.to_owned());
            }
            _ => {
                return Err(options
                    .conflict("'username' and 'password' belong together")
                    .hint("set both, or neither"));
            }
        }
        settings.check().map_err(in_table)?;
        options.check_target(&settings.host, settings.port)?;
        settings.targets = options.targets().clone();
        check_types(options.table(), &request.schema)?;
        for name in ["scan.fetch-size", "scan.auto-commit", "filter.handling.policy"] {
            options.check(name)?;
        }
        let words = [("at-least-once", false), ("exactly-once", true)];
        let flush_rows = options.number::<usize>("sink.buffer-flush.max-rows")?;
        let give_up_after = options.duration("connection.max-retry-timeout")?;
        if give_up_after < Duration::from_secs(1) {
            let text = options.text("connection.max-retry-timeout").unwrap_or_default();
            return Err(options.bad("connection.max-retry-timeout", text, "at least '1 s'"));
        }
        Ok(JdbcOptions {
            ranges: ranges(&options, request)?,
            flush_rows: flush_rows.filter(|&rows| rows > 0).unwrap_or(usize::MAX),
            flush_interval: options.duration("sink.buffer-flush.interval")?,
            max_retries: options.number("sink.max-retries")?.unwrap_or(3),
            is_exactly_once: options.choice("sink.delivery-guarantee", &words)?.unwrap_or(false),
            settings,
            table_name,
            give_up_after,
        })
    }
}

fn ranges(options: &Options<'_>, request: &TableRequest) -> Result<Option<Ranges>> {
    let column = options.get("scan.partition.column");
    let num = options.number::<i64>("scan.partition.num")?;
    let lower = options.number::<i64>("scan.partition.lower-bound")?;
    let upper = options.number::<i64>("scan.partition.upper-bound")?;
    let (column, num, lower, upper) = match (column, num, lower, upper) {
        (None, None, None, None) => return Ok(None),
        (Some(column), Some(num), Some(lower), Some(upper)) => (column, num, lower, upper),
        _ => {
            return Err(options
                .conflict("the options 'scan.partition.column', 'num', 'lower-bound' and 'upper-bound' belong together")
                .hint("set all four, or none"));
        }
    };
    let declared = request.schema.columns.iter().find(|known| known.name == column);
    match declared.map(|column| &column.column_type.data_type) {
        None => {
            return Err(options.conflict(&format!("it has no column '{column}' to read ranges of")));
        }
        Some(data_type) if !data_type.is_numeric() => {
            return Err(options
                .conflict(&format!("column {column} is no number, and ranges are of numbers")));
        }
        Some(_) => {}
    }
    if num < 1 || lower > upper {
        return Err(options.conflict(
            "'scan.partition.num' is at least 1, and the lower bound is not above the upper one",
        ));
    }
    Ok(Some(Ranges { column: column.to_owned(), bounds: cut(lower, upper, num) }))
}

/// Cuts `lower..=upper` into ranges of nearly the same length.
fn cut(lower: i64, upper: i64, num: i64) -> Vec<(i64, i64)> {
    let (first, count) = (i128::from(lower), i128::from(upper) - i128::from(lower) + 1);
    let num = i128::from(num).min(count);
    let start = |number: i128| first + count * number / num;
    let bounds = |number: i128| (start(number) as i64, (start(number + 1) - 1) as i64);
    (0..num).map(bounds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_everything_once() {
        assert_eq!(cut(1, 10, 3), [(1, 3), (4, 6), (7, 10)]);
        assert_eq!(cut(5, 6, 10), [(5, 5), (6, 6)]);
        assert_eq!(cut(i64::MIN, i64::MAX, 2), [(i64::MIN, -1), (0, i64::MAX)]);
    }
}
