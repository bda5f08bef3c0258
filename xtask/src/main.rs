//! Checks of this repository that the compiler does not make. `cargo xtask` lists them.
//!
//! Each check reads files and returns what is wrong, one finding a line with file and line number;
//! none changes anything but `book`, which writes below `target`, and `results`, which writes its
//! page. They are part of `make check`.

mod book;
mod circles;
mod depcheck;
mod house_lines;
mod lexer;
mod paths;
mod results;
mod tidy;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

/// Something that is wrong, where, and what to do about it.
type Findings = Vec<String>;

const USAGE: &str = "\
usage: cargo xtask CHECK

checks:
  tidy      lengths, headers, banned calls, dead files, links, pages, figures
            (exceptions: xtask/exceptions.txt)
  depcheck  crates depend on each other only as the table in ARCHITECTURE.md allows, and few modules of
            a crate import each other in a circle; prints the crates with their modules and circles
  book      lays the documentation out in target/book for mdBook; `make book` builds it
  results   writes benches/RESULTS.md from the figures in benches/results; tidy compares";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = repository_root();
    let findings = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::check(&root),
        ["depcheck"] => depcheck::check(&root),
        ["book"] => book::stage(&root),
        ["results"] => results::write(&root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match findings {
        Ok(findings) => report(&arguments[0], &findings),
        Err(error) => {
            eprintln!("{}: cannot check: {error}", arguments[0]);
            ExitCode::FAILURE
        }
    }
}

fn report(check: &str, findings: &Findings) -> ExitCode {
    for finding in findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        println!("{check}: ok");
        ExitCode::SUCCESS
    } else {
        eprintln!("{check}: {} to mend", findings.len());
        ExitCode::FAILURE
    }
}

fn repository_root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or(manifest.clone(), PathBuf::from)
}
