//! COMPILE PLAN, EXECUTE PLAN and ADD JAR: the files that statements name besides those of tables.
//!
//! A file lies in an allowed folder, with links followed; nothing is said of what lies elsewhere.
//! Compiling writes nothing: whoever runs the statement does. A rehearsal notes the plans that
//! would be written, so that the statements behind them find them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use thalweg_core::{Error, Result};

use super::Planner;
use crate::ast::{CompilePlan, Declaration, Insert, Name, Statement, StatementKind};
use crate::bind::Binder;
use crate::catalog::path::{DatabasePath, dotted};
use crate::catalog::{LateData, TextRows};
use crate::compiled_plan::{CompiledPlan, PlanTable};

/// The longest plan that is read, in bytes.
const PLAN_BYTES_MAX: u64 = 16 << 20;

/// A plan that is to be written.
#[derive(Clone, Debug)]
pub struct PlanFile {
    /// The file, in an allowed folder.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// A plan that is to be executed.
pub struct ExecutedPlan {
    /// Knows what the plan says of tables, views, functions and settings.
    pub planner: Planner,
    /// INSERT, or a statement set.
    pub statement: Statement,
    /// COMPILE AND EXECUTE PLAN has found no file: it is written before the plan runs.
    pub written: Option<PlanFile>,
}

impl PlanFile {
    /// Writes the file, and the folders that it lies in.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&self) -> Result<()> {
        let path = &self.path;
        let failed = |error: std::io::Error| {
            Error::io(format!("cannot write the plan {}: {error}", path.display()))
        };
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        fs::write(&partial, &self.text).map_err(failed)?;
        fs::rename(&partial, path).map_err(failed)
    }
}

impl Planner {
    /// Carries out COMPILE PLAN but for the file. `None`: there is one, which stays.
    ///
    /// # Errors
    /// Those of planning; if the file may not be written.
    pub fn compile_plan(&self, compile: &CompilePlan) -> Result<Option<PlanFile>> {
        let path = self.allowed_file(&compile.path)?;
        if self.has_plan(&path) {
            if compile.if_not_exists {
                return Ok(None);
            }
            if !self.settings().recompiles_plans() {
                return Err(is_there(&compile.path));
            }
        }
        Ok(Some(PlanFile { path, text: self.compiled(compile)?.to_json() }))
    }

    /// The plan that EXECUTE PLAN or COMPILE AND EXECUTE PLAN runs; `None`: it is another
    /// statement. Opens nothing but the file.
    ///
    /// # Errors
    /// If the file is missing or no plan, a table has changed since, or the plan makes no sense any
    /// more.
    pub fn executed_plan(&self, statement: &Statement) -> Result<Option<ExecutedPlan>> {
        match &statement.kind {
            StatementKind::ExecutePlan(name) => {
                let path = self.allowed_file(name)?;
                self.loaded(name, &path).map(Some)
            }
            StatementKind::CompilePlan(compile) if compile.is_executed => {
                let path = self.allowed_file(&compile.path)?;
                if self.has_plan(&path) {
                    return self.loaded(&compile.path, &path).map(Some);
                }
                let plan = self.compiled(compile)?;
                let written = Some(PlanFile { path, text: plan.to_json() });
                let (planner, _) = self.declared(&compile.path, plan)?;
                let statement = (*compile.statement).clone();
                Ok(Some(ExecutedPlan { planner, statement, written }))
            }
            _ => Ok(None),
        }
    }

    /// Notes a plan that would be written.
    pub(super) fn note_plan(&mut self, compile: &CompilePlan) -> Result<()> {
        if compile.is_executed {
            let statement = Statement {
                kind: StatementKind::CompilePlan(compile.clone()),
                span: compile.path.span,
            };
            let written = self.executed_plan(&statement)?.and_then(|executed| executed.written);
            self.noted_plans.extend(written.map(|file| (file.path, file.text)));
            return Ok(());
        }
        let written = self.compile_plan(compile)?;
        self.noted_plans.extend(written.map(|file| (file.path, file.text)));
        Ok(())
    }

    fn has_plan(&self, path: &Path) -> bool {
        self.noted_plans.contains_key(path) || path.exists()
    }

    fn compiled(&self, compile: &CompilePlan) -> Result<CompiledPlan> {
        let inserts = inserts_of(&compile.statement)
            .ok_or_else(|| Error::internal("INSERTs are compiled, and nothing else"))?;
        self.lower_inserts(inserts, true)?;
        let session = self.session();
        let binder = self.binder(&session);
        for insert in inserts {
            binder.bind_insert(insert)?;
        }
        if let LateData::Table(table) = self.settings().late_data() {
            binder.sink_table(&Name { text: table, span: compile.path.span })?;
        }
        let mut tables = Vec::new();
        for key in binder.named_tables() {
            let Some(definition) = self.catalog.table(&key) else { continue };
            let described = self.described(&binder, &key)?.rows;
            tables.push(PlanTable { definition: definition.clone(), described });
        }
        Ok(CompiledPlan::new(&self.catalog, &compile.text, tables, &binder.named_views()))
    }

    /// DESCRIBE of a table by its key.
    fn described(&self, binder: &Binder<'_>, key: &str) -> Result<TextRows> {
        let (path, name) = DatabasePath::default().object(key);
        let text = dotted(&[path.catalog, path.database, name]);
        self.describe(binder, &Name { text, span: thalweg_core::Span::default() })
    }

    fn loaded(&self, name: &Name, path: &Path) -> Result<ExecutedPlan> {
        let text = match self.noted_plans.get(path) {
            Some(text) => text.clone(),
            None => read(path).map_err(|error| of_plan(name, &error))?,
        };
        let plan = CompiledPlan::from_json(&text).map_err(|error| of_plan(name, &error))?;
        let (planner, statement) = self.declared(name, plan)?;
        let inserts = inserts_of(&statement)
            .ok_or_else(|| of_plan(name, &Error::plan("it holds no INSERT")))?;
        // What is wrong from here on has a place in the text of the plan, which nobody sees.
        planner.lower_inserts(inserts, true).map_err(|error| of_plan(name, &error))?;
        Ok(ExecutedPlan { planner, statement, written: None })
    }

    /// A planner that knows what the plan knows, and the statement.
    fn declared(&self, name: &Name, plan: CompiledPlan) -> Result<(Planner, Statement)> {
        let session = self.session();
        let binder = self.binder(&session);
        for table in &plan.tables {
            let key = &table.definition.name.text;
            if self.catalog.table(key).is_some() {
                let now = self.described(&binder, key)?.rows;
                if now != table.described {
                    return Err(has_changed(name, key, (&table.described, &now)));
                }
            }
        }
        let mut planner = self.fork();
        let statement =
            plan.declare(&mut planner.catalog).map_err(|error| of_plan(name, &error))?;
        planner.find_access();
        Ok((planner, statement))
    }

    /// Checks the file that ADD JAR names.
    pub(super) fn check_jar(&self, declaration: &Declaration) -> Result<()> {
        let Declaration::AddJar(file) = declaration else { return Ok(()) };
        let refused =
            |why: &str| Error::plan(format!("the jar '{}' {why}", file.text)).at(file.span);
        let path = self.allowed_file(file)?;
        if path.is_dir() {
            return Err(refused("is a folder"));
        }
        if path.extension().is_none_or(|extension| extension != "jar") {
            return Err(refused("does not end with .jar"));
        }
        if !path.exists() {
            return Err(refused("is not there"));
        }
        Ok(())
    }

    /// The file that a statement names, with links followed.
    fn allowed_file(&self, name: &Name) -> Result<PathBuf> {
        let written = &name.text;
        let plain = written.strip_prefix("file://").or_else(|| written.strip_prefix("file:"));
        let plain = plain.unwrap_or(written);
        if plain.contains("://") {
            return Err(Error::unsupported(format!("'{written}' is no file of this machine"))
                .hint("write a path, or file:///…")
                .at(name.span));
        }
        let full = self.options.base_dir.join(plain);
        let place = place_of(&full).filter(|place| {
            let roots = self.options.allowed_roots.iter();
            roots.filter_map(|root| root.canonicalize().ok()).any(|root| place.starts_with(root))
        });
        place.ok_or_else(|| {
            let error =
                Error::plan(format!("'{written}' lies outside the allowed folders")).at(name.span);
            error.hint(match self.options.is_remote {
                true => {
                    "the server's option 'allowed-roots' names folders; others are not looked at"
                        .to_owned()
                }
                false => {
                    let folder = full.parent().unwrap_or(&full);
                    format!("allow it with --allow-path {}", folder.display())
                }
            })
        })
    }
}

/// The canonical form of a path of which the end need not exist. `None` where that end climbs.
fn place_of(path: &Path) -> Option<PathBuf> {
    let existing =
        |folder: &Path| folder.canonicalize().ok().map(|found| (folder.to_owned(), found));
    let (existing, found) = path.ancestors().find_map(existing)?;
    let rest = path.strip_prefix(&existing).ok()?;
    if rest.components().any(|part| !matches!(part, Component::Normal(_))) {
        return None;
    }
    Some(if rest.as_os_str().is_empty() { found } else { found.join(rest) })
}

fn read(path: &Path) -> Result<String> {
    let meta = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::plan("there is no such file").hint("COMPILE PLAN writes one")
        }
        _ => Error::io(format!("it cannot be read: {error}")),
    })?;
    if meta.len() > PLAN_BYTES_MAX {
        return Err(Error::plan(format!("it has more than {PLAN_BYTES_MAX} bytes")));
    }
    fs::read_to_string(path).map_err(|error| Error::io(format!("it cannot be read: {error}")))
}

fn inserts_of(statement: &Statement) -> Option<&[Insert]> {
    match &statement.kind {
        StatementKind::Insert(insert) => Some(std::slice::from_ref(insert)),
        StatementKind::StatementSet(inserts) => Some(inserts),
        _ => None,
    }
}

/// The error of a plan, at the name of its file.
fn of_plan(name: &Name, error: &Error) -> Error {
    let message = format!("the plan '{}': {}", name.text, error.message());
    let own = Error::new(error.kind(), message).at(name.span);
    error.help().into_iter().fold(own, |own, help| own.hint(help))
}

fn is_there(name: &Name) -> Error {
    Error::plan(format!("there is a file '{}' already", name.text))
        .hint("delete it, write IF NOT EXISTS behind it, or SET 'table.plan.force-recompile' = 'true'")
        .at(name.span)
}

/// A table has other columns than when the plan was compiled.
fn has_changed(name: &Name, table: &str, (then, now): (&[Vec<String>], &[Vec<String>])) -> Error {
    let list = |rows: &[Vec<String>]| {
        let shown = rows.iter().map(|row| {
            let parts = row.iter().enumerate().filter(|(_, part)| !part.is_empty());
            let parts = parts.map(|(place, part)| match (place, part.as_str()) {
                (2, "TRUE") => String::new(),
                (2, _) => "NOT NULL".to_owned(),
                _ => part.clone(),
            });
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    Error::plan(format!(
        "the table {table} has changed since the plan '{}' was compiled: ({}) then, ({}) now",
        name.text,
        list(then),
        list(now)
    ))
    .hint("compile the plan again, or bring the columns, the key and the watermark back")
    .at(name.span)
}
