//! The SQL in the documentation is true: every block is validated, and run where a result follows.
//!
//! In a Markdown file of `docs`, `docs/connectors` or `docs/how-to`, a fenced block opened by
//! - `sql` stands for itself;
//! - `sql s3` is the same where the build has the feature `s3`, and is not tested elsewhere;
//! - `sql orders` continues `docs/examples/orders.sql`;
//! - `sql then` is run where the block before has been run;
//! - `sql fragment` is part of a statement and is not tested.
//!
//! A `csv` block right behind it is the expected output, compared as a multiset below the header; a
//! `csv sequence` block is compared as it stands.

mod connectors;
mod functions;
mod rest;
mod settings;
mod walkthroughs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

struct Block {
    page: String,
    line: usize,
    language: String,
    text: String,
}

#[test]
fn the_sql_in_the_documentation_is_true() {
    let docs = docs();
    let mut wrong = Vec::new();
    let mut tested = 0;
    for page in markdown_files(&docs) {
        let blocks = blocks(&page, &read(&docs.join(&page)));
        for (position, block) in blocks.iter().enumerate() {
            let is_tested = match block.language.as_str() {
                "sql" | "sql orders" | "sql then" => true,
                "sql s3" => cfg!(feature = "s3"),
                _ => false,
            };
            if !is_tested || lacks_connector(&block.text) {
                continue;
            }
            let before = blocks[..position].iter().rfind(|other| other.language == "sql orders");
            let expected = blocks.get(position + 1).filter(|next| next.language.starts_with("csv"));
            tested += 1;
            if let Err(problem) = check(&docs, block, (before, expected)) {
                wrong.push(format!("docs/{}:{}: {problem}", block.page, block.line));
            }
        }
    }
    assert!(tested > 10, "only {tested} blocks found: has the layout of docs changed?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_difference_from_flink_that_has_an_answer_of_its_own_is_named() {
    let page = read(&docs().join("differences-from-flink.md"));
    let folder = docs().join("../tests/golden/differences");
    let cases = fs::read_dir(&folder).expect("the differences").flatten();
    let names = cases.map(|case| case.file_name().to_string_lossy().into_owned());
    let missing: Vec<_> = names.filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/differences-from-flink.md does not name {missing:?}");
}

/// True if a block has a table of a connector that is not built in.
fn lacks_connector(text: &str) -> bool {
    let optional = [
        ("redis", cfg!(feature = "redis")),
        ("mqtt", cfg!(feature = "mqtt")),
        ("nats", cfg!(feature = "nats")),
    ];
    let mut lacking = optional.iter().filter(|(_, is_built)| !is_built);
    lacking.any(|(name, _)| text.contains(&format!("'connector' = '{name}'")))
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn check(
    docs: &Path,
    block: &Block,
    (before, expected): (Option<&Block>, Option<&Block>),
) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "documentation-{}-{}",
        block.page.replace('/', "-"),
        block.line
    ));
    // Snapshots and outputs of an earlier run would be in the way.
    let _ = fs::remove_dir_all(&folder);
    copy_examples(&docs.join("examples"), &folder);
    let orders = read(&folder.join("orders.sql"));
    let file = folder.join("block.sql");
    let text = match (block.language.as_str(), before) {
        ("sql orders", _) => format!("{orders}\n{}", block.text),
        ("sql then", Some(before)) => {
            fs::write(&file, format!("{orders}\n{}", before.text)).expect("writing a block");
            let output = thalweg(&["run"], &file);
            if !output.status.success() {
                return Err(format!("before: {}", String::from_utf8_lossy(&output.stderr)));
            }
            block.text.clone()
        }
        _ => block.text.clone(),
    };
    fs::write(&file, text).expect("writing a block");
    let command =
        if expected.is_some() { vec!["run", "--format", "csv"] } else { vec!["validate"] };
    let output = thalweg(&command, &file);
    if !output.status.success() {
        return Err(format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    match expected {
        Some(expected) if rows(&got, expected) != rows(&expected.text, expected) => {
            Err(format!("the result is\n{got}and not\n{}", expected.text))
        }
        _ => Ok(()),
    }
}

fn thalweg(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).arg(file).stdin(Stdio::null());
    command.output().expect("starting thalweg")
}

/// The header, then the other lines; sorted unless their sequence is expected.
fn rows<'a>(text: &'a str, expected: &Block) -> Vec<&'a str> {
    let mut lines: Vec<&str> = text.lines().collect();
    if expected.language != "csv sequence"
        && let Some(rows) = lines.get_mut(1..)
    {
        rows.sort_unstable();
    }
    lines
}

fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (position, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), inside) {
            (Some(_), true) => inside = false,
            (Some(language), false) => {
                inside = true;
                let (page, language) = (page.to_string(), language.trim().to_string());
                blocks.push(Block { page, line: position + 1, language, text: String::new() });
            }
            (None, true) => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    blocks
}

/// The pages of `docs` and of its folders.
fn markdown_files(docs: &Path) -> Vec<String> {
    let mut pages = Vec::new();
    for folder in ["", "connectors/", "how-to/"] {
        let entries = fs::read_dir(docs.join(folder)).expect("a folder of pages").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of_folder = names.filter(|name| name.ends_with(".md"));
        pages.extend(of_folder.map(|name| format!("{folder}{name}")));
    }
    pages.sort();
    pages
}

/// Compares what a page has between `<!-- generated -->` and `<!-- end -->`; with
/// `THALWEG_WRITE_DOCS=1` writes it.
fn compare_or_write(page: &str, generated: &str) {
    let path = docs().join(page);
    let text = read(&path);
    let (before, rest) = text.split_once("<!-- generated -->\n").expect("a marker");
    let (_, after) = rest.split_once("<!-- end -->").expect("what is generated has an end");
    let expected = format!("{before}<!-- generated -->\n{generated}<!-- end -->{after}");
    if std::env::var_os("THALWEG_WRITE_DOCS").is_some() {
        fs::write(&path, expected).expect("writing the page");
    } else {
        let differs = expected.lines().zip(text.lines()).find(|(new, old)| new != old);
        assert!(expected == text, "docs/{page} (THALWEG_WRITE_DOCS=1 writes it): {differs:?}");
    }
}

fn copy_examples(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a temporary folder");
    for entry in fs::read_dir(from).expect("docs/examples").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copying an example");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
