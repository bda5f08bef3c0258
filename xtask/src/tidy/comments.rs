//! Comments stay at most [`COLUMNS_MAX`] columns wide. Tables, code blocks and words that are
//! longer than a line are left alone.

use super::SourceFile;
use crate::Findings;

const COLUMNS_MAX: usize = 100;

/// Names every comment line that is too wide.
pub fn check(files: &[SourceFile]) -> Findings {
    files.iter().flat_map(wide_lines).collect()
}

fn wide_lines(file: &SourceFile) -> Findings {
    let mut in_code = false;
    let mut findings = Findings::new();
    for (position, line) in file.source.lines().enumerate() {
        let Some(text) = line.trim_start().strip_prefix("//") else {
            in_code = false;
            continue;
        };
        let text = text.trim_start_matches(['/', '!']).trim_start();
        in_code ^= text.starts_with("```");
        // A line of one word cannot be wrapped; neither can a row of a table.
        let can_wrap = !in_code && !text.starts_with('|') && text.contains(' ');
        let columns = line.chars().count();
        if can_wrap && columns > COLUMNS_MAX {
            let message = format!("this comment has {columns} columns (at most {COLUMNS_MAX})");
            findings.push(file.finding(position + 1, &message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn findings(source: &str) -> Findings {
        check(&[SourceFile::new(PathBuf::from("crates/a/src/b.rs"), source.to_string())])
    }

    #[test]
    fn wide_comments_are_found_and_tables_and_code_are_not() {
        let wide = "word ".repeat(21);
        let found = findings(&format!("//! A.\n// {wide}\nfn f() {{}} // {wide}\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/b.rs:2: "), "{found:?}");
        assert!(findings(&format!("/// | {wide} |\n//! ```\n//! {wide}\n//! ```\n")).is_empty());
        assert!(findings(&format!("// https://example.org/{}\n", "a".repeat(99))).is_empty());
    }
}
