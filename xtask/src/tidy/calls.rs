//! Calls that have no place in finished code, or only in the file that owns the matter.

use super::SourceFile;
use crate::Findings;
use crate::lexer::{is_word, line_of};

/// A text that must not stand in code, except in the places named.
struct Rule {
    text: &'static str,
    /// True if tests must not use it either.
    in_tests: bool,
    /// Beginnings of paths in which it may stand.
    allowed: &'static [&'static str],
    instead: &'static str,
}

const CLOCK: &str = "ask thalweg_core::shim::Clock, so that a run can be simulated";
const THREADS: &str =
    "threads start only where they are joined; see the list in xtask/src/tidy/calls.rs";
/// Files that start threads, each with a reason: the workers; blocking reads and decoding; the
/// thread of a sink; the progress line; a lookup table that is read again, answers that are waited
/// for; statements and functions of Python.
const THREAD_OWNERS: &[&str] = &[
    "bindings/python/src/",
    "crates/ordering/src/gate/merge_thread.rs",
    "crates/ordering/src/sync",
    "crates/runtime/src/",
    "crates/connectors/src/",
    "crates/engine/src/",
    "crates/library/src/",
    "crates/server/src/",
    "crates/operators/src/join/hash/reload.rs",
    "crates/operators/src/join/lookup/requests.rs",
    "crates/workloads/src/commands/",
];

const RULES: &[Rule] = &[
    Rule { text: "todo!", in_tests: true, allowed: &[], instead: "write it, or say Unsupported" },
    Rule { text: "unimplemented!", in_tests: true, allowed: &[], instead: "say Unsupported" },
    Rule { text: "dbg!", in_tests: true, allowed: &[], instead: "remove it" },
    Rule {
        text: ".unwrap()",
        in_tests: false,
        allowed: &[],
        instead: "return the error, or expect(\"invariant\")",
    },
    Rule {
        text: "unsafe",
        in_tests: true,
        allowed: &[
            "crates/ordering/",
            "crates/engine/src/cli/allocator.rs",
            "crates/connectors/src/kafka/batches.rs",
            "crates/connectors/src/kafka/queue.rs",
            "crates/runtime/src/numa_memory.rs",
        ],
        instead: "only crate ordering and bindings of foreign functions may",
    },
    Rule {
        text: "Instant::now",
        in_tests: false,
        // Measurements are about the machine's own time.
        allowed: &[
            "crates/core/src/shim.rs",
            "crates/workloads/src/commands/",
            "bindings/python/src/",
        ],
        instead: CLOCK,
    },
    Rule {
        text: "SystemTime::now",
        in_tests: false,
        allowed: &["crates/core/src/shim.rs"],
        instead: CLOCK,
    },
    Rule { text: "thread::spawn", in_tests: false, allowed: THREAD_OWNERS, instead: THREADS },
    Rule { text: "thread::Builder", in_tests: false, allowed: THREAD_OWNERS, instead: THREADS },
];

/// Looks for calls that a rule forbids, and for notes to self without an issue.
pub fn check(files: &[SourceFile]) -> Findings {
    files.iter().flat_map(|file| banned(file).into_iter().chain(notes_to_self(file))).collect()
}

fn banned(file: &SourceFile) -> Findings {
    let path = file.path.to_string_lossy().replace('\\', "/");
    let mut findings = Findings::new();
    for rule in
        RULES.iter().filter(|rule| !rule.allowed.iter().any(|start| path.starts_with(start)))
    {
        let code = if rule.in_tests { &file.split.code } else { &file.production };
        for position in occurrences(code, rule.text) {
            let message = format!("`{}`: {}", rule.text, rule.instead);
            findings.push(file.finding(line_of(code, position), &message));
        }
    }
    findings
}

/// Where `text` stands as whole words.
fn occurrences(code: &str, text: &str) -> Vec<usize> {
    let starts_word = text.chars().next().is_some_and(is_word);
    let ends_word = text.chars().next_back().is_some_and(is_word);
    let is_whole = |position: &usize| {
        let before = code[..*position].chars().next_back().is_some_and(is_word);
        let after = code[position + text.len()..].chars().next().is_some_and(is_word);
        !(starts_word && before || ends_word && after)
    };
    code.match_indices(text).map(|(position, _)| position).filter(is_whole).collect()
}

/// A note without an issue is forgotten: TODO(#12) is found again.
fn notes_to_self(file: &SourceFile) -> Findings {
    let comments = &file.split.comments;
    let words = ["TODO", "FIXME", "XXX"];
    let found = words
        .iter()
        .flat_map(|word| occurrences(comments, word).into_iter().map(move |at| (at, word)));
    found
        .filter(|(at, word)| !comments[at + word.len()..].starts_with("(#"))
        .map(|(at, word)| {
            file.finding(line_of(comments, at), &format!("write {word}(#issue), or do it"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn findings(path: &str, source: &str) -> Findings {
        check(&[SourceFile::new(PathBuf::from(path), source.to_string())])
    }

    #[test]
    fn tests_may_unwrap_and_code_may_not() {
        let source =
            "fn a() { b().unwrap(); }\n#[cfg(test)]\nmod tests { fn c() { b().unwrap(); } }\n";
        let found = findings("crates/plan/src/a.rs", source);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/plan/src/a.rs:1:"));
        assert!(findings("crates/plan/tests/a.rs", source).is_empty());
    }

    #[test]
    fn words_are_compared_whole() {
        assert!(
            findings("a.rs", "#![deny(unsafe_code)]\nfn unwrap_or() { x.unwrap_or(1); }")
                .is_empty()
        );
        assert_eq!(findings("a.rs", "fn f() { unsafe { g() } }").len(), 1);
        assert!(findings("crates/ordering/src/a.rs", "fn f() { unsafe { g() } }").is_empty());
    }

    #[test]
    fn strings_and_comments_are_no_calls() {
        assert!(findings("a.rs", "// dbg!(x)\nfn f() { g(\"todo!()\") }").is_empty());
    }

    #[test]
    fn a_note_names_its_issue() {
        assert_eq!(findings("a.rs", concat!("// TO", "DO: later\n")).len(), 1);
        assert!(findings("a.rs", concat!("// TO", "DO(#12): later\n")).is_empty());
    }
}
