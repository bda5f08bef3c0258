//! Servers that encrypt, and how users sign in.

use super::server::Server;
use super::services::Job;

#[test]
#[ignore = "runs many jobs: run by `make connect-test`"]
fn connections_are_encrypted_and_passwords_checked_as_the_options_say() {
    let Some(server) = Server::start_with(&[("PG_TLS", "1")]) else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (42); CREATE ROLE tlsuser LOGIN PASSWORD 's3cret'; \
         GRANT SELECT ON t TO tlsuser; SET password_encryption = md5; CREATE ROLE md5user LOGIN PASSWORD 's3cret'; \
         GRANT SELECT ON t TO md5user",
    );
    std::fs::write(server.folder("safe").join("secrets"), "pg = s3cret\nwrong = not-s3cret\n")
        .expect("a file");
    let tls = server.value("TLS").to_owned();
    let text = |user: &str, secret: &str, parameters: &str| {
        format!(
            "SET 'secrets.file' = 'secrets'; CREATE TABLE t (id INT) WITH ('connector' = 'jdbc', 'table-name' = 't', \
             'url' = 'jdbc:postgresql://127.0.0.1:{}/postgres?{parameters}', 'username' = '{user}', \
             'password' = '${{secret:{secret}}}'); SELECT id FROM t;",
            server.port
        )
    };
    let trusted =
        |mode: &str, authority: &str| format!("sslmode={mode}&sslrootcert={tls}/{authority}");
    let full = trusted("verify-full", "ca.pem");
    let right = [
        ("md5user", "sslmode=disable"),
        ("md5user", &full),
        // Where nothing is said, a server that can encrypt does.
        ("tlsuser", ""),
        ("tlsuser", "sslmode=require"),
        ("tlsuser", &trusted("verify-ca", "ca.pem")),
        ("tlsuser", &full),
    ];
    for (user, parameters) in right {
        let said = server.output("safe", &text(user, "pg", parameters));
        assert!(said.contains("42"), "{user} {parameters}: {said}");
    }
    let wrong = [
        ("tlsuser", "pg", "sslmode=disable", "pg_hba.conf"),
        ("tlsuser", "pg", &trusted("verify-full", "other-ca.pem"), "certificate"),
        ("tlsuser", "pg", &trusted("verify-ca", "other-ca.pem"), "certificate"),
        ("tlsuser", "wrong", "", "password"),
        ("md5user", "wrong", "", "password"),
    ];
    for (user, secret, parameters, word) in wrong {
        server.refused("safe", &text(user, secret, parameters), &[word]);
    }
    // The log of a table is read over such a connection as well.
    server.sql("ALTER ROLE tlsuser REPLICATION; CREATE TABLE copied (id int PRIMARY KEY); ALTER TABLE t OWNER TO tlsuser");
    server.sql("GRANT CREATE ON DATABASE postgres TO tlsuser");
    let cdc = server.cdc("t", "safe").replace("'thalweg'", "'tlsuser'");
    let cdc = cdc.replace("'password' = 'tlsuser'", "'password' = 's3cret'");
    let job = format!(
        "CREATE TABLE t (id INT NOT NULL, PRIMARY KEY (id) NOT ENFORCED) WITH ({cdc}, 'changelog-mode' = 'upsert', \
         'debezium.database.sslmode' = 'verify-full', 'debezium.database.sslrootcert' = '{tls}/ca.pem'); \
         CREATE TABLE c (id INT NOT NULL, PRIMARY KEY (id) NOT ENFORCED) WITH ({}, 'sink.buffer-flush.interval' = '50 ms'); \
         INSERT INTO c SELECT id FROM t;",
        server.jdbc("copied")
    );
    let job = Job::start(&server.file("safe", &job), &[]);
    server.wait_for("SELECT count(*) FROM copied", "1");
    server.sql("INSERT INTO t VALUES (43)");
    server.wait_for("SELECT count(*) FROM copied", "2");
    server.wait_for(
        "SELECT count(*) > 0 FROM pg_stat_ssl s JOIN pg_stat_replication r USING (pid) WHERE s.ssl",
        "t",
    );
    job.interrupt();
}
