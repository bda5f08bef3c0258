//! Typed access to a table's `WITH` options.
//!
//! Each connector names the options that it knows; every other one is an error that names the
//! nearest known option, so that a slip of the pen is not silently a default. Options that Flink
//! has and Thalweg lacks are told apart from unknown ones.

use std::collections::BTreeMap;
use std::str::FromStr;

use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, Error, Result};

/// What decides the rows of a table that is generated: its columns, and these of its options.
pub fn generated_options(
    request: &TableRequest,
    decides: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let options = request.options.iter().filter(|(name, _)| decides(name));
    let options = options.map(|(name, value)| (name.clone(), value.clone()));
    options.chain([("columns".to_owned(), columns_text(request))]).collect()
}

/// The columns of a table with their types.
pub fn columns_text(request: &TableRequest) -> String {
    let column = |column: &Column| format!("{} {}", column.name, column.column_type);
    request.schema.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// The option names of a connector. `*` stands for any text without a dot at its ends
/// (`fields.*.kind`).
pub struct Known {
    /// Options with a meaning here.
    pub options: &'static [&'static str],
    /// Options of Flink that are not supported.
    pub unsupported: &'static [&'static str],
}

/// The options of one table.
pub struct Options<'a> {
    request: &'a TableRequest,
}

impl<'a> Options<'a> {
    /// The options of a table, after checking that each is known.
    pub fn checked(request: &'a TableRequest, known: &Known) -> Result<Self> {
        for name in request.options.keys() {
            if known.options.iter().any(|pattern| matches(pattern, name)) {
                continue;
            }
            let table = &request.table;
            if known.unsupported.iter().any(|pattern| matches(pattern, name)) {
                return Err(Error::unsupported(format!(
                    "table {table}: Flink's option '{name}' is not supported yet"
                ))
                .hint("remove the option"));
            }
            let help = match near_miss(name, known.options.iter().copied()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("known options: {}", known.options.join(", ")),
            };
            return Err(Error::plan(format!("table {table} has no option '{name}'")).hint(help));
        }
        Ok(Options { request })
    }

    /// The text of an option, if it is set.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.request.options.get(name).map(String::as_str)
    }

    /// The text of an option that must be set.
    pub fn required(&self, name: &str) -> Result<&'a str> {
        self.get(name).ok_or_else(|| {
            Error::plan(format!("table {} needs the option '{name}'", self.request.table))
                .hint(format!("add '{name}' = '…'"))
        })
    }

    /// `true` or `false`, or the default.
    pub fn boolean(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(text) => Err(self.bad(name, text, "true or false")),
        }
    }

    /// A number, if the option is set.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let parse =
            |text: &'a str| text.trim().parse().map_err(|_| self.bad(name, text, "a number"));
        self.get(name).map(parse).transpose()
    }

    /// A single ASCII character, if the option is set. `\t` stands for a tab.
    pub fn ascii_char(&self, name: &str) -> Result<Option<u8>> {
        match self.get(name) {
            None => Ok(None),
            Some("\\t") => Ok(Some(b'\t')),
            Some(text) if text.len() == 1 && text.is_ascii() && text != "\n" => {
                Ok(Some(text.as_bytes()[0]))
            }
            Some(text) => Err(self.bad(name, text, "one ASCII character")),
        }
    }

    /// One of several words.
    pub fn choice<T: Copy>(&self, name: &str, default: T, choices: &[(&str, T)]) -> Result<T> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let found = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("'{word}'")).collect();
            self.bad(name, text, &words.join(" or "))
        })
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.request.table
    }

    /// The error of an option whose value is not what it should be.
    pub fn bad(&self, name: &str, text: &str, expected: &str) -> Error {
        let table = &self.request.table;
        Error::plan(format!(
            "invalid value '{text}' for option '{name}' of table {table}; expected {expected}"
        ))
    }

    /// The error of a table whose options do not fit together.
    pub fn conflict(&self, message: &str) -> Error {
        Error::plan(format!("table {}: {message}", self.request.table))
    }
}

/// A length of time in milliseconds (`1 s`, `500 ms`, `10 min`), if the option is set.
pub fn duration_ms(options: &Options<'_>, name: &str) -> Result<Option<u64>> {
    let units = [
        ("ms", 1),
        ("s", 1_000),
        ("sec", 1_000),
        ("min", 60_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    measured(options, name, &units, "a number and a unit: '1 s', '500 ms', '10 min'")
}

/// A number of bytes (`128MB`, as Flink's: 1024 to the power of two), if the option is set.
pub fn bytes(options: &Options<'_>, name: &str) -> Result<Option<u64>> {
    let units = [
        ("b", 1),
        ("kb", 1 << 10),
        ("k", 1 << 10),
        ("mb", 1 << 20),
        ("m", 1 << 20),
        ("gb", 1 << 30),
        ("g", 1 << 30),
    ];
    measured(options, name, &units, "a number and a unit: '128MB', '64 kb'")
}

fn measured(
    options: &Options<'_>,
    name: &str,
    units: &[(&str, u64)],
    expected: &str,
) -> Result<Option<u64>> {
    let Some(text) = options.get(name) else { return Ok(None) };
    let digits = text.trim().bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.trim().split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = units.iter().find(|(known, _)| *known == unit).map(|(_, factor)| *factor);
    let parsed = number.parse::<u64>().ok().zip(factor);
    let value = parsed.and_then(|(number, factor)| number.checked_mul(factor));
    value.map(Some).ok_or_else(|| options.bad(name, text, expected))
}

/// The known name that is nearest to what was written, if it is near enough to be meant.
pub fn near_miss<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = name.to_ascii_lowercase();
    known
        .into_iter()
        .map(|candidate| {
            (strsim::jaro_winkler(&written, &candidate.to_ascii_lowercase()), candidate)
        })
        .filter(|(similarity, _)| *similarity > 0.82)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((prefix, suffix)) => {
            name.len() > prefix.len() + suffix.len()
                && name.starts_with(prefix)
                && name.ends_with(suffix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known =
        Known { options: &["connector", "csv.header", "fields.*.kind"], unsupported: &["sink.*"] };

    fn request(options: &[(&str, &str)]) -> TableRequest {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        TableRequest { table: "t".to_string(), options, ..TableRequest::default() }
    }

    #[test]
    fn unknown_options_name_the_nearest() {
        let request = request(&[("csv.heder", "true")]);
        let error = Options::checked(&request, &KNOWN).err().expect("unknown option");
        assert!(error.is_plan_error());
        assert_eq!(error.help(), Some("did you mean 'csv.header'?"));
    }

    #[test]
    fn patterns_take_any_field_name() {
        assert!(Options::checked(&request(&[("fields.a b.kind", "x")]), &KNOWN).is_ok());
        assert!(Options::checked(&request(&[("fields..kind", "x")]), &KNOWN).is_err());
        let flinks = request(&[("sink.parallelism", "2")]);
        let error = Options::checked(&flinks, &KNOWN).err().expect("unsupported");
        assert_eq!(error.kind(), thalweg_core::ErrorKind::Unsupported);
    }

    #[test]
    fn times_and_sizes_have_units() {
        let request = request(&[("connector", "10 min"), ("csv.header", "2kb")]);
        let options = Options::checked(&request, &KNOWN).expect("known");
        assert_eq!(duration_ms(&options, "connector").expect("a time"), Some(600_000));
        assert_eq!(bytes(&options, "csv.header").expect("a size"), Some(2_048));
        assert!(duration_ms(&options, "csv.header").is_err());
        assert_eq!(bytes(&options, "fields.x.kind").expect("not set"), None);
    }

    #[test]
    fn values_are_checked() {
        let request = request(&[("csv.header", "yes"), ("connector", "ab")]);
        let options = Options::checked(&request, &KNOWN).expect("known");
        assert!(options.boolean("csv.header", false).is_err());
        assert!(options.ascii_char("connector").is_err());
        assert!(options.number::<u64>("connector").is_err());
    }
}
