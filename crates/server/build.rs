//! Puts the pages of the documentation into the program, compressed.
//!
//! They are read from `docs`, which in the repository is a link to the pages and in a packaged
//! crate holds copies of them. Release builds follow every change of a page; debug builds have the
//! pages of when this crate was built last, or each edit would rebuild every test program.
//!
//! The form: for each page its name, a line feed, the number of its bytes, a line feed, its bytes.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The folders whose pages are for users.
const FOLDERS: [&str; 3] = ["", "connectors", "how-to"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("docs");
    if std::env::var("PROFILE")? == "release" {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    let file = Path::new(&std::env::var("OUT_DIR")?).join("docs.gz");
    let mut out = GzEncoder::new(File::create(file)?, Compression::best());
    for place in FOLDERS {
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(folder.join(place))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.ends_with(".md").then_some(name));
        }
        names.sort();
        for name in names {
            let name = if place.is_empty() { name } else { format!("{place}/{name}") };
            let text = fs::read(folder.join(&name))?;
            write!(out, "{name}\n{}\n", text.len())?;
            out.write_all(&text)?;
        }
    }
    out.finish()?;
    Ok(())
}
