//! What formats say of themselves, and the `WITH` options of the text formats.

use thalweg_core::Result;
use thalweg_core::connector::{FormatDescription, Options, option_table};

use super::Format;
use super::csv::CsvOptions;
use super::csv::scan::Dialect;
use super::json::JsonOptions;

/// Every format.
pub const FORMATS: [&FormatDescription; 4] = [&CSV, &JSON, &PARQUET, &ARROW];

/// Those that are read record by record, and that messages can be in.
pub const RECORD_FORMATS: &[&FormatDescription] = &[&CSV, &JSON];

const CSV: FormatDescription = FormatDescription {
    name: "csv",
    summary: "lines of text, columns by position",
    options: &option_table! {
        "csv.field-delimiter": Character, or(","), as_in_flink()
            => "between fields";
        "csv.quote-character": Character, or("\""), as_in_flink()
            => "around fields";
        "csv.disable-quote-character": Boolean, or("false"), as_in_flink()
            => "no character quotes fields";
        "csv.escape-character": Character, as_in_flink()
            => "before a character that is to be taken literally";
        "csv.null-literal": Text, as_in_flink()
            => "the text that stands for NULL. Unless it is empty, an empty text field is an empty \
                string, and an empty number is an error";
        "csv.allow-comments": Boolean, or("false"), as_in_flink()
            => "lines that begin with `#` are skipped, and so are empty ones";
        "csv.ignore-parse-errors": Boolean, or("false"), of_source(), as_in_flink()
            => "a field that cannot be read is NULL";
        "csv.array-element-delimiter": Text, or(";"), as_in_flink()
            => "between the elements of an ARRAY";
        "csv.header": Boolean, or("false"), but_flink("Flink neither skips nor writes a header")
            => "the first line names the columns. When it is read, its names must be those of the \
                table, in their order (in any case, with blanks around them): other names are an \
                error";
    },
    unsupported: &["csv.write-bigdecimal-in-scientific-notation"],
    is_in_flink: true,
};

const JSON: FormatDescription = FormatDescription {
    name: "json",
    summary: "one object a line, columns by name",
    options: &option_table! {
        "json.ignore-parse-errors": Boolean, or("false"), of_source(), as_in_flink()
            => "a value that cannot be read is NULL, and a line that is no object is skipped";
        "json.fail-on-missing-field": Boolean, or("false"), of_source(), as_in_flink()
            => "a missing key is an error instead of NULL";
        "json.timestamp-format.standard": Words(&["SQL", "ISO-8601"]), or("SQL"), as_in_flink()
            => "`ISO-8601` has a `T` between date and time";
    },
    unsupported: &["json.map-null-key.*", "json.encode.*", "json.decode.*"],
    is_in_flink: true,
};

const PARQUET: FormatDescription = FormatDescription {
    name: "parquet",
    summary: "read with Snappy, with Zstandard or not compressed, written with Zstandard",
    options: &[],
    unsupported: &["parquet.*"],
    is_in_flink: true,
};

const ARROW: FormatDescription = FormatDescription {
    name: "arrow",
    summary: "Arrow IPC files, read with Zstandard buffers or uncompressed, written uncompressed",
    options: &[],
    unsupported: &[],
    is_in_flink: false,
};

impl Format {
    /// The format of this name with its options, for records that hold this many columns; `None` if
    /// there is no such format.
    ///
    /// # Errors
    /// If an option is wrong, or belongs to another format.
    pub fn read(name: &str, options: &Options<'_>, columns: usize) -> Result<Option<Format>> {
        if !FORMATS.iter().any(|format| format.name == name) {
            return Ok(None);
        }
        options.check_format(name)?;
        Ok(Some(match name {
            "csv" => Format::Csv(csv_options(options, columns)?),
            "json" => Format::Json(json_options(options)?),
            "arrow" => Format::Arrow,
            _ => Format::Parquet,
        }))
    }
}

/// `csv.*`, for records that hold this many columns.
fn csv_options(options: &Options<'_>, columns: usize) -> Result<CsvOptions> {
    let delimiter = options.ascii_char("csv.field-delimiter")?.unwrap_or(b',');
    let quote = options.ascii_char("csv.quote-character")?;
    let without_quotes = options.boolean("csv.disable-quote-character")?;
    if without_quotes && options.get("csv.quote-character").is_some() {
        return Err(options.conflict(
            "'csv.quote-character' and 'csv.disable-quote-character' exclude each other",
        ));
    }
    let quote = quote.filter(|_| !without_quotes);
    let escape = options.ascii_char("csv.escape-character")?;
    if quote == Some(delimiter)
        || escape == Some(delimiter)
        || (escape.is_some() && escape == quote)
    {
        return Err(options.conflict(
            "'csv.field-delimiter', 'csv.quote-character' and 'csv.escape-character' must differ",
        ));
    }
    let comments = options.boolean("csv.allow-comments")?;
    let array_delimiter =
        options.text("csv.array-element-delimiter").unwrap_or_default().to_string();
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
        header: options.boolean("csv.header")?,
        array_delimiter,
        ignore_parse_errors: options.boolean("csv.ignore-parse-errors")?,
    })
}

/// `json.*`
fn json_options(options: &Options<'_>) -> Result<JsonOptions> {
    let standard = "json.timestamp-format.standard";
    let json = JsonOptions {
        ignore_parse_errors: options.boolean("json.ignore-parse-errors")?,
        fail_on_missing_field: options.boolean("json.fail-on-missing-field")?,
        iso_timestamps: options.choice(standard, &[("SQL", false), ("ISO-8601", true)])?
            == Some(true),
    };
    if json.ignore_parse_errors && json.fail_on_missing_field {
        return Err(options.conflict(
            "'json.ignore-parse-errors' and 'json.fail-on-missing-field' exclude each other",
        ));
    }
    Ok(json)
}
