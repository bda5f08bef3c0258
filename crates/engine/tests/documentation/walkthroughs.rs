//! The pages that show a terminal are true: each command is run and prints what the page shows.
//!
//! In `docs/tutorial.md` and the pages of `docs/how-to`, a fenced block opened by
//! - `console` holds commands, each behind `$ ` and followed by what it prints;
//! - `sql FILE.sql`, `csv FILE.csv` and so on shows a file of the folder that has the page's name.
//!
//! The commands of a page run in one shell, in a copy of that folder. Output, errors included, is
//! compared as a multiset of lines, blanks and rules of tables at any length. An `…` stands for any
//! characters, and alone in a line for any lines. `<!-- run: COMMAND -->` is a command that readers
//! do not see; its output does not count.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{blocks, copy_examples, docs, read};

/// Separates the output of commands.
const MARK: char = '\u{1e}';

/// `await CONDITION` waits at most two minutes. Whatever still runs at the end of a page is ended.
const PRELUDE: &str = r#"
await() {
  for _ in $(seq 1200); do if eval "$1" >/dev/null 2>&1; then return; fi; sleep 0.1; done
  echo "never came true: $1"
}
trap 'kill $(jobs -p); wait' EXIT
exec 2>/dev/null
"#;

/// A command of a page.
struct Step {
    line: usize,
    command: String,
    /// What the page shows; nothing of a command that readers do not see.
    shown: Option<Vec<String>>,
}

#[test]
fn the_commands_of_the_tutorial_print_what_it_shows() {
    walk_through("tutorial");
}

#[test]
fn the_commands_of_every_recipe_print_what_it_shows() {
    let entries = fs::read_dir(docs().join("how-to")).expect("docs/how-to").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pages: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".md").map(|stem| format!("how-to/{stem}")))
        .collect();
    assert!(pages.len() > 5, "only {} recipes: has the layout of docs changed?", pages.len());
    // They mostly wait.
    std::thread::scope(|scope| {
        for page in &pages {
            scope.spawn(move || walk_through(page));
        }
    });
}

fn walk_through(page: &str) {
    let text = read(&docs().join(format!("{page}.md")));
    let mut wrong = wrong_files(page, &text);
    let steps = steps(&text);
    if !steps.is_empty() {
        let outputs = run(page, &steps);
        for (step, output) in steps.iter().zip(&outputs) {
            let problem = step.shown.as_ref().and_then(|shown| difference(shown, output));
            if let Some(problem) = problem {
                wrong.push(format!(
                    "line {}: `{}`: {problem}\nit printed\n{output}",
                    step.line, step.command
                ));
            }
        }
        assert_eq!(outputs.len(), steps.len(), "docs/{page}.md: the shell ended early");
    }
    assert!(wrong.is_empty(), "docs/{page}.md:\n{}", wrong.join("\n"));
}

/// Blocks that are not what the file of their name holds.
fn wrong_files(page: &str, text: &str) -> Vec<String> {
    let folder = docs().join(page);
    let blocks = blocks(page, text);
    let named = blocks.iter().filter_map(|block| {
        let (_, file) = block.language.split_once(' ').filter(|(_, word)| word.contains('.'))?;
        let content = fs::read_to_string(folder.join(file)).unwrap_or_default();
        (content != block.text).then(|| format!("line {}: the file {file} is another", block.line))
    });
    named.collect()
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut in_console = false;
    for (position, line) in text.lines().enumerate() {
        let hidden = line.strip_prefix("<!-- run: ").and_then(|rest| rest.strip_suffix(" -->"));
        let (command, shown) = match (hidden, line.strip_prefix("$ ")) {
            (Some(command), _) => (command, None),
            (None, Some(command)) if in_console => (command, Some(Vec::new())),
            _ => {
                if line.starts_with("```") {
                    in_console = line == "```console";
                } else if let (true, Some(step)) = (in_console, steps.last_mut()) {
                    step.shown.get_or_insert_default().push(line.to_owned());
                }
                continue;
            }
        };
        steps.push(Step { line: position + 1, command: command.to_owned(), shown });
    }
    steps
}

/// Runs the commands; what each printed.
fn run(page: &str, steps: &[Step]) -> Vec<String> {
    let folder = place(page);
    let mut script = PRELUDE.to_owned();
    for step in steps {
        script.push_str(&format!("printf '{MARK}'\n{{ {}\n}} 2>&1\n", step.command));
    }
    let parent = folder.parent().expect("a folder has one");
    let (script_file, output_file) = (parent.join("script.sh"), parent.join("output.txt"));
    fs::write(&script_file, script).expect("writing the commands");
    let output = File::create(&output_file).expect("creating the file of the output");
    let program = Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().expect("a folder has it");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.arg(&script_file).current_dir(&folder).stdin(Stdio::null()).stdout(output);
    shell.env("PATH", path).env("REPOSITORY", docs().join(".."));
    shell.env("THALWEG_SERVER__LISTEN", "127.0.0.1:0");
    shell.status().expect("starting bash");
    let printed = fs::read(&output_file).expect("reading the output");
    let _ = fs::remove_dir_all(parent);
    String::from_utf8_lossy(&printed).split(MARK).skip(1).map(str::to_owned).collect()
}

/// A copy of the folder of a page, below a short path: sockets have no room for long ones.
fn place(page: &str) -> PathBuf {
    let name = format!("thalweg-{}-{}", std::process::id(), page.replace('/', "-"));
    let folder = std::env::temp_dir().join(name).join("files");
    fs::create_dir_all(&folder).expect("a temporary folder");
    if docs().join(page).is_dir() {
        copy_examples(&docs().join(page), &folder);
    }
    folder
}

/// What is shown and was not printed, or the other way round.
fn difference(shown: &[String], printed: &str) -> Option<String> {
    let mut printed: Vec<String> =
        printed.lines().map(even).filter(|line| !line.is_empty()).collect();
    let mut shown: Vec<String> = shown.iter().map(|line| even(line)).collect();
    shown.retain(|line| !line.is_empty());
    let is_partial = shown.iter().any(|line| line == "…");
    shown.retain(|line| line != "…");
    // Lines that leave nothing open choose first.
    shown.sort_by_key(|line| line.contains('…'));
    for line in &shown {
        let Some(position) = printed.iter().position(|other| fits(line, other)) else {
            return Some(format!("`{line}` was not printed"));
        };
        printed.remove(position);
    }
    let more = printed.first().filter(|_| !is_partial)?;
    Some(format!("`{more}` is not shown"))
}

/// A line with single blanks, and with rules of a table one character long.
fn even(line: &str) -> String {
    let mut line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    while line.contains("──") {
        line = line.replace("──", "─");
    }
    line
}

/// True if a line is what a pattern with `…` says.
fn fits(pattern: &str, line: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('…') else { return pattern == line };
    let Some(mut line) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, behind)) = line.split_once(part) else { return false };
        line = behind;
    }
    line.ends_with(last)
}
