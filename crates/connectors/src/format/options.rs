//! The `WITH` options of the text formats.

use thalweg_core::Result;

use super::csv::CsvOptions;
use super::csv::scan::Dialect;
use super::json::JsonOptions;
use crate::options::Options;

/// `csv.*`, for records that hold this many columns.
pub fn csv_options(options: &Options<'_>, columns: usize) -> Result<CsvOptions> {
    let delimiter = options.ascii_char("csv.field-delimiter")?.unwrap_or(b',');
    let quote = options.ascii_char("csv.quote-character")?;
    let without_quotes = options.boolean("csv.disable-quote-character", false)?;
    if without_quotes && quote.is_some() {
        return Err(options.conflict(
            "'csv.quote-character' and 'csv.disable-quote-character' exclude each other",
        ));
    }
    let quote = if without_quotes { None } else { Some(quote.unwrap_or(b'"')) };
    let escape = options.ascii_char("csv.escape-character")?;
    if quote == Some(delimiter)
        || escape == Some(delimiter)
        || (escape.is_some() && escape == quote)
    {
        return Err(options.conflict(
            "'csv.field-delimiter', 'csv.quote-character' and 'csv.escape-character' must differ",
        ));
    }
    let comments = options.boolean("csv.allow-comments", false)?;
    let array_delimiter = options.get("csv.array-element-delimiter").unwrap_or(";").to_string();
    if array_delimiter.is_empty() {
        return Err(options.bad("csv.array-element-delimiter", "", "at least one character"));
    }
    let is_single = columns == 1;
    let null_literal = options.get("csv.null-literal").map(str::to_string);
    // Where the empty text is NULL, an empty line is a row of one NULL.
    let is_null_row = null_literal.as_deref() == Some("");
    Ok(CsvOptions {
        dialect: Dialect {
            delimiter,
            quote,
            escape,
            comments,
            skip_blank_lines: comments || (is_single && !is_null_row),
            ends_with_blank_lines: !is_single,
        },
        null_literal,
        header: options.boolean("csv.header", false)?,
        array_delimiter,
        ignore_parse_errors: options.boolean("csv.ignore-parse-errors", false)?,
    })
}

/// `json.*`
pub fn json_options(options: &Options<'_>) -> Result<JsonOptions> {
    let standard = "json.timestamp-format.standard";
    let json = JsonOptions {
        ignore_parse_errors: options.boolean("json.ignore-parse-errors", false)?,
        fail_on_missing_field: options.boolean("json.fail-on-missing-field", false)?,
        iso_timestamps: options.choice(standard, false, &[("SQL", false), ("ISO-8601", true)])?,
    };
    if json.ignore_parse_errors && json.fail_on_missing_field {
        return Err(options.conflict(
            "'json.ignore-parse-errors' and 'json.fail-on-missing-field' exclude each other",
        ));
    }
    Ok(json)
}
