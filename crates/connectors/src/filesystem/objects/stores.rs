//! Which schemes there are, and how the store of a path is reached.
//!
//! | path | store | feature |
//! |---|---|---|
//! | `s3://BUCKET/KEY`, `s3a://…` | S3 and what speaks like it | `s3` |
//! | `gs://BUCKET/KEY` | Google Cloud Storage | `gcs` |
//! | `abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`, `abfss://…` | Azure | `azure` |
//! | `http://HOST/PATH`, `https://…` | a web server, for reading | `web` |
//! | `memory://NAME/KEY` | memory of this process, for tests | |
//!
//! Settings of the session (`s3.endpoint` and their like) come before the usual variables of the
//! environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`). Options of tables have neither: a table says where
//! its files are, and not who may read them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::memory::InMemory;
use thalweg_core::connector::{Access, TableRequest};
use thalweg_core::{Error, Result};

use super::client::Objects;
#[cfg(feature = "remote")]
use super::guard::Guard;

/// What helps where a store refuses.
pub const CREDENTIALS: &str = "the credentials must allow it: 's3.access-key' and 's3.secret-key', or the variables of the \
     environment (AWS_…, GOOGLE_…, AZURE_…)";

/// The schemes with what they need and whether they can be written.
const SCHEMES: &[(&str, &str, bool)] = &[
    ("s3", "s3", true),
    ("s3a", "s3", true),
    ("gs", "gcs", true),
    ("abfs", "azure", true),
    ("abfss", "azure", true),
    ("http", "web", false),
    ("https", "web", false),
    ("memory", "", true),
];

/// The stores in memory of this process, by name.
static MEMORY: Mutex<Option<HashMap<String, Arc<InMemory>>>> = Mutex::new(None);

/// A path in parts.
struct Url<'a> {
    scheme: &'a str,
    /// The bucket, or what stands in its place.
    authority: &'a str,
}

/// True if a path is no path of this machine.
pub fn is_url(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| scheme != "file")
}

/// True if files can be written to places with this path.
pub fn writes(path: &str) -> bool {
    let scheme = path.split_once("://").map_or("", |(scheme, _)| scheme);
    SCHEMES.iter().any(|(known, _, writes)| *known == scheme && *writes)
}

/// Checks that a path of a table names a store that this build can talk to, and may talk to.
///
/// # Errors
/// If it does not.
pub fn check(request: &TableRequest, path: &str) -> Result<()> {
    check_url(&request.access, path).map_err(|error| error.about_table(&request.table))
}

fn check_url(access: &Access, path: &str) -> Result<()> {
    remote::check(access, &parse(path)?)
}

fn parse(path: &str) -> Result<Url<'_>> {
    let (scheme, rest) = path.split_once("://").unwrap_or(("", path));
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    let known = || SCHEMES.iter().map(|(scheme, ..)| *scheme).filter(|scheme| *scheme != "memory");
    let Some((_, _, _)) = SCHEMES.iter().find(|(known, ..)| *known == scheme) else {
        let list = known().collect::<Vec<_>>().join("://, ");
        return Err(Error::unsupported(format!("there are no files at '{scheme}://'"))
            .hint(format!("there are {list}:// and paths of this machine")));
    };
    if authority.is_empty() {
        return Err(Error::plan(format!("'{path}' names no bucket"))
            .hint(format!("write {scheme}://bucket/folder/")));
    }
    let has_user = authority.contains('@') && !scheme.starts_with("abfs");
    if has_user || authority.contains(':') && !scheme.starts_with("http") {
        return Err(Error::plan("a path has no credentials in it").hint(CREDENTIALS));
    }
    if scheme.starts_with("http") && key.contains(['?', '#']) {
        return Err(Error::unsupported("a path with a query ('?') or a fragment ('#')")
            .hint("name a file that the server has under a plain path"));
    }
    Ok(Url { scheme, authority })
}

impl Objects {
    /// The store that a path of a table names; `None` for a path of this machine.
    ///
    /// # Errors
    /// If this build does not have its client, its settings are wrong, or it may not be talked to.
    pub fn of(request: &TableRequest, path: &str) -> Result<Option<Arc<Objects>>> {
        if !is_url(path) {
            return Ok(None);
        }
        let opened = open(&request.access, path).map_err(|error| error.about_table(&request.table));
        opened.map(Arc::new).map(Some)
    }
}

/// Opens the store of a path.
///
/// # Errors
/// If this build does not have its client, its settings are wrong, or it may not be talked to.
pub fn open(access: &Access, path: &str) -> Result<Objects> {
    check_url(access, path)?;
    let url = parse(path)?;
    let base = format!("{}://{}", url.scheme, url.authority);
    if url.scheme != "memory" {
        return remote::open(access, &url, base);
    }
    let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let objects = stores.get_or_insert_default().entry(url.authority.to_owned()).or_default();
    Ok(Objects::new(objects.clone(), Some(objects.clone()), base))
}

#[cfg(not(feature = "remote"))]
mod remote {
    use super::{Access, Objects, Result, Url, missing};

    pub fn check(_: &Access, url: &Url<'_>) -> Result<()> {
        if url.scheme == "memory" { Ok(()) } else { Err(missing(url)) }
    }

    pub fn open(_: &Access, url: &Url<'_>, _: String) -> Result<Objects> {
        Err(missing(url))
    }
}

#[cfg(feature = "remote")]
mod remote {
    use object_store::ObjectStore;
    use object_store::multipart::MultipartStore;

    use super::{Access, Arc, Error, Guard, Objects, Result, Url, missing};

    type Opened = (Arc<dyn ObjectStore>, Option<Arc<dyn MultipartStore>>);

    pub fn check(access: &Access, url: &Url<'_>) -> Result<()> {
        let Some((host, port)) = host(access, url)? else { return Ok(()) };
        access.targets.check(&host, port)
    }

    /// The host that a path leads to.
    fn host(access: &Access, url: &Url<'_>) -> Result<Option<(String, u16)>> {
        match url.scheme {
            "memory" => Ok(None),
            #[cfg(feature = "s3")]
            "s3" | "s3a" => host_of(&super::s3::endpoint(access)).map(Some),
            #[cfg(feature = "gcs")]
            "gs" => Ok(Some(("storage.googleapis.com".to_owned(), 443))),
            #[cfg(feature = "azure")]
            "abfs" | "abfss" => {
                let account = url.authority.rsplit('@').next().unwrap_or(url.authority);
                Ok(Some((account.replace(".dfs.", ".blob."), 443)))
            }
            #[cfg(feature = "web")]
            "http" | "https" => host_of(&format!("{}://{}", url.scheme, url.authority)).map(Some),
            _ => {
                let _ = access;
                Err(missing(url))
            }
        }
    }

    #[cfg(any(feature = "s3", feature = "web"))]
    fn host_of(text: &str) -> Result<(String, u16)> {
        let wrong = |_| Error::plan(format!("'{text}' is no address of a server"));
        let url = reqwest::Url::parse(text).map_err(wrong)?;
        let port = url.port_or_known_default().unwrap_or(443);
        Ok((url.host_str().unwrap_or_default().to_owned(), port))
    }

    pub fn open(access: &Access, url: &Url<'_>, base: String) -> Result<Objects> {
        // Fails if it was done before, by us or by the program that we are part of.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (store, uploads) = client(access, url, &base)?;
        Ok(Objects::new(store, uploads, base))
    }

    fn client(access: &Access, url: &Url<'_>, base: &str) -> Result<Opened> {
        let targets = &access.targets;
        let refused = |error: object_store::Error| {
            Error::plan(format!("'{base}' cannot be used: {error}")).hint(super::CREDENTIALS)
        };
        match url.scheme {
            #[cfg(feature = "s3")]
            "s3" | "s3a" => {
                let builder = super::s3::builder(access, url.authority)?;
                let allows_http = super::s3::endpoint(access).starts_with("http://");
                let guard = Guard::new(targets.clone(), allows_http);
                both(builder.with_http_connector(guard).build().map_err(refused)?)
            }
            #[cfg(feature = "gcs")]
            "gs" => {
                let builder = object_store::gcp::GoogleCloudStorageBuilder::from_env();
                let builder = builder.with_bucket_name(url.authority);
                let guard = Guard::new(targets.clone(), false);
                both(builder.with_http_connector(guard).build().map_err(refused)?)
            }
            #[cfg(feature = "azure")]
            "abfs" | "abfss" => {
                let builder = object_store::azure::MicrosoftAzureBuilder::from_env();
                let guard = Guard::new(targets.clone(), false);
                let builder = builder.with_url(format!("{base}/")).with_http_connector(guard);
                both(builder.build().map_err(refused)?)
            }
            #[cfg(feature = "web")]
            "http" | "https" => {
                let guard = Guard::new(targets.clone(), url.scheme == "http");
                let builder = object_store::http::HttpBuilder::new().with_url(base);
                let store = builder.with_http_connector(guard).build().map_err(refused)?;
                Ok((Arc::new(store), None))
            }
            _ => {
                let _ = (targets, refused);
                Err(missing(url))
            }
        }
    }

    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
    #[expect(clippy::unnecessary_wraps, reason = "as the other arms")]
    fn both(store: impl ObjectStore + MultipartStore) -> Result<Opened> {
        let store = Arc::new(store);
        Ok((store.clone(), Some(store)))
    }
}

fn missing(url: &Url<'_>) -> Error {
    let feature =
        SCHEMES.iter().find(|(scheme, ..)| *scheme == url.scheme).map_or("", |found| found.1);
    Error::unsupported(format!("this build of Thalweg does not speak '{}://'", url.scheme))
        .hint(format!("build it with the feature '{feature}', or copy the files to this machine"))
}

/// The settings of S3, under Flink's names.
#[cfg(feature = "s3")]
mod s3 {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key};

    use super::{Access, Result};

    fn setting<'a>(access: &'a Access, name: &str) -> Option<&'a str> {
        access.stores.get(name).map(String::as_str)
    }

    /// The server, with `http://` or `https://`.
    pub fn endpoint(access: &Access) -> String {
        let env = AmazonS3Builder::from_env();
        let configured = setting(access, "s3.endpoint").map(str::to_owned);
        let configured = configured.or_else(|| env.get_config_value(&Key::Endpoint));
        match configured {
            Some(endpoint) if endpoint.contains("://") => endpoint,
            Some(endpoint) => format!("https://{endpoint}"),
            None => {
                let region = setting(access, "s3.region").map(str::to_owned);
                let region = region.or_else(|| env.get_config_value(&Key::Region));
                let region = region.unwrap_or_else(|| "us-east-1".to_owned());
                format!("https://s3.{region}.amazonaws.com")
            }
        }
    }

    pub fn builder(access: &Access, bucket: &str) -> Result<AmazonS3Builder> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let has_endpoint = setting(access, "s3.endpoint").is_some()
            || builder.get_config_value(&Key::Endpoint).is_some();
        if has_endpoint {
            builder = builder.with_endpoint(endpoint(access));
        }
        if let Some(region) = setting(access, "s3.region") {
            builder = builder.with_region(region);
        }
        let names_bucket = setting(access, "s3.path-style-access") == Some("false");
        if names_bucket && has_endpoint {
            builder = builder.with_endpoint(endpoint(access).replacen(
                "://",
                &format!("://{bucket}."),
                1,
            ));
        }
        builder = builder.with_virtual_hosted_style_request(names_bucket);
        let secret =
            |name: &str| setting(access, name).map(|text| access.secrets.resolve(text)).transpose();
        if let Some(key) = secret("s3.access-key")? {
            builder = builder.with_access_key_id(key.expose());
        }
        if let Some(key) = secret("s3.secret-key")? {
            builder = builder.with_secret_access_key(key.expose());
        }
        Ok(builder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_name_no_store_are_refused() {
        let request = TableRequest { table: "t".to_owned(), ..TableRequest::default() };
        for path in ["ftp://host/a", "s3://", "memory:///a", "s3://key:secret@bucket/a"] {
            let error = check(&request, path).expect_err(path);
            assert!(error.help().is_some(), "{path}: {error}");
            assert!(!error.message().contains("secret"), "{error}");
        }
        assert!(check(&request, "memory://name/a").is_ok());
        assert!(is_url("s3://b/a") && !is_url("file:///a") && !is_url("a/b"));
        assert!(writes("s3a://b/") && !writes("https://host/"));
    }
}
