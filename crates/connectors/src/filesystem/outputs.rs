//! No output of a job names what the job reads, or what another of its outputs writes; none
//! replaces what earlier jobs of the run have read or written; and jobs of a run that run at the
//! same time neither read nor write what one of them writes.
//!
//! Places are compared by their canonical paths, and files that have several names by what they are
//! (device and inode). An output stands for two names: its own and that of the file while it is not
//! complete. Files inside a folder that is read count as read, unless readers pass over their
//! names; so does what a pattern would match.
//!
//! What it does not do: it looks at what is there when it is called. That two outputs do not meet
//! later is a matter of claims (`claim.rs`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thalweg_core::connector::{JobTables, TableRequest};
use thalweg_core::{Error, Result, Span};

use super::files::PARTIAL;
use super::objects::is_url;
use super::options::{BadData, FileOptions};
use super::paths::{self, Target, canonical_file, is_hidden};
use super::writer::partial;

/// A file of the run that is no table's: the statements, a recording.
#[derive(Clone, Debug)]
pub struct OtherFile {
    /// What it is, as messages call it.
    pub what: String,
    /// Where.
    pub path: PathBuf,
    /// True if the run writes it.
    pub is_written: bool,
}

/// A place that is written.
struct WrittenPlace {
    what: String,
    path: PathBuf,
    is_folder: bool,
    /// What is there stays, and more is added.
    adds: bool,
    /// Dead letters, which the jobs of a run add to.
    is_letters: bool,
    span: Span,
}

impl WrittenPlace {
    /// A single file that is no table's.
    fn file(what: String, path: PathBuf) -> Self {
        let span = Span::default();
        WrittenPlace { what, path, is_folder: false, adds: false, is_letters: false, span }
    }
}

/// A place that is read.
struct ReadPlace<'a> {
    what: String,
    place: PlacePattern,
    /// What lists its files.
    request: Option<(&'a TableRequest, &'a str)>,
}

enum PlacePattern {
    File(PathBuf),
    Folder(PathBuf),
    Pattern(glob::Pattern),
}

/// What the file tables of a job read and write.
#[derive(Default)]
struct JobPlaces<'a> {
    reads: Vec<ReadPlace<'a>>,
    writes: Vec<WrittenPlace>,
}

impl<'a> JobPlaces<'a> {
    fn add(&mut self, tables: &'a JobTables) -> Result<()> {
        for request in tables.reads.iter().filter(|request| is_file_table(request)) {
            let options = FileOptions::read(request, false)?;
            if let BadData::DeadLetter(path) = options.bad_data {
                let what = format!("'dead-letter.path' of table {}", request.table);
                let file = WrittenPlace::file(what, letters_path(request, path)?);
                self.writes.push(WrittenPlace { is_letters: true, ..file });
            }
            self.reads.extend(read(request, options.path)?);
        }
        for (request, span) in tables.writes.iter().filter(|(request, _)| is_file_table(request)) {
            self.writes.extend(written(request, *span)?);
        }
        Ok(())
    }

    fn of(tables: &'a JobTables) -> Result<Self> {
        let mut places = JobPlaces::default();
        places.add(tables)?;
        Ok(places)
    }
}

/// Checks the file tables among those of a job, and the other files of the run.
///
/// # Errors
/// If an output names what is read, or what another output writes.
pub fn check_files(tables: &JobTables, others: &[OtherFile]) -> Result<()> {
    let JobPlaces { mut reads, mut writes } = JobPlaces::of(tables)?;
    for other in others {
        let path = canonical_file(&other.path)?;
        let what = other.what.clone();
        match other.is_written {
            true => writes.push(WrittenPlace::file(what, path)),
            false => reads.push(ReadPlace { what, place: PlacePattern::File(path), request: None }),
        }
    }
    if let Some(written) = &tables.snapshots {
        let folder = paths::snapshot_location(written, (&tables.base_dir, &tables.allowed_roots))?;
        let what = "the folder of snapshots ('execution.checkpointing.dir')".to_owned();
        // No output can name what is kept elsewhere than in files.
        if !folder.contains("://") {
            reads.push(ReadPlace {
                what,
                place: PlacePattern::Folder(folder.into()),
                request: None,
            });
        }
    }
    for (at, written) in writes.iter().enumerate() {
        if let Some(read) = reads.iter().find(|read| read.is_touched_by(written)) {
            return Err(refused(written, &read.what, read.request.map(|_| "reads")));
        }
        if let Some(other) = writes[..at].iter().find(|other| other.meets(written)) {
            return Err(refused(written, &other.what, Some("writes")));
        }
    }
    Ok(())
}

/// Checks the file tables of a job against those of earlier jobs of the run. Where those are done
/// when it starts it may read what they have written, and add to it, but replace neither that nor
/// what they have read.
///
/// # Errors
/// If one of its outputs would.
pub fn check_files_after(earlier: &[JobTables], job: &JobTables) -> Result<()> {
    let mut before = JobPlaces::default();
    earlier.iter().try_for_each(|tables| before.add(tables))?;
    for written in JobPlaces::of(job)?.writes.iter().filter(|written| !written.adds) {
        // Of a result that was read again it matters that it is a result.
        let is_lost = |other: &&WrittenPlace| {
            !(written.is_letters && other.is_letters) && other.meets(written)
        };
        if let Some(other) = before.writes.iter().find(is_lost) {
            return Err(replaced(written, &other.what, "wrote").hint(
                "put both INSERTs into one EXECUTE STATEMENT SET, add to the table ('sink.append' = 'true'), or name another file",
            ));
        }
        if let Some(read) = before.reads.iter().find(|read| read.is_touched_by(written)) {
            return Err(replaced(written, &read.what, "read")
                .hint("name another file: what a run writes must lie apart from its inputs"));
        }
    }
    Ok(())
}

/// Checks the file tables of a job against those of another one that runs at the same time.
///
/// # Errors
/// If one of them reads or writes what the other writes.
pub fn check_files_at_once(running: &JobTables, job: &JobTables) -> Result<()> {
    let (theirs, own) = (JobPlaces::of(running)?, JobPlaces::of(job)?);
    for written in &own.writes {
        if let Some(other) = theirs.writes.iter().find(|other| other.meets(written)) {
            return Err(at_once(written, &written.what, "writes", (&other.what, "writes")));
        }
        if let Some(read) = theirs.reads.iter().find(|read| read.is_touched_by(written)) {
            return Err(at_once(written, &written.what, "writes", (&read.what, "reads")));
        }
    }
    for read in &own.reads {
        if let Some(written) = theirs.writes.iter().find(|written| read.is_touched_by(written)) {
            return Err(at_once(written, &read.what, "reads", (&written.what, "writes")));
        }
    }
    Ok(())
}

/// The error of a place that two jobs have to do with at the same time.
fn at_once(place: &WrittenPlace, own: &str, does: &str, (other, did): (&str, &str)) -> Error {
    Error::plan(format!("{own} {does} what {other} {did}"))
        .in_file(place.path.display().to_string())
}

fn is_file_table(request: &TableRequest) -> bool {
    request.options.get("connector").is_some_and(|connector| connector == "filesystem")
}

/// Where the dead letters of a table go.
///
/// # Errors
/// If that is no file, or lies outside the allowed folders.
pub fn letters_path(request: &TableRequest, path: &str) -> Result<PathBuf> {
    if is_url(path) {
        return Err(Error::plan(format!(
            "table {}: 'dead-letter.path' cannot be in an object store",
            request.table
        ))
        .hint("name a file of this machine"));
    }
    match paths::target(request, path, "jsonl")? {
        Target::File(path) => Ok(path),
        Target::Stdout => Err(Error::plan(format!(
            "table {}: 'dead-letter.path' cannot be standard output",
            request.table
        ))
        .hint("name a file")),
    }
}

fn written(request: &TableRequest, span: Span) -> Result<Option<WrittenPlace>> {
    let options = FileOptions::read(request, true)?;
    let what = format!("table {}", request.table);
    let is_folder = !request.partitioned_by.is_empty() || paths::is_folder(request, options.path);
    let path = match is_folder {
        true => paths::folder(request, options.path)?,
        false => match paths::target(request, options.path, options.extension())? {
            Target::File(path) => path,
            Target::Stdout => return Ok(None),
        },
    };
    let adds = options.writing.append;
    Ok(Some(WrittenPlace { what, path, is_folder, adds, is_letters: false, span }))
}

fn read<'a>(request: &'a TableRequest, path: &'a str) -> Result<Option<ReadPlace<'a>>> {
    if path == "-" {
        return Ok(None);
    }
    if is_url(path) {
        let url = path.trim_end_matches('/');
        let place = match paths::has_wildcard(path) {
            true => PlacePattern::Pattern(as_pattern(url, path)?),
            false => PlacePattern::Folder(url.into()),
        };
        // What lies there is not looked at: objects have one name each.
        let what = format!("table {}", request.table);
        return Ok(Some(ReadPlace { what, place, request: None }));
    }
    let full = paths::full_path(request, path);
    let place = match full.exists() || !paths::has_wildcard(path) {
        true => {
            let canonical = canonical_file(&full)?;
            if canonical.is_dir() || path.ends_with('/') {
                PlacePattern::Folder(canonical)
            } else {
                PlacePattern::File(canonical)
            }
        }
        false => PlacePattern::Pattern(pattern(&full)?),
    };
    let what = format!("table {}", request.table);
    Ok(Some(ReadPlace { what, place, request: Some((request, path)) }))
}

/// A pattern with links resolved in the folders in front of its first wildcard.
fn pattern(full: &Path) -> Result<glob::Pattern> {
    let is_plain = |above: &&Path| !paths::has_wildcard(&above.to_string_lossy());
    let folder = full.ancestors().find(is_plain).unwrap_or(Path::new("/"));
    let rest = full.strip_prefix(folder).unwrap_or(full);
    let folder = glob::Pattern::escape(&canonical_file(folder)?.to_string_lossy());
    let text = Path::new(&folder).join(rest);
    as_pattern(&text.to_string_lossy(), &full.to_string_lossy())
}

fn as_pattern(text: &str, written: &str) -> Result<glob::Pattern> {
    glob::Pattern::new(text).map_err(|error| Error::plan(format!("path '{written}': {error}")))
}

impl WrittenPlace {
    /// The names that are written, and what they are links to.
    fn names(&self) -> Vec<PathBuf> {
        if self.is_folder {
            return vec![self.path.clone()];
        }
        let own = [self.path.clone(), partial(&self.path)];
        let linked = own.iter().filter_map(|path| path.canonicalize().ok());
        let linked: Vec<PathBuf> = linked.collect();
        own.into_iter().chain(linked).collect()
    }

    /// True if the same file is written by another output, or one lies in the folder of the other.
    fn meets(&self, other: &WrittenPlace) -> bool {
        match (self.is_folder, other.is_folder) {
            (false, false) => {
                let names = other.names();
                self.names().iter().any(|own| names.iter().any(|name| is_same(own, name)))
            }
            (true, _) if other.path.starts_with(&self.path) => true,
            (_, true) => self.path.starts_with(&other.path),
            _ => false,
        }
    }
}

impl ReadPlace<'_> {
    /// True if an output would change, or add to, what is read here.
    fn is_touched_by(&self, written: &WrittenPlace) -> bool {
        let names = written.names();
        let is_named = match &self.place {
            PlacePattern::File(file) if written.is_folder => file.starts_with(&written.path),
            PlacePattern::File(file) => names.iter().any(|name| is_same(name, file)),
            PlacePattern::Folder(folder) => {
                let is_read = |name: &PathBuf| name.strip_prefix(folder).is_ok_and(is_visible);
                names.iter().any(is_read)
                    || (written.is_folder && folder.starts_with(&written.path))
            }
            PlacePattern::Pattern(pattern) => names.iter().any(|name| matches(pattern, name)),
        };
        is_named || self.has_link_to(written)
    }

    /// True if a file that is read has the output's name as another one of its own, or lies in its
    /// folder.
    fn has_link_to(&self, written: &WrittenPlace) -> bool {
        let names = written.names();
        let has_others = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.nlink() > 1);
        if matches!(self.place, PlacePattern::File(_))
            || !(written.is_folder || names.iter().any(has_others))
        {
            return false;
        }
        let files = self.request.map(|(request, path)| paths::present(request, path));
        let files = files.and_then(Result::ok).unwrap_or_default();
        files.iter().filter_map(|file| file.path.as_ref()).any(|file| match written.is_folder {
            true => file.starts_with(&written.path),
            false => names.iter().any(|name| is_same(name, file)),
        })
    }
}

/// True if readers of a folder do not pass over what lies at this place in it.
fn is_visible(below: &Path) -> bool {
    below.components().all(|name| {
        let name = name.as_os_str().to_string_lossy();
        // The name of a file that is not complete stands for the one that it will have.
        let name = name.strip_suffix(PARTIAL).unwrap_or(&name);
        !is_hidden(name) || name.contains('=')
    })
}

/// True if a pattern matches a file or a folder above it.
fn matches(pattern: &glob::Pattern, path: &Path) -> bool {
    let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
    let is_passed_over = path.file_name().is_some_and(|name| is_hidden(&name.to_string_lossy()));
    !is_passed_over && path.ancestors().any(|above| pattern.matches_path_with(above, options))
}

/// True if two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    a == b || identity(a).is_some_and(|own| identity(b) == Some(own))
}

/// The error of an output that names what something else reads or writes, or is.
fn refused(written: &WrittenPlace, other: &str, does: Option<&str>) -> Error {
    let what = &written.what;
    let message = match does {
        Some(_) if what == other => format!("{what} is read and written by the same job"),
        Some(does) => format!("{what} names what {other} {does}"),
        None => format!("{what} names {other}"),
    };
    Error::plan(message).in_file(written.path.display().to_string()).at(written.span).hint(
        "name another file: what a job writes must lie apart from its inputs and its other outputs",
    )
}

/// The error of an output that takes the place of what an earlier statement read or wrote.
fn replaced(written: &WrittenPlace, other: &str, did: &str) -> Error {
    let what = &written.what;
    let message = match what == other {
        true => format!("{what} would replace what an earlier statement of this run {did}"),
        false => format!("{what} would replace what {other} of an earlier statement {did}"),
    };
    Error::plan(message).in_file(written.path.display().to_string()).at(written.span)
}
