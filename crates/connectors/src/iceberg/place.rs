//! The folder of a table. That a catalog of type `hadoop` has is laid out like this; where the
//! catalog is a server ([`Catalog`]) that one keeps the metadata, and names the folder.
//!
//! ```text
//! WAREHOUSE/DATABASE/TABLE/metadata/v7.metadata.json     what the table is; the newest counts
//!                                   version-hint.text    about which one that is
//!                                   snap-….avro, ….avro  lists of lists of files, lists of files
//!                          data/…                        rows
//! ```
//!
//! A commit is the file of the next version, which must not be there: of two writers one is
//! refused, and tries again behind the other. On a disk a file gets its name by a link, in a store
//! it is put on condition.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use thalweg_core::connector::{TableRequest, Waker};
use thalweg_core::shim::unique_name;
use thalweg_core::{Error, Result};

use super::options::{CatalogPlace, IcebergOptions};
use super::schema::TableLayout;
use crate::filesystem::{Files, Objects, folder_of, if_there, table_files};

const HINT: &str = "version-hint.text";

/// A catalog that is a server, and a table in it.
pub trait Catalog: Send + Sync {
    /// The newest version; `None` if there is no table.
    ///
    /// # Errors
    /// If the server cannot be asked, or refuses to say.
    fn newest(&self) -> Result<Option<Version>>;

    /// Creates the table with these properties, unless it is there.
    ///
    /// # Errors
    /// If the server refuses.
    fn create(&self, layout: &TableLayout, properties: Value) -> Result<()>;

    /// Makes a version the newest one; false if another writer was faster.
    ///
    /// # Errors
    /// If the server cannot be asked, or refuses.
    fn commit(&self, version: &Version) -> Result<bool>;

    /// Says what ends calls for the table's files, once it is known where they lie.
    fn files_are_ended_by(&self, waker: Option<Waker>);

    /// Ends all calls.
    fn cancel(&self);
}

/// The folder of a table.
#[derive(Clone)]
pub struct TablePlace {
    pub files: Arc<dyn Files>,
    /// Empty until a catalog that is a server has named it ([`TablePlace::locate`]).
    pub root: PathBuf,
    /// The store that it lies in, if it does.
    pub objects: Option<Arc<Objects>>,
    catalog: Option<Arc<dyn Catalog>>,
    /// What that server calls the folder.
    named: Option<String>,
}

/// What a table is, and which version of that it is.
pub struct Version {
    pub number: u64,
    pub metadata: Value,
    /// How many of its snapshots, the last ones, the version before has not.
    pub new_snapshots: usize,
}

impl TablePlace {
    /// The folder of a table.
    ///
    /// # Errors
    /// If it lies outside the allowed folders, or in a store that cannot be talked to.
    pub fn of(request: &TableRequest, options: &IcebergOptions<'_>) -> Result<TablePlace> {
        let (path, catalog) = match &options.catalog {
            CatalogPlace::Folder { warehouse } => {
                let warehouse = warehouse.trim_end_matches('/');
                (format!("{warehouse}/{}/{}", options.database, options.table), None)
            }
            CatalogPlace::Server { .. } => (String::new(), Some(options.server(request)?)),
        };
        let (files, objects) = table_files(request, &path)?;
        let root = if catalog.is_some() { PathBuf::new() } else { folder_of(request, &path)? };
        Ok(TablePlace { files, root, objects, catalog, named: None })
    }

    /// Finds out where the table lies, if a server is to say it and has such a table.
    ///
    /// # Errors
    /// If it cannot be asked, or the table lies where this job may not go.
    pub fn locate(&mut self, request: &TableRequest) -> Result<()> {
        let Some(catalog) = &self.catalog else { return Ok(()) };
        let Some(version) = catalog.newest()? else { return Ok(()) };
        let location = version.metadata["location"].as_str().unwrap_or_default();
        let location = location.trim_end_matches('/');
        let path = plain(location);
        (self.files, self.objects) = table_files(request, &path)?;
        self.root = folder_of(request, &path)?;
        self.named = Some(location.to_owned());
        catalog.files_are_ended_by(self.files.canceller());
        Ok(())
    }

    /// Creates the table in a catalog that is a server. False if the catalog is none.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn create_at_server(&self, layout: &TableLayout, properties: Value) -> Result<bool> {
        let Some(catalog) = &self.catalog else { return Ok(false) };
        catalog.create(layout, properties).map(|()| true)
    }

    /// What ends all calls that may wait.
    pub fn canceller(&self) -> Option<Waker> {
        match self.catalog.clone() {
            None => self.files.canceller(),
            Some(catalog) => Some(Arc::new(move || catalog.cancel())),
        }
    }

    /// What messages call it.
    pub fn shown(&self) -> String {
        match self.root.as_os_str().is_empty() {
            true => "the catalog".to_owned(),
            false => self.root.display().to_string(),
        }
    }

    /// What metadata call this folder.
    pub fn location(&self) -> String {
        if let Some(named) = &self.named {
            return named.clone();
        }
        match self.objects {
            Some(_) => self.root.to_string_lossy().into_owned(),
            None => format!("file://{}", self.root.display()),
        }
    }

    /// What metadata call a file.
    pub fn location_of(&self, path: &Path) -> String {
        let inside = path.strip_prefix(&self.root).unwrap_or(path);
        format!("{}/{}", self.location(), inside.display())
    }

    /// Where a file lies that metadata name so.
    ///
    /// # Errors
    /// If it does not lie in the table's folder.
    pub fn path_of(&self, metadata: &Value, location: &str) -> Result<PathBuf> {
        let base = metadata["location"].as_str().unwrap_or_default();
        let (location_plain, base) = (plain(location), plain(base));
        let inside = location_plain
            .strip_prefix(base.trim_end_matches('/'))
            .and_then(|inside| inside.strip_prefix('/'))
            .filter(|inside| !inside.split('/').any(|name| name == ".."));
        inside.map(|inside| self.root.join(inside)).ok_or_else(|| {
            Error::unsupported("the table has files that do not lie in its folder")
                .in_file(location)
                .hint("tables that were moved or that others' files were added to cannot be read")
        })
    }

    /// A new name in the folder of metadata.
    pub fn new_metadata_path(&self, begin: &str) -> PathBuf {
        let (first, second) = (unique_name(), unique_name());
        self.root.join("metadata").join(format!("{begin}{first}{second}.avro"))
    }

    fn version_path(&self, number: u64) -> PathBuf {
        self.root.join("metadata").join(format!("v{number}.metadata.json"))
    }

    /// The newest version; `None` if there is no table.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn newest(&self) -> Result<Option<Version>> {
        if let Some(catalog) = &self.catalog {
            return catalog.newest();
        }
        let hint = self.root.join("metadata").join(HINT);
        let hinted = match self.length(&hint)? {
            None => None,
            Some(_) => {
                let text = self.read(&hint)?;
                std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok())
            }
        };
        let hinted = match hinted {
            Some(number) if self.length(&self.version_path(number))?.is_some() => Some(number),
            _ => self.highest()?,
        };
        let Some(mut number) = hinted else { return Ok(None) };
        // Whoever has committed may not have come to the hint.
        while self.length(&self.version_path(number + 1))?.is_some() {
            number += 1;
        }
        let path = self.version_path(number);
        let metadata = serde_json::from_slice(&self.read(&path)?).map_err(|error| {
            Error::data(format!("this is no metadata of a table: {error}"))
                .in_file(path.display().to_string())
        })?;
        Ok(Some(Version { number, metadata, new_snapshots: 0 }))
    }

    /// The highest version that is listed.
    fn highest(&self) -> Result<Option<u64>> {
        let folder = self.root.join("metadata");
        let names = if_there(self.files.list(&folder)).map_err(|e| failed(&folder, &e))?;
        let Some(names) = names else { return Ok(None) };
        let number = |(name, _): &(String, bool)| -> Option<u64> {
            name.strip_prefix('v')?.strip_suffix(".metadata.json")?.parse().ok()
        };
        Ok(names.iter().filter_map(number).max())
    }

    /// Makes a version the newest one; false if another writer has made one of its number.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn commit(&self, version: &Version) -> Result<bool> {
        if let Some(catalog) = &self.catalog {
            return catalog.commit(version);
        }
        let path = self.version_path(version.number);
        let text = serde_json::to_vec(&version.metadata).expect("JSON is text");
        if !self.files.put_new(&path, &text).map_err(|e| failed(&path, &e))? {
            return Ok(false);
        }
        // A hint that is too low costs a look; one that is missing a listing.
        let hint = self.root.join("metadata").join(HINT);
        let _ = self.files.replace(&hint, version.number.to_string().as_bytes());
        Ok(true)
    }

    /// Puts a new file in its place, durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.files.replace(path, bytes).map_err(|e| failed(path, &e))
    }

    /// What a file holds.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.read(path).map_err(|e| failed(path, &e))
    }

    fn length(&self, path: &Path) -> Result<Option<u64>> {
        self.files.length(path).map_err(|e| failed(path, &e))
    }
}

/// A location as a path or URL that is written in one way.
fn plain(location: &str) -> String {
    let local = location.strip_prefix("file://").or(location.strip_prefix("file:"));
    match local {
        Some(path) => path.to_owned(),
        None => location.replacen("s3a://", "s3://", 1),
    }
}

/// The error of a file of a table.
pub fn failed(path: &Path, error: &io::Error) -> Error {
    crate::filesystem::write_failed(path, error)
}
