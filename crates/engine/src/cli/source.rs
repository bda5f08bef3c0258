//! From the command line to the text of the statements and the session they run in.

use std::io::Read;
use std::path::{Path, PathBuf};

use thalweg::session::SessionOptions;
use thalweg_core::{Error, Result};

use super::arguments::ScriptArguments;

/// Statements and where they come from.
pub struct ScriptSource {
    /// What errors call the place: the file as it was named, `standard input` or `command line`.
    pub name: String,
    /// The statements as they were written.
    pub text: String,
    /// What jobs are called: the file without folder and ending.
    job_name: Option<String>,
    /// The folder that relative paths start from.
    base_dir: PathBuf,
    /// The file, if it is one.
    path: Option<PathBuf>,
    is_standard_input: bool,
}

impl ScriptSource {
    /// Reads the statements.
    pub fn read(arguments: &ScriptArguments) -> Result<ScriptSource> {
        let current = std::env::current_dir()
            .map_err(|error| Error::plan(format!("the current folder is not known: {error}")))?;
        if let Some(text) = &arguments.execute {
            let name = "command line".to_owned();
            return Ok(ScriptSource {
                name,
                text: text.clone(),
                job_name: None,
                base_dir: current,
                path: None,
                is_standard_input: false,
            });
        }
        let path = arguments.file.as_deref().unwrap_or(Path::new("-"));
        if path == Path::new("-") {
            let mut bytes = Vec::new();
            std::io::stdin()
                .read_to_end(&mut bytes)
                .map_err(|error| Error::plan(format!("can't read standard input: {error}")))?;
            let name = "standard input".to_owned();
            let text = decode(bytes, &name)?;
            return Ok(ScriptSource {
                name,
                text,
                job_name: None,
                base_dir: current,
                path: None,
                is_standard_input: true,
            });
        }
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| cannot_read(path, &error))?;
        let base_dir = match path.parent() {
            Some(parent) if parent != Path::new("") => current.join(parent),
            _ => current,
        };
        let job_name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let path = Some(path.to_owned());
        let text = decode(bytes, &name)?;
        Ok(ScriptSource { name, text, job_name, base_dir, path, is_standard_input: false })
    }

    /// The options of a session for these statements.
    pub fn session_options(&self, arguments: &ScriptArguments) -> Result<SessionOptions> {
        let defaults = SessionOptions::default();
        let mut allowed_roots = defaults.allowed_roots;
        if !allowed_roots.contains(&self.base_dir) {
            allowed_roots.push(self.base_dir.clone());
        }
        for path in &arguments.allow_paths {
            if !path.is_dir() {
                let message = format!("--allow-path {}: there is no such folder", path.display());
                return Err(Error::plan(message));
            }
            allowed_roots.push(defaults.base_dir.join(path));
        }
        Ok(SessionOptions {
            name: self.job_name.clone(),
            script: self.path.clone(),
            script_is_standard_input: self.is_standard_input,
            base_dir: self.base_dir.clone(),
            allowed_roots,
            settings: arguments.settings.clone(),
            ..SessionOptions::default()
        })
    }
}

fn decode(bytes: Vec<u8>, name: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let position = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..position].iter().filter(|&&byte| byte == b'\n').count() + 1;
        Error::plan(format!("{name} is not UTF-8: see line {line}"))
            .hint("save the file as UTF-8 text")
    })
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Error {
    let shown = path.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::plan(format!("there is no file {shown}"))
            .hint("the statements themselves go after -e"),
        _ if path.is_dir() => Error::plan(format!("{shown} is a folder, not a file of statements")),
        _ => Error::plan(format!("can't read {shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_line() {
        let error = decode(b"SELECT 1;\n\xff".to_vec(), "q.sql").expect_err("not UTF-8");
        assert!(error.message().contains("line 2"), "{error}");
    }
}
