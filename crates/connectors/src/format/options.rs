//! What formats say of themselves, and the `WITH` options of the text formats.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use thalweg_core::connector::{FormatDescription, Options, Secret, metadata_table, option_table};
use thalweg_core::{Column, Error, Result};

use super::Format;
use super::avro::registry::{Credentials, Registry};
use super::avro::schema::Schema;
use super::avro::{AvroOptions, Codec, RegistryOptions};
use super::changes::{ChangeOptions, Dialect, check_metadata};
use super::csv::{CsvOptions, CsvReading, scan};
use super::json::{JsonOptions, NullKeys};
use super::parquet::writer::ParquetOptions;
use super::protobuf::ProtobufOptions;
use super::raw::{Charset, RawOptions};

/// The formats of files.
pub const FORMATS: [&FormatDescription; 11] =
    [&CSV, &JSON, &RAW, &DEBEZIUM, &MAXWELL, &CANAL, &OGG, &AVRO, &PARQUET, &ORC, &ARROW];

/// Those that are read record by record, and that messages can be in.
pub const RECORD_FORMATS: &[&FormatDescription] = &[
    &JSON,
    &CSV,
    &RAW,
    &AVRO,
    &AVRO_CONFLUENT,
    &PROTOBUF,
    &DEBEZIUM,
    &DEBEZIUM_AVRO,
    &MAXWELL,
    &CANAL,
    &OGG,
];

const CSV: FormatDescription = FormatDescription {
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
        "csv.trim-spaces": Boolean, or("false"), of_source(), as_in_flink()
            => "blanks around fields, outside of quotes, are no part of them";
        "csv.empty-string-as-null": Boolean, or("false"), of_source(), as_in_flink()
            => "an empty field, with quotes or without, is NULL";
        "csv.ignore-trailing-unmappable": Boolean, or("false"), of_source(), as_in_flink()
            => "a record with more fields than the table has columns is not bad: those behind them \
                are passed over";
        "csv.allow-trailing-comma": Boolean, or("true"), of_source(), as_in_flink()
            => "a delimiter may end a record";
        "csv.fail-on-missing-columns": Boolean, or("false"), of_source(), as_in_flink()
            => "with `ignore-parse-errors`: a record with too few fields is left out. Without \
                `ignore-parse-errors` it is always bad";
        "csv.write-bigdecimal-in-scientific-notation": Boolean, or("false"), of_sink(),
        as_in_flink()
            => "a DECIMAL is written without trailing zeros, and as `1E+6` where it has zeros in \
                front of the point; else with all digits of its scale. Flink's default is `true`";
        "csv.array-element-delimiter": Text, or(";"), as_in_flink()
            => "between the elements of an ARRAY and the fields of a ROW";
        "csv.header": Boolean, or("false"), but_flink("Flink neither skips nor writes a header")
            => "the first line names the columns. When it is read, its names must be those of the \
                table, in their order (in any case, with blanks around them): other names are an \
                error";
    },
    ..FormatDescription::new("csv", "lines of text, columns by position")
};

/// The options of JSON, for a format of this name, and more.
macro_rules! json_options {
    ($name:literal; $($more:tt)*) => {
        &option_table! {
            [concat!($name, ".ignore-parse-errors")]: Boolean, or("false"), of_source(),
                as_in_flink()
                => "a value that cannot be read is NULL, and a record that is no object is \
                    skipped";
            [concat!($name, ".timestamp-format.standard")]: Words(&["SQL", "ISO-8601"]), or("SQL"),
                as_in_flink()
                => "`ISO-8601` has a `T` between date and time";
            [concat!($name, ".map-null-key.mode")]: Words(&["FAIL", "DROP", "LITERAL"]),
                or("FAIL"), of_sink(), as_in_flink()
                => "what is written for a key of a MAP that is NULL: nothing, as the job fails; \
                    nothing, as the entry is left out; or the text of `map-null-key.literal`";
            [concat!($name, ".map-null-key.literal")]: Text, or("null"), of_sink(), as_in_flink()
                => "the key that is written in place of NULL";
            [concat!($name, ".encode.decimal-as-plain-number")]: Boolean, or("false"), of_sink(),
                as_in_flink()
                => "a DECIMAL is written with all digits of its scale; else without trailing \
                    zeros, and very large or small ones with an exponent (`1E+6`)";
            [concat!($name, ".encode.ignore-null-fields")]: Boolean, or("false"), of_sink(),
                as_in_flink()
                => "columns that are NULL are not written";
            $($more)*
        }
    };
}

const JSON: FormatDescription = FormatDescription {
    options: json_options! {
        "json";
        "json.fail-on-missing-field": Boolean, or("false"), of_source(), as_in_flink()
            => "a missing key is an error instead of NULL";
        "json.decode.json-parser.enabled": Boolean, or("true"), of_source(), as_in_flink()
            => "without effect: there is one parser";
    },
    ..FormatDescription::new(
        "json",
        "one object a record, columns by name; an array of objects is a row for each",
    )
};

const RAW: FormatDescription = FormatDescription {
    options: &option_table! {
        "raw.charset": Words(&["UTF-8", "ISO-8859-1", "US-ASCII"]), or("UTF-8"), as_in_flink()
            => "how texts are encoded";
        "raw.endianness": Words(&["big-endian", "little-endian"]), or("big-endian"), as_in_flink()
            => "the order of the bytes of a number";
    },
    ..FormatDescription::new("raw", "a record is the value of the table's only column")
};

const DEBEZIUM: FormatDescription = FormatDescription {
    options: json_options! {
        "debezium-json";
        "debezium-json.schema-include": Boolean, or("false"), of_source(), as_in_flink()
            => "the change is in the key `payload`, next to its schema";
    },
    metadata: &metadata_table! {
        "schema": "STRING" => "the schema as JSON; with `schema-include`";
        "ingestion-timestamp": "TIMESTAMP_LTZ(3)" => "when Debezium processed the change (`ts_ms`)";
        "source.timestamp": "TIMESTAMP_LTZ(3)" => "when the database made it";
        "source.database": "STRING" => "the database";
        "source.schema": "STRING" => "its schema";
        "source.table": "STRING" => "the table";
        "source.properties": "MAP<STRING, STRING>" => "all that `source` says";
    },
    ..FormatDescription::new(
        "debezium-json",
        "changes of tables as Debezium writes them: `before`, `after`, `op`",
    )
};

/// The options of a registry of schemas, for a format of this name.
macro_rules! registry_options {
    ($name:literal) => {
        &option_table! {
            [concat!($name, ".url")]: Text, required(), as_in_flink()
                => "the address of the schema registry, which may have a path";
            [concat!($name, ".subject")]: Text,
                or_else("`TOPIC-value` or `TOPIC-key`, of one topic"), of_sink(), as_in_flink()
                => "the name under which the schema of written records is registered";
            [concat!($name, ".schema")]: Text, of_sink(), as_in_flink()
                => "the schema of written records as JSON, in place of the one that the columns \
    make";
            [concat!($name, ".basic-auth.credentials-source")]: Words(&["USER_INFO"]), as_in_flink()
                => "where name and password are: in `basic-auth.user-info`";
            [concat!($name, ".basic-auth.user-info")]: Secret, as_in_flink()
                => "`name:password`";
            [concat!($name, ".bearer-auth.credentials-source")]: Words(&["STATIC_TOKEN"]),
                as_in_flink()
                => "where the token is: in `bearer-auth.token`";
            [concat!($name, ".bearer-auth.token")]: Secret, as_in_flink()
                => "a token that the registry asks for";
            [concat!($name, ".ssl.truststore.location")]: Text, as_in_flink()
                => "a PEM file of the authorities that are trusted, in place of the usual ones. \
    Key stores of Java (JKS) are not read";
            [concat!($name, ".ssl.truststore.password")]: Secret, as_in_flink()
                => "without effect: a PEM file has none";
            [concat!($name, ".ssl.keystore.location")]: Text, as_in_flink()
                => "a PEM file with a certificate and its key, where the registry asks for one";
            [concat!($name, ".ssl.keystore.password")]: Secret, as_in_flink()
                => "without effect: the key must not be encrypted";
        }
    };
}

const AVRO: FormatDescription = FormatDescription {
    options: &option_table! {
        "avro.encoding": Words(&["binary"]), or("binary"), as_in_flink()
            => "how records are encoded; Flink's `json` is not supported";
        "avro.timestamp_mapping.legacy": Boolean, or("true"), as_in_flink()
            => "TIMESTAMP is Avro's `timestamp-millis` and TIMESTAMP_LTZ has no type; `false`: they \
                are `local-timestamp-…` and `timestamp-…`, with up to 6 digits";
        "avro.codec": Words(&["null", "deflate", "snappy", "zstandard"]), or("snappy"), of_sink(),
        as_in_flink()
            => "how files are compressed";
    },
    ..FormatDescription::new(
        "avro",
        "binary records of Avro, whose schema is derived from the columns; files begin with theirs",
    )
};

const AVRO_CONFLUENT: FormatDescription = FormatDescription {
    options: registry_options!("avro-confluent"),
    unsupported: &["avro-confluent.properties.*"],
    ..FormatDescription::new(
        "avro-confluent",
        "binary records of Avro with the number of a schema that is registered",
    )
};

const DEBEZIUM_AVRO: FormatDescription = FormatDescription {
    options: registry_options!("debezium-avro-confluent"),
    unsupported: &["debezium-avro-confluent.properties.*"],
    ..FormatDescription::new(
        "debezium-avro-confluent",
        "the same as `debezium-json`, in Avro with the number of a schema that is registered",
    )
};

const PROTOBUF: FormatDescription = FormatDescription {
    options: &option_table! {
        "protobuf.message-class-name": Text, required(), as_in_flink()
            => "the message: its class of Java (`com.example.Orders$Order`), or its name in the \
                file (`example.Order`), which Flink does not take";
        "protobuf.descriptor-file": Text, required(),
        but_flink("Flink finds the class on its class path")
            => "the `.proto` file that declares it, or a set of descriptors that `protoc` made \
                with `--include_imports`. Imports start from the file's folder, or from one above \
                it that may be read";
        "protobuf.ignore-parse-errors": Boolean, or("false"), of_source(), as_in_flink()
            => "a message that cannot be read is skipped";
        "protobuf.read-default-values": Boolean, or("false"), of_source(), as_in_flink()
            => "a field that is not set has its default, and an empty list or map is one, instead \
                of NULL. Fields of `proto3` that are no messages, lists or maps always have it";
        "protobuf.write-null-string-literal": Text, or(""), of_sink(), as_in_flink()
            => "what is written for NULL in an ARRAY or MAP of texts, where a message has no NULL";
    },
    ..FormatDescription::new("protobuf", "messages of Protocol Buffers, columns by name")
};

const MAXWELL: FormatDescription = FormatDescription {
    options: json_options! { "maxwell-json"; },
    metadata: &metadata_table! {
        "database": "STRING" => "the database";
        "table": "STRING" => "the table";
        "primary-key-columns": "ARRAY<STRING>" => "the columns of its primary key";
        "ingestion-timestamp": "TIMESTAMP_LTZ(3)" => "when Maxwell processed the change (`ts`)";
    },
    ..FormatDescription::new(
        "maxwell-json",
        "changes of tables as Maxwell writes them: `data`, `old`, `type`",
    )
};

const CANAL: FormatDescription = FormatDescription {
    options: json_options! {
        "canal-json";
        "canal-json.database.include": Other("regular expression"), of_source(), as_in_flink()
            => "only changes of databases of this whole name are read";
        "canal-json.table.include": Other("regular expression"), of_source(), as_in_flink()
            => "only changes of tables of this whole name are read";
    },
    metadata: &metadata_table! {
        "database": "STRING" => "the database";
        "table": "STRING" => "the table";
        "sql-type": "MAP<STRING, INT>" => "the numbers of its columns' types";
        "pk-names": "ARRAY<STRING>" => "the columns of its primary key";
        "ingestion-timestamp": "TIMESTAMP_LTZ(3)" => "when Canal processed the change (`ts`)";
        "event-timestamp": "TIMESTAMP_LTZ(3)" => "when the database made it (`es`)";
    },
    ..FormatDescription::new(
        "canal-json",
        "changes of tables as Canal writes them: arrays `data` and `old`, `type`",
    )
};

const OGG: FormatDescription = FormatDescription {
    options: json_options! { "ogg-json"; },
    metadata: &metadata_table! {
        "table": "STRING" => "the table";
        "primary-keys": "ARRAY<STRING>" => "the columns of its primary key";
        "ingestion-timestamp": "TIMESTAMP_LTZ(6)" => "`current_ts`, taken as UTC";
        "event-timestamp": "TIMESTAMP_LTZ(6)" => "`op_ts`, taken as UTC";
    },
    ..FormatDescription::new(
        "ogg-json",
        "changes of tables as Oracle GoldenGate writes them: `before`, `after`, `op_type`",
    )
};

const PARQUET: FormatDescription = FormatDescription {
    options: &option_table! {
        "parquet.compression": Words(&["UNCOMPRESSED", "SNAPPY", "ZSTD", "GZIP", "LZ4_RAW"]), or("ZSTD"), of_sink(),
        as_in_flink()
            => "how files are compressed. Flink's default is `SNAPPY`";
        "parquet.compression.codec.zstd.level": Number, or("3"), of_sink(), as_in_flink()
            => "how hard Zstandard tries, from 1 to 22";
        "parquet.block.size": Size, or("128MB"), of_sink(), as_in_flink()
            => "the most bytes of a row group, which has at most 262,144 rows";
        "parquet.page.size": Size, or("1MB"), of_sink(), as_in_flink()
            => "about how many bytes a page of a column has";
        "parquet.dictionary.page.size": Size, or("1MB"), of_sink(), as_in_flink()
            => "the most bytes of a column's dictionary";
        "parquet.enable.dictionary": Boolean, or("true"), of_sink(), as_in_flink()
            => "columns with few different values are written with a dictionary";
        "parquet.writer.version": Words(&["PARQUET_1_0", "PARQUET_2_0", "v1", "v2"]),
        or("PARQUET_1_0"), of_sink(), as_in_flink()
            => "the version of the format";
        "parquet.timestamp.time.unit": Words(&["millis", "micros", "nanos"]),
        or_else("that of the column's precision"), of_sink(), as_in_flink()
            => "in which unit times are written. Flink's default is `micros`";
        "parquet.write.int64.timestamp": Boolean, or("true"), of_sink(), as_in_flink()
            => "times are written as INT64. `false`, which is Flink's default, is not supported: \
                INT96, which other programs read differently. Both are read";
        "parquet.utc-timezone": Boolean, or("true"), as_in_flink()
            => "times of INT96 are in UTC. `false`, which is Flink's default, is not supported: \
                they would be in the zone of whichever machine runs the job";
        "parquet.batch-size": Number, or("2048"), of_source(), as_in_flink()
            => "without effect: batches have 32,768 rows";
    },
    unsupported: &["parquet.*"],
    ..FormatDescription::new("parquet", "read with Zstandard, Snappy, GZIP, LZ4 or not compressed")
};

const ORC: FormatDescription = FormatDescription {
    unsupported: &["orc.*"],
    ..FormatDescription::new("orc", "read, with any compression; not written")
};

const ARROW: FormatDescription = FormatDescription {
    is_in_flink: false,
    ..FormatDescription::new(
        "arrow",
        "Arrow IPC files, read with Zstandard buffers or uncompressed, written uncompressed",
    )
};

impl Format {
    /// The format of this name with its options, for records that hold this many columns; `None` if
    /// there is no such format. Secrets are looked up only where `opens`, for a table that is
    /// opened now.
    ///
    /// # Errors
    /// If an option is wrong, or belongs to another format.
    pub fn read(
        name: &str,
        options: &Options<'_>,
        columns: usize,
        opens: bool,
    ) -> Result<Option<Format>> {
        if !options.has_format(name) {
            return Ok(None);
        }
        options.check_format(name)?;
        if let Some(dialect) = Dialect::ALL.into_iter().find(|dialect| dialect.name() == name) {
            return change_options(options, dialect).map(|read| Some(Format::Changes(read)));
        }
        Ok(Some(match name {
            "csv" => Format::Csv(csv_options(options, columns)?),
            "json" => Format::Json(json_options(options, "json")?),
            "raw" => Format::Raw(raw_options(options, columns)?),
            "arrow" => Format::Arrow,
            "orc" if cfg!(feature = "orc") => Format::Orc,
            "orc" => {
                let table = options.table();
                let message = format!("table {table}: this program was built without ORC");
                return Err(Error::unsupported(message).hint("build it with `--features orc`"));
            }
            "avro" => {
                let has_legacy_times = options.boolean("avro.timestamp_mapping.legacy")?;
                options.choice("avro.encoding", &[("binary", ())])?;
                let codec = options.choice("avro.codec", &Codec::NAMES)?.unwrap_or_default();
                Format::Avro(AvroOptions { has_legacy_times, codec, registry: None })
            }
            "avro-confluent" => Format::Avro(registry_options(options, name, opens)?),
            "protobuf" => Format::Protobuf(ProtobufOptions::read(options)?),
            "debezium-avro-confluent" => Format::Changes(ChangeOptions {
                dialect: Dialect::Debezium,
                json: JsonOptions::default(),
                avro: Some(registry_options(options, name, opens)?),
                has_schema: false,
                databases: None,
                tables: None,
            }),
            _ => Format::Parquet(ParquetOptions::read(options)?),
        }))
    }

    /// Under which name schemas are registered where no option says it.
    #[must_use]
    pub fn with_default_subject(mut self, subject: &str) -> Format {
        let avro = match &mut self {
            Format::Avro(avro) => Some(avro),
            Format::Changes(changes) => changes.avro.as_mut(),
            _ => None,
        };
        if let Some(registry) = avro.and_then(|avro| avro.registry.as_mut()) {
            registry.subject.get_or_insert_with(|| subject.to_owned());
        }
        self
    }

    /// Checks the type of a metadata column of the format.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn check_metadata(&self, key: &str, column: &Column) -> Result<()> {
        match self {
            Format::Changes(options) => check_metadata(options, key, column),
            _ => Ok(()),
        }
    }

    /// What the format says of itself.
    pub fn description(&self) -> &'static FormatDescription {
        match self {
            Format::Csv(_) => &CSV,
            Format::Json(_) => &JSON,
            Format::Raw(_) => &RAW,
            Format::Changes(ChangeOptions { avro: Some(_), .. }) => &DEBEZIUM_AVRO,
            Format::Changes(changes) => changes.dialect.description(),
            Format::Avro(AvroOptions { registry: Some(_), .. }) => &AVRO_CONFLUENT,
            Format::Avro(_) => &AVRO,
            Format::Protobuf(_) => &PROTOBUF,
            Format::Parquet(_) => &PARQUET,
            Format::Orc => &ORC,
            Format::Arrow => &ARROW,
        }
    }
}

impl Dialect {
    /// All.
    const ALL: [Dialect; 4] = [Dialect::Debezium, Dialect::Maxwell, Dialect::Canal, Dialect::Ogg];

    /// What its format of JSON says of itself.
    pub fn description(self) -> &'static FormatDescription {
        match self {
            Dialect::Debezium => &DEBEZIUM,
            Dialect::Maxwell => &MAXWELL,
            Dialect::Canal => &CANAL,
            Dialect::Ogg => &OGG,
        }
    }

    /// The value of the option `format`.
    pub fn name(self) -> &'static str {
        self.description().name
    }
}

/// The options of a registry of schemas, of a format of this name.
fn registry_options(options: &Options<'_>, name: &str, opens: bool) -> Result<AvroOptions> {
    let option = |key: &str| format!("{name}.{key}");
    let get = |key: &str| options.get(&option(key));
    let url = options.required(&option("url"))?;
    if url.contains('@') {
        return Err(options
            .conflict(&format!("'{name}.url' has a name or password in it"))
            .hint(format!("move them to '{name}.basic-auth.user-info'")));
    }
    let (host, port) = host_of(url).ok_or_else(|| options.bad(&option("url"), url, "a URL"))?;
    options.check_target(host, port)?;
    if let Some(text) = get("schema") {
        Schema::parse(text).map_err(|e| options.bad(&option("schema"), text, e.message()))?;
    }
    Ok(AvroOptions {
        has_legacy_times: true,
        codec: Codec::default(),
        registry: Some(RegistryOptions {
            registry: Arc::new(Registry::new(url, credentials(options, name, opens)?)),
            subject: get("subject").map(str::to_owned),
            schema: get("schema").map(str::to_owned),
        }),
    })
}

/// Who asks the registry of a format of this name, and whom it trusts.
fn credentials(options: &Options<'_>, name: &str, opens: bool) -> Result<Credentials> {
    let option = |key: &str| format!("{name}.{key}");
    let is_set = |key: &str| options.get(&option(key)).is_some();
    if is_set("basic-auth.user-info") && is_set("bearer-auth.token") {
        return Err(options.conflict("basic-auth and bearer-auth exclude each other"));
    }
    let mut credentials = Credentials {
        authorities: pem_file(options, &option("ssl.truststore.location"))?,
        ..Credentials::default()
    };
    let identity = pem_file(options, &option("ssl.keystore.location"))?;
    credentials.identity = identity.map(|pem| Secret::new(String::from_utf8_lossy(&pem)));
    if !opens {
        return Ok(credentials);
    }
    let user = options.secret(&option("basic-auth.user-info"))?;
    let token = options.secret(&option("bearer-auth.token"))?;
    credentials.authorization = match (&user, &token) {
        (Some(user), _) => Some(format!("Basic {}", STANDARD.encode(user.expose()))),
        (None, Some(token)) => Some(format!("Bearer {}", token.expose())),
        (None, None) => None,
    }
    .map(Secret::new);
    credentials.secret = user.or(token);
    Ok(credentials)
}

/// What is in the PEM file that an option names.
fn pem_file(options: &Options<'_>, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(file) = options.file(name)? else { return Ok(None) };
    let read = std::fs::read(&file);
    let bytes = read.map_err(|e| options.conflict(&format!("option '{name}': {e}")))?;
    match memchr::memmem::find(&bytes, b"-----BEGIN") {
        Some(_) => Ok(Some(bytes)),
        None => {
            Err(options.conflict(&format!("option '{name}': {} is not PEM", file.display())).hint(
                "convert a key store of Java: keytool -importkeystore … -deststoretype PKCS12, \
                 then openssl pkcs12 -in … -out ….pem",
            ))
        }
    }
}

/// Host and port of an address of HTTP.
fn host_of(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let address = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
    match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => Some((host, port.parse().ok()?)),
        _ => Some((address, usual)),
    }
    .map(|(host, port)| (host.trim_matches(['[', ']']), port))
}

/// `raw.*`, for records that hold this many columns.
fn raw_options(options: &Options<'_>, columns: usize) -> Result<RawOptions> {
    if columns != 1 {
        let message = format!("format 'raw' is the value of one column, but there are {columns}");
        return Err(options.conflict(&message).hint("declare one column, or another format"));
    }
    let order = [("big-endian", false), ("little-endian", true)];
    Ok(RawOptions {
        charset: options.choice("raw.charset", &Charset::NAMES)?.unwrap_or_default(),
        is_little_endian: options.choice("raw.endianness", &order)? == Some(true),
    })
}

/// The options of a format of changes.
fn change_options(options: &Options<'_>, dialect: Dialect) -> Result<ChangeOptions> {
    let name = dialect.name();
    let pattern = |key: &str| {
        let option = format!("{name}.{key}.include");
        let Some(text) = options.get(&option) else { return Ok(None) };
        let pattern = Regex::new(&format!("^(?:{text})$"));
        pattern.map(Some).map_err(|_| options.bad(&option, text, "a regular expression"))
    };
    let has_schema = match dialect {
        Dialect::Debezium => options.boolean("debezium-json.schema-include")?,
        _ => false,
    };
    Ok(ChangeOptions {
        dialect,
        json: json_options(options, name)?,
        avro: None,
        has_schema,
        databases: pattern("database")?,
        tables: pattern("table")?,
    })
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
    let has_empty_nulls = options.boolean("csv.empty-string-as-null")?;
    let is_null_row = null_literal.as_deref() == Some("") || has_empty_nulls;
    Ok(CsvOptions {
        dialect: scan::Dialect {
            delimiter,
            quote,
            escape,
            comments,
            skip_blank_lines: comments || (is_single && !is_null_row),
            ends_with_blank_lines: !is_single,
            trims_spaces: options.boolean("csv.trim-spaces")?,
        },
        null_literal,
        header: options.boolean("csv.header")?,
        array_delimiter,
        ignore_parse_errors: options.boolean("csv.ignore-parse-errors")?,
        reading: CsvReading {
            refuses_trailing_delimiter: !options.boolean("csv.allow-trailing-comma")?,
            ignores_trailing_fields: options.boolean("csv.ignore-trailing-unmappable")?,
            refuses_missing_fields: options.boolean("csv.fail-on-missing-columns")?,
            has_empty_nulls,
        },
        scientific_decimals: options.boolean("csv.write-bigdecimal-in-scientific-notation")?,
    })
}

/// The options of JSON, of a format of this name.
fn json_options(options: &Options<'_>, name: &str) -> Result<JsonOptions> {
    let option = |key: &str| format!("{name}.{key}");
    let standards = [("SQL", false), ("ISO-8601", true)];
    let standard = options.choice(&option("timestamp-format.standard"), &standards)?;
    let modes = [("FAIL", 0), ("DROP", 1), ("LITERAL", 2)];
    let null_keys = match options.choice(&option("map-null-key.mode"), &modes)? {
        Some(1) => NullKeys::Drop,
        Some(2) => {
            let literal = options.text(&option("map-null-key.literal"));
            NullKeys::Literal(literal.unwrap_or_default().to_owned())
        }
        _ => NullKeys::Fail,
    };
    let json = JsonOptions {
        ignore_parse_errors: options.boolean(&option("ignore-parse-errors"))?,
        fail_on_missing_field: options.boolean(&option("fail-on-missing-field"))?,
        iso_timestamps: standard == Some(true),
        plain_decimals: options.boolean(&option("encode.decimal-as-plain-number"))?,
        ignore_null_fields: options.boolean(&option("encode.ignore-null-fields"))?,
        null_keys,
    };
    if json.ignore_parse_errors && json.fail_on_missing_field {
        return Err(options.conflict(
            "'json.ignore-parse-errors' and 'json.fail-on-missing-field' exclude each other",
        ));
    }
    options.boolean("json.decode.json-parser.enabled").map(|_| json)
}
