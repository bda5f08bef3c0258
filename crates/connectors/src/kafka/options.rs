//! The options of a table.

use std::collections::BTreeMap;

use regex::Regex;
use thalweg_core::connector::{
    ConnectorDescription, FormatDescription, Options, TableRequest, near_miss, nearest_or_all,
};
use thalweg_core::{Column, Error, Result, TableSchema};

use super::client::Properties;
use super::description::{KAFKA, METADATA, UPSERT_KAFKA, WRITABLE};
use crate::format::Format;
use crate::format::options::RECORD_FORMATS;
use crate::metadata;

/// The topics of a table.
#[derive(Clone, Debug)]
pub enum Topics {
    /// These.
    Named(Vec<String>),
    /// Those whose whole names fit.
    Fitting(Regex),
}

impl Topics {
    /// True if a topic is one of them.
    pub fn has(&self, topic: &str) -> bool {
        match self {
            Topics::Named(names) => names.iter().any(|name| name == topic),
            Topics::Fitting(pattern) => pattern.is_match(topic),
        }
    }

    /// The topic, if there is just one.
    pub fn only(&self) -> Option<&str> {
        match self {
            Topics::Named(names) if names.len() == 1 => names.first().map(String::as_str),
            _ => None,
        }
    }
}

/// A place in each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first message that is there.
    Earliest,
    /// Behind the last.
    Latest,
    /// Where the group has committed.
    Group,
    /// The first message that is as new, in milliseconds since 1970.
    Time(i64),
    /// Offsets by partition.
    Offsets(BTreeMap<i32, i64>),
}

/// What happens to a message that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadData {
    /// The job fails.
    Fail,
    /// It is left out.
    Skip,
    /// It goes to this file.
    File(String),
    /// It goes to this topic.
    Topic(String),
}

/// What a job with snapshots promises of rows that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing.
    None,
    /// None is lost.
    AtLeastOnce,
    /// Each is there once.
    ExactlyOnce,
}

/// The options of a table.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// The table is one of `upsert-kafka`.
    pub is_upsert: bool,
    /// Its topics.
    pub topics: Topics,
    /// Of the client.
    pub properties: Properties,
    /// The format of values.
    pub value: Format,
    /// The format of keys.
    pub key: Option<Format>,
    /// The columns of the key, as positions in the table.
    pub key_columns: Vec<usize>,
    /// The columns of the value, as positions in the table.
    pub value_columns: Vec<usize>,
    /// What the names of columns of the key begin with in the table alone.
    pub key_prefix: String,
    /// Where a job begins.
    pub startup: Place,
    /// Where it ends.
    pub bounded: Option<Place>,
    /// How often to look for new partitions.
    pub discovery_ms: Option<u64>,
    /// What happens to a message that can't be read.
    pub bad_data: BadData,
    /// What is promised of rows that are written.
    pub delivery: Delivery,
    /// The name of the output's transactions.
    pub transactional_prefix: Option<String>,
    /// Where rows wait for their snapshot.
    pub spool_path: Option<String>,
    /// Each row goes to the first partition.
    pub is_fixed_partition: bool,
    /// Of this number of rows only the last of each key is written.
    pub flush_rows: usize,
    /// The longest that a row waits for others.
    pub flush_interval_ms: u64,
}

impl KafkaOptions {
    /// Reads them, to check them or, where `opens`, for a table that is opened now.
    ///
    /// # Errors
    /// If one is unknown or wrong, or a secret is not set.
    pub fn read(
        request: &TableRequest,
        is_upsert: bool,
        as_sink: bool,
        opens: bool,
    ) -> Result<Self> {
        let description = if is_upsert { &UPSERT_KAFKA } else { &KAFKA };
        let options = Options::of(request, description)?;
        let topics = topics(&options)?;
        let key_columns = key_columns(&options, request, is_upsert)?;
        let excludes_key = value_excludes_key(&options)?;
        let key_prefix = options.get("key.fields-prefix").unwrap_or_default().to_owned();
        check_prefix(&options, request, &key_columns, &key_prefix, excludes_key)?;
        let is_value = |at: &usize| !excludes_key || !key_columns.contains(at);
        let value_columns: Vec<usize> = (0..request.schema.len()).filter(is_value).collect();
        let value_name = value_format(&options, is_upsert)?;
        options.check_format(value_name)?;
        let subject = |what: &str| topics.only().map(|topic| format!("{topic}-{what}"));
        let with_subject = |format: Format, what: &str| match subject(what) {
            Some(subject) => format.with_default_subject(&subject),
            None => format,
        };
        let read = |prefixes: &[&str], name: &str, columns: usize| {
            read_format(request, prefixes, name, columns, opens)
        };
        let value = read(&["value.", ""], value_name, value_columns.len())?;
        let value = with_subject(value, "value");
        let key = options.get("key.format");
        let key = key.map(|name| read(&["key."], name, key_columns.len()));
        let key = key.transpose()?.map(|format| with_subject(format, "key"));
        check_metadata(request, &topics, &value, as_sink)?;
        let (flush_rows, flush_interval_ms) = flushing(&options, is_upsert)?;
        let read = KafkaOptions {
            is_upsert,
            properties: Properties::read(&options, request, opens)?,
            startup: place(&options, &topics, "startup", "earliest-offset")?
                .unwrap_or(Place::Earliest),
            bounded: place(&options, &topics, "bounded", "unbounded")?,
            discovery_ms: options
                .duration_ms("scan.topic-partition-discovery.interval")?
                .filter(|&interval| interval > 0),
            bad_data: bad_data(&options)?,
            delivery: delivery(&options, is_upsert)?,
            transactional_prefix: options.get("sink.transactional-id-prefix").map(str::to_owned),
            spool_path: options.get("sink.spool.path").map(str::to_owned),
            is_fixed_partition: !is_upsert && is_fixed(&options, &key_columns)?,
            topics,
            value,
            key,
            key_columns,
            value_columns,
            key_prefix,
            flush_rows,
            flush_interval_ms,
        };
        read.check(&options, request, as_sink)?;
        Ok(read)
    }

    fn check(&self, options: &Options<'_>, request: &TableRequest, as_sink: bool) -> Result<()> {
        self.check_types(options, request, as_sink)?;
        let keeps_changes = self.key.as_ref().is_some_and(Format::has_changes);
        if keeps_changes || (self.is_upsert && self.value.has_changes()) {
            let which = if keeps_changes { "keys are" } else { "values of 'upsert-kafka' are" };
            return Err(options
                .conflict(&format!("{which} in a format of changes"))
                .hint("use a format of rows: json, avro, …"));
        }
        if !self.is_upsert && !self.value.has_changes() && !request.primary_key.is_empty() {
            return Err(options
                .conflict("a PRIMARY KEY, but rows of 'kafka' in this format are never updated")
                .hint("remove the key, or use 'connector' = 'upsert-kafka'"));
        }
        let needs_group = self.startup == Place::Group || self.bounded == Some(Place::Group);
        if !as_sink && needs_group && self.properties.group_id.is_none() {
            return Err(options.conflict("'group-offsets' needs 'properties.group.id'").hint(
                "set it, or 'scan.startup.mode' = 'earliest-offset' (or 'latest-offset', …)",
            ));
        }
        if as_sink && self.delivery == Delivery::ExactlyOnce {
            let Some(prefix) = &self.transactional_prefix else {
                return Err(options
                    .conflict("'exactly-once' needs 'sink.transactional-id-prefix'")
                    .hint("a name of this output alone, among all that write to these servers"));
            };
            if prefix.len() > 64_000 || prefix.is_empty() {
                return Err(options.bad(
                    "sink.transactional-id-prefix",
                    prefix,
                    "1 to 64,000 bytes",
                ));
            }
        }
        Ok(())
    }

    fn check_types(
        &self,
        options: &Options<'_>,
        request: &TableRequest,
        as_sink: bool,
    ) -> Result<()> {
        let of_key = self.key.iter().map(|key| (key, &self.key_columns));
        for (format, columns) in of_key.chain([(&self.value, &self.value_columns)]) {
            let columns = columns.iter().map(|&at| &request.schema.columns[at]);
            format.check_types(&request.table, columns)?;
        }
        let of_key = self.key.iter().map(|key| (key, self.key_schema(request)));
        for (format, schema) in of_key.chain([(&self.value, self.value_schema(request))]) {
            let checked = format.check_columns(&schema.columns, as_sink);
            checked.map_err(|error| options.about(&error))?;
        }
        Ok(())
    }

    /// The columns of the key as its format sees them.
    pub fn key_schema(&self, request: &TableRequest) -> TableSchema {
        let column = |&at: &usize| {
            let column = &request.schema.columns[at];
            let name = column.name.strip_prefix(&self.key_prefix).unwrap_or(&column.name);
            Column { name: name.to_owned(), ..column.clone() }
        };
        TableSchema::new(self.key_columns.iter().map(column).collect())
    }

    /// The columns of the value.
    pub fn value_schema(&self, request: &TableRequest) -> TableSchema {
        let column = |&at: &usize| request.schema.columns[at].clone();
        TableSchema::new(self.value_columns.iter().map(column).collect())
    }
}

fn topics(options: &Options<'_>) -> Result<Topics> {
    match (options.get("topic"), options.get("topic-pattern")) {
        (Some(list), None) => {
            let names = list.split(';').map(str::trim).filter(|name| !name.is_empty());
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.sort();
            names.dedup();
            match names.is_empty() {
                true => Err(options.bad("topic", list, "a topic")),
                false => Ok(Topics::Named(names)),
            }
        }
        (None, Some(text)) => {
            let pattern = Regex::new(&format!("^(?:{text})$"));
            let pattern =
                pattern.map_err(|_| options.bad("topic-pattern", text, "a regular expression"))?;
            Ok(Topics::Fitting(pattern))
        }
        _ => Err(options
            .conflict("one of 'topic' and 'topic-pattern' is needed")
            .hint("add 'topic' = 'NAME'")),
    }
}

fn key_columns(
    options: &Options<'_>,
    request: &TableRequest,
    is_upsert: bool,
) -> Result<Vec<usize>> {
    let has_format = options.get("key.format").is_some();
    if is_upsert {
        if request.primary_key.is_empty() {
            return Err(options.conflict("'upsert-kafka' needs a key").hint(
                "declare PRIMARY KEY (…) NOT ENFORCED: these columns are the key of messages",
            ));
        }
        options.required("key.format")?;
        return Ok(request.primary_key.clone());
    }
    let names = options.get("key.fields").unwrap_or_default();
    let names: Vec<&str> =
        names.split(';').map(str::trim).filter(|name| !name.is_empty()).collect();
    if has_format == names.is_empty() {
        return Err(options
            .conflict("'key.fields' and 'key.format' belong together")
            .hint("set both, or neither"));
    }
    let position = |name: &&str| {
        let columns = request.schema.columns.iter();
        columns.clone().position(|column| column.name == *name).ok_or_else(|| {
            let error =
                options.conflict(&format!("'key.fields' names '{name}', which is no column"));
            match near_miss(name, columns.map(|column| column.name.as_str())) {
                Some(near) => error.hint(format!("did you mean '{near}'?")),
                None => error.hint("name physical columns of the table"),
            }
        })
    };
    names.iter().map(position).collect()
}

fn value_excludes_key(options: &Options<'_>) -> Result<bool> {
    let words = [("ALL", false), ("EXCEPT_KEY", true)];
    Ok(options.choice("value.fields-include", &words)? == Some(true))
}

fn check_prefix(
    options: &Options<'_>,
    request: &TableRequest,
    key_columns: &[usize],
    prefix: &str,
    excludes_key: bool,
) -> Result<()> {
    if prefix.is_empty() {
        return Ok(());
    }
    if !excludes_key {
        return Err(options
            .conflict("'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY'")
            .hint("else values would hold columns under the names with the prefix"));
    }
    let mut names = key_columns.iter().map(|&at| &request.schema.columns[at].name);
    match names.find(|name| !name.starts_with(prefix)) {
        None => Ok(()),
        Some(name) => Err(options
            .conflict(&format!(
                "column {name} of the key does not begin with '{prefix}' ('key.fields-prefix')"
            ))
            .hint("rename the column, or remove the prefix")),
    }
}

fn value_format<'a>(options: &Options<'a>, is_upsert: bool) -> Result<&'a str> {
    match (options.get("format").filter(|_| !is_upsert), options.get("value.format")) {
        (Some(format), None) | (None, Some(format)) => Ok(format),
        (Some(_), Some(_)) => {
            Err(options.conflict("'format' and 'value.format' are the same option").hint("set one"))
        }
        (None, None) => options.required(if is_upsert { "value.format" } else { "format" }),
    }
}

/// A format of keys or values, whose options begin with one of these, then its name.
fn read_format(
    request: &TableRequest,
    prefixes: &[&str],
    name: &str,
    columns: usize,
    opens: bool,
) -> Result<Format> {
    const FORMATS: ConnectorDescription =
        ConnectorDescription { formats: RECORD_FORMATS, ..ConnectorDescription::new("kafka", "") };
    let known = |format: &&FormatDescription| format.name == name;
    if !RECORD_FORMATS.iter().any(known) {
        let names = RECORD_FORMATS.iter().map(|format| format.name);
        let message = format!("table {}: messages have no format '{name}'", request.table);
        return Err(Error::plan(message).hint(nearest_or_all(name, names, "there are")));
    }
    let own = format!("{name}.");
    let mut of_format = TableRequest { options: BTreeMap::new(), ..request.clone() };
    for (option, value) in &request.options {
        let mut rests = prefixes.iter().filter_map(|prefix| option.strip_prefix(prefix));
        if let Some(rest) = rests.find(|rest| rest.starts_with(&own)) {
            of_format.options.insert(rest.to_owned(), value.clone());
        }
    }
    let options = Options::of(&of_format, &FORMATS)?;
    let format = Format::read(name, &options, columns, opens)?;
    format.ok_or_else(|| Error::internal("a format that is listed is not known"))
}

/// `partition:0,offset:42;partition:1,offset:300`
fn offsets(options: &Options<'_>, name: &str, topics: &Topics) -> Result<BTreeMap<i32, i64>> {
    let text = options.required(name)?;
    if topics.only().is_none() {
        return Err(options.conflict(&format!("'{name}' is for one topic")).hint("name one topic"));
    }
    let parse = |part: &str| {
        let (partition, offset) = part.split_once(',')?;
        let partition = partition.trim().strip_prefix("partition:")?.trim().parse().ok()?;
        let offset = offset.trim().strip_prefix("offset:")?.trim().parse().ok()?;
        Some((partition, offset))
    };
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    let read: Option<BTreeMap<i32, i64>> = parts.map(parse).collect();
    read.filter(|read| !read.is_empty())
        .ok_or_else(|| options.bad(name, text, "'partition:0,offset:42;partition:1,offset:300'"))
}

fn time(options: &Options<'_>, name: &str) -> Result<Place> {
    options.required(name)?;
    Ok(Place::Time(options.number(name)?.unwrap_or_default()))
}

/// The place that `scan.WHICH.mode` names; `None` for its first word.
fn place(
    options: &Options<'_>,
    topics: &Topics,
    which: &str,
    first: &str,
) -> Result<Option<Place>> {
    let option = |name: &str| format!("scan.{which}.{name}");
    let (at_time, at_offsets) = (option("timestamp-millis"), option("specific-offsets"));
    let modes = [first, "latest-offset", "group-offsets", "timestamp", "specific-offsets"];
    let modes: Vec<(&str, usize)> = modes.into_iter().zip(0..).collect();
    let mode = options.choice(&option("mode"), &modes)?.unwrap_or(0);
    refuse_unused(options, &at_time, mode == 3)?;
    refuse_unused(options, &at_offsets, mode == 4)?;
    Ok(match mode {
        0 => None,
        1 => Some(Place::Latest),
        2 => Some(Place::Group),
        3 => Some(time(options, &at_time)?),
        _ => Some(Place::Offsets(offsets(options, &at_offsets, topics)?)),
    })
}

fn refuse_unused(options: &Options<'_>, name: &str, is_used: bool) -> Result<()> {
    match options.get(name).is_some() && !is_used {
        false => Ok(()),
        true => Err(options
            .conflict(&format!("'{name}' has no effect in this mode"))
            .hint("remove it, or correct the mode")),
    }
}

fn bad_data(options: &Options<'_>) -> Result<BadData> {
    let words = [("fail", 0), ("skip", 1), ("drop", 1), ("dead-letter", 2)];
    let choice = options.choice("bad-data", &words)?.unwrap_or(0);
    let (path, topic) = (options.get("dead-letter.path"), options.get("dead-letter.topic"));
    match (choice, path, topic) {
        (0, None, None) => Ok(BadData::Fail),
        (1, None, None) => Ok(BadData::Skip),
        (2, Some(path), None) => Ok(BadData::File(path.to_owned())),
        (2, None, Some(topic)) => Ok(BadData::Topic(topic.to_owned())),
        (2, ..) => Err(options
            .conflict("'bad-data' = 'dead-letter' needs a file or a topic")
            .hint("add 'dead-letter.path' = 'FILE' or 'dead-letter.topic' = 'TOPIC'")),
        _ => Err(options
            .conflict("a place for dead letters is given, but bad messages do not go there")
            .hint("add 'bad-data' = 'dead-letter'")),
    }
}

fn delivery(options: &Options<'_>, is_upsert: bool) -> Result<Delivery> {
    let words = [
        ("none", Delivery::None),
        ("at-least-once", Delivery::AtLeastOnce),
        ("exactly-once", Delivery::ExactlyOnce),
    ];
    let name = "sink.delivery-guarantee";
    let former = if is_upsert { None } else { options.choice("sink.semantic", &words)? };
    let named = options.choice(name, &words)?;
    Ok(match (options.get(name), former) {
        (None, Some(former)) => former,
        _ => named.unwrap_or(Delivery::AtLeastOnce),
    })
}

fn is_fixed(options: &Options<'_>, key_columns: &[usize]) -> Result<bool> {
    let words = [("default", 0), ("fixed", 1), ("round-robin", 2)];
    let choice = options.choice("sink.partitioner", &words)?.unwrap_or(0);
    if choice == 2 && !key_columns.is_empty() {
        return Err(options
            .conflict("'sink.partitioner' = 'round-robin' can't go with 'key.fields'")
            .hint("messages of a key belong into one partition: remove one of the two"));
    }
    Ok(choice == 1)
}

fn flushing(options: &Options<'_>, is_upsert: bool) -> Result<(usize, u64)> {
    if !is_upsert {
        return Ok((0, 0));
    }
    let rows = options.number("sink.buffer-flush.max-rows")?.unwrap_or(0);
    let interval = options.duration_ms("sink.buffer-flush.interval")?.unwrap_or(0);
    match (rows == 0) == (interval == 0) {
        true => Ok((rows, interval)),
        false => Err(options
            .conflict(
                "'sink.buffer-flush.max-rows' and 'sink.buffer-flush.interval' belong together",
            )
            .hint("set both, or neither")),
    }
}

fn check_metadata(
    request: &TableRequest,
    topics: &Topics,
    value: &Format,
    as_sink: bool,
) -> Result<()> {
    let table = &request.table;
    for (key, column) in &request.metadata {
        if let Some(of_format) = key.strip_prefix("value.")
            && value.description().metadata.iter().any(|known| known.key == of_format)
            && !as_sink
        {
            value.check_metadata(of_format, column)?;
            continue;
        }
        let Some(known) = METADATA.iter().find(|known| known.key == key) else {
            return Err(unknown_metadata(table, key, value));
        };
        if as_sink && !WRITABLE.contains(&key.as_str()) {
            let message = format!("table {table}: metadata '{key}' can't be written");
            return Err(
                Error::plan(message).hint(format!("declare column {} VIRTUAL", column.name))
            );
        }
        metadata::check(table, known, &column.name, &column.column_type.data_type)?;
    }
    let has_topic = request.metadata.iter().any(|(key, _)| key == "topic");
    match (as_sink, topics.only().is_some()) {
        (true, true) if has_topic => {
            Err(Error::plan(format!("table {table} has one topic, and a column for it to write"))
                .hint("declare the column VIRTUAL, or name several topics"))
        }
        (true, false) if !has_topic => {
            Err(Error::plan(format!("table {table} has several topics to write"))
                .hint("declare a column: topic STRING NOT NULL METADATA"))
        }
        _ => Ok(()),
    }
}

fn unknown_metadata(table: &str, key: &str, value: &Format) -> Error {
    let of_format = value.description().metadata.iter().map(|known| format!("value.{}", known.key));
    let names: Vec<String> =
        METADATA.iter().map(|known| known.key.to_owned()).chain(of_format).collect();
    metadata::unknown(table, key, names.iter().map(String::as_str))
}
