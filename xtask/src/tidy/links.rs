//! Links in Markdown files lead to files and headings that exist. The web is not asked.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::Findings;
use crate::tree;

/// Checks every relative link of every Markdown file.
pub fn check(root: &Path) -> io::Result<Findings> {
    let mut findings = Findings::new();
    for path in tree::files(root, ".md")? {
        let text = fs::read_to_string(root.join(&path))?;
        for (line, target) in links(&text) {
            if let Some(problem) = broken(root, &path, &text, &target) {
                findings.push(format!("{}:{line}: {problem}", path.display()));
            }
        }
    }
    Ok(findings)
}

fn broken(root: &Path, page: &Path, text: &str, target: &str) -> Option<String> {
    if is_web(target) {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = root.join(page).parent()?.join(file);
    if !file.is_empty() && !path.exists() {
        return Some(format!("link to `{target}`: there is no such file"));
    }
    if anchor.is_empty() || !(file.is_empty() || file.ends_with(".md")) {
        return None;
    }
    let linked = if file.is_empty() { text.to_string() } else { fs::read_to_string(path).ok()? };
    let missing = !anchors(&linked).contains(anchor);
    missing.then(|| format!("link to `{target}`: there is no such heading"))
}

/// True for a link that leaves the repository.
pub fn is_web(target: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

/// Lines outside of fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(position, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((position + 1, line))
    })
}

/// The targets of `[text](target)`, with their lines.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Inline code shows links, it does not make them.
        let visible: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for (position, _) in visible.match_indices("](") {
            let target: String =
                visible[position + 2..].chars().take_while(|&c| c != ')').collect();
            found.push((number, target.trim().to_string()));
        }
    }
    found
}

/// The anchors that a forge makes from headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_no_links() {
        let text = "[a](b.md) and `[c](d.md)`\n```\n[e](f.md)\n```\n[g](#h)\n";
        assert_eq!(links(text), [(1, "b.md".to_string()), (5, "#h".to_string())]);
    }

    #[test]
    fn headings_become_anchors() {
        let text = "# Late rows: what happens?\n";
        assert!(anchors(text).contains("late-rows-what-happens"));
        let page = Path::new("README.md");
        assert_eq!(broken(Path::new("/none"), page, text, "#late-rows-what-happens"), None);
        assert!(broken(Path::new("/none"), page, text, "#late").is_some());
        assert!(broken(Path::new("/none"), page, text, "missing.md").is_some());
    }
}
