//! Tables of Iceberg in a catalog that is a server, which is killed with the job.

use std::path::Path;
use std::process::Command;

use super::services::{Job, Service, end_after_kills, text};

/// Runs statements of Python, which have Iceberg's library. What they print; `None` on a machine
/// that cannot have it.
fn python(statements: &str) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services/pyiceberg");
    let found = Command::new(script).output().expect("bash runs");
    if found.status.code() == Some(3) {
        let why = text(&found.stderr);
        assert!(std::env::var("THALWEG_SKIPS").as_deref() != Ok("refuse"), "{why}");
        println!("SKIPPED: {why}");
        return None;
    }
    let output = Command::new(text(&found.stdout).trim()).args(["-c", statements]).output();
    let output = output.expect("Python runs");
    assert!(output.status.success(), "{statements}: {}", text(&output.stderr));
    Some(text(&output.stdout))
}

/// The rows of a table of a server as Iceberg's library for Java reads them.
fn java_rows(uri: &str, table: &str) -> Vec<String> {
    let services = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/services");
    let class_path = Command::new(services.join("iceberg-java")).output().expect("bash runs");
    // The server has the same jars.
    assert!(class_path.status.success(), "{}", text(&class_path.stderr));
    let output = Command::new("java")
        .args(["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"])
        .arg(text(&class_path.stdout).trim())
        .arg(services.join("IcebergTable.java"))
        .args(["read-rest", uri, table])
        .output()
        .expect("Java runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    // In front of the rows: the key, and what the snapshots do.
    text(&output.stdout).lines().skip(2).map(str::to_owned).collect()
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn a_table_of_a_server_holds_the_newest_row_of_each_key() {
    let Some(server) = Service::start("iceberg-rest") else { return };
    let uri = server.value("ICEBERG_URI").to_owned();
    let arguments = ["--resume", "--allow-path", server.value("ICEBERG_WAREHOUSE")];
    let table = format!(
        "CREATE TABLE totals (k BIGINT, numbers BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'iceberg', \
         'catalog-type' = 'rest', 'uri' = '{uri}', 'catalog-database' = 'sales', 'write.upsert.enabled' = 'true');\n"
    );
    let job = format!(
        "SET 'execution.checkpointing.dir' = 'snapshots'; SET 'execution.checkpointing.interval' = '200 ms';\n\
         CREATE TABLE numbers (n BIGINT NOT NULL) WITH ('connector' = 'datagen', 'rows-per-second' = '4000', \
         'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '12000');\n\
         {table}INSERT INTO totals SELECT n % 40, COUNT(*), SUM(n) FROM numbers GROUP BY n % 40;"
    );
    end_after_kills(&server, (&server.file("totals", &job), &arguments), (6, 300..1_800), 6);
    let select = "SELECT COUNT(*), SUM(numbers), SUM(total), COUNT(DISTINCT k) FROM totals;";
    let read = format!("SET 'execution.runtime-mode' = 'batch'; {table}{select}");
    let (is_right, said) = Job::start(&server.file("read", &read), &arguments[1..]).wait();
    assert!(is_right && said.matches("40").count() == 2, "{said}");
    assert!(said.contains("12000") && said.contains("72006000"), "{said}");
    let mut found = java_rows(&uri, "sales.totals");
    let expected = (0..40).map(|k| {
        let numbers = (1..=12_000_i64).filter(|n| n % 40 == k);
        format!("{k} {} {}", numbers.clone().count(), numbers.sum::<i64>())
    });
    let mut expected: Vec<String> = expected.collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
#[ignore = "fetches a server: make connect-test"]
fn a_table_of_a_server_holds_each_row_once_and_others_read_it() {
    let Some(server) = Service::start("iceberg-rest") else { return };
    let uri = server.value("ICEBERG_URI").to_owned();
    let arguments = ["--resume", "--allow-path", server.value("ICEBERG_WAREHOUSE")];
    let table = |more: &str| {
        format!(
            "CREATE TABLE lake (n BIGINT NOT NULL, k BIGINT) PARTITIONED BY (k) WITH ('connector' = 'iceberg', \
             'catalog-type' = 'rest', 'uri' = '{uri}', 'catalog-database' = 'sales'{more});\n"
        )
    };
    let select = |more: &str| {
        format!("{}SELECT COUNT(*), COUNT(DISTINCT n), SUM(n) FROM lake;", table(more))
    };
    let read = |more: &str| {
        let text = format!("SET 'execution.runtime-mode' = 'batch'; {}", select(more));
        Job::start(&server.file("read", &text), &arguments[1..]).wait()
    };
    let (is_right, said) = read("");
    assert!(!is_right && said.contains("there is no table"), "{said}");
    let numbers = "CREATE TABLE numbers (n BIGINT NOT NULL) WITH ('connector' = 'datagen', 'rows-per-second' = '4000', \
        'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '12000');\n";
    let text = format!(
        "SET 'execution.checkpointing.dir' = 'snapshots'; SET 'execution.checkpointing.interval' = '200 ms';\n\
         {numbers}{}INSERT INTO lake SELECT n, n % 3 FROM numbers;",
        table("")
    );
    end_after_kills(&server, (&server.file("lake", &text), &arguments), (6, 300..1_800), 5);
    let is_whole = |said: &str| said.matches("12000").count() == 2 && said.contains("72006000");
    let (is_right, said) = read("");
    assert!(is_right && is_whole(&said), "{said}");
    if let Some(said) = python(&format!(
        "from pyiceberg.catalog import load_catalog\n\
         rows = load_catalog('server', type='rest', uri='{uri}').load_table('sales.lake').scan().to_arrow()\n\
         print(rows.num_rows, len(set(rows['n'].to_pylist())), sum(rows['n'].to_pylist()))"
    )) {
        assert_eq!(said.trim(), "12000 12000 72006000");
    }
    // A location that the job may not go to is refused, whoever names it.
    let (is_right, said) = Job::start(&server.file("read", &select("")), &[]).wait();
    assert!(!is_right && said.contains("outside the allowed folders"), "{said}");
}
