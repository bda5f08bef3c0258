//! `docs/rest.md` is what `crates/server/openapi.json` says.
//!
//! All between `<!-- generated -->` and `<!-- end -->` is made here.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::{compare_or_write, docs, read};

/// Headings of tags, in the order of the page. A tag without one has its own name as heading.
const TITLES: [(&str, &str); 9] = [
    ("jobs", "Jobs"),
    ("revisions", "Revisions"),
    ("snapshots", "Snapshots"),
    ("rows", "Rows"),
    ("statements", "Statements without a job"),
    ("language", "What statements may say"),
    ("live", "Live"),
    ("operations", "Operations"),
    ("server", "The server"),
];

#[test]
fn the_page_about_rest_is_what_the_openapi_document_says() {
    let document = read(&docs().join("../crates/server/openapi.json"));
    let document: Value = serde_json::from_str(&document).expect("JSON");
    compare_or_write("rest.md", &generated(&document));
}

fn generated(document: &Value) -> String {
    let mut text = String::new();
    for (tag, title) in titles(document) {
        let rows = requests(document, tag);
        let head = "| request | what it does | parameters |\n|---|---|---|\n";
        write!(text, "\n### {title}\n\n{head}{rows}").expect("a String takes all");
    }
    text.push_str("\n## Bodies\n");
    for name in bodies(document) {
        text.push_str(&schema(name, &document["components"]["schemas"][name]));
    }
    text.push('\n');
    text
}

/// The tags of the document with their headings.
fn titles(document: &Value) -> Vec<(&str, &str)> {
    let paths = object(&document["paths"]);
    let requests = paths.values().flat_map(|path| object(path).into_values());
    let mut others: Vec<&str> =
        requests.filter_map(|request| request["tags"][0].as_str()).collect();
    others.retain(|tag| TITLES.iter().all(|(known, _)| known != tag));
    others.sort_unstable();
    others.dedup();
    TITLES.into_iter().chain(others.into_iter().map(|tag| (tag, tag))).collect()
}

/// The schemas of the bodies of requests, and those that they refer to.
fn bodies(document: &Value) -> Vec<&str> {
    let mut names = references(&document["paths"]);
    let mut position = 0;
    while let Some(&name) = names.get(position) {
        let more = references(&document["components"]["schemas"][name]);
        names.extend(more.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        position += 1;
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// A row for each request with a tag.
fn requests(document: &Value, tag: &str) -> String {
    let mut rows = String::new();
    for (path, methods) in object(&document["paths"]) {
        for (method, request) in object(methods) {
            if request["tags"][0] != tag {
                continue;
            }
            let mut parameters = query_parameters(request);
            if let Some(name) = references(&request["requestBody"]).first() {
                parameters.insert(0, format!("body {}", link(name)));
            }
            let (method, summary) = (method.to_uppercase(), line(&request["summary"]));
            let parameters = parameters.join("; ");
            writeln!(rows, "| `{method} {path}` | {summary} | {parameters} |").expect("a String");
        }
    }
    rows
}

fn query_parameters(request: &Value) -> Vec<String> {
    let parameters = request["parameters"].as_array().into_iter().flatten();
    let in_query = parameters.filter(|parameter| parameter["in"] != "path");
    let texts = in_query.map(|parameter| {
        let name = parameter["name"].as_str().unwrap_or_default();
        match line(&parameter["description"]) {
            text if text.is_empty() => format!("`{name}`"),
            text => format!("`{name}`: {text}"),
        }
    });
    texts.collect()
}

/// The names of the schemas that bodies of requests refer to.
fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(values) => values.iter().flat_map(references).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| *key != "responses")
            .flat_map(|(key, value)| match value.as_str() {
                Some(target) if key == "$ref" => target.rsplit('/').next().into_iter().collect(),
                _ => references(value),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// A heading and a row for each field.
fn schema(name: &str, schema: &Value) -> String {
    let mut text = format!("\n### {name}\n\n{}\n", line(&schema["description"]));
    if schema["properties"].is_object() {
        text.push_str("\n| field | type | meaning |\n|---|---|---|\n");
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (field, value) in object(&schema["properties"]) {
            let mark =
                if required.contains(&Value::from(field.as_str())) { "; required" } else { "" };
            let (kind, meaning) = (type_of(value), meaning(value));
            writeln!(text, "| `{field}` | {kind}{mark} | {meaning} |").expect("a String takes all");
        }
    } else if let Some(variants) = schema["oneOf"].as_array() {
        text.push('\n');
        for variant in variants {
            writeln!(text, "- {}: {}", type_of(variant), meaning(variant)).expect("a String");
        }
    }
    text
}

fn type_of(value: &Value) -> String {
    if let Some(name) = references(value).first() {
        return link(name);
    }
    if let Some(values) = value["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        return values.join(", ").replace('"', "");
    }
    match &value["type"] {
        Value::String(name) if name == "array" => format!("list of {}", type_of(&value["items"])),
        Value::String(name) if name == "object" && value["additionalProperties"].is_object() => {
            "map of texts".to_owned()
        }
        Value::String(name) if name == "object" => {
            let fields: Vec<String> =
                object(&value["properties"]).into_keys().map(|key| format!("`{key}`")).collect();
            format!("object with {}", fields.join(", "))
        }
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => String::new(),
    }
}

/// The description of a field, which may be with its reference.
fn meaning(value: &Value) -> String {
    let own = line(&value["description"]);
    let one_of = value["oneOf"].as_array().into_iter().flatten();
    let inner = one_of.map(|variant| line(&variant["description"])).find(|text| !text.is_empty());
    if own.is_empty() { inner.unwrap_or_default() } else { own }
}

fn link(schema: &str) -> String {
    format!("[{schema}](#{})", schema.to_lowercase())
}

/// Sorted, whatever order a build of `serde_json` keeps.
fn object(value: &Value) -> BTreeMap<&String, &Value> {
    value.as_object().expect("an object of the document").iter().collect()
}

/// A text as one line of a table.
fn line(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
