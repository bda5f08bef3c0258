//! Avro: binary records whose schema is known from elsewhere.
//!
//! A schema says which bytes a record has ([`schema`]), a plan where each of its fields goes
//! ([`plan`]); [`read`] follows the plan through the bytes, straight into columns. Plain messages
//! have no schema: theirs is derived from the table, as Flink does. In [`registry`]'s messages a
//! number stands in front, under which the schema that wrote them is registered. A [`file`] begins
//! with its schema.

pub mod file;
mod plan;
mod read;
pub mod registry;
pub(crate) mod schema;
pub(crate) mod write;

use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use thalweg_core::{Column, DataType, Error, Result, TableSchema};

use self::plan::Plan;
use self::registry::{Registered, Registry};
use self::schema::Schema;
use super::bad_data::{BadDataPolicy, DecodeError};
use super::builder::{self, Field};
use super::records::{DecodedRecords, Objects, RecordLayout, bad_record, finish};
use super::text::TextBlock;

/// How records are read and written.
#[derive(Clone, Debug, Default)]
pub struct AvroOptions {
    /// True if TIMESTAMP is an instant in Avro, and TIMESTAMP_LTZ has no type there: what Flink
    /// did first, and does unless something else is asked for.
    pub has_legacy_times: bool,
    /// How the blocks of files are compressed that are written.
    pub codec: Codec,
    /// Where schemas are registered; `None` for plain messages.
    pub registry: Option<RegistryOptions>,
}

/// How the blocks of files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Not at all.
    Null,
    /// As in zip.
    Deflate,
    /// Snappy, with a checksum.
    #[default]
    Snappy,
    /// Zstandard.
    Zstandard,
}

impl Codec {
    /// Their names, as Avro has them.
    pub const NAMES: [(&'static str, Codec); 4] = [
        ("null", Codec::Null),
        ("deflate", Codec::Deflate),
        ("snappy", Codec::Snappy),
        ("zstandard", Codec::Zstandard),
    ];
}

/// What is said about the registry of a table's schemas.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// The registry.
    pub registry: Arc<Registry>,
    /// Under which name the schema of written records is registered.
    pub subject: Option<String>,
    /// The schema of written records as JSON, in place of one that is derived.
    pub schema: Option<String>,
}

/// True if values of this type have one in Avro.
pub fn is_supported(data_type: &DataType, options: &AvroOptions) -> bool {
    schema::derive("record", data_type, options.has_legacy_times).is_ok()
}

impl AvroOptions {
    /// Checks that the schema that an option names has what these columns need.
    ///
    /// # Errors
    /// If it has not.
    pub fn check_columns(&self, columns: &[Column]) -> Result<()> {
        let named = self.registry.as_ref().and_then(|registry| registry.schema.as_deref());
        let Some(text) = named else { return Ok(()) };
        let columns = TableSchema::new(columns.to_vec());
        let nothing = RecordBatch::new_empty(columns.arrow());
        let schema = Schema::parse(text)?;
        write::write(&schema, &mut Vec::new(), &nothing, &columns, |_| {}, |_| {})
    }

    /// The schema of records with these columns.
    ///
    /// # Errors
    /// If a type has none.
    fn schema(&self, columns: &[Column]) -> Result<Schema> {
        schema::of_record(columns, self.has_legacy_times)
    }
}

/// Encodes records of one format.
pub struct AvroEncoder {
    schema: Arc<Schema>,
    /// How the schema is registered.
    registration: Option<Registration>,
}

struct Registration {
    registry: Arc<Registry>,
    subject: String,
    /// The schema.
    text: String,
    /// Its number, once it is registered.
    number: OnceLock<u32>,
}

impl AvroEncoder {
    /// An encoder of rows with these columns.
    ///
    /// # Errors
    /// If a type has no schema, or the registry knows no subject.
    pub fn new(options: &AvroOptions, columns: &[Column]) -> Result<Self> {
        let derived = schema::text_of_record(columns, options.has_legacy_times);
        let Some(registry) = &options.registry else {
            let schema = Arc::new(Schema::parse(&derived?)?);
            return Ok(AvroEncoder { schema, registration: None });
        };
        let text = match &registry.schema {
            Some(text) => text.clone(),
            None => derived?,
        };
        let subject = registry.subject.clone().ok_or_else(|| {
            Error::plan("nothing says under which subject the schema is registered").hint(
                "add the option 'avro-confluent.subject' (or 'debezium-avro-confluent.subject')",
            )
        })?;
        let schema = Arc::new(Schema::parse(&text)?);
        let (registry, number) = (registry.registry.clone(), OnceLock::new());
        let registration = Some(Registration { registry, subject, text, number });
        Ok(AvroEncoder { schema, registration })
    }

    /// Appends a message per row, and `end` after each.
    ///
    /// # Errors
    /// If a value cannot be written, or the schema cannot be registered.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        batch: &RecordBatch,
        columns: &TableSchema,
        end: impl FnMut(&mut Vec<u8>),
    ) -> Result<()> {
        let number = self.registration.as_ref().map(Registration::number).transpose()?;
        let begin = |out: &mut Vec<u8>| {
            if let Some(number) = number {
                registry::frame(out, number);
            }
        };
        write::write(&self.schema, out, batch, columns, begin, end)
    }
}

impl Registration {
    /// The schema's number, under which it is registered with the first message.
    fn number(&self) -> Result<u32> {
        if let Some(&number) = self.number.get() {
            return Ok(number);
        }
        let number = self.registry.register(&self.subject, &self.text)?;
        Ok(*self.number.get_or_init(|| number))
    }
}

/// Decodes records of one format. It remembers the plans of the schemas that it has met.
pub struct AvroDecoder {
    options: AvroOptions,
    plans: Registered<Plan>,
}

impl AvroDecoder {
    /// A decoder that has met no schema yet.
    pub fn new(options: AvroOptions) -> Self {
        AvroDecoder { options, plans: Registered::default() }
    }

    /// Decodes a block.
    pub(super) fn decode(
        &self,
        layout: &RecordLayout,
        block: &TextBlock<'_>,
    ) -> Result<DecodedRecords, DecodeError> {
        let columns: Vec<&Column> = layout.read().map(|at| &layout.schema.columns[at]).collect();
        let fields = builder::record(columns.iter().copied())?;
        let all = &layout.schema.columns;
        let objects = self.objects(all, &columns, fields, block, layout.policy)?;
        let Objects { fields, mut found, mut bad, rejected } = objects;
        let columns = builder::finish(fields, &columns, &mut bad)?;
        finish(layout, block, &mut found, columns, bad, rejected)
    }

    /// Reads these columns of all records of a block. `all` are those of a whole record, where its
    /// schema is derived.
    pub(super) fn objects<'b>(
        &self,
        all: &[Column],
        columns: &[&Column],
        fields: Vec<Field>,
        block: &'b TextBlock<'_>,
        policy: BadDataPolicy,
    ) -> Result<Objects<'b>> {
        let Some(messages) = block.as_messages() else {
            return Err(Error::internal("Avro records have no lines"));
        };
        let mut objects = Objects::new(fields, policy, bad_record);
        let mut plan: Option<(u32, Arc<Plan>)> = None;
        for (number, (from, to)) in messages.numbered(block.bytes().len()) {
            let record = &block.bytes()[from..to];
            let read = self.body(record, all, columns, &mut plan)?;
            let read = read.and_then(|(plan, body)| plan.read(body, &mut objects.fields));
            objects.found.records.push((number, record));
            let Err(reason) = read else { continue };
            objects.leave_out(policy, reason);
            if objects.found.broken.is_some() {
                break;
            }
        }
        Ok(objects)
    }

    /// The plan for a message, and its bytes behind the number of its schema. The outer error ends
    /// the job whatever becomes of bad records: a registry that does not answer makes none bad.
    #[allow(clippy::type_complexity)]
    fn body<'p, 'b>(
        &self,
        record: &'b [u8],
        all: &[Column],
        columns: &[&Column],
        last: &'p mut Option<(u32, Arc<Plan>)>,
    ) -> Result<Result<(&'p Plan, &'b [u8]), String>> {
        let framed = match &self.options.registry {
            Some(_) => registry::framed(record),
            None => Ok((0, record)),
        };
        let (number, body) = match framed {
            Ok(framed) => framed,
            Err(reason) => return Ok(Err(reason)),
        };
        if last.as_ref().is_none_or(|(known, _)| *known != number) {
            match self.plans.get(number, || self.plan(number, all, columns))? {
                Ok(plan) => *last = Some((number, plan)),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok((&last.as_ref().expect("set above").1, body)))
    }

    /// The plan for the registered schema of this number, or for the one that the columns make.
    fn plan(
        &self,
        number: u32,
        all: &[Column],
        columns: &[&Column],
    ) -> Result<Result<Plan, String>> {
        let Some(options) = &self.options.registry else {
            return Plan::new(&self.options.schema(all)?, columns).map(Ok);
        };
        let schema = match options.registry.schema(number)? {
            Ok(text) => Schema::parse(&text),
            Err(reason) => return Ok(Err(reason)),
        };
        let plan = schema.and_then(|schema| Plan::new(&schema, columns));
        Ok(plan.map_err(|e| format!("schema {number} of the registry: {}", e.message())))
    }
}
