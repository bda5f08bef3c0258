//! The web page: files that were built from `web/` and are part of the program.
//!
//! **Invariants**
//! - Its files are the same for everybody and hold no data, so they need no token. What the page
//!   shows it asks of `/v1`, with a token.
//! - No script runs but `app.js` and what it loads from here. Styles that a script makes carry the
//!   number that the page was sent with, which no other answer has.
//!
//! With `--page-dir` the files are read from a folder, again for each request: for those who change
//! the page.

use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::app::App;
use crate::problem::{Outcome, Problem};
use crate::tokens::hexadecimal;

/// Stands in `index.html` where the number of the answer belongs.
const NONCE: &str = "NONCE-OF-THIS-ANSWER";
/// The file that `/` answers.
const INDEX: &str = "index.html";

/// A file of the page.
struct PageFile {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! page_file {
    ($name:literal, $kind:literal) => {
        PageFile { name: $name, kind: $kind, bytes: include_bytes!(concat!("../../page/", $name)) }
    };
}

static FILES: [PageFile; 6] = [
    page_file!("index.html", "text/html; charset=utf-8"),
    page_file!("app.js", "text/javascript; charset=utf-8"),
    page_file!("app.css", "text/css; charset=utf-8"),
    page_file!("editor.js", "text/javascript; charset=utf-8"),
    page_file!("icon.svg", "image/svg+xml"),
    page_file!("licences.txt", "text/plain; charset=utf-8"),
];

/// The digests of the files that are part of the program, in their order.
static TAGS: LazyLock<Vec<String>> =
    LazyLock::new(|| FILES.iter().map(|file| tag(file.bytes)).collect());

/// The addresses of the page.
pub(super) fn addresses() -> impl Iterator<Item = String> {
    std::iter::once("/".to_owned()).chain(FILES.iter().map(|file| format!("/{}", file.name)))
}

/// True for an address of the page.
pub(super) fn is_page(path: &str) -> bool {
    path == "/" || path.strip_prefix('/').is_some_and(|name| find(name).is_some())
}

fn find(name: &str) -> Option<usize> {
    FILES.iter().position(|file| file.name == name)
}

/// A file of the page.
pub(super) async fn file(app: App, uri: Uri, headers: HeaderMap) -> Outcome<Response> {
    let name = Some(uri.path().trim_start_matches('/')).filter(|name| !name.is_empty());
    let place = find(name.unwrap_or(INDEX))
        .ok_or_else(|| Problem::new(404, "no-such-address", "the page has no such file"))?;
    let file = &FILES[place];
    let Some(folder) = app.server.config.page_dir.clone() else {
        return answer(file, file.bytes, &TAGS[place], &headers);
    };
    let bytes = app.ask(move |_| {
        let path = folder.join(file.name);
        std::fs::read(&path).map_err(|error| {
            let detail = format!("can't read {}: {error}", path.display());
            Problem::new(404, "no-such-address", detail)
        })
    });
    let bytes = bytes.await?;
    answer(file, &bytes, &tag(&bytes), &headers)
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{}\"", hexadecimal(&Sha256::digest(bytes)[..16]))
}

fn answer(file: &PageFile, bytes: &[u8], tag: &str, asked: &HeaderMap) -> Outcome<Response> {
    if file.name == INDEX {
        return page(bytes);
    }
    let known = asked.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => bytes.to_vec().into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    // A name is the same in the next version, so a browser asks whether it still has the file.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

/// The page itself, which is never kept: its number counts once.
fn page(bytes: &[u8]) -> Outcome<Response> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Problem::new(500, "no-randomness", error.to_string()))?;
    let nonce = hexadecimal(&random);
    let text = String::from_utf8_lossy(bytes).replace(NONCE, &nonce);
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; \
         connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_folder_holds_the_files_of_the_program_and_no_others() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let entries = std::fs::read_dir(folder).expect("the folder of the page");
        let mut found: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let mut known: Vec<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        found.sort();
        known.sort();
        assert_eq!(found, known, "`make page` builds them, FILES lists them");
    }

    #[test]
    fn each_page_has_a_number_of_its_own_that_its_policy_names() {
        let sent = || {
            let response = page(format!("<script nonce=\"{NONCE}\">").as_bytes()).expect("a page");
            let policy = response.headers()[header::CONTENT_SECURITY_POLICY].clone();
            policy.to_str().expect("text").to_owned()
        };
        let (first, second) = (sent(), sent());
        assert_ne!(first, second);
        assert!(first.contains("style-src 'self' 'nonce-"), "{first}");
        assert!(!first.contains("unsafe"), "{first}");
    }

    #[test]
    fn a_file_that_a_browser_has_is_not_sent_again() {
        let place = find("app.js").expect("it is there");
        let asked = HeaderMap::new();
        let first =
            answer(&FILES[place], FILES[place].bytes, &TAGS[place], &asked).expect("a file");
        assert_eq!(first.status(), StatusCode::OK);
        let known = first.headers()[header::ETAG].clone();
        let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, known)]);
        let again =
            answer(&FILES[place], FILES[place].bytes, &TAGS[place], &asked).expect("a file");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn only_its_own_addresses_need_no_token() {
        assert!(is_page("/") && is_page("/app.js"));
        for other in ["", "/v1/jobs", "/metrics", "/app.js/", "//app.js", "/../app.js"] {
            assert!(!is_page(other), "{other}");
        }
    }
}
