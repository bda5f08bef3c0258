//! The client against answers that a real Flink 2.3.0 gave, and against servers that misbehave.

mod server;

use serde_json::{Value, json};
use server::Server;
use thalweg_flink::Deadline;
use thalweg_flink::gateway::Session;
use thalweg_flink::http::Place;
use thalweg_flink::job_manager::JobManager;
use thalweg_flink::report::JobReport;

const JOB: &str = "327047c85548c86614556e78ca103f75";

/// A recorded answer.
fn recorded(name: &str) -> Value {
    let path = format!("{}/tests/recorded/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("JSON")
}

fn place(server: &Server) -> Place {
    Place::new(&server.url(), Vec::new()).expect("an address")
}

/// A gateway that answers one statement with these pages.
fn gateway(pages: &str) -> Server {
    let server = Server::start();
    server.answer("GET /v2/info", 200, recorded("info"));
    server.answer("POST /v2/sessions", 200, json!({ "sessionHandle": "S" }));
    server.answer("POST /v2/sessions/S/statements", 200, json!({ "operationHandle": "O" }));
    server.answer("DELETE /v2/sessions/S/operations/O/close", 200, json!({ "status": "CLOSED" }));
    server.answer("DELETE /v2/sessions/S", 200, json!({ "status": "CLOSED" }));
    let mut token = 0;
    for page in recorded(pages).as_array().expect("pages") {
        let path = format!("GET /v2/sessions/S/operations/O/result/{token}?rowFormat=PLAIN_TEXT");
        match page["status"].as_u64() {
            Some(status) => server.answer(&path, status as u16, page["body"].clone()),
            None => server.answer(&path, 200, page.clone()),
        }
        token += u32::from(page["resultType"] == "PAYLOAD");
    }
    server
}

fn execute(server: &Server) -> thalweg_core::Result<thalweg_flink::gateway::Outcome> {
    let properties = [("parallelism.default".to_owned(), "2".to_owned())];
    let session = Session::open(&place(server), "test", &properties)?;
    let outcome = session.execute("…", 1000, &mut Deadline::after_seconds(20));
    session.close()?;
    outcome
}

#[test]
fn an_insert_answers_with_its_job() {
    let server = gateway("insert_pages");
    let outcome = execute(&server).expect("a job");
    assert_eq!(outcome.job.as_deref(), Some("5530b8e8f6f99c49fefcdd577768a0b2"));
    assert!(outcome.is_complete);
    let sessions = server.bodies("POST /v2/sessions");
    assert_eq!(sessions[0]["properties"]["parallelism.default"], "2");
    assert_eq!(server.bodies("POST /v2/sessions/S/statements").len(), 1, "never sent twice");
    assert_eq!(server.count("DELETE /v2/sessions/S"), 1);
}

#[test]
fn rows_of_a_query_come_as_texts_with_their_kind() {
    let outcome = execute(&gateway("select_pages")).expect("rows");
    let names: Vec<&str> = outcome.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["i", "s", "d"]);
    assert_eq!(outcome.columns[2].logical_type["scale"], 2);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(outcome.rows[0].fields, [some("1"), some("a"), some("20.50")]);
    assert_eq!(outcome.rows[1].fields, [some("2"), None, some("1.00")]);
    assert_eq!(outcome.rows[1].kind, "INSERT");
}

#[test]
fn a_refused_statement_says_its_root_cause_without_java() {
    let error = execute(&gateway("refused_statement")).expect_err("there is no such column");
    let message = error.message();
    assert!(message.contains("Column 'nosuch' not found in any table"), "{message}");
    assert!(!message.contains("org.apache") && !message.contains("\tat "), "{message}");
}

#[test]
fn a_server_that_is_no_gateway_is_named() {
    let server = Server::start();
    server.answer("GET /v2/info", 200, json!({ "productName": "something else" }));
    let error = Session::open(&place(&server), "test", &[]).expect_err("no gateway");
    assert!(error.message().contains(&server.url()), "{error}");
    let error = Place::new("ftp://host", Vec::new()).expect_err("no HTTP");
    assert!(error.message().contains("ftp://host"), "{error}");
}

/// A job manager with the recorded job.
fn cluster() -> (Server, JobManager) {
    let server = Server::start();
    server.answer("GET /overview", 200, recorded("overview"));
    server.answer("GET /jobs/overview", 200, recorded("jobs_overview"));
    let job = recorded("job");
    server.answer(&format!("GET /jobs/{JOB}"), 200, job.clone());
    server.answer(&format!("GET /jobs/{JOB}/checkpoints"), 200, recorded("checkpoints"));
    let path = format!("GET /jobs/{JOB}/exceptions?maxExceptions=10");
    server.answer(&path, 200, recorded("exceptions"));
    for (at, vertex) in job["vertices"].as_array().expect("stages").iter().enumerate() {
        let path = format!("GET /jobs/{JOB}/vertices/{}", vertex["id"].as_str().expect("an id"));
        server.answer(&format!("{path}/watermarks"), 200, recorded(&format!("watermarks_{at}")));
        server.answer(
            &format!("{path}/backpressure"),
            200,
            recorded(&format!("backpressure_{at}")),
        );
    }
    let manager = JobManager::at(place(&server)).expect("it answers");
    (server, manager)
}

#[test]
fn a_running_job_is_reported_with_watermark_back_pressure_and_checkpoints() {
    let (_server, manager) = cluster();
    let job = manager.find("counts").expect("it is listed");
    assert_eq!((job.id.as_str(), job.is_over()), (JOB, false));
    let report = JobReport::of(&manager, &job.id, true).expect("a report");
    assert_eq!((report.name.as_str(), report.state.as_str()), ("counts", "RUNNING"));
    assert_eq!(report.watermark_ms(), Some(1_795_711_516_245));
    let [source, sink] = &report.stages[..] else { panic!("{:?}", report.stages) };
    assert_eq!((source.busy_percent, sink.busy_percent), (None, Some(3)));
    assert_eq!(sink.backpressure, "ok");
    assert!(report.checkpoints.completed > 0, "{:?}", report.checkpoints);
    assert!(report.checkpoints.newest.as_deref().is_some_and(|path| path.starts_with("file:")));
    assert_eq!((report.bottleneck(), report.failures.len()), (None, 0));
}

/// As Flink 2.3 answers about a job in batch mode.
#[test]
fn a_job_without_checkpoints_is_reported() {
    let (server, manager) = cluster();
    let path = format!("GET /jobs/{JOB}/checkpoints");
    let error = "org.apache.flink.runtime.rest.handler.RestHandlerException: Checkpointing has not been enabled.";
    server.replace(&path, 404, json!({ "errors": [error] }));
    let report = JobReport::of(&manager, JOB, false).expect("a report");
    assert_eq!((report.checkpoints.completed, report.checkpoints.newest), (0, None));
    server.replace(&path, 404, json!({ "errors": ["Job not found"] }));
    JobReport::of(&manager, JOB, false).expect_err("another answer of that status is an error");
}

#[test]
fn a_job_that_is_unknown_is_refused_with_the_names_there_are() {
    let (_server, manager) = cluster();
    let error = manager.find("cuonts").expect_err("no such job");
    assert!(error.help().is_some_and(|help| help.contains("counts")), "{error:?}");
}

#[test]
fn failures_name_the_cause_that_a_real_job_had() {
    let (server, manager) = cluster();
    let path = format!("GET /jobs/{JOB}/exceptions?maxExceptions=10");
    server.replace(&path, 200, recorded("failed_exceptions"));
    let report = JobReport::of(&manager, JOB, false).expect("a report");
    let newest = &report.failures[0];
    assert!(newest.cause.starts_with("FileNotFoundException"), "{newest:?}");
    assert!(newest.at_ms > 0);
}

#[test]
fn stopping_waits_for_the_savepoint_and_says_where_it_lies() {
    let (server, manager) = cluster();
    server.answer(&format!("POST /jobs/{JOB}/stop"), 202, recorded("stop"));
    let asked = format!("GET /jobs/{JOB}/savepoints/e2641cfdcecd63a2d0364f9f2eaa465c");
    server.answer(&asked, 200, json!({ "status": { "id": "IN_PROGRESS" } }));
    server.answer(&asked, 200, recorded("savepoint"));
    let wait = &mut Deadline::after_seconds(20);
    let location = manager.stop(JOB, Some("file:///s"), true, wait).expect("a savepoint");
    assert!(location.ends_with("savepoint-327047-0bc6c06172d5"), "{location}");
    let body = &server.bodies(&format!("POST /jobs/{JOB}/stop"))[0];
    assert_eq!(*body, json!({ "targetDirectory": "file:///s", "drain": true }));
}

#[test]
fn a_savepoint_that_fails_says_why() {
    let (server, manager) = cluster();
    server.answer(&format!("POST /jobs/{JOB}/stop"), 202, json!({ "request-id": "R" }));
    let failure = json!({ "status": { "id": "COMPLETED" }, "operation": { "failure-cause": {
        "class": "x.Y", "stack-trace": "x.Y: outer\n\tat a.B\nCaused by: java.io.IOException: disk full\n\tat c.D"
    } } });
    server.answer(&format!("GET /jobs/{JOB}/savepoints/R"), 200, failure);
    let error = manager.stop(JOB, None, false, &mut Deadline::after_seconds(20)).expect_err("full");
    assert!(error.message().contains("IOException: disk full"), "{error}");
}

#[test]
fn the_job_manager_is_found_through_the_gateway() {
    let (server, _manager) = cluster();
    let port = server.port();
    let mut session = recorded("session");
    session["properties"]["rest.port"] = json!(port.to_string());
    server.answer("GET /v2/info", 200, recorded("info"));
    server.answer("POST /v2/sessions", 200, json!({ "sessionHandle": "S" }));
    server.answer("GET /v2/sessions/S", 200, session);
    let session = Session::open(&place(&server), "test", &[]).expect("a session");
    let manager = JobManager::behind(&place(&server), &session).expect("it answers");
    assert_eq!(manager.url(), server.url());
}

#[test]
fn questions_are_asked_again_while_a_server_is_busy() {
    let (server, manager) = cluster();
    let path = format!("GET /jobs/{JOB}/status");
    server.answer(&path, 503, json!({ "errors": ["not yet"] }));
    server.answer(&path, 200, json!({ "status": "RUNNING" }));
    assert_eq!(manager.state(JOB).expect("the second answer"), "RUNNING");
    assert_eq!(server.count(&path), 2);
}

#[test]
fn answers_that_are_no_json_are_errors_and_no_panics() {
    let server = Server::start();
    server.answer_text("GET /overview", 200, "<html>welcome</html>");
    assert!(JobManager::at(place(&server)).is_err());
    let server = gateway("insert_pages");
    server.replace("POST /v2/sessions", 200, json!([1, 2]));
    let error = execute(&server).expect_err("no session");
    assert!(error.message().contains("a session"), "{error}");
}
