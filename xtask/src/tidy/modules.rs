//! A Rust file that no crate root reaches is dead: the compiler never sees it.
//!
//! Follows `mod name;` from every root of every package. Modules behind macros are not seen.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::SourceFile;
use crate::Findings;
use crate::lexer::is_word;
use crate::tree;

/// Names every file that nothing reaches.
pub fn check(root: &Path, files: &[SourceFile]) -> io::Result<Findings> {
    let mut packages: Vec<PathBuf> = tree::files(root, "Cargo.toml")?;
    packages.retain(|manifest| manifest.parent().is_some_and(|folder| folder != Path::new("")));
    let folders: Vec<&Path> = packages.iter().filter_map(|manifest| manifest.parent()).collect();
    Ok(unreached(files, &folders))
}

fn unreached(files: &[SourceFile], packages: &[&Path]) -> Findings {
    let mut reached: BTreeSet<&Path> = BTreeSet::new();
    let mut waiting: Vec<&SourceFile> = files
        .iter()
        .filter(|file| packages.iter().any(|package| is_root(package, &file.path)))
        .collect();
    while let Some(file) = waiting.pop() {
        if !reached.insert(&file.path) {
            continue;
        }
        let folder = children_folder(&file.path);
        for name in declared_modules(&file.split.code) {
            let sibling = folder.join(format!("{name}.rs"));
            let inside = folder.join(&name).join("mod.rs");
            waiting.extend(files.iter().filter(|file| file.path == sibling || file.path == inside));
        }
    }
    let dead = files.iter().filter(|file| !reached.contains(file.path.as_path()));
    dead.map(|file| file.finding(1, "no `mod` leads to this file: declare or delete it")).collect()
}

/// Where the modules that a file declares have their files.
pub fn children_folder(path: &Path) -> PathBuf {
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let is_crate_root = folder.file_name().is_some_and(|name| {
        ["tests", "benches", "examples", "bin", "fuzz_targets"].iter().any(|root| name == *root)
    });
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    match stem.as_str() {
        "lib" | "main" | "mod" => folder,
        _ if is_crate_root => folder,
        _ => folder.join(stem),
    }
}

fn is_root(package: &Path, file: &Path) -> bool {
    let Ok(inside) = file.strip_prefix(package) else { return false };
    let parts: Vec<String> =
        inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] => true,
        ["tests" | "benches" | "examples" | "fuzz_targets", _] => true,
        ["tests" | "benches" | "examples", _, "main.rs"] => true,
        // A package whose targets name files of its own folder, such as the benchmarks.
        ["src", ..] => false,
        [_] => package.ends_with("benches"),
        _ => false,
    }
}

/// The names in `mod name;` declarations.
fn declared_modules(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (position, _) in code.match_indices("mod ") {
        let begins_word = !code[..position].chars().next_back().is_some_and(is_word);
        let behind = &code[position + 4..];
        let name: String = behind.chars().take_while(|&c| is_word(c)).collect();
        if begins_word && behind[name.len()..].trim_start().starts_with(';') {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reached_through_mod_declarations() {
        let file =
            |path: &str, source: &str| SourceFile::new(PathBuf::from(path), source.to_string());
        let files = [
            file(
                "crates/a/src/lib.rs",
                "mod build;\nmod one;\npub(crate) mod two;\nmod inline { }",
            ),
            file("crates/a/src/build.rs", "mod types;"),
            file("crates/a/src/build/types.rs", ""),
            file("crates/a/src/one.rs", "mod deep;"),
            file("crates/a/src/one/deep.rs", ""),
            file("crates/a/src/two/mod.rs", ""),
            file("crates/a/src/inline.rs", ""),
            file("crates/a/tests/t.rs", ""),
        ];
        let findings = unreached(&files, &[Path::new("crates/a")]);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("crates/a/src/inline.rs"));
    }
}
