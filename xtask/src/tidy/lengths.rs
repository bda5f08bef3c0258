//! Files and functions stay short. Exceptions are listed with their size and can only shrink.

use std::collections::BTreeMap;

use super::SourceFile;
use crate::Findings;
use crate::lexer::{closing, is_word, line_of};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Compares every file and function with its limit. A line of `exceptions` reads
/// `file PATH LINES` or `function PATH NAME LINES`; `#` begins a comment.
pub fn check(files: &[SourceFile], exceptions: &str) -> Findings {
    let mut allowed = parse_exceptions(exceptions);
    let mut findings = Findings::new();
    for file in files {
        let path = file.path.display().to_string();
        let lines = file.source.lines().count();
        let limit = allowed.remove(&format!("file {path}"));
        findings.extend(judge(file, 1, "this file", lines, FILE_LINES_MAX, limit));
        for function in functions(&file.split.code) {
            let limit = allowed.remove(&format!("function {path} {}", function.name));
            let what = format!("function `{}`", function.name);
            let (line, lines) = (function.line, function.lines);
            findings.extend(judge(file, line, &what, lines, FUNCTION_LINES_MAX, limit));
        }
    }
    let gone = |key: &String| format!("xtask/exceptions.txt: `{key}` is gone; delete the line");
    findings.extend(allowed.keys().map(gone));
    findings
}

fn judge(
    file: &SourceFile,
    line: usize,
    what: &str,
    lines: usize,
    limit: usize,
    exception: Option<usize>,
) -> Option<String> {
    match exception {
        None if lines > limit => Some(
            file.finding(line, &format!("{what} has {lines} lines (at most {limit}): split it")),
        ),
        Some(allowed) if lines > allowed => Some(
            file.finding(line, &format!("{what} grew from {allowed} to {lines} lines: split it")),
        ),
        Some(allowed) if lines < allowed => Some(file.finding(
            line,
            &format!("{what} has only {lines} lines now: write that into xtask/exceptions.txt"),
        )),
        _ => None,
    }
}

fn parse_exceptions(text: &str) -> BTreeMap<String, usize> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lengths = lines.filter(|line| line.starts_with("file ") || line.starts_with("function "));
    lengths
        .filter_map(|line| {
            let (key, lines) = line.rsplit_once(' ')?;
            Some((key.to_string(), lines.parse().ok()?))
        })
        .collect()
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Every function with a body, from the line of `fn` to its closing brace.
fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        let begins_word = !code[..start].chars().next_back().is_some_and(is_word);
        let name: String = code[start + 3..].chars().take_while(|&c| is_word(c)).collect();
        if !begins_word || name.is_empty() {
            continue;
        }
        if let Some(open) = body(code, start) {
            let line = line_of(code, start);
            let lines = line_of(code, closing(code, open) - 1) - line + 1;
            found.push(Function { name, line, lines });
        }
    }
    found
}

/// The position of the brace that opens the body, or `None` for a declaration.
fn body(code: &str, start: usize) -> Option<usize> {
    let mut position = start;
    while let Some(character) = code[position..].chars().next() {
        match character {
            '{' => return Some(position),
            ';' => return None,
            '(' | '[' => position = closing(code, position),
            other => position += other.len_utf8(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(source: &str) -> SourceFile {
        SourceFile::new(PathBuf::from("a.rs"), source.to_string())
    }

    fn long_function(lines: usize) -> SourceFile {
        file(&format!("//! A.\nfn long(x: [u8; 4]) {{\n{}}}\n", "x();\n".repeat(lines - 2)))
    }

    #[test]
    fn a_function_is_counted_from_fn_to_brace() {
        assert!(check(&[long_function(70)], "").is_empty());
        let findings = check(&[long_function(71)], "");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("a.rs:2: function `long` has 71 lines"), "{findings:?}");
    }

    #[test]
    fn an_exception_fits_exactly_or_is_a_finding() {
        let exact = "# why\nfunction a.rs long 75\n";
        assert!(check(&[long_function(75)], exact).is_empty());
        assert_eq!(check(&[long_function(76)], exact).len(), 1);
        assert_eq!(check(&[long_function(74)], exact).len(), 1);
        assert_eq!(check(&[file("//! A.\n")], exact).len(), 1);
    }

    #[test]
    fn declarations_and_function_pointers_have_no_body() {
        assert!(functions("trait T { fn a(&self); }\ntype F = fn (u8) -> u8;").is_empty());
    }

    #[test]
    fn a_file_has_a_limit() {
        assert!(check(&[file(&"//! x\n".repeat(800))], "").is_empty());
        assert_eq!(check(&[file(&"//! x\n".repeat(801))], "").len(), 1);
    }
}
