//! `thalweg support-bundle`

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use thalweg_core::Error;
use thalweg_server::client::Answer;

use super::super::server_arguments::BundleArguments;
use super::jobs::path;
use super::{answer, print, with_client};

/// `thalweg support-bundle`
pub fn support_bundle(arguments: &BundleArguments) -> u8 {
    with_client(&arguments.server, |client| {
        let mut bytes = Vec::new();
        let place = path(&arguments.job, "/bundle.zip");
        let status = client.ask_by_piece("GET", &place, (None, false), &mut |piece| {
            bytes.extend_from_slice(piece);
            true
        })?;
        if status != 200 {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let body = serde_json::from_str(&text).unwrap_or_default();
            let refused = Answer { status, body, text };
            return answer(&refused, arguments.server.json, |_| String::new());
        }
        let default = || PathBuf::from(format!("{}.zip", arguments.job));
        let file = arguments.file.clone().unwrap_or_else(default);
        let mut open = OpenOptions::new();
        let written = open.write(true).create_new(true).open(&file);
        written.and_then(|mut file| file.write_all(&bytes)).map_err(|error| {
            Error::io(format!("can't write {}: {error}", file.display()))
                .hint("--file names another file, which must not be there")
        })?;
        match arguments.server.json {
            true => print(&format!("{}\n", serde_json::json!({ "file": file })))?,
            false => print(&format!("{}: {} bytes\n", file.display(), bytes.len()))?,
        }
        Ok(0)
    })
}
