//! What a connector says of itself, once: how its options are checked, what SHOW CONNECTORS and
//! DESCRIBE CONNECTOR answer, the option tables of the documentation, near-miss hints, and what
//! `validate --flink` reports all come from a [`ConnectorDescription`].
//!
//! Descriptions are constants. Texts are Markdown without line breaks.

use super::table::AcceptedChanges;
use crate::snapshot::SinkGuarantee;

/// A connector: one kind of table.
///
/// ```
/// use thalweg_core::connector::{ConnectorDescription, OptionDescription, OptionKind};
/// const DESCRIPTION: ConnectorDescription = ConnectorDescription {
///     options: &[OptionDescription::new("port", OptionKind::Number, "the port to listen at")],
///     ..ConnectorDescription::new("socket", "lines of a TCP connection")
/// };
/// assert!(DESCRIPTION.option("port").is_some());
/// ```
#[derive(Clone, Debug)]
pub struct ConnectorDescription {
    /// The value of the option `connector`.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// What its tables can do.
    pub capabilities: Capabilities,
    /// Its options, without `connector` and those of its formats.
    pub options: &'static [OptionDescription],
    /// The formats that the option `format` can name.
    pub formats: &'static [&'static FormatDescription],
    /// The keys of its metadata columns.
    pub metadata: &'static [MetadataDescription],
    /// Those of them that can be written, too.
    pub writable_metadata: &'static [&'static str],
    /// Options of Flink's connector that are not supported. `*` stands for any text.
    pub unsupported: &'static [&'static str],
    /// True if Flink has a connector of this name with the same meaning.
    pub is_in_flink: bool,
    /// True if no user names it: the planner makes its tables.
    pub is_internal: bool,
    /// True if each row goes to one reader, or a table has one reader at a time: whoever reads it
    /// as well takes rows from the job.
    pub has_one_reader: bool,
}

/// What the tables of a connector can do.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// How they are read; `None` if they cannot be.
    pub source: Option<SourceCapability>,
    /// How they are written; `None` if they cannot be.
    pub sink: Option<SinkCapability>,
    /// True if they are looked up by key. Without a `source` they cannot be read as a whole.
    pub is_lookup: bool,
    /// True if PARTITIONED BY has a meaning.
    pub is_partitioned: bool,
    /// True if rows that are written appear on the terminal.
    pub is_printed: bool,
}

/// How tables are read.
#[derive(Clone, Copy, Debug)]
pub struct SourceCapability {
    /// Whether they end.
    pub boundedness: Boundedness,
    /// Which changes they can hold; the first is the usual one.
    pub changes: &'static [AcceptedChanges],
    /// True if reading resumes from a position, so that jobs with snapshots can read them.
    pub has_positions: bool,
    /// True if only the columns that a query needs are read.
    pub prunes_columns: bool,
}

/// Whether a table that is read ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundedness {
    /// It does.
    Bounded,
    /// It does not.
    Unbounded,
    /// Its options decide.
    ByOptions,
}

/// How tables are written.
#[derive(Clone, Copy, Debug)]
pub struct SinkCapability {
    /// Which changes they can take; the first is the usual one.
    pub changes: &'static [AcceptedChanges],
    /// The most that is promised about rows in a job with snapshots.
    pub guarantee: SinkGuarantee,
}

/// A format and its options, which begin with its name.
#[derive(Clone, Debug)]
pub struct FormatDescription {
    /// The value of the option `format`.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Its options.
    pub options: &'static [OptionDescription],
    /// The keys of its metadata columns.
    pub metadata: &'static [MetadataDescription],
    /// Options of Flink's format that are not supported.
    pub unsupported: &'static [&'static str],
    /// True if Flink has a format of this name.
    pub is_in_flink: bool,
}

/// A metadata column that tables can declare.
#[derive(Clone, Copy, Debug)]
pub struct MetadataDescription {
    /// What `METADATA FROM` names.
    pub key: &'static str,
    /// Its type.
    pub data_type: &'static str,
    /// What it holds.
    pub help: &'static str,
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct OptionDescription {
    /// Its name. `*` stands for any text, such as a column's name: `fields.*.kind`.
    pub name: &'static str,
    /// Which values it takes.
    pub kind: OptionKind,
    /// What holds where it is not set.
    pub default: OptionDefault,
    /// Where it has an effect.
    pub used_by: UsedBy,
    /// True if it decides what positions and transactions in snapshots mean.
    pub decides_state: bool,
    /// Whether Flink has it.
    pub flink: FlinkOption,
    /// What it means.
    pub help: &'static str,
}

/// Which values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A number.
    Number,
    /// One ASCII character; `\t` is a tab.
    Character,
    /// A number and a unit of time.
    Duration,
    /// A number and a unit of bytes.
    Size,
    /// One of these words, in any case.
    Words(&'static [&'static str]),
    /// Any text. Only in such a one `${secret:name}` may stand, and it is not shown.
    Secret,
    /// What is described here.
    Other(&'static str),
}

/// What holds where an option is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionDefault {
    /// Nothing: it must be set.
    Required,
    /// Nothing.
    None,
    /// This value.
    Value(&'static str),
    /// What is described here.
    Other(&'static str),
}

/// Where an option has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// When the table is read.
    Source,
    /// When it is written.
    Sink,
    /// In both.
    Both,
}

/// An array of [`OptionDescription`]s: name, kind and what holds beyond that of each, then what it
/// means.
///
/// ```
/// use thalweg_core::connector::{OptionDescription, option_table};
/// const OPTIONS: &[OptionDescription] = &option_table! {
///     "port": Number, required()
///         => "the port to listen at";
///     "mode": Words(&["text", "binary"]), or("text"), of_source()
///         => "how lines are read";
/// };
/// assert_eq!(OPTIONS[1].values(), "`text`, `binary`");
/// ```
///
/// A name that is made of parts stands in brackets: `[concat!($format, ".charset")]`.
#[macro_export]
macro_rules! option_table {
    ($($name:tt: $kind:ident $(($values:expr))? $(, $set:ident($($value:expr),*))* => $help:literal;)*) => {
        [$($crate::connector::OptionDescription::new(
            $crate::option_table!(@name $name),
            $crate::connector::OptionKind::$kind $(($values))?,
            $help,
        )$(.$set($($value),*))*),*]
    };
    (@name [$name:expr]) => { $name };
    (@name $name:tt) => { $name };
}

/// The rows of tables of options as one table: `option_tables![COMMON, OF_SINK]`.
#[macro_export]
macro_rules! option_tables {
    [$($table:expr),*] => {{
        const ROWS: usize = 0 $(+ $table.len())*;
        const ALL: [$crate::connector::OptionDescription; ROWS] =
            $crate::connector::joined(&[$(&$table),*]);
        &ALL
    }};
}

/// What [`option_tables!`] makes; `N` is the number of all rows.
#[doc(hidden)]
pub const fn joined<const N: usize>(tables: &[&[OptionDescription]]) -> [OptionDescription; N] {
    let mut all = [tables[0][0]; N];
    let (mut table, mut row, mut at) = (0, 0, 0);
    while table < tables.len() {
        if row < tables[table].len() {
            all[at] = tables[table][row];
            (row, at) = (row + 1, at + 1);
        } else {
            (table, row) = (table + 1, 0);
        }
    }
    all
}

/// An array of [`MetadataDescription`]s: key, type and what it holds.
///
/// ```
/// use thalweg_core::connector::{MetadataDescription, metadata_table};
/// const METADATA: &[MetadataDescription] = &metadata_table! {
///     "topic": "STRING" => "the topic";
///     "offset": "BIGINT" => "its place in the topic";
/// };
/// assert_eq!(METADATA[1].data_type, "BIGINT");
/// ```
#[macro_export]
macro_rules! metadata_table {
    ($($key:literal: $data_type:literal => $help:literal;)*) => {
        [$($crate::connector::MetadataDescription {
            key: $key,
            data_type: $data_type,
            help: $help,
        }),*]
    };
}

/// Whether Flink has an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlinkOption {
    /// With the same meaning.
    Same,
    /// It has not; what it does instead.
    Ours(&'static str),
    /// It has, but does not know this value; what it does instead.
    OursIf(&'static str, &'static str),
}

impl Capabilities {
    /// Those of tables that can neither be read nor written.
    pub const NONE: Capabilities = Capabilities {
        source: None,
        sink: None,
        is_lookup: false,
        is_partitioned: false,
        is_printed: false,
    };
    /// Those of tables that are only looked up.
    pub const LOOKUP: Capabilities = Capabilities { is_lookup: true, ..Capabilities::NONE };

    /// The same of tables that are read as well: from positions, and only the needed columns.
    #[must_use]
    pub const fn reading(
        self,
        boundedness: Boundedness,
        changes: &'static [AcceptedChanges],
    ) -> Self {
        let (has_positions, prunes_columns) = (true, true);
        let source = SourceCapability { boundedness, changes, has_positions, prunes_columns };
        Capabilities { source: Some(source), ..self }
    }

    /// The same of tables that take these changes as well, with at most this promise.
    #[must_use]
    pub const fn writing(
        self,
        changes: &'static [AcceptedChanges],
        guarantee: SinkGuarantee,
    ) -> Self {
        Capabilities { sink: Some(SinkCapability { changes, guarantee }), ..self }
    }
}

impl FormatDescription {
    /// A format of Flink's without options; constants of formats fill in the rest.
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        FormatDescription {
            name,
            summary,
            options: &[],
            metadata: &[],
            unsupported: &[],
            is_in_flink: true,
        }
    }
}

impl ConnectorDescription {
    /// A connector of ours without options whose tables can neither be read nor written; constants
    /// of connectors fill in the rest.
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        ConnectorDescription {
            name,
            summary,
            capabilities: Capabilities::NONE,
            options: &[],
            formats: &[],
            metadata: &[],
            writable_metadata: &[],
            unsupported: &[],
            is_in_flink: false,
            is_internal: false,
            has_one_reader: false,
        }
    }

    /// Its options and those of its formats.
    pub fn all_options(&self) -> impl Iterator<Item = &'static OptionDescription> + Clone + use<> {
        let of_formats = self.formats.iter().flat_map(|format| format.options);
        self.options.iter().chain(of_formats)
    }

    /// The option of this name, if there is one.
    pub fn option(&self, name: &str) -> Option<&'static OptionDescription> {
        self.all_options().find(|option| option.is_named(name))
    }

    /// True if Flink has an option of this name, which is not supported.
    pub fn is_unsupported(&self, name: &str) -> bool {
        let of_formats = self.formats.iter().flat_map(|format| format.unsupported);
        self.unsupported.iter().chain(of_formats).any(|pattern| matches(pattern, name))
    }

    /// The format that an option belongs to by its name, if it is one of a format.
    pub fn format_of(&self, option: &str) -> Option<&'static FormatDescription> {
        let prefix = option.split_once('.').map_or(option, |(prefix, _)| prefix);
        self.formats.iter().copied().find(|format| format.name == prefix)
    }
}

impl OptionDescription {
    /// An optional option of ours without a default, for reading and writing.
    pub const fn new(name: &'static str, kind: OptionKind, help: &'static str) -> Self {
        let (default, used_by) = (OptionDefault::None, UsedBy::Both);
        let flink = FlinkOption::Ours("Flink has no such connector");
        OptionDescription { name, kind, default, used_by, decides_state: false, flink, help }
    }

    /// That must be set.
    #[must_use]
    pub const fn required(self) -> Self {
        Self { default: OptionDefault::Required, ..self }
    }

    /// With this value where it is not set.
    #[must_use]
    pub const fn or(self, value: &'static str) -> Self {
        Self { default: OptionDefault::Value(value), ..self }
    }

    /// With a default that is described here.
    #[must_use]
    pub const fn or_else(self, described: &'static str) -> Self {
        Self { default: OptionDefault::Other(described), ..self }
    }

    /// For reading alone.
    #[must_use]
    pub const fn of_source(self) -> Self {
        Self { used_by: UsedBy::Source, ..self }
    }

    /// For writing alone.
    #[must_use]
    pub const fn of_sink(self) -> Self {
        Self { used_by: UsedBy::Sink, ..self }
    }

    /// A change of which makes positions and transactions in snapshots those of another table.
    #[must_use]
    pub const fn of_state(self) -> Self {
        Self { decides_state: true, ..self }
    }

    /// As in Flink.
    #[must_use]
    pub const fn as_in_flink(self) -> Self {
        Self { flink: FlinkOption::Same, ..self }
    }

    /// Not in Flink, which does something else instead.
    #[must_use]
    pub const fn but_flink(self, instead: &'static str) -> Self {
        Self { flink: FlinkOption::Ours(instead), ..self }
    }

    /// As in Flink but for one value.
    #[must_use]
    pub const fn as_in_flink_but(self, value: &'static str, instead: &'static str) -> Self {
        Self { flink: FlinkOption::OursIf(value, instead), ..self }
    }

    /// True if an option of a table is this one.
    pub fn is_named(&self, name: &str) -> bool {
        matches(self.name, name)
    }

    /// What Flink does instead of this option with this value, if it does not know it.
    pub fn flink_instead(&self, value: &str) -> Option<&'static str> {
        match self.flink {
            FlinkOption::Ours(instead) => Some(instead),
            FlinkOption::OursIf(ours, instead) => (ours == value).then_some(instead),
            FlinkOption::Same => None,
        }
    }

    /// Which values it takes, in Markdown.
    pub fn values(&self) -> String {
        match self.kind {
            OptionKind::Text => "text".to_owned(),
            OptionKind::Secret => "text or `${secret:name}`".to_owned(),
            OptionKind::Boolean => "`true`, `false`".to_owned(),
            OptionKind::Number => "number".to_owned(),
            OptionKind::Character => "character".to_owned(),
            OptionKind::Duration => "duration".to_owned(),
            OptionKind::Size => "size".to_owned(),
            OptionKind::Words(words) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
            }
            OptionKind::Other(text) => text.to_owned(),
        }
    }

    /// Its default, in Markdown.
    pub fn default_text(&self) -> String {
        match self.default {
            OptionDefault::Required => "required".to_owned(),
            OptionDefault::None => String::new(),
            OptionDefault::Value("") => "empty".to_owned(),
            OptionDefault::Value(value) => format!("`{value}`"),
            OptionDefault::Other(text) => text.to_owned(),
        }
    }
}

/// True if a name is of a pattern, in which `*` stands for any text.
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
