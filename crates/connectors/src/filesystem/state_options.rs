//! Which options of a table decide what a position in its files, or a file that is half written,
//! means.
//!
//! A source: whatever decides which records there are and what they hold. A sink over one file:
//! whatever decides how rows look in it. Parts of a folder are complete in themselves, so those of
//! the next run may look otherwise.

use std::collections::BTreeMap;

use thalweg_core::connector::TableRequest;

use super::options::{BadData, FileOptions};
use super::paths;
use super::writing::{Changelog, Delivery, GUARANTEE};
use crate::format::csv::CsvReading;
use crate::format::{CsvOptions, Format, JsonOptions};

type StateOptions = BTreeMap<String, String>;

/// The options with their values, defaults included. Wrong ones are reported elsewhere.
pub fn state_options(request: &TableRequest, as_sink: bool) -> StateOptions {
    let Ok(options) = FileOptions::read(request, as_sink) else { return StateOptions::new() };
    match as_sink {
        true => of_sink(request, &options),
        false => of_source(request, &options),
    }
}

fn of_source(request: &TableRequest, options: &FileOptions<'_>) -> StateOptions {
    let mut found = of_format(request, options);
    let (bad_data, drops_rows) = match options.bad_data {
        BadData::Fail => ("fail", false),
        BadData::Null => ("null", false),
        BadData::Drop => ("drop", true),
        BadData::DeadLetter(_) => ("dead-letter", true),
    };
    add(&mut found, "bad-data", bad_data);
    // Which is the default where rows are dropped.
    if drops_rows && !options.checks_all {
        add(&mut found, "bad-data.check", "read");
    }
    // Fields of CSV have no names, and where bad rows are dropped every column decides which rows
    // there are. With dead letters in a text positions lie between blocks and count no rows: what
    // becomes a row may be mended.
    let counts_no_rows = bad_data == "dead-letter" && options.format.is_text();
    if (drops_rows || matches!(options.format, Format::Csv(_))) && !counts_no_rows {
        add(&mut found, "columns", request.columns_text());
    }
    found
}

fn of_sink(request: &TableRequest, options: &FileOptions<'_>) -> StateOptions {
    let mut found = StateOptions::new();
    // With `none` there are no transactions: one that is prepared would never be committed.
    let has_transactions = options.writing.delivery != Delivery::None;
    add(
        &mut found,
        GUARANTEE,
        if has_transactions { "exactly-once, at-least-once" } else { "none" },
    );
    let is_folder = !request.partitioned_by.is_empty() || paths::is_folder(request, options.path);
    if !is_folder {
        // The normal form of an option wins.
        found.extend(given(request, options));
        found.extend(of_format(request, options));
        add(&mut found, "columns", request.columns_text());
        add(&mut found, "table.local-time-zone", request.zone);
    }
    found
}

fn of_format(request: &TableRequest, options: &FileOptions<'_>) -> StateOptions {
    let mut found = StateOptions::new();
    add(&mut found, "format", options.format.name());
    let changelog = match options.changelog {
        None => "none",
        Some(Changelog::Op) => "op",
        Some(Changelog::Upsert) => "upsert",
        Some(Changelog::OfFormat) => "format",
    };
    add(&mut found, "changelog", changelog);
    match &options.format {
        Format::Csv(csv) => of_csv(csv, &mut found),
        Format::Json(json) => of_json(json, &mut found),
        _ => found.extend(given(request, options)),
    }
    found
}

/// The options of the format that are set.
fn given(request: &TableRequest, options: &FileOptions<'_>) -> StateOptions {
    let prefix = format!("{}.", options.format.name());
    let given = request.options.iter().filter(|(name, _)| name.starts_with(&prefix));
    given.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn of_csv(csv: &CsvOptions, found: &mut StateOptions) {
    let character =
        |byte: Option<u8>| byte.map_or("none".to_owned(), |byte| char::from(byte).into());
    let CsvOptions { dialect, null_literal, header, array_delimiter, .. } = csv;
    let CsvReading {
        refuses_trailing_delimiter,
        ignores_trailing_fields,
        refuses_missing_fields,
        has_empty_nulls,
    } = csv.reading;
    add(found, "csv.field-delimiter", character(Some(dialect.delimiter)));
    add(found, "csv.quote-character", character(dialect.quote));
    add(found, "csv.escape-character", character(dialect.escape));
    add(found, "csv.allow-comments", dialect.comments);
    add(found, "csv.null-literal", null_literal.as_deref().unwrap_or("none"));
    add(found, "csv.header", header);
    add(found, "csv.array-element-delimiter", array_delimiter);
    add(found, "csv.ignore-parse-errors", csv.ignore_parse_errors);
    // Earlier versions did not know these.
    let later = [
        ("csv.trim-spaces", dialect.trims_spaces),
        ("csv.empty-string-as-null", has_empty_nulls),
        ("csv.ignore-trailing-unmappable", ignores_trailing_fields),
        ("csv.fail-on-missing-columns", refuses_missing_fields),
    ];
    later.iter().filter(|(_, is_set)| *is_set).for_each(|(name, _)| add(found, name, true));
    if refuses_trailing_delimiter {
        add(found, "csv.allow-trailing-comma", false);
    }
}

/// Those that decide what is read. How values are written may change from one run to the next.
fn of_json(json: &JsonOptions, found: &mut StateOptions) {
    let JsonOptions { ignore_parse_errors, fail_on_missing_field, iso_timestamps, .. } = json;
    add(found, "json.ignore-parse-errors", ignore_parse_errors);
    add(found, "json.fail-on-missing-field", fail_on_missing_field);
    let standard = if *iso_timestamps { "ISO-8601" } else { "SQL" };
    add(found, "json.timestamp-format.standard", standard);
}

fn add(found: &mut StateOptions, name: &str, value: impl ToString) {
    found.insert(name.to_owned(), value.to_string());
}
