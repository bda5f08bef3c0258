//! The answers of SHOW CONNECTORS and DESCRIBE CONNECTOR, from the descriptions of connectors.
//!
//! The pages about connectors are made of the same descriptions, with Markdown in their texts; a
//! terminal shows them without it (`plain`).

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, ConnectorDescription, Connectors, FlinkOption,
    MetadataDescription, OptionDefault, OptionDescription, UsedBy,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result};

use super::TextRows;
use super::table_options::all_options;
use crate::ast::Name;

/// SHOW CONNECTORS.
pub(super) fn show(connectors: &Connectors) -> TextRows {
    let row = |description: &ConnectorDescription| {
        let formats: Vec<&str> = description.formats.iter().map(|format| format.name).collect();
        vec![
            description.name.to_owned(),
            read(&description.capabilities),
            written(&description.capabilities),
            guarantee(&description.capabilities).to_owned(),
            formats.join(", "),
            yes_or_no(description.is_in_flink).to_owned(),
            description.summary.to_owned(),
        ]
    };
    let header =
        ["connector", "read", "written", "guarantee", "formats", "in Flink", "description"];
    TextRows::new(&header, connectors.descriptions().map(row).collect())
}

/// DESCRIBE CONNECTOR: a row for each option, then one for each metadata column.
pub(super) fn describe(connectors: &Connectors, name: &Name) -> Result<TextRows> {
    let mut descriptions = connectors.descriptions();
    let found = descriptions.find(|description| description.name == name.text);
    let description = found.ok_or_else(|| missing(connectors, name))?;
    // Where keys have a format of their own, what values say has a prefix.
    let has_keys = description.options.iter().any(|option| option.name == "value.format");
    let prefix = if has_keys { "value." } else { "" };
    let row = |key: String, of: &MetadataDescription, used_by: String| {
        let (values, help) = (of.data_type.to_owned(), plain(of.help));
        vec![key, values, String::new(), used_by, String::new(), help]
    };
    let own = description.metadata.iter();
    let own = own.map(|of| row(of.key.to_owned(), of, "metadata".to_owned()));
    let of_formats = description.formats.iter().flat_map(|format| {
        let used_by = format!("metadata of {}", format.name);
        let of_format = format.metadata.iter();
        of_format.map(move |of| row(format!("{prefix}{}", of.key), of, used_by.clone()))
    });
    let metadata = own.chain(of_formats);
    let capabilities = &description.capabilities;
    let options = all_options(description).map(|found| option(found, capabilities));
    let rows = options.chain(metadata).collect();
    Ok(TextRows::new(&["option", "values", "default", "used by", "in Flink", "description"], rows))
}

/// One row of DESCRIBE CONNECTOR. An option for both directions of a connector that has one only is
/// shown for that one.
fn option(option: &OptionDescription, capabilities: &Capabilities) -> Vec<String> {
    let default = match option.default {
        OptionDefault::Required => "required".to_owned(),
        OptionDefault::None => String::new(),
        OptionDefault::Value(value) => value.to_owned(),
        OptionDefault::Other(text) => plain(text),
    };
    let used_by = match option.used_by {
        UsedBy::Source => "source",
        UsedBy::Sink => "sink",
        UsedBy::Both if capabilities.sink.is_none() => "source",
        UsedBy::Both if capabilities.source.is_none() => "sink",
        UsedBy::Both => "source, sink",
    };
    let in_flink = match option.flink {
        FlinkOption::Same => "yes".to_owned(),
        FlinkOption::Ours(_) => "no".to_owned(),
        FlinkOption::OursIf(value, _) => format!("not {value}"),
    };
    vec![
        option.name.to_owned(),
        plain(&option.values()),
        default,
        used_by.to_owned(),
        in_flink,
        plain(option.help),
    ]
}

fn missing(connectors: &Connectors, name: &Name) -> Error {
    let (what, help) = connectors.missing(&name.text);
    Error::plan(format!("connector '{}': {what}", name.text)).hint(help).at(name.span)
}

fn read(capabilities: &Capabilities) -> String {
    let source = capabilities.source.map(|source| match source.boundedness {
        Boundedness::Bounded => "bounded",
        Boundedness::Unbounded => "unbounded",
        Boundedness::ByOptions => "bounded, unbounded",
    });
    let lookup = capabilities.is_lookup.then_some("lookup");
    source.into_iter().chain(lookup).collect::<Vec<_>>().join(", ")
}

fn written(capabilities: &Capabilities) -> String {
    let word = |changes: &AcceptedChanges| match changes {
        AcceptedChanges::Inserts => "append",
        AcceptedChanges::Upserts => "upsert",
        AcceptedChanges::All => "changelog",
    };
    let changes = capabilities.sink.map_or(&[][..], |sink| sink.changes);
    changes.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn guarantee(capabilities: &Capabilities) -> &'static str {
    match capabilities.sink.map(|sink| sink.guarantee) {
        None => "",
        Some(SinkGuarantee::AtLeastOnce) => "at-least-once",
        Some(SinkGuarantee::Idempotent) => "idempotent",
        Some(SinkGuarantee::Transactional) => "exactly-once",
    }
}

fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}

/// Markdown without its marks: code is bare, links are their texts, and those to a place on the
/// same page are left out.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some(at) = rest.find('[') {
        let Some((label, after)) = rest[at + 1..].split_once("](") else { break };
        let Some((_, after)) = after.split_once(')') else { break };
        text.push_str(&rest[..at]);
        text.push_str(label);
        rest = after;
    }
    text.push_str(rest);
    text.replace(" (below)", "").replace('`', "")
}
