//! The tables of the pages that say which connectors and options there are: they are made from the
//! descriptions of the connectors. Links of connectors lead from `docs/connectors`.
//!
//! Each stands between `<!-- generated: WHAT -->` and `<!-- end -->`. With `THALWEG_WRITE_DOCS=1`
//! the test writes the pages instead of comparing them.

use std::fs;

use thalweg::session::Session;
use thalweg_connectors::format::options::{FORMATS, RECORD_FORMATS};
use thalweg_core::connector::{
    AcceptedChanges, Boundedness, ConnectorDescription, FlinkOption, FormatDescription,
    MetadataDescription, OptionDescription, UsedBy,
};
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_plan::catalog::table_options::{LOOKUP_OPTIONS, SOURCE_OPTIONS};

use super::{docs, read};

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";
/// Connectors by features: a build without one leaves its tables as they are.
const OPTIONAL: [&str; 7] =
    ["kafka", "upsert-kafka", "jdbc", "postgres-cdc", "redis", "mqtt", "nats"];

#[test]
fn the_option_tables_are_those_of_the_descriptions() {
    let session = Session::default();
    let descriptions: Vec<&ConnectorDescription> = session.connectors().descriptions().collect();
    let with_options = descriptions.iter().filter(|found| !found.options.is_empty());
    let mut missing: Vec<&str> = with_options.map(|found| found.name).collect();
    let pages = super::markdown_files(&docs());
    let is_of_tables = |page: &&String| {
        page.starts_with("connectors") || ["formats.md", "joins.md"].contains(&page.as_str())
    };
    for page in pages.iter().filter(is_of_tables) {
        let path = docs().join(page);
        let written = read(&path);
        let generated = generate(&written, &descriptions, &mut missing);
        if std::env::var_os("THALWEG_WRITE_DOCS").is_some() {
            fs::write(&path, generated).expect("writing the page");
        } else {
            let differs = generated.lines().zip(written.lines()).find(|(new, old)| new != old);
            assert!(
                generated == written,
                "docs/{page} is not what the descriptions say (THALWEG_WRITE_DOCS=1 writes it): {differs:?}"
            );
        }
    }
    assert!(missing.is_empty(), "docs/connectors has no options of {missing:?}");
}

/// A page with its tables as the descriptions say. Connectors that it has are no longer missing.
fn generate(page: &str, descriptions: &[&ConnectorDescription], missing: &mut Vec<&str>) -> String {
    let mut generated = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (what, after) = after.split_once(" -->").expect("a marker has an end");
        let (old, after) = after.split_once(END).expect("what is generated has an end");
        let old = old.trim_start_matches('\n');
        missing.retain(|name| *name != what);
        let table = match what {
            "connectors" => overview(descriptions, old),
            "every table" => options(SOURCE_OPTIONS),
            "lookups" => options(LOOKUP_OPTIONS),
            name if FORMATS.iter().chain(RECORD_FORMATS).any(|format| format.name == name) => {
                of_format(name)
            }
            name => match descriptions.iter().find(|found| found.name == name) {
                None if OPTIONAL.contains(&name) => old.to_owned(),
                found => of_connector(found),
            },
        };
        generated.push_str(&format!("{before}{BEGIN}{what} -->\n{table}{END}"));
        rest = after;
    }
    generated.push_str(rest);
    generated
}

/// A row for each connector. Those that are not built in stay where they are.
fn overview(descriptions: &[&ConnectorDescription], old: &str) -> String {
    let name = |row: &str| row.split('`').nth(1).map(str::to_owned);
    let mut rows: Vec<(String, String)> =
        descriptions.iter().map(|found| (found.name.to_owned(), overview_row(found))).collect();
    let mut before = None;
    for row in old.lines() {
        let name = name(row);
        if let Some(name) = &name
            && OPTIONAL.contains(&name.as_str())
            && rows.iter().all(|(known, _)| known != name)
        {
            let place = rows.iter().position(|(known, _)| Some(known) == before.as_ref());
            rows.insert(place.map_or(0, |place| place + 1), (name.clone(), format!("{row}\n")));
        }
        before = name.or(before);
    }
    let head = "| connector | what | read | written | in Flink |\n|---|---|---|---|---|\n";
    rows.iter().fold(head.to_owned(), |table, (_, row)| table + row)
}

fn overview_row(description: &ConnectorDescription) -> String {
    let capabilities = &description.capabilities;
    let read = capabilities.source.map_or("", |source| match source.boundedness {
        Boundedness::Bounded => "bounded",
        Boundedness::Unbounded => "unbounded",
        Boundedness::ByOptions => "bounded, unbounded",
    });
    let written = capabilities.sink.map_or(String::new(), |sink| {
        let changes: Vec<&str> = sink.changes.iter().map(change).collect();
        format!("{}; {}", changes.join(", "), guarantee(sink.guarantee))
    });
    let ConnectorDescription { name, summary, is_in_flink, .. } = description;
    let in_flink = if *is_in_flink { "yes" } else { "no" };
    let page = match *name {
        "blackhole" => "print",
        "http-async-sink" => "http",
        name => name,
    };
    format!("| [`{name}`](connectors/{page}.md) | {summary} | {read} | {written} | {in_flink} |\n")
}

fn change(changes: &AcceptedChanges) -> &'static str {
    match changes {
        AcceptedChanges::Inserts => "append",
        AcceptedChanges::Upserts => "upsert",
        AcceptedChanges::All => "changelog",
    }
}

fn guarantee(guarantee: SinkGuarantee) -> &'static str {
    match guarantee {
        SinkGuarantee::AtLeastOnce => "at least once",
        SinkGuarantee::Idempotent => "idempotent",
        SinkGuarantee::Transactional => "exactly once",
    }
}

/// The options of a connector and of its formats, its metadata, and what is not supported.
fn of_connector(description: Option<&&ConnectorDescription>) -> String {
    let description = description.expect("a table of a connector names one");
    let mut text = options(description.options);
    if !description.formats.is_empty() {
        let link = |format: &&FormatDescription| format!("[`{0}`](../formats.md#{0})", format.name);
        let links: Vec<String> = description.formats.iter().map(link).collect();
        text.push_str(&format!("\nFormats, with options of their own: {}.\n", links.join(", ")));
    }
    text.push_str(&metadata(description.metadata));
    text.push_str(&unsupported(description.unsupported));
    text
}

/// The options of a format, its metadata, and what is not supported.
fn of_format(name: &str) -> String {
    let mut formats = FORMATS.iter().chain(RECORD_FORMATS);
    let format = formats.find(|format| format.name == name).expect("one of them");
    let table = if format.options.is_empty() { String::new() } else { options(format.options) };
    let (metadata, unsupported) = (metadata(format.metadata), unsupported(format.unsupported));
    let (name, summary) = (format.name, format.summary);
    format!("`{name}`: {summary}.\n\n{table}{metadata}{unsupported}")
}

fn metadata(metadata: &[MetadataDescription]) -> String {
    if metadata.is_empty() {
        return String::new();
    }
    let row = |key: &MetadataDescription| {
        format!("| `{}` | `{}` | {} |\n", key.key, key.data_type, key.help)
    };
    let rows: String = metadata.iter().map(row).collect();
    format!("\n| metadata | type | what |\n|---|---|---|\n{rows}")
}

fn unsupported(names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("\nFlink's other options are not supported: {}.\n", names.join(", "))
}

fn options(options: &[OptionDescription]) -> String {
    let mut table = "| option | values | default | meaning |\n|---|---|---|---|\n".to_owned();
    for option in options {
        let used_by = match option.used_by {
            UsedBy::Source => ". For reading",
            UsedBy::Sink => ". For writing",
            UsedBy::Both => "",
        };
        let flink = match option.flink {
            FlinkOption::Same => String::new(),
            FlinkOption::Ours(_) => ". Ours".to_owned(),
            FlinkOption::OursIf(value, _) => format!(". `{value}` is ours"),
        };
        let (name, values, default) = (option.name, option.values(), option.default_text());
        let help = option.help;
        table.push_str(&format!("| `{name}` | {values} | {default} | {help}{used_by}{flink} |\n"));
    }
    table
}
