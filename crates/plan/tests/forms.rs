//! Which of the forms of Flink's dialect are taken here: `tests/forms/forms.tsv`, line by line.
//!
//! Each line has a form and an example of it, whether a Flink takes it, and whether it is taken
//! here. A form that is taken here and is marked as missing fails the test as well, so that the
//! list and the shares in docs/differences-from-flink.md never lag behind. After a change
//! `THALWEG_WRITE_FORMS=1` writes both.
//!
//! Statements and queries are planned, not run: golden cases compare their results.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use thalweg_core::{ErrorKind, Result};
use thalweg_plan::Planner;
use thalweg_plan::ast::{Statement, StatementKind};
use thalweg_plan::parser::parse_script;

use support::planner;

/// Families that are left out on purpose: their forms do not count.
const LEFT_OUT: &str = "left out";
/// Where the shares stand in the page.
const BEGIN: &str = "<!-- forms -->\n";
const END: &str = "<!-- end of forms -->\n";

/// A line of the list.
struct Form {
    group: String,
    name: String,
    /// `yes`, or what Flink has against it.
    flink: String,
    /// `yes`, `left out`, or what is missing.
    here: String,
    sql: String,
}

impl Form {
    fn of(line: &str) -> Form {
        let [group, name, flink, here, sql]: [&str; 5] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{line}"));
        let [group, name, flink, here, sql] = [group, name, flink, here, sql].map(str::to_owned);
        Form { group, name, flink, here, sql }
    }

    fn line(&self) -> String {
        let Form { group, name, flink, here, sql } = self;
        format!("{group}\t{name}\t{flink}\t{here}\t{sql}\n")
    }

    /// True if Flink takes it, and its family is not left out.
    fn counts(&self) -> bool {
        self.flink == "yes" && self.here != LEFT_OUT
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn execute(planner: &mut Planner, statement: &Statement) -> Result<()> {
    match &statement.kind {
        StatementKind::Insert(_) | StatementKind::StatementSet(_) | StatementKind::Select(_) => {
            planner.rehearse(statement).map(drop)
        }
        StatementKind::Explain(explained) => planner.explain_details(explained).map(drop),
        _ => planner.execute_ddl(statement).map(drop),
    }
}

/// Plans a form over the tables of the list. `@DIR@` is a folder with a jar, `f.jar`.
fn taken(tables: &Planner, sql: &str) -> Result<()> {
    let mut planner = tables.fork();
    for statement in parse_script(&sql.replace("@DIR@", env!("CARGO_TARGET_TMPDIR")))? {
        execute(&mut planner, &statement)?;
    }
    Ok(())
}

/// The groups in order, and of each how many forms Flink takes and how many of these are taken.
fn shares(forms: &[Form]) -> Vec<(String, usize, usize)> {
    let mut shares: Vec<(String, usize, usize)> = Vec::new();
    for form in forms.iter().filter(|form| form.counts()) {
        if shares.last().is_none_or(|(group, ..)| *group != form.group) {
            shares.push((form.group.clone(), 0, 0));
        }
        let (_, all, here) = shares.last_mut().expect("one was pushed");
        *all += 1;
        *here += usize::from(form.here == "yes");
    }
    shares
}

/// The table of the page, and what is missing.
fn table(forms: &[Form]) -> String {
    let mut text =
        String::from("| forms | Flink takes | of these here | share |\n|---|---|---|---|\n");
    for (group, all, here) in shares(forms) {
        let percent = 100.0 * here as f64 / all as f64;
        let _ = writeln!(text, "| {group} | {all} | {here} | {percent:.1} % |");
    }
    let missing: Vec<String> = forms
        .iter()
        .filter(|form| form.counts() && form.here != "yes")
        .map(|form| form.name.clone())
        .collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "\nMissing are: {}.", missing.join("; "));
    }
    text
}

#[test]
fn the_forms_that_are_taken_are_those_of_the_list() {
    let folder = root().join("tests/forms");
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("f.jar"), "").expect("a jar");
    let list = folder.join("forms.tsv");
    let text = fs::read_to_string(&list).expect("the list");
    let mut forms: Vec<Form> = text.lines().map(Form::of).collect();
    let mut tables = planner("/");
    let declarations = fs::read_to_string(folder.join("tables.sql")).expect("the tables");
    for statement in parse_script(&declarations).expect("they are declarations") {
        execute(&mut tables, &statement).expect("each is taken");
    }
    let mut wrong = Vec::new();
    for form in &mut forms {
        let found = match taken(&tables, &form.sql) {
            Ok(()) => "yes".to_owned(),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Internal, "{}: {error}", form.name);
                error.message().replace(['\t', '\n'], " ")
            }
        };
        if form.here == LEFT_OUT {
            continue;
        }
        if (found == "yes") != (form.here == "yes") {
            wrong.push(format!("{} ({}): {found}", form.name, form.group));
        }
        form.here = found;
    }
    let page = root().join("docs/differences-from-flink.md");
    let text = fs::read_to_string(&page).expect("the page");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a place for the shares");
    let (shown, behind) = rest.split_once(END).expect("the place has an end");
    let wanted = table(&forms);
    if std::env::var_os("THALWEG_WRITE_FORMS").is_some() {
        fs::write(&list, forms.iter().map(Form::line).collect::<String>()).expect("the list");
        let text = format!("{before}{BEGIN}{wanted}{END}{behind}");
        fs::write(&page, text).expect("the page");
        return;
    }
    assert!(wrong.is_empty(), "the list says otherwise of these:\n{}", wrong.join("\n"));
    assert_eq!(shown, wanted, "THALWEG_WRITE_FORMS=1 writes the shares into the page");
}

/// Shares that were reached. What falls below them was lost.
#[test]
fn no_share_falls() {
    let text = fs::read_to_string(root().join("tests/forms/forms.tsv")).expect("the list");
    let forms: Vec<Form> = text.lines().map(Form::of).collect();
    let least = [("statements", 100), ("clauses and types", 100), ("functions and operators", 100)];
    let shares = shares(&forms);
    assert_eq!(shares.len(), least.len());
    for ((group, all, here), (name, percent)) in shares.iter().zip(least) {
        assert_eq!(group, name);
        assert!(here * 100 >= all * percent, "{group}: {here} of {all} are below {percent} %");
    }
}
