//! Private words for what the field has a word for.
//!
//! Engineers read this code who know Flink, DataFusion and Rust. [`WORDS`] names phrases that they
//! would have to learn, each with what to write instead. Names, comments, messages and pages are
//! searched; `snake_case` and `CamelCase` are read as words. `xtask/exceptions.txt` says how many a
//! folder may have (`words FOLDER COUNT`); the number only goes down.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::SourceFile;
use crate::Findings;
use crate::tree;

/// A phrase, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("told", "captured, reported, said"),
    ("tell", "capture, report, say"),
    ("tells", "captures, reports, says"),
    ("takes back", "retracts, restores"),
    ("take back", "retract, restore"),
    ("taken back", "retracted, restored"),
    ("goes on", "resumes, continues"),
    ("go on", "resume, continue"),
    ("went on", "resumed, continued"),
    ("gone on", "resumed, continued"),
    ("somebody", "a user, a caller, another process"),
    ("beside", "compared with, next to"),
    ("anew", "from scratch, again"),
    ("so many", "a number of, up to"),
    ("by the clock", "in processing time"),
    ("set aside", "quarantined, dropped"),
    ("put aside", "quarantined, dropped"),
    ("let go", "evict, release"),
    ("held up", "blocked, backpressured"),
];

/// This list must name what it looks for.
const THIS_FILE: &str = "xtask/src/tidy/words.rs";

/// Compares the count of each folder with what it may be.
pub fn check(root: &Path, files: &[SourceFile], exceptions: &str) -> io::Result<Findings> {
    let mut found = found_in_code(files);
    for path in tree::files(root, ".md")? {
        let text = fs::read_to_string(root.join(&path))?;
        add(&mut found, path, &text);
    }
    Ok(judge(&found, exceptions))
}

/// Places by folder.
type Found = BTreeMap<String, Vec<String>>;

fn found_in_code(files: &[SourceFile]) -> Found {
    let mut found = Found::new();
    for file in files.iter().filter(|file| file.path != Path::new(THIS_FILE)) {
        add(&mut found, file.path.clone(), &file.source);
    }
    found
}

fn add(found: &mut Found, path: PathBuf, text: &str) {
    let folder = folder(&path);
    for (position, line) in text.lines().enumerate() {
        for (phrase, instead) in phrases(line) {
            found.entry(folder.clone()).or_default().push(format!(
                "{}:{}: `{phrase}`: write {instead}",
                path.display(),
                position + 1
            ));
        }
    }
}

/// `crates/NAME` for a crate, else the first folder; `.` for files of the root.
fn folder(path: &Path) -> String {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    match parts[..] {
        ["crates", name, ..] => format!("crates/{name}"),
        [folder, _, ..] => folder.to_string(),
        _ => ".".to_string(),
    }
}

/// The phrases of a line.
fn phrases(line: &str) -> Vec<(&'static str, &'static str)> {
    let spaced = format!(" {} ", as_words(line));
    let count = |phrase: &str| spaced.matches(&format!(" {phrase} ")).count();
    WORDS.iter().flat_map(|word| std::iter::repeat_n(*word, count(word.0))).collect()
}

/// A line as words in lower case, one blank between each two.
fn as_words(line: &str) -> String {
    let mut words = String::with_capacity(line.len());
    let mut was_lower = false;
    for character in line.chars() {
        if character.is_uppercase() && was_lower {
            words.push(' ');
        }
        was_lower = character.is_lowercase();
        match character.is_alphanumeric() {
            true => words.extend(character.to_lowercase()),
            false if words.ends_with(' ') => {}
            false => words.push(' '),
        }
    }
    words
}

fn judge(found: &Found, exceptions: &str) -> Findings {
    let mut allowed = parse_exceptions(exceptions);
    let mut findings = Findings::new();
    for (folder, places) in found {
        let limit = allowed.remove(folder.as_str()).unwrap_or(0);
        if places.len() > limit {
            findings.extend(places.iter().cloned());
            findings.push(format!("{folder}: {} private words (at most {limit})", places.len()));
        } else if places.len() < limit {
            let count = places.len();
            findings.push(format!(
                "{folder}: only {count} private words now: write that into xtask/exceptions.txt"
            ));
        }
    }
    let gone =
        |folder: &&str| format!("xtask/exceptions.txt: `words {folder}` is gone; delete the line");
    findings.extend(allowed.keys().map(gone));
    findings
}

fn parse_exceptions(text: &str) -> BTreeMap<&str, usize> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("words "));
    lines.filter_map(|line| line.rsplit_once(' ')).filter_map(count).collect()
}

fn count<'a>((folder, count): (&'a str, &str)) -> Option<(&'a str, usize)> {
    Some((folder, count.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sentences_are_read_as_words() {
        let found = |line: &str| phrases(line).into_iter().map(|(phrase, _)| phrase).collect();
        let words: Vec<&str> =
            found("fn rows_are_told(x: ToldRows) // It goes on; retell, outgo on");
        assert_eq!(words, ["told", "told", "goes on"]);
    }

    #[test]
    fn counts_only_go_down() {
        let mut found = Found::new();
        add(&mut found, PathBuf::from("crates/a/src/b.rs"), "// told\n// told");
        assert!(judge(&found, "words crates/a 2").is_empty());
        assert_eq!(judge(&found, "words crates/a 3").len(), 1, "too generous");
        assert_eq!(judge(&found, "words crates/a 1").len(), 3, "two places and the count");
        assert_eq!(judge(&found, "words crates/a 2\nwords crates/b 1").len(), 1);
    }
}
