//! `thalweg test`: tests of SQL in Markdown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thalweg::testing::{CaseReport, TestCase, TestFile, TestOptions, run_case};
use thalweg_core::{Error, Result};
use thalweg_plan::diagnostic;

use super::arguments::TestArguments;
use super::exit::{FAILED, Failure, WRONG};
use super::terminal::{print, use_color};

/// How files are called that are found in folders.
const ENDING: &str = ".test.md";
/// How deep in folders files are looked for.
const DEPTH_MAX: usize = 16;

/// Runs the tests; returns the exit status.
pub fn test(arguments: &TestArguments) -> u8 {
    tested(arguments).unwrap_or_else(|error| Failure::plain(error).report(None, arguments.color))
}

fn tested(arguments: &TestArguments) -> Result<u8> {
    let mut counts = Counts::default();
    for path in test_files(&arguments.files)? {
        test_file(&path, arguments, &mut counts)?;
    }
    counts.finish(arguments)
}

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    updated: usize,
    wrong: usize,
}

impl Counts {
    fn finish(&self, arguments: &TestArguments) -> Result<u8> {
        let Counts { passed, failed, updated, wrong } = self;
        if passed + failed + wrong == 0 {
            return Err(
                Error::plan("no case has such a name").hint("leave --filter out to run all")
            );
        }
        if !arguments.json {
            let mut text = format!("{passed} passed");
            for (count, word) in [(failed, "failed"), (wrong, "wrong"), (updated, "files updated")]
            {
                if *count > 0 {
                    text.push_str(&format!(", {count} {word}"));
                }
            }
            print(&format!("{text}\n"))?;
        }
        Ok(match (wrong, failed) {
            (0, 0) => 0,
            (0, _) => FAILED,
            _ => WRONG,
        })
    }
}

/// The files that are meant, each once.
fn test_files(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let current = [PathBuf::from(".")];
    let named = if named.is_empty() { &current[..] } else { named };
    let mut files = Vec::new();
    for path in named {
        match path.is_dir() {
            true => find_files(path, DEPTH_MAX, &mut files)?,
            false => files.push(path.clone()),
        }
    }
    files.dedup();
    if files.is_empty() {
        return Err(Error::plan(format!("there is no file NAME{ENDING} here"))
            .hint("`thalweg test --help` shows what one looks like"));
    }
    Ok(files)
}

fn find_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |error| Error::plan(format!("can't read {}: {error}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_hidden = name.starts_with('.');
        // A link to a folder may lead back.
        if path.is_dir() && !path.is_symlink() && !is_hidden && depth > 0 {
            find_files(&path, depth - 1, files)?;
        } else if name.ends_with(ENDING) {
            files.push(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path));
        }
    }
    Ok(())
}

fn test_file(path: &Path, arguments: &TestArguments, counts: &mut Counts) -> Result<()> {
    let file = match TestFile::read(path) {
        Ok(file) => file,
        Err(error) => {
            counts.wrong += 1;
            return wrong_file(path, &error, arguments);
        }
    };
    let options = TestOptions {
        params: arguments.parameters.iter().cloned().collect::<BTreeMap<_, _>>(),
        settings: arguments.settings.clone(),
        ..TestOptions::default()
    };
    let is_wanted = |case: &&TestCase| {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        case.name.contains(filter) || file.name.contains(filter)
    };
    let mut reports = Vec::new();
    for case in file.cases.iter().filter(is_wanted) {
        let report = run_case(&file, case, &options);
        match report.has_passed() {
            true => counts.passed += 1,
            false => counts.failed += 1,
        }
        show(&file, case, &report, arguments)?;
        reports.push(report);
    }
    if arguments.update
        && let Some(text) = file.updated(&reports)
    {
        counts.updated += 1;
        let failed = |error| Error::io(format!("can't write {}: {error}", path.display()));
        std::fs::write(path, text).map_err(failed)?;
    }
    Ok(())
}

/// A file that is no test fails; the others run all the same.
fn wrong_file(path: &Path, error: &Error, arguments: &TestArguments) -> Result<()> {
    let name = path.display().to_string();
    if arguments.json {
        let line = error.span().map(|span| span.line);
        return print(&format!(
            "{}\n",
            json!({ "file": name, "passed": false, "error": error.to_string(), "line": line })
        ));
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    print(&diagnostic::render(error, &name, &text, use_color(arguments.color)))
}

fn show(
    file: &TestFile,
    case: &TestCase,
    report: &CaseReport,
    arguments: &TestArguments,
) -> Result<()> {
    if arguments.json {
        return print(&format!("{}\n", as_json(file, case, report)));
    }
    let mark = if report.has_passed() { "ok  " } else { "FAIL" };
    let mut text = format!("{mark} {}:{} {}", file.name, case.line, case.name);
    if !report.left_out.is_empty() && report.has_passed() {
        let orders = report.left_out.iter().map(|(order, _)| order.to_string());
        text.push_str(&format!(" (not in {})", orders.collect::<Vec<_>>().join(", ")));
    }
    text.push('\n');
    for (variant, difference) in &report.differences {
        let place = format!("{}:{}", file.name, difference.line);
        text.push_str(&format!(
            "\n{place}: {} ({variant}): - expected, + found\n\n{}",
            difference.what, difference.diff
        ));
    }
    if !report.differences.is_empty() {
        text.push('\n');
    }
    if let Some((variant, error, name, source)) = &report.error {
        let shown = diagnostic::render(error, name, source, use_color(arguments.color));
        text.push_str(&format!("\n{shown}  (in {variant})\n\n"));
    }
    print(&text)
}

fn as_json(file: &TestFile, case: &TestCase, report: &CaseReport) -> Value {
    let difference = |(variant, of): &(thalweg::testing::Variant, thalweg::testing::Difference)| {
        json!({ "line": of.line, "what": of.what, "order": variant.order.to_string(),
                "workers": variant.workers, "diff": of.diff })
    };
    let left_out = report
        .left_out
        .iter()
        .map(|(order, why)| json!({ "order": order.to_string(), "why": why }));
    let mut shown = json!({
        "file": file.name, "case": case.name, "line": case.line, "passed": report.has_passed(),
        "variants": report.variants,
        "left_out": left_out.collect::<Vec<_>>(),
        "differences": report.differences.iter().map(difference).collect::<Vec<_>>(),
    });
    if let Some((variant, error, name, _)) = &report.error {
        shown["error"] = json!({
            "message": error.to_string(), "file": name, "line": error.span().map(|span| span.line),
            "order": variant.order.to_string(), "workers": variant.workers,
        });
    }
    shown
}
