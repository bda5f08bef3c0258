//! All SQL of the repository: files, blocks of the documentation, golden cases.

use std::fs;
use std::path::{Path, PathBuf};

use crate::mutate::{Token, tokens};

/// A text of statements.
pub struct Script {
    /// Where it comes from.
    pub name: String,
    pub tokens: Vec<Token>,
    /// The folder with its inputs, if it is small enough to be run.
    pub folder: Option<PathBuf>,
}

pub struct Corpus {
    pub scripts: Vec<Script>,
    /// Every token that stands somewhere, each once.
    pub pool: Vec<String>,
}

impl Corpus {
    pub fn read() -> Corpus {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut scripts = Vec::new();
        for file in files(&root) {
            let text = fs::read_to_string(&file).expect("UTF-8 text");
            let name = file.strip_prefix(&root).expect("below the root").display().to_string();
            let is_golden = name.starts_with("tests/golden/");
            let folder = file.parent().filter(|_| is_golden).map(Path::to_owned);
            if name.ends_with(".sql") {
                scripts.push(Script { name, tokens: tokens(&text), folder });
            } else {
                scripts.extend(blocks(&root, &name, &text));
            }
        }
        // Whatever the file system's order: a case has the same number everywhere.
        scripts.sort_by(|a, b| a.name.cmp(&b.name));
        let mut pool: Vec<String> =
            scripts.iter().flat_map(|s| s.tokens.iter().map(|token| token.text.clone())).collect();
        pool.sort_unstable();
        pool.dedup();
        Corpus { scripts, pool }
    }
}

/// The `sql` blocks of a page.
fn blocks(root: &Path, name: &str, text: &str) -> Vec<Script> {
    let orders = fs::read_to_string(root.join("docs/examples/orders.sql")).expect("the example");
    let mut scripts = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```sql") else { continue };
        let before = if kind.trim() == "orders" { orders.as_str() } else { "" };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let text = format!("{before}\n{}", body.join("\n"));
        let name = format!("{name}:{}", number + 1);
        scripts.push(Script { name, tokens: tokens(&text), folder: None });
    }
    scripts
}

/// The statements and the pages below a folder, but for what is built.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.starts_with('.') || name == "target" || entry.path().is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if name.ends_with(".sql") || (name.ends_with(".md") && folder.ends_with("docs")) {
            found.push(path);
        }
    }
    found
}
