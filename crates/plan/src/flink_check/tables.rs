//! What Flink refuses and ignores of tables and settings: connectors, formats, options, paths.

use thalweg_core::DataType;
use thalweg_core::connector::{ConnectorDescription, Connectors, names_secret};

use super::reserved::is_reserved;
use super::{Finding, Fix, FlinkCluster, Severity};
use crate::ast::{CreateTable, Name};
use crate::catalog::table_options::table_option;

/// Connectors of Flink's that Thalweg lacks.
const OTHER_CONNECTORS: &str = "hbase-2.2 hbase-2.6 elasticsearch-6 elasticsearch-7 opensearch \
    mongodb kinesis firehose dynamodb pulsar mysql-cdc faker";

/// Connectors that do not come with Flink, and the jar that has each.
const CONNECTOR_JARS: [(&str, &str); 8] = [
    ("http", "flink-connector-http"),
    ("http-async-sink", "flink-connector-http"),
    ("iceberg", "iceberg-flink-runtime"),
    ("jdbc", "flink-connector-jdbc"),
    ("kafka", "flink-sql-connector-kafka"),
    ("mysql-cdc", "flink-sql-connector-mysql-cdc"),
    ("postgres-cdc", "flink-sql-connector-postgres-cdc"),
    ("upsert-kafka", "flink-sql-connector-kafka"),
];

/// Formats that do not come with Flink, and the jar that has each.
const FORMAT_JARS: [(&str, &str); 6] = [
    ("avro", "flink-sql-avro"),
    ("avro-confluent", "flink-sql-avro-confluent-registry"),
    ("debezium-avro-confluent", "flink-sql-avro-confluent-registry"),
    ("orc", "flink-sql-orc"),
    ("parquet", "flink-sql-parquet"),
    ("protobuf", "flink-sql-protobuf"),
];

/// Connectors of Flink's whose tables can be looked up.
pub(super) const LOOKUPS: [&str; 5] = ["hbase-2.2", "hbase-2.6", "http", "jdbc", "mongodb"];

/// Connectors of Flink's whose tables take no options of watermarks.
const WITHOUT_WATERMARKS: [&str; 3] = ["datagen", "http", "jdbc"];

/// Options that name a format.
const FORMAT_OPTIONS: [&str; 3] = ["format", "key.format", "value.format"];

/// Settings whose value is a folder of checkpoints.
pub(super) const FOLDERS: [&str; 4] = [
    "execution.checkpointing.dir",
    "execution.checkpointing.savepoint-dir",
    "state.checkpoints.dir",
    "state.savepoints.dir",
];

/// What Flink says of a table's options.
pub(super) fn findings(
    table: &CreateTable,
    connectors: &Connectors,
    cluster: &FlinkCluster,
) -> Vec<Finding> {
    let option = |name: &str| table.options.iter().find(|(key, _)| key.text == name);
    let Some((key, connector)) = option("connector") else { return Vec::new() };
    let connector = connector.text.as_str();
    let description = connectors.get(connector).map(|found| found.description());
    let is_known = match description {
        Some(description) => description.is_in_flink,
        None => OTHER_CONNECTORS.split(' ').any(|other| other == connector),
    };
    if !is_known {
        return vec![refused(key, format!("Flink has no connector '{connector}'"))];
    }
    let mut found = Vec::new();
    found.extend(missing_jar(key, ("connector", connector), &CONNECTOR_JARS, cluster));
    if connector == "filesystem"
        && let Some((key, path)) = option("path")
        && let Some(message) = path_problem(&path.text)
    {
        found.push(refused(key, message));
    }
    let format = option("format").map_or("", |(_, format)| format.text.as_str());
    for (key, value) in &table.options {
        found.extend(option_findings(key, &value.text, description, (format, cluster)));
    }
    found
}

fn refused(at: &Name, message: String) -> Finding {
    Finding::refused(at.span, message)
}

fn missing_jar(
    at: &Name,
    (what, name): (&str, &str),
    jars: &[(&str, &str)],
    cluster: &FlinkCluster,
) -> Option<Finding> {
    let (_, jar) = jars.iter().find(|(own, _)| *own == name)?;
    let has = cluster.jars.iter().any(|path| file_name(path).starts_with(jar));
    (!has).then(|| {
        refused(at, format!("the {what} '{name}' does not come with Flink: the cluster needs {jar}-….jar (--jar FILE)"))
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// An option, or its value, that only we know.
fn option_findings(
    key: &Name,
    value: &str,
    description: Option<&ConnectorDescription>,
    (format, cluster): (&str, &FlinkCluster),
) -> Vec<Finding> {
    let mut found = Vec::new();
    let of_connector = description.and_then(|description| description.option(&key.text));
    let option = of_connector.or_else(|| table_option(&key.text));
    if let Some(instead) = option.and_then(|option| option.flink_instead(value)) {
        // Flink's filesystem does not look at the names of options of the table's format.
        let is_of_format = key.text.strip_prefix(format).is_some_and(|rest| rest.starts_with('.'));
        let is_ignored = is_of_format && description.is_some_and(|d| d.name == "filesystem");
        let severity = if is_ignored { Severity::Ignored } else { Severity::Refused };
        let message = format!("the option '{}' is ours: {instead}", key.text);
        found.push(Finding { severity, fix: Fix::DropOption, ..refused(key, message) });
    }
    let is_general = of_connector.is_none() && table_option(&key.text).is_some();
    if let (true, Some(description)) = (is_general, description)
        && !has_general(&key.text, description.name)
    {
        let message = format!("Flink's '{}' has no option '{}'", description.name, key.text);
        found.push(Finding { fix: Fix::DropOption, ..refused(key, message) });
    }
    if names_secret(value) && !cluster.gets_secrets {
        let message = format!(
            "Flink takes the text of '{}' literally: it has no ${{secret:…}} (submit --send-secrets replaces it)",
            key.text
        );
        found.push(refused(key, message));
    }
    if FORMAT_OPTIONS.contains(&key.text.as_str()) {
        let formats = description.map_or(&[][..], |description| description.formats);
        let format = formats.iter().find(|format| format.name == value);
        if format.is_some_and(|format| !format.is_in_flink) {
            found.push(refused(key, format!("Flink has no format '{value}'")));
        }
        found.extend(missing_jar(key, ("format", value), &FORMAT_JARS, cluster));
    }
    found
}

/// What is wrong with the type of a column, which stands in this declaration.
pub(super) fn type_problem(data_type: &DataType, declaration: &str) -> Option<String> {
    match data_type {
        DataType::IntervalDayTime | DataType::IntervalYearMonth => {
            Some("Flink has no columns of INTERVALs".to_owned())
        }
        DataType::Row(fields) => fields.iter().find_map(|field| {
            let is_bare = !declaration.contains(&format!("`{}`", field.name));
            let inner = || type_problem(&field.column_type.data_type, declaration);
            match is_bare && is_reserved(&field.name) {
                true => Some(format!(
                    "'{0}' is a reserved word in Flink: write it as `{0}`",
                    field.name
                )),
                false => inner(),
            }
        }),
        DataType::Array(inner) => type_problem(&inner.data_type, declaration),
        _ => None,
    }
}

/// True if a connector of Flink's has an option that every table has here.
fn has_general(key: &str, connector: &str) -> bool {
    if key.starts_with("lookup.") {
        return LOOKUPS.contains(&connector);
    }
    !key.starts_with("scan.watermark.") || !WITHOUT_WATERMARKS.contains(&connector)
}

/// What is wrong with a setting for Flink.
pub(super) fn setting_problem(key: &str, value: &str) -> Option<String> {
    let has_scheme = value.contains("://") || value.starts_with("file:");
    (FOLDERS.contains(&key) && !has_scheme)
        .then(|| format!("Flink wants a scheme in the folder '{value}': write file:///…"))
}

fn path_problem(path: &str) -> Option<String> {
    if path == "-" {
        return Some("Flink reads and writes no standard input and output ('-')".to_owned());
    }
    if path.contains(['*', '?', '[']) {
        return Some(format!(
            "Flink takes '{path}' literally: it has no globs, but reads a folder"
        ));
    }
    let is_absolute = path.starts_with('/') || path.contains("://") || path.starts_with("file:");
    (!is_absolute).then(|| {
        format!("Flink resolves the relative path '{path}' on each task manager: write it absolute, or as file:///…")
    })
}
