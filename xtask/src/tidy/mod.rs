//! `cargo xtask tidy`: what keeps the code readable, checked by a machine.
//!
//! One file a check; each takes the parsed [`SourceFile`]s or the repository's root and returns
//! findings. Lengths may exceed their limit only as `xtask/exceptions.txt` says, and an exception
//! that has become too generous is a finding as well: the numbers only go down.

mod calls;
mod comments;
mod lengths;
pub mod links;
mod modules;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Findings;
use crate::book;
use crate::lexer::{self, Split};
use crate::results;
use crate::tree;

pub use modules::children_folder;

/// One Rust file, taken apart once for all checks.
pub struct SourceFile {
    /// Relative to the repository's root.
    pub path: PathBuf,
    /// As it stands.
    pub source: String,
    /// Code and comments apart.
    pub split: Split,
    /// The code without test items; empty for a file that holds only tests.
    pub production: String,
}

impl SourceFile {
    /// Takes a file apart.
    pub fn new(path: PathBuf, source: String) -> Self {
        let split = lexer::split(&source);
        let production =
            if is_test_path(&path) { String::new() } else { lexer::without_tests(&split.code) };
        SourceFile { path, source, split, production }
    }

    /// `path:line: message`.
    fn finding(&self, line: usize, message: &str) -> String {
        format!("{}:{line}: {message}", self.path.display())
    }
}

/// Runs all checks.
pub fn check(root: &Path) -> io::Result<Findings> {
    let files = read_sources(root)?;
    let mut findings = lengths::check(&files, &exceptions(root));
    findings.extend(calls::check(&files));
    findings.extend(comments::check(&files));
    findings.extend(words::check(root, &files, &exceptions(root))?);
    findings.extend(files.iter().filter_map(missing_header));
    findings.extend(modules::check(root, &files)?);
    findings.extend(links::check(root)?);
    findings.extend(book::check(root)?);
    findings.extend(results::check(root)?);
    findings.sort();
    Ok(findings)
}

/// What may exceed a limit, and by how much.
pub fn exceptions(root: &Path) -> String {
    fs::read_to_string(root.join("xtask/exceptions.txt")).unwrap_or_default()
}

/// Every Rust file of the repository.
pub fn read_sources(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for path in tree::files(root, ".rs")? {
        let source = fs::read_to_string(root.join(&path))?;
        files.push(SourceFile::new(path, source));
    }
    let tests = files_of_test_modules(&files);
    for file in files.iter_mut().filter(|file| tests.contains(&file.path)) {
        file.production.clear();
    }
    Ok(files)
}

/// Files (and folders' files) that a `#[cfg(test)] mod name;` elsewhere brings in.
fn files_of_test_modules(files: &[SourceFile]) -> BTreeSet<PathBuf> {
    let mut roots = Vec::new();
    for file in files {
        for name in lexer::test_modules(&file.split.code) {
            roots.push(modules::children_folder(&file.path).join(name));
        }
    }
    files.iter().map(|file| file.path.clone()).filter(|path| belongs_to(path, &roots)).collect()
}

/// True for the file of one of these modules (paths without an ending), or of a module inside.
pub fn belongs_to(path: &Path, modules: &[PathBuf]) -> bool {
    modules.iter().any(|module| path.with_extension("") == *module || path.starts_with(module))
}

/// Tests, benchmarks and examples may unwrap.
fn is_test_path(path: &Path) -> bool {
    let folders = ["tests", "benches", "examples", "fuzz"];
    path.components().any(|part| folders.iter().any(|folder| part.as_os_str() == *folder))
        || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// A module's header says its purpose, its invariants and what it does not do.
fn missing_header(file: &SourceFile) -> Option<String> {
    let first = file.source.lines().find(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("#![") && !line.starts_with("#!/")
    });
    match first {
        Some(line) if line.starts_with("//!") => None,
        // They test the module that they stand in, whose header says it all.
        _ if file.path.ends_with("tests.rs") => None,
        _ => Some(file.finding(1, "begin the file with a `//!` header: purpose and invariants")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, source: &str) -> SourceFile {
        SourceFile::new(PathBuf::from(path), source.to_string())
    }

    #[test]
    fn a_header_may_follow_inner_attributes_only() {
        assert!(missing_header(&file("a.rs", "#![allow(x)]\n//! Words.\n")).is_none());
        assert!(missing_header(&file("a.rs", "use std::fs;\n//! Words.\n")).is_some());
    }

    #[test]
    fn files_behind_a_test_module_are_tests() {
        let files = [
            file("crates/a/src/lib.rs", "//! A.\n#[cfg(test)]\nmod checks;\n"),
            file("crates/a/src/checks.rs", "//! Checks."),
            file("crates/a/src/checks/deep.rs", "//! Checks."),
            file("crates/a/src/other.rs", "//! Other."),
        ];
        let found = files_of_test_modules(&files);
        let names: Vec<_> = found.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(names, ["crates/a/src/checks/deep.rs", "crates/a/src/checks.rs"]);
    }
}
