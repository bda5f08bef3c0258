//! Typed access to the `WITH` options of a table, driven by the description of its connector.
//!
//! Every option that the description does not know is an error that names the nearest known one, so
//! that a slip of the pen is not silently a default. Options that Flink has and Thalweg lacks are
//! distinguished from unknown ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::description::{
    ConnectorDescription, OptionDefault, OptionDescription, OptionKind, UsedBy,
};
use super::secrets::{Secret, allowed_file, check_places, names_secret};
use super::table::TableRequest;
use super::targets::AllowedTargets;
use crate::error::{Error, Result};

/// Flink's words for units of time. A number alone is in milliseconds.
const DURATION_UNITS: [(&[&str], u64); 5] = [
    (&["ms", "", "milli", "millis", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["min", "m", "mins", "minute", "minutes"], 60_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
];

const SIZE_UNITS: [(&[&str], u64); 4] =
    [(&["b"], 1), (&["kb", "k"], 1 << 10), (&["mb", "m"], 1 << 20), (&["gb", "g"], 1 << 30)];

/// The options of one table. Where one is not set, the default of its description holds.
pub struct Options<'a> {
    request: &'a TableRequest,
    description: &'a ConnectorDescription,
}

impl<'a> Options<'a> {
    /// The options of a table, after checking that each is known.
    ///
    /// # Errors
    /// If one is not, or belongs to another format than the table's.
    pub fn of(request: &'a TableRequest, description: &'a ConnectorDescription) -> Result<Self> {
        let table = &request.table;
        for (name, value) in request.options.iter().filter(|(name, _)| *name != "connector") {
            if let Some(option) = description.option(name) {
                check_secret(table, option, name, value)?;
                continue;
            }
            if description.is_unsupported(name) {
                return Err(Error::unsupported(format!(
                    "table {table}: Flink's option '{name}' is not supported yet"
                ))
                .hint("remove the option"));
            }
            let known = || description.all_options().map(|option| option.name);
            let help = match near_miss(name, ["connector"].into_iter().chain(known())) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("known options: {}", known().collect::<Vec<_>>().join(", ")),
            };
            return Err(Error::plan(format!("table {table} has no option '{name}'")).hint(help));
        }
        let options = Options { request, description };
        // No connector does anything with them; a mistake in one is found all the same.
        for name in ["scan.parallelism", "sink.parallelism"] {
            options.number::<u32>(name)?;
        }
        Ok(options)
    }

    /// The text of an option, if it is set.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.request.options.get(name).map(String::as_str)
    }

    /// The text of an option or of its default, if there is one.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).or_else(|| match self.description.option(name)?.default {
            OptionDefault::Value(value) => Some(value),
            _ => None,
        })
    }

    /// What [`Connector::state_options`](super::Connector::state_options) answers where options
    /// that are [`of_state`](OptionDescription::of_state) decide: those that have an effect on this
    /// side. Nothing where the options are wrong.
    pub fn of_state(
        request: &TableRequest,
        description: &ConnectorDescription,
        as_sink: bool,
    ) -> BTreeMap<String, String> {
        let Ok(options) = Options::of(request, description) else { return BTreeMap::new() };
        let other_side = if as_sink { UsedBy::Source } else { UsedBy::Sink };
        let deciding = description
            .all_options()
            .filter(|option| option.decides_state && option.used_by != other_side);
        let text = |name: &str| Some((name.to_owned(), options.text(name)?.to_owned()));
        deciding.filter_map(|option| text(option.name)).collect()
    }

    /// Those options that decide something, by name, with their defaults.
    pub fn deciding(&self, decides: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
        let deciding = self.description.all_options().filter(|option| decides(option.name));
        let text = |name: &str| Some((name.to_owned(), self.text(name)?.to_owned()));
        deciding.filter_map(|option| text(option.name)).collect()
    }

    /// The text of an option that may be secret, if it is set, with the secrets that it names. Not
    /// for checking a table that is only planned: secrets need not be there then.
    ///
    /// # Errors
    /// If it names one that is not set.
    pub fn secret(&self, name: &str) -> Result<Option<Secret>> {
        let resolve = |text| self.request.access.secrets.resolve(text);
        self.get(name).map(resolve).transpose()
    }

    /// The file that an option names, if it is set: it is there, and lies in an allowed folder.
    ///
    /// # Errors
    /// If it is not, or lies elsewhere.
    pub fn file(&self, name: &str) -> Result<Option<PathBuf>> {
        let TableRequest { table, base_dir, allowed_roots, .. } = self.request;
        let open = |text: &str| {
            let path = base_dir.join(text.strip_prefix("file://").unwrap_or(text));
            allowed_file(&path, allowed_roots).map_err(|reason| {
                Error::user(format!(
                    "table {table}: option '{name}': {} can't be read: {reason}",
                    path.display()
                ))
                .hint("relative paths start at the folder of the SQL file")
            })
        };
        self.get(name).map(open).transpose()
    }

    /// The folders that files may lie in.
    pub fn allowed_roots(&self) -> &'a [PathBuf] {
        &self.request.allowed_roots
    }

    /// The text of an option that must be set.
    ///
    /// # Errors
    /// If it is not.
    pub fn required(&self, name: &str) -> Result<&'a str> {
        self.get(name).ok_or_else(|| {
            Error::plan(format!("table {} needs the option '{name}'", self.request.table))
                .hint(format!("add '{name}' = '…'"))
        })
    }

    /// `true` or `false`; `false` where nothing else is the default.
    ///
    /// # Errors
    /// If it is neither.
    pub fn boolean(&self, name: &str) -> Result<bool> {
        match self.text(name) {
            None => Ok(false),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(text) => Err(self.bad(name, text, "true or false")),
        }
    }

    /// A number, if the option is set or has a default.
    ///
    /// # Errors
    /// If it is none.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let parse =
            |text: &'a str| text.trim().parse().map_err(|_| self.bad(name, text, "a number"));
        self.text(name).map(parse).transpose()
    }

    /// A single ASCII character, if the option is set or has a default. `\t` stands for a tab.
    ///
    /// # Errors
    /// If it is none.
    pub fn ascii_char(&self, name: &str) -> Result<Option<u8>> {
        match self.text(name) {
            None => Ok(None),
            Some("\\t") => Ok(Some(b'\t')),
            Some(text) if text.len() == 1 && text.is_ascii() && text != "\n" => {
                Ok(Some(text.as_bytes()[0]))
            }
            Some(text) => Err(self.bad(name, text, "one ASCII character")),
        }
    }

    /// One of several words, if the option is set or has a default.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let found = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("'{word}'")).collect();
            self.bad(name, text, &words.join(" or "))
        })
    }

    /// A length of time in milliseconds (`1 s`, `500 ms`, `10 min`), if the option is set or has a
    /// default.
    ///
    /// # Errors
    /// If it is none.
    pub fn duration_ms(&self, name: &str) -> Result<Option<u64>> {
        let expected = "a number and a unit: '1 s', '500 ms', '10 min'";
        self.measured(name, &DURATION_UNITS, expected)
    }

    /// The same length of time; nothing where there is no default.
    ///
    /// # Errors
    /// As [`Options::duration_ms`].
    pub fn duration(&self, name: &str) -> Result<Duration> {
        Ok(Duration::from_millis(self.duration_ms(name)?.unwrap_or_default()))
    }

    /// Checks that an option, which may have no effect, is of its kind all the same.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self, name: &str) -> Result<()> {
        match self.description.option(name).map(|option| option.kind) {
            Some(OptionKind::Boolean) => self.boolean(name).map(drop),
            Some(OptionKind::Number) => self.number::<u64>(name).map(drop),
            Some(OptionKind::Duration) => self.duration_ms(name).map(drop),
            Some(OptionKind::Size) => self.bytes(name).map(drop),
            Some(OptionKind::Words(words)) => {
                let words: Vec<_> = words.iter().map(|word| (*word, ())).collect();
                self.choice(name, &words).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// A number of bytes (`128MB`, as Flink's: 1024 to the power of two), if the option is set or
    /// has a default.
    ///
    /// # Errors
    /// If it is none.
    pub fn bytes(&self, name: &str) -> Result<Option<u64>> {
        self.measured(name, &SIZE_UNITS, "a number and a unit: '128MB', '64 kb'")
    }

    fn measured(
        &self,
        name: &str,
        units: &[(&[&str], u64)],
        expected: &str,
    ) -> Result<Option<u64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = text.trim().bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.trim().split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let factor = units
            .iter()
            .find(|(known, _)| known.contains(&unit.as_str()))
            .map(|(_, factor)| *factor);
        let parsed = number.parse::<u64>().ok().zip(factor);
        let value = parsed.and_then(|(number, factor)| number.checked_mul(factor));
        value.map(Some).ok_or_else(|| self.bad(name, text, expected))
    }

    /// Refuses options of other formats than this one: they would be without effect.
    ///
    /// # Errors
    /// If there is such an option.
    pub fn check_format(&self, format: &str) -> Result<()> {
        let is_other = |option: &&String| {
            self.description.format_of(option).is_some_and(|other| other.name != format)
        };
        match self.request.options.keys().find(is_other) {
            None => Ok(()),
            Some(option) => Err(self
                .conflict(&format!("option '{option}' has no effect on format '{format}'"))
                .hint("remove the option, or correct 'format'")),
        }
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

    /// An error about the table, with its name in front.
    pub fn about(&self, error: &Error) -> Error {
        error.about_table(&self.request.table)
    }

    /// Checks that the table may talk to a host.
    ///
    /// # Errors
    /// If `network.allowed-targets` does not name it.
    pub fn check_target(&self, host: &str, port: u16) -> Result<()> {
        self.request.access.targets.check(host, port).map_err(|error| self.about(&error))
    }

    /// The hosts that the table may talk to.
    pub fn targets(&self) -> &AllowedTargets {
        &self.request.access.targets
    }

    /// True if the connector's tables can have this format.
    pub fn has_format(&self, name: &str) -> bool {
        self.description.formats.iter().any(|format| format.name == name)
    }
}

/// Secrets stand only where a connector takes care that they are not shown.
fn check_secret(table: &str, option: &OptionDescription, name: &str, value: &str) -> Result<()> {
    if option.kind == OptionKind::Secret || !names_secret(value) {
        return check_places(value);
    }
    Err(Error::plan(format!("table {table}: the option '{name}' takes no secret"))
        .hint("options that do say so: see DESCRIBE CONNECTOR"))
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

/// What to say of a name that is none of these: the one that it is close to, or `all` and all of
/// them.
pub fn nearest_or_all<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    all: &str,
) -> String {
    match near_miss(name, known.clone()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("{all} {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::{FormatDescription, OptionDescription, OptionKind};
    use super::*;

    const CSV: FormatDescription = FormatDescription {
        name: "csv",
        summary: "",
        options: &[OptionDescription::new("csv.header", OptionKind::Boolean, "").or("true")],
        metadata: &[],
        unsupported: &["csv.other"],
        is_in_flink: true,
    };

    const KNOWN: ConnectorDescription = ConnectorDescription {
        options: &[
            OptionDescription::new("fields.*.kind", OptionKind::Text, ""),
            OptionDescription::new("interval", OptionKind::Duration, ""),
            OptionDescription::new("size", OptionKind::Size, "").or("2kb"),
        ],
        formats: &[&CSV],
        unsupported: &["sink.*"],
        ..ConnectorDescription::new("some", "")
    };

    fn request(options: &[(&str, &str)]) -> TableRequest {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        TableRequest { table: "t".to_string(), options, ..TableRequest::default() }
    }

    #[test]
    fn unknown_options_name_the_nearest() {
        let request = request(&[("csv.heder", "true")]);
        let error = Options::of(&request, &KNOWN).err().expect("unknown option");
        assert!(error.is_plan_error());
        assert_eq!(error.help(), Some("did you mean 'csv.header'?"));
    }

    #[test]
    fn patterns_take_any_field_name() {
        assert!(Options::of(&request(&[("fields.a b.kind", "x")]), &KNOWN).is_ok());
        assert!(Options::of(&request(&[("fields..kind", "x")]), &KNOWN).is_err());
        for flinks in ["sink.parallelism", "csv.other"] {
            let request = request(&[(flinks, "2")]);
            let error = Options::of(&request, &KNOWN).err().expect("unsupported");
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
        }
    }

    #[test]
    fn times_and_sizes_have_units() {
        let set = request(&[("interval", "10 min"), ("size", "10 min")]);
        let options = Options::of(&set, &KNOWN).expect("known");
        assert_eq!(options.duration_ms("interval").expect("a time"), Some(600_000));
        assert!(options.bytes("size").is_err());
        let unset = request(&[("connector", "some")]);
        let options = Options::of(&unset, &KNOWN).expect("known");
        assert_eq!(options.bytes("size").expect("the default"), Some(2_048));
        assert_eq!(options.duration_ms("interval").expect("no default"), None);
    }

    #[test]
    fn durations_take_flinks_units() {
        for (text, expected) in [
            ("10 s", Some(10_000)),
            ("500ms", Some(500)),
            ("250", Some(250)),
            ("2 Hours", Some(7_200_000)),
            ("s", None),
            ("1 fortnight", None),
        ] {
            let set = request(&[("interval", text)]);
            let options = Options::of(&set, &KNOWN).expect("known");
            assert_eq!(options.duration_ms("interval").ok().flatten(), expected, "{text}");
        }
    }

    #[test]
    fn values_are_checked_and_defaults_are_those_of_the_description() {
        let wrong = request(&[("csv.header", "yes"), ("interval", "ab")]);
        let options = Options::of(&wrong, &KNOWN).expect("known");
        assert!(options.boolean("csv.header").is_err());
        assert!(options.ascii_char("interval").is_err());
        assert!(options.number::<u64>("interval").is_err());
        assert!(options.check_format("json").is_err() && options.check_format("csv").is_ok());
        let unset = request(&[]);
        let options = Options::of(&unset, &KNOWN).expect("known");
        assert!(options.boolean("csv.header").expect("the default"));
        assert_eq!(options.choice::<u8>("interval", &[]).expect("no default"), None);
    }

    #[test]
    fn secrets_stand_only_where_an_option_takes_them() {
        const LOGIN: ConnectorDescription = ConnectorDescription {
            options: &[
                OptionDescription::new("user", OptionKind::Text, ""),
                OptionDescription::new("password", OptionKind::Secret, ""),
            ],
            ..ConnectorDescription::new("login", "")
        };
        let of = |name: &str, value: &str| {
            let request = request(&[(name, value)]);
            Options::of(&request, &LOGIN).and_then(|options| options.secret(name))
        };
        let plain = of("password", "abc").expect("no secret to look up").expect("set");
        assert_eq!((plain.expose(), format!("{plain:?}").as_str()), ("abc", "***"));
        let error = of("user", "${secret:name}").expect_err("it would be shown");
        assert!(error.message().contains("takes no secret"), "{error}");
        assert!(of("password", "${secret:no such}").is_err());
        let error = of("password", "${secret:not-set-in-this-test}").expect_err("not set");
        assert!(
            error.help().is_some_and(|help| help.contains("THALWEG_SECRET_NOT_SET")),
            "{error}"
        );
    }
}
