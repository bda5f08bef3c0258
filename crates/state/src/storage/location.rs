//! From the text of a location to a place.
//!
//! | location | place |
//! |---|---|
//! | `/var/state`, `state`, `file:///var/state` | a directory of this machine |
//! | `memory://NAME` | memory of this process, the same for everyone who says the same name; for tests |
//! | `test://NAME` | a directory behind calls that a test has put in the place of the operating system's ([`offer_files`]) |
//!
//! Other object stores are given by whoever can reach them ([`in_store`]).

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use object_store::memory::InMemory;
use thalweg_core::{Error, Result};

use super::{FileSystem, LocalStorage, ObjectStorage, Storage, SystemFiles};

/// The stores of this process, by name.
static MEMORY: Mutex<Option<HashMap<String, Arc<InMemory>>>> = Mutex::new(None);

/// What stands in the place of the operating system, by name.
static OFFERED: Mutex<BTreeMap<String, Arc<dyn FileSystem>>> = Mutex::new(BTreeMap::new());

/// From now on snapshots at `test://NAME` are kept in a root folder behind these calls. For tests
/// of what a machine that goes off leaves; there is no lock.
#[doc(hidden)]
pub fn offer_files(name: &str, files: Arc<dyn FileSystem>) {
    let mut offered = OFFERED.lock().unwrap_or_else(PoisonError::into_inner);
    offered.insert(name.to_owned(), files);
}

/// The place of a job: its storage and, where it lies on this machine, its directory.
///
/// # Errors
/// If the location is of no known kind, or not complete.
pub(crate) fn open(location: &str, job: &str) -> Result<(Arc<dyn Storage>, Option<PathBuf>)> {
    let folder = folder_name(job)?;
    let Some((scheme, rest)) = location.split_once("://") else {
        return local(Path::new(location), &folder);
    };
    match scheme {
        "file" => local(file_path(location, rest)?, &folder),
        "memory" => {
            let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            let stores = stores.get_or_insert_default();
            let objects = stores.entry(rest.to_owned()).or_default().clone();
            let location = format!("{location}/{folder}");
            Ok((Arc::new(ObjectStorage::new(objects, &location, &folder)?), None))
        }
        "test" => {
            let offered = OFFERED.lock().unwrap_or_else(PoisonError::into_inner);
            let files = offered.get(rest).ok_or_else(|| {
                Error::plan(format!("'{location}': nobody offers files of this name"))
                    .hint("this place is for tests; give a directory")
            })?;
            let root = Path::new("/").join(folder);
            Ok((Arc::new(LocalStorage::new(root, Arc::clone(files))), None))
        }
        _ => Err(Error::plan(format!("'{location}': no snapshots are kept in '{scheme}'"))
            .hint("give a directory, or s3://bucket/prefix")),
    }
}

/// The names of the jobs that have a folder at a location, in order.
///
/// # Errors
/// If the location is no directory of this machine, or cannot be read.
pub(crate) fn jobs(location: &str) -> Result<Vec<String>> {
    let path = match location.split_once("://") {
        None => Path::new(location),
        Some(("file", rest)) => file_path(location, rest)?,
        Some(_) => {
            return Err(Error::unsupported(format!("jobs can't be listed in '{location}'"))
                .hint("name the job whose snapshots you want to see"));
        }
    };
    let failed = |error: std::io::Error| {
        Error::io(format!("can't list the jobs in {}: {error}", path.display()))
            .hint("is it the folder that 'execution.checkpointing.dir' names?")
    };
    let mut jobs = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let has_snapshots = entry.path().join(crate::manifest::SNAPSHOTS).is_dir();
        let name = entry.file_name().to_str().and_then(job_name);
        jobs.extend(name.filter(|_| has_snapshots));
    }
    jobs.sort_unstable();
    Ok(jobs)
}

fn file_path<'a>(location: &str, rest: &'a str) -> Result<&'a Path> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if path.starts_with('/') {
        return Ok(Path::new(path));
    }
    Err(Error::plan(format!("'{location}' names no path of this machine"))
        .hint("write file:///a/path, with three slashes, or the path alone"))
}

fn local(location: &Path, folder: &str) -> Result<(Arc<dyn Storage>, Option<PathBuf>)> {
    if location.as_os_str().is_empty() {
        return Err(Error::plan("the place of the snapshots has no name").hint("give a directory"));
    }
    let root = std::path::absolute(location)?.join(folder);
    Ok((Arc::new(LocalStorage::new(root.clone(), Arc::new(SystemFiles))), Some(root)))
}

/// The place of a job in a store: what lies below the path of a URL.
///
/// # Errors
/// If the job has no name; as [`ObjectStorage::new`].
pub(crate) fn in_store(
    objects: Arc<dyn ObjectStore>,
    url: &str,
    job: &str,
) -> Result<Arc<dyn Storage>> {
    let folder = folder_name(job)?;
    let url = url.trim_end_matches('/');
    let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    let prefix = format!("{}/{folder}", path.map_or("", |(_, path)| path));
    Ok(Arc::new(ObjectStorage::new(objects, &format!("{url}/{folder}"), &prefix)?))
}

/// The folder of a job: its name, with `%XX` for bytes that mean something in a path.
///
/// # Errors
/// If the job has no name.
pub(crate) fn folder_name(job: &str) -> Result<String> {
    if job.is_empty() {
        let error = Error::plan("a job with snapshots needs a name");
        return Err(error.hint("SET 'pipeline.name' = 'a name';"));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let mut folder = String::with_capacity(job.len());
    for (position, byte) in job.bytes().enumerate() {
        // A dot in front would be a hidden folder, or no folder at all.
        if is_plain(byte) && (position, byte) != (0, b'.') {
            folder.push(char::from(byte));
        } else {
            folder.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(folder)
}

/// The job that a folder is of; `None` if it is of none.
pub(crate) fn job_name(folder: &str) -> Option<String> {
    let mut name = Vec::new();
    let mut rest = folder.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        name.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    let name = String::from_utf8(name).ok()?;
    // What is written in another way is no folder of ours.
    folder_name(&name).is_ok_and(|own| own == folder).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn no_name_of_a_job_leads_out_of_the_directory() {
        for (job, folder) in [
            ("flights", "flights"),
            ("..", "%2E."),
            ("a/b", "a%2Fb"),
            (".hidden", "%2Ehidden"),
            ("50%", "50%25"),
            ("Zürich", "Z%C3%BCrich"),
        ] {
            assert_eq!(folder_name(job).expect("a name"), folder);
            assert_eq!(job_name(folder).as_deref(), Some(job));
        }
        assert!(folder_name("").is_err());
        for folder in ["", ".git", "a b", "50%2", "%zz", "%FF"] {
            assert_eq!(job_name(folder), None, "{folder}");
        }
    }

    #[test]
    fn places_that_are_unknown_or_not_complete_are_refused() {
        for location in ["", "ftp://host/x", "file://host", "file://"] {
            let error = open(location, "job").err().expect(location);
            assert!(error.is_plan_error() && error.help().is_some(), "{error}");
        }
    }

    #[test]
    fn memory_of_one_name_is_one_place() {
        let (first, _) = open("memory://one-name", "job").expect("memory");
        let (second, _) = open("memory://one-name", "job").expect("memory");
        let (other_job, _) = open("memory://one-name", "other").expect("memory");
        first.put("snapshots/a", Bytes::from_static(b"x")).expect("written");
        assert_eq!(second.get("snapshots/a").expect("read"), Some(Bytes::from_static(b"x")));
        assert_eq!(other_job.get("snapshots/a").expect("read"), None);
        assert_eq!(second.list("snapshots").expect("listed").len(), 1);
        assert_eq!(second.place_of("snapshots/a"), "memory://one-name/job/snapshots/a");
    }
}
