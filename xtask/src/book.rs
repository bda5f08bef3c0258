//! The book: `docs/SUMMARY.md` names the pages in the order of reading, and `cargo xtask book` lays
//! them out for mdBook.
//!
//! Pages stay where they are in the repository, so that their links work on a forge as well. mdBook
//! wants all pages below one folder: `target/book/src` gets the pages, the pictures and other files
//! that they link to, at the same places as in the repository, and a SUMMARY.md with paths from
//! there. Links to pages that are not in the book, and to folders, would lead nowhere: they are
//! findings of `tidy`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::Findings;
use crate::tidy::links::{is_web, links};
use crate::tree;

const SUMMARY: &str = "docs/SUMMARY.md";

/// `docs/README.md` is the table of contents of a forge; SUMMARY.md is that of the book.
const NOT_PAGES: [&str; 2] = [SUMMARY, "docs/README.md"];

/// What keeps the book from being whole.
pub fn check(root: &Path) -> io::Result<Findings> {
    let pages = pages(root)?;
    let named: BTreeSet<&PathBuf> = pages.iter().map(|(_, page)| page).collect();
    let mut findings = Findings::new();
    for (line, page) in &pages {
        if pages.iter().any(|(other, same)| other < line && same == page) {
            findings.push(format!("{SUMMARY}:{line}: {} stands here twice", page.display()));
        }
    }
    for path in tree::files(root, ".md")? {
        // Tests of SQL belong to the recipe that shows them.
        let is_test = path.to_string_lossy().ends_with(".test.md");
        let is_page = path.starts_with("docs")
            && !is_test
            && NOT_PAGES.iter().all(|name| !path.ends_with(name));
        if is_page && !named.contains(&path) {
            findings.push(format!("{}:1: add this page to {SUMMARY}", path.display()));
        }
    }
    for page in &named {
        for (line, target) in targets(root, page)? {
            let place = format!("{}:{line}: the link to {}", page.display(), target.display());
            if root.join(&target).is_dir() {
                findings.push(format!("{place} is one to a folder: in the book it leads nowhere"));
            } else if is_markdown(&target) && !named.contains(&target) {
                findings.push(format!("{place} leads nowhere in the book: add it to {SUMMARY}"));
            }
        }
    }
    Ok(findings)
}

/// Lays the book out in `target/book/src`.
pub fn stage(root: &Path) -> io::Result<Findings> {
    let findings = check(root)?;
    if !findings.is_empty() {
        return Ok(findings);
    }
    let staged = root.join("target/book/src");
    if staged.exists() {
        fs::remove_dir_all(&staged)?;
    }
    for (_, page) in pages(root)? {
        copy(root, &staged, &page)?;
        for (_, target) in targets(root, &page)? {
            copy(root, &staged, &target)?;
        }
    }
    let summary = fs::read_to_string(root.join(SUMMARY))?;
    fs::write(staged.join("SUMMARY.md"), from_the_root(&summary))?;
    fs::copy(root.join("docs/book.toml"), root.join("target/book/book.toml"))?;
    Ok(findings)
}

/// The pages that SUMMARY.md names, with their lines in it.
fn pages(root: &Path) -> io::Result<Vec<(usize, PathBuf)>> {
    targets(root, Path::new(SUMMARY))
}

/// What a page links to, as lines and paths from the root; the web and the page itself left out.
fn targets(root: &Path, page: &Path) -> io::Result<Vec<(usize, PathBuf)>> {
    let text = fs::read_to_string(root.join(page))?;
    let folder = page.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (line, target) in links(&text) {
        let file = target.split('#').next().unwrap_or_default();
        if !is_web(&target) && !file.is_empty() {
            found.push((line, resolved(&folder.join(file))));
        }
    }
    Ok(found)
}

/// A path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            other => whole.push(other),
        }
    }
    whole
}

/// The summary with paths from the root of the repository in the place of those from `docs`.
fn from_the_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

fn is_markdown(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

fn copy(root: &Path, staged: &Path, path: &Path) -> io::Result<()> {
    let to = staged.join(path);
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(root.join(path), to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_detours() {
        assert_eq!(resolved(Path::new("docs/../benches/./a.md")), Path::new("benches/a.md"));
        let summary = "[A](../README.md)\n- [B](design/b.md)\n";
        assert_eq!(from_the_root(summary), "[A](README.md)\n- [B](docs/design/b.md)\n");
    }

    #[test]
    fn a_page_that_nobody_names_is_found_and_so_is_a_link_out_of_the_book() {
        let root = std::env::temp_dir().join(format!("thalweg-book-{}", std::process::id()));
        fs::create_dir_all(root.join("docs")).expect("a folder");
        let write = |name: &str, text: &str| fs::write(root.join(name), text).expect("a page");
        write(SUMMARY, "- [A](a.md)\n");
        write("docs/a.md", "[B](b.md), [all](../docs), [there](https://example.org)\n");
        write("docs/b.md", "");
        write("docs/README.md", "");
        let findings = check(&root).expect("readable files");
        fs::remove_dir_all(&root).expect("removing the folder");
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].contains("docs/b.md:1: add this page"), "{findings:?}");
        assert!(findings[1].contains("link to docs/b.md leads nowhere"), "{findings:?}");
        assert!(findings[2].contains("link to docs is one to a folder"), "{findings:?}");
    }
}
