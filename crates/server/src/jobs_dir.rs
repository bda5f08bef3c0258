//! A folder of `.sql` files that says which jobs there are, for those who keep statements in a
//! repository. It is read when the server begins: what is new or has changed is put, what is gone
//! is stopped with a snapshot. Such jobs cannot be changed over REST.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use thalweg_core::{Error, Result};

use crate::lifecycle::Desired;
use crate::requests::{JobBody, PutQuery, StopBody};
use crate::server::Server;

/// Who puts such jobs, as events and revisions name it.
pub const BY: &str = "jobs-dir";

impl Server {
    /// Brings jobs to what the folder says. What is wrong with a file is informed and concerns no
    /// other.
    pub fn read_jobs_dir(self: &Arc<Self>) -> Vec<String> {
        let Some(folder) = self.config.jobs_dir() else { return Vec::new() };
        let files = match files_of(&folder) {
            Ok(files) => files,
            Err(error) => return vec![format!("the folder of jobs {}: {error}", folder.display())],
        };
        let mut problems = Vec::new();
        for (name, sql) in &files {
            let body =
                JobBody { sql: sql.clone(), desired: Some(Desired::Running), ..JobBody::default() };
            if let Err(problem) = self.put_job(name, body, &PutQuery::default(), BY) {
                problems.push(format!("{name}.sql: {}", problem.detail));
            }
        }
        let names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        for job in self.all_jobs() {
            let is_gone = job.lock().record.is_file && !names.contains(job.name.as_str());
            if is_gone && let Err(problem) = self.stop(&job.name, &StopBody::default(), BY) {
                problems.push(format!("{}: {}", job.name, problem.detail));
            }
        }
        problems
    }
}

/// The names of jobs and their statements.
fn files_of(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if let (Some("sql"), Some(name)) = (path.extension().and_then(|end| end.to_str()), stem) {
            let sql = std::fs::read_to_string(&path)
                .map_err(|error| Error::from(error).in_file(path.display().to_string()))?;
            files.push((name.to_owned(), sql));
        }
    }
    files.sort();
    Ok(files)
}
