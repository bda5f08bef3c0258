//! The objects of a table.
//!
//! A path is an object, a folder (all objects whose names begin with it and a slash), or a pattern.
//! What readers of folders pass over they pass over here as well.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore};
use thalweg_core::connector::TableRequest;
use thalweg_core::{Error, Result};

use super::input_file::InputFile;
use super::objects::{CREDENTIALS, Object, Objects};
use super::partitions::read_folders;
use super::paths::{has_wildcard, is_hidden};
use super::stamp::Stamp;

impl Objects {
    /// The objects of a table, in the order in which they are read.
    ///
    /// # Errors
    /// If none is there, or the store cannot be asked.
    pub fn inputs(self: &Arc<Self>, request: &TableRequest, path: &str) -> Result<Vec<InputFile>> {
        let files = self.present(request, path)?;
        if files.is_empty() {
            let what = if has_wildcard(path) { "matches" } else { "lies at" };
            let message = format!("table {}: no object {what} '{path}'", request.table);
            return Err(Error::io(message).in_file(path));
        }
        Ok(files)
    }

    /// The objects that there are now, in the order in which they are read.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub fn present(self: &Arc<Self>, request: &TableRequest, path: &str) -> Result<Vec<InputFile>> {
        let found = self.find(path, !request.partitioned_by.is_empty());
        let found = found.map_err(|error| unreachable(path, &error))?;
        let mut files: Vec<InputFile> =
            found.into_iter().map(|found| self.input_file(found)).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        if !request.partitioned_by.is_empty() {
            read_folders(request, Path::new(path.trim_end_matches('/')), &mut files)?;
        }
        Ok(files)
    }

    fn find(&self, path: &str, is_partitioned: bool) -> io::Result<Vec<ObjectMeta>> {
        let (folder, pattern) = split_pattern(path)?;
        let root = self.key(Path::new(folder))?;
        let names_one = pattern.is_none() && !path.ends_with('/') && !root.as_ref().is_empty();
        if let Some(found) = if names_one { self.head(&root)? } else { None } {
            return Ok(vec![found]);
        }
        if self.uploads.is_none() {
            // A web server does not say what it has.
            return Ok(Vec::new());
        }
        let (store, own) = (self.store.clone(), root.clone());
        let found: Vec<ObjectMeta> =
            self.wait(async move { store.list(Some(&own)).try_collect().await })?;
        let is_read = |found: &ObjectMeta| {
            is_visible(&root, &found.location, is_partitioned)
                && pattern.as_ref().is_none_or(|pattern| self.matches(pattern, &found.location))
        };
        Ok(found.into_iter().filter(is_read).collect())
    }

    /// True if a pattern matches an object or a folder above it.
    fn matches(&self, pattern: &glob::Pattern, key: &Key) -> bool {
        let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
        let url = self.url(key).to_string_lossy().into_owned();
        let mut above = url.as_str();
        while above.len() > self.base.len() {
            if pattern.matches_with(above, options) {
                return true;
            }
            above = above.rsplit_once('/').map_or("", |(above, _)| above);
        }
        false
    }

    fn input_file(self: &Arc<Self>, found: ObjectMeta) -> InputFile {
        let path = self.url(&found.location);
        let label = path.to_string_lossy();
        let modified_ms = found.last_modified.timestamp_millis();
        let seen = [&found.e_tag, &found.version].map(|said| said.as_deref().unwrap_or_default());
        let time = modified_ms.to_string();
        // Where nothing else says which object it is, the time does.
        let version = if seen == [""; 2] { [time.as_str(), ""] } else { seen };
        InputFile {
            label: Arc::from(label.as_ref()),
            name: found.location.filename().unwrap_or_default().to_owned(),
            size: found.size,
            modified_ms,
            stamp: Some(Stamp::of_object(&label, found.size, version)),
            head: Vec::new(),
            object: Some(Object {
                objects: self.clone(),
                key: found.location,
                size: found.size,
                tag: found.e_tag,
            }),
            path: Some(path),
            partition: Vec::new(),
            filter: None,
        }
    }
}

/// The error of a store at a URL.
fn unreachable(url: &str, error: &io::Error) -> Error {
    let message = format!("cannot read: {error}");
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::io(message).in_file(url).hint(CREDENTIALS),
        _ => Error::io(message).in_file(url),
    }
}

/// The folder in front of the first wildcard of a path, and the pattern if there is one.
fn split_pattern(path: &str) -> io::Result<(&str, Option<glob::Pattern>)> {
    let Some(wildcard) = path.find(['*', '?', '[']) else {
        return Ok((path.trim_end_matches('/'), None));
    };
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let folder = path[..wildcard].rsplit_once('/').map_or("", |(folder, _)| folder);
    Ok((folder, Some(glob::Pattern::new(path).map_err(wrong)?)))
}

/// True if readers of a folder do not pass over an object in it. A name that ends with a slash is
/// what some tools make of an empty folder.
fn is_visible(root: &Key, key: &Key, is_partitioned: bool) -> bool {
    let Some(mut below) = key.prefix_match(root) else { return false };
    below.all(|name| {
        let name = name.as_ref();
        !is_hidden(name) || (is_partitioned && name.contains('='))
    })
}
