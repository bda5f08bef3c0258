//! A server of S3 for a test.

use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use super::services::{Service, text};

/// A server of its own with a bucket `thalweg`, which ends with the test, also one that fails.
pub struct Server {
    service: Service,
}

impl Server {
    /// Starts a server; `None` on a machine that can have none.
    pub fn start() -> Option<Server> {
        Service::start("s3").map(|service| Server { service })
    }

    /// What a job says to reach it.
    pub fn settings(&self) -> String {
        format!(
            "SET 's3.endpoint' = '{}'; SET 's3.region' = 'us-east-1'; SET 's3.access-key' = 'reader'; \
             SET 's3.secret-key' = 's3cret';\n",
            self.value("ENDPOINT")
        )
    }

    /// The same, with snapshots in a folder of this name.
    pub fn with_snapshots(&self, name: &str) -> String {
        format!(
            "{}SET 'execution.checkpointing.dir' = '{}'; SET 'execution.checkpointing.interval' = '100 ms';\n",
            self.settings(),
            self.folder(name).join("snapshots").display()
        )
    }

    /// Runs statements of Python, which have `client`, a client of boto3. What they print.
    pub fn python(&self, statements: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services/s3");
        let output = Command::new(script).arg("call").arg(&self.dir).arg(statements).output();
        let output = output.expect("bash runs");
        assert!(output.status.success(), "{statements}: {}", text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    }

    /// The keys of all objects, one a line.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let printed = self.python(&format!(
            "pages = client.get_paginator('list_objects_v2').paginate(Bucket='thalweg', Prefix='{prefix}')\n\
             for page in pages:\n  for found in page.get('Contents', []):\n    print(found['Key'])"
        ));
        printed.lines().map(str::to_owned).collect()
    }

    /// The uploads that are neither completed nor aborted and hold something.
    pub fn uploads(&self) -> String {
        self.python(
            "for upload in client.list_multipart_uploads(Bucket='thalweg').get('Uploads', []):\n  \
             parts = client.list_parts(Bucket='thalweg', Key=upload['Key'], UploadId=upload['UploadId'])\n  \
             if parts.get('Parts'):\n    print(upload['Key'])",
        )
    }
}

impl Deref for Server {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}
