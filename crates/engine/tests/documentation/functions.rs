//! `docs/functions.md` is true and complete: each example gives its result, and the names are those
//! of `SHOW FUNCTIONS`.
//!
//! A table of functions has four columns: the forms of a function in code spans, what it gives, an
//! example and its result. Where the third heading is `example over orders`, the example is
//! evaluated over the table of `docs/examples/orders.sql`, in batch mode.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{copy_examples, docs, read, thalweg};

/// Written like functions, but SHOW FUNCTIONS does not list them: they take a type.
const CONSTRUCTS: [&str; 2] = ["CAST", "TRY_CAST"];

/// They mean something over rows or behind GROUP BY only, and have their examples on these pages.
const OVER_ROWS: [&str; 8] =
    ["DENSE_RANK", "GROUPING", "GROUPING_ID", "GROUP_ID", "LAG", "LEAD", "RANK", "ROW_NUMBER"];
const PAGES: [&str; 2] = ["sql.md", "changelogs.md"];

/// A row of a table of functions.
struct Entry {
    line: usize,
    forms: String,
    example: String,
    result: String,
    over_orders: bool,
}

#[test]
fn every_example_of_a_function_gives_its_result() {
    let entries = entries();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documentation-functions");
    copy_examples(&docs().join("examples"), &folder);
    let file = folder.join("functions.sql");
    let mut script = read(&folder.join("orders.sql")).replace('\n', " ");
    script.push_str("SET 'execution.runtime-mode' = 'batch';\n");
    for entry in &entries {
        let from = if entry.over_orders { " FROM orders LIMIT 1" } else { "" };
        script.push_str(&format!("SELECT {} AS r{from};\n", entry.example));
    }
    fs::write(&file, script).expect("writing the examples");
    let output = thalweg(&["run", "--format", "csv", "--null", "NULL"], &file);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "line n of the script is entry n - 1 of the page\n{errors}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let results: Vec<String> = printed.lines().skip(1).step_by(2).map(unquoted).collect();
    assert_eq!(results.len(), entries.len(), "each example gives one row\n{printed}");
    let mut wrong = Vec::new();
    for (entry, got) in entries.iter().zip(results) {
        if entry.result != got {
            let Entry { line, example, result, .. } = entry;
            wrong.push(format!("docs/functions.md:{line}: {example} is {got} and not {result}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_documented_functions_are_those_of_show_functions() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("show_functions.sql");
    fs::write(&file, "SHOW FUNCTIONS;").expect("writing the statement");
    let output = thalweg(&["run", "--format", "csv"], &file);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let listed: BTreeSet<String> = printed.lines().skip(1).map(str::to_owned).collect();
    let mut documented = BTreeSet::new();
    for entry in entries() {
        for name in names(&entry.forms) {
            let shown = entry.example.contains(&name);
            assert!(shown, "docs/functions.md:{}: the example has no {name}", entry.line);
            documented.insert(name);
        }
    }
    documented.retain(|name| !CONSTRUCTS.contains(&name.as_str()));
    let pages: String = PAGES.iter().map(|page| read(&docs().join(page))).collect();
    for name in OVER_ROWS {
        assert!(pages.contains(&format!("`{name}")), "none of {PAGES:?} has {name}");
        documented.insert(name.to_owned());
    }
    let missing: Vec<_> = listed.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/functions.md lacks {missing:?}");
    assert!(unknown.is_empty(), "docs/functions.md names what there is not: {unknown:?}");
}

fn entries() -> Vec<Entry> {
    let text = read(&docs().join("functions.md"));
    let mut entries = Vec::new();
    let mut over_orders = false;
    for (position, line) in text.lines().enumerate() {
        let cells = cells(line);
        let [forms, _, example, result] = cells.as_slice() else { continue };
        if forms == "function" {
            over_orders = example == "example over orders";
        } else if !forms.starts_with("--") {
            entries.push(Entry {
                line: position + 1,
                forms: forms.clone(),
                example: example.trim_matches('`').to_owned(),
                result: result.trim_matches('`').to_owned(),
                over_orders,
            });
        }
    }
    assert!(entries.len() > 100, "only {} functions: has the page changed?", entries.len());
    entries
}

/// The cells of a line of a table; none for another line. A `\\|` is part of a cell.
pub fn cells(line: &str) -> Vec<String> {
    let Some(row) = line.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
        return Vec::new();
    };
    let row = row.replace("\\|", "\u{0}");
    row.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// The functions among the forms: words in capitals that stand alone or before a bracket.
fn names(forms: &str) -> Vec<String> {
    let spans = forms.split('`').skip(1).step_by(2);
    let words = spans.filter_map(|span| {
        let word = span.split_once('(').map_or(span, |(word, _)| word);
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        (!word.is_empty() && word.chars().all(is_name)).then(|| word.to_owned())
    });
    words.collect()
}

/// A field of CSV as the text that it stands for.
fn unquoted(field: &str) -> String {
    let inner = field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map_or_else(|| field.to_owned(), |text| text.replace("\"\"", "\""))
}
