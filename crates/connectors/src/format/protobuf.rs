//! Protocol Buffers: messages whose type a `.proto` file declares.
//!
//! The type ([`types`], from [`descriptor`]) says which field has which number, a plan where each
//! goes ([`plan`]); [`read`] follows the plan through the bytes, straight into columns. Columns are
//! fields by name, as in Flink.

#[cfg(feature = "protobuf")]
mod descriptor;
mod plan;
mod read;
#[cfg_attr(
    not(feature = "protobuf"),
    expect(dead_code, reason = "only what reads declarations makes values of these types")
)]
mod types;
mod wire;
mod write;

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::connector::Options;
use thalweg_core::{Column, DataType, Result};

use self::plan::{Defaults, Plan};
use self::read::{Reader, Scratch};
use self::types::{MessageType, Types};
use super::bad_data::DecodeError;
use super::builder;
use super::records::{DecodedRecords, Objects, RecordLayout, bad_record, finish};
use super::text::TextBlock;

/// How messages are read and written.
#[derive(Clone, Debug)]
pub struct ProtobufOptions {
    types: Arc<Types>,
    /// The place of the message among the types.
    message: usize,
    /// A message that cannot be read is skipped.
    pub ignore_parse_errors: bool,
    /// Fields without a value have their default, also messages, lists and maps.
    reads_defaults: bool,
    /// What is written for NULL in a list or map of texts.
    null_text: String,
}

/// True if a message can have a field for values of this type. Which it is, the message says.
pub fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean
        | DataType::TinyInt
        | DataType::SmallInt
        | DataType::Int
        | DataType::BigInt
        | DataType::Float
        | DataType::Double => true,
        DataType::Array(element) => is_supported(&element.data_type),
        DataType::Map(key, value) => is_supported(&key.data_type) && is_supported(&value.data_type),
        DataType::Row(columns) => columns.iter().all(|c| is_supported(&c.column_type.data_type)),
        other => other.is_string() || other.is_binary(),
    }
}

impl ProtobufOptions {
    /// Reads `protobuf.*`.
    ///
    /// # Errors
    /// If one is wrong, or the file has no such message.
    pub fn read(options: &Options<'_>) -> Result<Self> {
        let class = options.required("protobuf.message-class-name")?;
        options.required("protobuf.descriptor-file")?;
        let (types, message) = load(options, class)?;
        Ok(ProtobufOptions {
            types: Arc::new(types),
            message,
            ignore_parse_errors: options.boolean("protobuf.ignore-parse-errors")?,
            reads_defaults: options.boolean("protobuf.read-default-values")?,
            null_text: options
                .text("protobuf.write-null-string-literal")
                .unwrap_or_default()
                .to_owned(),
        })
    }

    fn message(&self) -> &MessageType {
        &self.types.messages[self.message]
    }

    fn plan(&self, columns: &[&Column]) -> Result<Plan> {
        let of_all = self.reads_defaults;
        let of_scalars = of_all || self.message().has_implicit_values;
        Plan::new(&self.types, self.message(), columns, Defaults { of_scalars, of_all })
    }

    /// Checks that the message has fields for these columns.
    ///
    /// # Errors
    /// If it lacks one, or has one of another type.
    pub fn check_columns(&self, columns: &[Column]) -> Result<()> {
        self.plan(&columns.iter().collect::<Vec<_>>()).map(|_| ())
    }

    /// Decodes a block.
    pub(super) fn decode(
        &self,
        layout: &RecordLayout,
        block: &TextBlock<'_>,
    ) -> Result<DecodedRecords, DecodeError> {
        let columns: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
        let plan = self.plan(&columns)?;
        let fields = builder::record(columns.iter().copied())?;
        let mut objects = Objects::new(fields, layout.policy, bad_record);
        let (reader, mut scratch) = (Reader { types: &self.types }, Scratch::default());
        // A message without bytes is one, of defaults.
        let records = block.records().into_iter();
        for (number, record) in records.filter_map(|(n, record)| Some((n, record?))) {
            let read = reader.read(&plan, record, &mut objects.fields, &mut scratch);
            objects.found.records.push((number, record));
            if let Err(reason) = read {
                objects.leave_out(layout.policy, reason);
            }
            if objects.found.broken.is_some() {
                break;
            }
        }
        let Objects { fields, mut found, mut bad, rejected } = objects;
        let columns = builder::finish(fields, &columns, &mut bad)?;
        finish(layout, block, &mut found, columns, bad, rejected)
    }

    /// Appends a message per row, and `end` after each.
    ///
    /// # Errors
    /// If a column does not fit the message.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        batch: &RecordBatch,
        columns: &[Column],
        end: impl FnMut(&mut Vec<u8>),
    ) -> Result<()> {
        write::write(&self.types, self.message(), &self.null_text, out, batch, columns, end)
    }
}

#[cfg(all(test, feature = "protobuf"))]
impl ProtobufOptions {
    /// The message of this name in a file, without an option set.
    pub fn of_file(file: &std::path::Path, name: &str) -> Result<Self> {
        let roots = file.parent().map(std::path::Path::to_owned);
        Self::of_file_within(file, roots.as_slice(), name)
    }

    /// The same, where imports may lie in these folders.
    pub fn of_file_within(
        file: &std::path::Path,
        roots: &[std::path::PathBuf],
        name: &str,
    ) -> Result<Self> {
        let (types, message) = descriptor::load(file, roots, name)?;
        Ok(ProtobufOptions {
            types: Arc::new(types),
            message,
            ignore_parse_errors: false,
            reads_defaults: false,
            null_text: String::new(),
        })
    }

    /// With defaults for all that is not set.
    pub fn with_defaults(mut self) -> Self {
        self.reads_defaults = true;
        self
    }
}

#[cfg(feature = "protobuf")]
fn load(options: &Options<'_>, class: &str) -> Result<(Types, usize)> {
    let file = options.file("protobuf.descriptor-file")?.unwrap_or_default();
    descriptor::load(&file, options.allowed_roots(), class)
}

#[cfg(not(feature = "protobuf"))]
fn load(options: &Options<'_>, _class: &str) -> Result<(Types, usize)> {
    use thalweg_core::Error;
    let message = format!("table {}: this program was built without protobuf", options.table());
    Err(Error::unsupported(message).hint("build it with `--features protobuf`"))
}
