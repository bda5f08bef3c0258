//! Draws the figures of a file, each as OUT_DIR/NAME.svg:
//!
//! ```text
//! cargo run --release -p thalweg-workloads --example plot -- FIGURES.jsonl OUT_DIR
//! ```
//! Of figures with one name the last is drawn: a file to which runs append shows the newest run.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use thalweg_workloads::plot::{draw, read_figures};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [figures, folder] = arguments.as_slice() else {
        eprintln!("usage: plot FIGURES.jsonl OUT_DIR");
        return ExitCode::from(2);
    };
    match draw_all(Path::new(figures), Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw_all(figures: &Path, folder: &Path) -> io::Result<()> {
    let named = |path: &Path, error: &io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    let figures = read_figures(figures)?;
    fs::create_dir_all(folder).map_err(|error| named(folder, &error))?;
    for figure in figures {
        let path = folder.join(format!("{}.svg", file_name(&figure.name)));
        fs::write(&path, draw(&figure)).map_err(|error| named(&path, &error))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// A name without what would lead into another folder.
fn file_name(name: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    name.chars().map(safe).collect()
}
