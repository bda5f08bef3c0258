//! `cargo xtask depcheck`: how long the shipped code of each crate is, and how much of it is prose.
//!
//! A line of code has something other than a comment on it. Tests do not count, nor do modules
//! that only a feature of [`UNSHIPPED_FEATURES`] brings in, which no program turns on. Prose is
//! the share of comment lines among lines of code and comments.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::tidy::{SourceFile, belongs_to, children_folder};

/// Features that only tests and benchmarks turn on.
const UNSHIPPED_FEATURES: [&str; 3] = ["baselines", "simulator", "test-support"];

/// What one crate ships.
#[derive(Clone, Copy, Default)]
pub struct CrateLines {
    /// Lines with code.
    pub code: usize,
    /// Lines with nothing but a comment.
    pub comments: usize,
}

impl CrateLines {
    /// Comment lines in a hundred lines.
    pub fn prose_percent(self) -> usize {
        100 * self.comments / (self.code + self.comments).max(1)
    }
}

/// The lines of every crate below `crates/`.
pub fn of_crates(files: &[SourceFile]) -> BTreeMap<String, CrateLines> {
    let unshipped = unshipped_modules(files);
    let mut crates: BTreeMap<String, CrateLines> = BTreeMap::new();
    for file in files.iter().filter(|file| !belongs_to(&file.path, &unshipped)) {
        let parts: Vec<&str> = file.path.iter().filter_map(|part| part.to_str()).collect();
        let ["crates", name, "src", ..] = parts[..] else { continue };
        let lines = crates.entry(name.to_string()).or_default();
        let production = file.production.lines().map(|line| !line.trim().is_empty());
        let is_code: Vec<bool> = production.collect();
        let all_code = file.split.code.lines().map(|line| !line.trim().is_empty());
        let comments = file.split.comments.lines().zip(all_code);
        lines.code += is_code.iter().filter(|code| **code).count();
        if !is_code.is_empty() {
            lines.comments +=
                comments.filter(|(text, code)| !code && !text.trim().is_empty()).count();
        }
    }
    crates
}

/// Files (and folders) of modules that a feature of [`UNSHIPPED_FEATURES`] brings in.
fn unshipped_modules(files: &[SourceFile]) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for file in files {
        let mut lines = file.source.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let is_gate = UNSHIPPED_FEATURES.iter().any(|feature| {
                line == format!("#[cfg(feature = \"{feature}\")]")
                    || line == format!("#[cfg(any(test, feature = \"{feature}\"))]")
            });
            let declared = lines.peek().and_then(|next| next.strip_suffix(';'));
            if let Some((_, name)) =
                declared.filter(|_| is_gate).and_then(|d| d.rsplit_once("mod "))
            {
                roots.push(children_folder(&file.path).join(name));
            }
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_unshipped_modules_do_not_count_as_code() {
        let file = |path: &str, source: &str| SourceFile::new(path.into(), source.to_string());
        let files = [
            file(
                "crates/a/src/lib.rs",
                "//! Header.\n\n#[cfg(any(test, feature = \"simulator\"))]\npub mod simulate;\n\
                 fn one() {} // why\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n",
            ),
            file("crates/a/src/simulate.rs", "fn three() {}\n"),
            file("crates/a/src/simulate/costs.rs", "fn four() {}\n"),
        ];
        let lines = of_crates(&files)["a"];
        // The attribute, the declaration of the module, and one function.
        assert_eq!((lines.code, lines.comments), (3, 1));
        assert_eq!(lines.prose_percent(), 25);
    }
}
