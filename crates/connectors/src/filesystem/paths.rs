//! Which files a table means, and that none lies outside the allowed folders.
//!
//! A path is a file, a folder, a glob or `-`. What is opened is always the canonical path, with
//! symbolic links followed, after it was found to lie inside an allowed root. Folders are read
//! with their sub-folders, in the order of the paths; names that begin with `.` or `_` and names
//! that end with `.partial` are unfinished or hidden and skipped, as Flink does.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use thalweg_core::connector::{TableRequest, near_miss};
use thalweg_core::{Error, Result};

use super::files::PARTIAL;
use super::input_file::InputFile;
use super::objects::is_url;
use super::stamp::Stamp;

/// Where a sink writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// This file.
    File(PathBuf),
}

/// The input files of a table, in the order in which they are read.
///
/// # Errors
/// If none matches a pattern, or one cannot be read or lies outside the allowed folders.
pub fn inputs(request: &TableRequest, path: &str) -> Result<Vec<InputFile>> {
    let files = present(request, path)?;
    if files.is_empty() && has_wildcard(path) && !full_path(request, path).exists() {
        let (table, pattern) = (&request.table, full_path(request, path));
        let message = format!("table {table}: no file matches '{}'", pattern.display());
        return Err(Error::io(message));
    }
    Ok(files)
}

/// The input files that there are now, in the order in which they are read; a pattern may match
/// none.
///
/// # Errors
/// If one cannot be read or lies outside the allowed folders.
pub fn present(request: &TableRequest, path: &str) -> Result<Vec<InputFile>> {
    if path == "-" {
        return Ok(vec![InputFile::stdin()]);
    }
    check_place(request, path)?;
    let roots = canonical_roots(request);
    let full = full_path(request, path);
    let mut files = Vec::new();
    if full.exists() || !has_wildcard(path) {
        collect(request, &roots, &full, &mut files)?;
    } else {
        expand_glob(request, &roots, &full, &mut files)?;
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    if !request.partitioned_by.is_empty() && !files.is_empty() {
        let root = full.canonicalize().map_err(|e| not_found(request, &full, &e))?;
        super::partitions::read_folders(request, &root, &mut files)?;
    }
    Ok(files)
}

/// The input files that there are now of a table that is followed. A single file may be missing,
/// as it is between the two steps of a rotation.
///
/// # Errors
/// If one cannot be read or lies outside the allowed folders.
pub fn followed(request: &TableRequest, path: &str) -> Result<Vec<InputFile>> {
    match present(request, path) {
        Err(_) if !has_wildcard(path) && !full_path(request, path).exists() => Ok(Vec::new()),
        files => files,
    }
}

/// The file in the folder of `path` that lies where this stamp says.
pub fn at_place(request: &TableRequest, path: &Path, stamp: Stamp) -> Option<InputFile> {
    for entry in fs::read_dir(path.parent()?).ok()?.flatten() {
        let found = entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|m| Stamp::of(&m));
        if found.is_some_and(|found| found.place() == stamp.place()) {
            let mut files = Vec::new();
            collect(request, &canonical_roots(request), &entry.path(), &mut files).ok()?;
            return files.pop();
        }
    }
    None
}

/// The file that a sink writes. A folder (or a path that ends with `/`) gets `part-0.EXTENSION`.
pub fn target(request: &TableRequest, path: &str, extension: &str) -> Result<Target> {
    if path == "-" {
        return Ok(Target::Stdout);
    }
    check_place(request, path)?;
    if has_wildcard(path) && !full_path(request, path).exists() {
        return Err(Error::plan(format!("table {}: cannot write to '{path}'", request.table))
            .hint("a path with * or ? is for reading only"));
    }
    if is_url(path) {
        let mut url = PathBuf::from(path.trim_end_matches('/'));
        if path.ends_with('/') {
            url.push(format!("part-0.{extension}"));
        }
        return Ok(Target::File(url));
    }
    let mut full = full_path(request, path);
    if path.ends_with('/') || full.is_dir() {
        full.push(format!("part-0.{extension}"));
    }
    let name = full.file_name().map(ToOwned::to_owned);
    let (Some(name), Some(parent)) = (name, full.parent()) else {
        return Err(Error::plan(format!("table {}: '{path}' is not a file", request.table)));
    };
    let parent = canonical_future(parent)?;
    check_inside(request, &canonical_roots(request), &parent, path)?;
    Ok(Target::File(parent.join(name)))
}

/// The folder that a partitioned table is written to.
pub fn folder(request: &TableRequest, path: &str) -> Result<PathBuf> {
    check_place(request, path)?;
    let full = full_path(request, path);
    if has_wildcard(path) && !full.exists() {
        return Err(Error::plan(format!("table {}: cannot write to '{path}'", request.table))
            .hint("a path with * or ? is for reading only"));
    }
    if is_url(path) {
        return Ok(PathBuf::from(path.trim_end_matches('/')));
    }
    let folder = canonical_future(&full)?;
    check_inside(request, &canonical_roots(request), &folder, path)?;
    if folder.is_file() {
        return Err(Error::plan(format!(
            "table {}: '{path}' is a file, but PARTITIONED BY needs a folder",
            request.table
        )));
    }
    Ok(folder)
}

/// True if a path means a folder to write to.
pub fn is_folder(request: &TableRequest, path: &str) -> bool {
    path.ends_with('/') || (!is_url(path) && full_path(request, path).is_dir())
}

/// True if a path is a pattern, unless something of that name is there.
pub fn has_wildcard(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// A path of a table as it was written, from the folder that relative ones start from.
pub fn full_path(request: &TableRequest, path: &str) -> PathBuf {
    let path = path.strip_prefix("file://").or(path.strip_prefix("file:")).unwrap_or(path);
    request.base_dir.join(path)
}

fn canonical_roots(request: &TableRequest) -> Vec<PathBuf> {
    request.allowed_roots.iter().filter_map(|root| root.canonicalize().ok()).collect()
}

fn check_inside(
    request: &TableRequest,
    roots: &[PathBuf],
    canonical: &Path,
    written: &str,
) -> Result<()> {
    if roots.iter().any(|root| canonical.starts_with(root)) {
        return Ok(());
    }
    if request.access.is_remote {
        return Err(lies_outside(request, written));
    }
    let folder = if canonical.is_dir() { Some(canonical) } else { canonical.parent() };
    Err(Error::plan(format!(
        "table {}: '{written}' ({}) lies outside the allowed folders",
        request.table,
        canonical.display()
    ))
    .hint(format!("allow it with --allow-path {}", folder.unwrap_or(canonical).display())))
}

/// Says nothing of what is there.
fn lies_outside(request: &TableRequest, written: &str) -> Error {
    let table = &request.table;
    Error::plan(format!("table {table}: '{written}' lies outside the allowed folders"))
        .hint("the server's option 'allowed-roots' names folders; others are not looked at")
}

/// Checks where a path leads before anything there is looked at, for statements of people who may
/// not know what is in other folders. Opens nothing.
///
/// # Errors
/// If it leads out of the allowed folders, whether or not something is there.
pub fn check_place(request: &TableRequest, path: &str) -> Result<()> {
    if !request.access.is_remote || path == "-" || is_url(path) {
        return Ok(());
    }
    let full = full_path(request, path);
    let is_plain = |part: &Component<'_>| !has_wildcard(&part.as_os_str().to_string_lossy());
    let plain: PathBuf = full.components().take_while(is_plain).collect();
    // Behind a wildcard it would depend on what is there.
    if full.components().skip_while(is_plain).any(|part| part == Component::ParentDir) {
        return Err(lies_outside(request, path));
    }
    check_inside(request, &canonical_roots(request), &canonical_future(&plain)?, path)
}

/// Adds a file, or the files of a folder.
fn collect(
    request: &TableRequest,
    roots: &[PathBuf],
    path: &Path,
    files: &mut Vec<InputFile>,
) -> Result<()> {
    let canonical = path.canonicalize().map_err(|e| not_found(request, path, &e))?;
    check_inside(request, roots, &canonical, &path.to_string_lossy())?;
    let metadata = fs::metadata(&canonical).map_err(|e| not_found(request, path, &e))?;
    if metadata.is_dir() {
        for entry in fs::read_dir(&canonical).map_err(|e| not_found(request, path, &e))? {
            let entry = entry.map_err(|e| not_found(request, path, &e))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_partition = !request.partitioned_by.is_empty() && name.contains('=');
            if is_hidden(&name) && !is_partition {
                continue;
            }
            let below = entry.path();
            // A link to a folder could lead in circles.
            if below.is_symlink() && below.is_dir() {
                return Err(Error::data(format!(
                    "table {}: {} is a symbolic link to a folder",
                    request.table,
                    below.display()
                ))
                .hint("name the folder that it points to, or remove the link"));
            }
            match collect(request, roots, &below, files) {
                // It was removed since the folder was listed.
                Err(_) if fs::symlink_metadata(&below).is_err() => {}
                collected => collected?,
            }
        }
        return Ok(());
    }
    let modified = metadata.modified().ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let base = request.base_dir.canonicalize().unwrap_or_default();
    let label = canonical.strip_prefix(&base).unwrap_or(&canonical);
    files.push(InputFile {
        label: Arc::from(label.to_string_lossy().as_ref()),
        name: canonical.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
        size: metadata.len(),
        modified_ms: since.map_or(0, |d| d.as_millis() as i64),
        stamp: Stamp::of(&metadata),
        head: Vec::new(),
        object: None,
        path: Some(canonical),
        partition: Vec::new(),
        filter: None,
    });
    Ok(())
}

fn expand_glob(
    request: &TableRequest,
    roots: &[PathBuf],
    pattern: &Path,
    files: &mut Vec<InputFile>,
) -> Result<()> {
    let pattern = pattern.to_string_lossy();
    let bad = |e: &dyn std::fmt::Display| {
        Error::plan(format!("table {}: path '{pattern}': {e}", request.table))
    };
    let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
    for entry in glob::glob_with(&pattern, options).map_err(|e| bad(&e))? {
        let path = entry.map_err(|e| bad(&e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !is_hidden(&name) {
            collect(request, roots, &path, files)?;
        }
    }
    Ok(())
}

/// True for names that readers pass over.
pub fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_']) || name.ends_with(PARTIAL)
}

fn not_found(request: &TableRequest, path: &Path, error: &std::io::Error) -> Error {
    let message = format!("table {}: cannot read {}: {error}", request.table, path.display());
    let error = Error::io(message);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return error };
    let Ok(entries) = fs::read_dir(parent) else { return error };
    let names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let names = names.iter().map(String::as_str).filter(|near| Path::new(near) != Path::new(name));
    match near_miss(&name.to_string_lossy(), names) {
        Some(near) => error.hint(format!("did you mean '{near}'?")),
        None => error.hint("relative paths start at the folder of the SQL file"),
    }
}

/// The canonical form of a file that need not exist yet: what it is a link to, if it is one.
///
/// # Errors
/// If a folder above it cannot be looked at.
pub fn canonical_file(path: &Path) -> Result<PathBuf> {
    if let Ok(canonical) = path.canonicalize() {
        return Ok(canonical);
    }
    let absolute = std::path::absolute(path)?;
    let folder = canonical_future(absolute.parent().unwrap_or(Path::new("/")))?;
    Ok(folder.join(absolute.file_name().unwrap_or_default()))
}

/// The canonical form of a folder that need not exist yet: its nearest existing ancestor with
/// links followed, and the rest, in which `..` is resolved by name.
fn canonical_future(path: &Path) -> Result<PathBuf> {
    let mut existing = path;
    while !existing.exists() {
        existing = match existing.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
    }
    let mut canonical = existing.canonicalize()?;
    let rest = path.strip_prefix(existing).unwrap_or(path);
    for component in rest.components() {
        match component {
            Component::Normal(name) => canonical.push(name),
            Component::ParentDir => {
                canonical.pop();
            }
            _ => {}
        }
    }
    Ok(canonical)
}

/// A place of snapshots as it was written, made whole: a folder starts from the first folder and
/// must lie in one of the others.
///
/// # Errors
/// If it lies outside.
pub fn snapshot_location(
    written: &str,
    (base_dir, allowed_roots): (&Path, &[PathBuf]),
) -> Result<String> {
    if written.contains("://") && !written.starts_with("file://") {
        return Ok(written.to_owned());
    }
    let request = TableRequest {
        table: "of snapshots ('execution.checkpointing.dir')".to_owned(),
        base_dir: base_dir.to_owned(),
        allowed_roots: allowed_roots.to_vec(),
        ..TableRequest::default()
    };
    Ok(folder(&request, written)?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(dir: &Path) -> TableRequest {
        TableRequest {
            table: "t".to_string(),
            base_dir: dir.to_path_buf(),
            allowed_roots: vec![dir.to_path_buf()],
            ..TableRequest::default()
        }
    }

    fn names(files: &[InputFile]) -> Vec<&str> {
        files.iter().map(|file| file.name.as_str()).collect()
    }

    #[test]
    fn folders_are_read_in_name_order_without_hidden_files() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["b.csv", "a.csv", ".h", "_SUCCESS", "c.csv.partial", "sub/z.csv", "c.csv"] {
            let path = dir.path().join("in").join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, "1").expect("a file");
        }
        let files = inputs(&request(dir.path()), "in").expect("files");
        assert_eq!(names(&files), ["a.csv", "b.csv", "c.csv", "z.csv"]);
        let files = inputs(&request(dir.path()), "in/[bc].csv").expect("files");
        assert_eq!(names(&files), ["b.csv", "c.csv"]);
        let error = inputs(&request(dir.path()), "in/x*.csv").expect_err("no match");
        assert!(error.message().contains("no file matches"));
    }

    #[test]
    fn nothing_outside_the_roots_is_touched() {
        let outside = tempfile::tempdir().expect("a folder");
        let dir = tempfile::tempdir().expect("a folder");
        let secret = outside.path().join("secret.csv");
        fs::write(&secret, "1").expect("a file");
        std::os::unix::fs::symlink(&secret, dir.path().join("link.csv")).expect("a link");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("folder")).expect("a link");
        let up = format!("../{}/secret.csv", outside.path().file_name().expect("name").display());
        for path in [secret.to_str().expect("UTF-8"), "link.csv", "folder/secret.csv", "*.csv", &up]
        {
            let error = inputs(&request(dir.path()), path).expect_err(path);
            assert!(error.is_plan_error(), "{path}: {error}");
            assert!(error.help().is_some_and(|help| help.contains("--allow-path")), "{path}");
        }
        for path in ["folder/out.csv", "../x/out.csv", "new/../../out.csv", "folder/"] {
            let error = target(&request(dir.path()), path, "csv").expect_err(path);
            assert!(error.is_plan_error(), "{path}: {error}");
        }
    }

    #[test]
    fn people_from_elsewhere_do_not_learn_what_is_outside() {
        let outside = tempfile::tempdir().expect("a folder");
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(outside.path().join("there.csv"), "1").expect("a file");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).expect("a link");
        let mut request = request(dir.path());
        request.access.is_remote = true;
        let said = |path: &str| {
            let errors = [
                check_place(&request, path).expect_err(path),
                inputs(&request, path).expect_err(path),
                target(&request, path, "csv").expect_err(path),
                folder(&request, path).expect_err(path),
            ];
            errors.map(|error| {
                assert!(!error.help().unwrap_or_default().contains("--"), "{error}");
                error.to_string().replace(path, "PATH")
            })
        };
        let elsewhere = outside.path().display().to_string();
        let missing = said(&format!("{elsewhere}/missing.csv"));
        assert!(missing[0].contains("outside"), "{missing:?}");
        for path in ["there.csv", "*.csv", "none-*.csv", "no/such/folder/x.csv", ""] {
            assert_eq!(said(&format!("{elsewhere}/{path}")), missing, "{path}");
        }
        for path in ["link/there.csv", "link/missing.csv", "*/../../x.csv", "../../../etc/passwd"] {
            assert_eq!(said(path)[0], missing[0], "{path}");
        }
        fs::write(dir.path().join("own.csv"), "1").expect("a file");
        assert_eq!(inputs(&request, "own.csv").expect("its own").len(), 1);
        assert_eq!(inputs(&request, "*.csv").expect("its own").len(), 1);
        check_place(&request, "new/folder/out.csv").expect("its own");
    }

    #[test]
    fn missing_files_name_their_neighbours() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("flights.csv"), "").expect("a file");
        let error = inputs(&request(dir.path()), "flihgts.csv").expect_err("missing");
        assert_eq!(error.help(), Some("did you mean 'flights.csv'?"));
    }

    #[test]
    fn targets_in_folders_are_parts() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a folder");
        let at = |path| target(&request(&root), path, "json").expect(path);
        assert_eq!(at("out/"), Target::File(root.join("out/part-0.json")));
        assert_eq!(at("new/deep/a.json"), Target::File(root.join("new/deep/a.json")));
        fs::create_dir(root.join("dir")).expect("a folder");
        assert_eq!(at("dir"), Target::File(root.join("dir/part-0.json")));
        assert_eq!(at("-"), Target::Stdout);
    }
}
