//! `/docs/errors/CODE`: what `type` of a problem leads to. In the program, so that it is there
//! without a network and of the same version.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::problem::{Outcome, Problem};

/// A table of codes, each with its text.
macro_rules! codes {
    ($($code:literal => $text:literal;)*) => {
        [$(($code, $text)),*]
    };
}

/// Every code of a problem: what it means, and what can be done.
const CODES: [(&str, &str); 69] = codes! {
    "at-rest"
        => "The job is stopped, finished, failed or a draft. Start it first: POST /v1/jobs/JOB/start.";
    "being-deleted"
        => "A person deletes the job at this moment. Ask again: then it is gone, and its name is free.";
    "body-wrong"
        => "The body is not what this address takes. GET /openapi.json says what each address takes.";
    "cancelled" => "A person has cancelled the request. What it has left is in the message.";
    "changed-meanwhile"
        => "If-Match names an older revision than the job has. Read the job again, and decide again.";
    "closing"
        => "The server ends, and changes nothing any more. Its jobs continue with the next server.";
    "crash-loop"
        => "The process died several times, one time after the other, before this job had kept a snapshot or run for a minute. It \
         is not started by itself. Read its logs, change its statements or limits, and start it: then it counts from zero.";
    "data-wrong"
        => "A row or a file is not what the statements say. The message has the file and the row where they are known; \
         'bad-data' of a table says what happens to such rows.";
    "does-not-run" => "What was asked takes a job that runs. Start it first.";
    "has-ended" => "The operation has ended already: there is nothing to cancel.";
    "host-wrong"
        => "The request is for another host than this server. Browsers send the name by which they called: a name that is not in \
         the option 'host-names' may have been made to lead here.";
    "in-use" => "Another run holds the job, a file or a limit. The message says which.";
    "internal"
        => "A fault of this program. Please report it, with the file that `thalweg support-bundle JOB` writes.";
    "is-a-file"
        => "The job is a file of the folder that 'jobs-dir' names. Change it there; SIGHUP has the server read it again.";
    "job-failed" => "Something that the job needs has failed: the message says what.";
    "kind-wrong"
        => "Bodies are application/json or application/sql; those of rows are NDJSON, JSON, CSV or a stream of Arrow. Forms of web \
         pages can send none of these, which is on purpose.";
    "method-wrong" => "This address knows other methods. GET /openapi.json lists them.";
    "more-at-stake"
        => "An approval names every stage whose state goes. The answer lists those that are missing.";
    "name-taken" => "There is a token of this name. Choose another name, or delete that one first.";
    "name-wrong"
        => "Names of jobs have up to 63 lower-case letters, digits and the characters . _ - and begin with a letter or a digit.";
    "no-history"
        => "Nothing is kept of the job at that moment: it did not run then, or that is more than 24 hours ago.";
    "no-letters"
        => "No table of the job keeps dead letters in a file. Set 'bad-data' = 'dead-letter' and 'dead-letter.path'.";
    "no-randomness" => "The system gives no random bytes, and no token is made without them.";
    "no-room"
        => "The limits of the jobs that run, and of this one, exceed what the server may keep in memory. Stop a job, give this one \
         a lower limit, or raise 'memory.limit' or 'admission.overcommit'.";
    "no-snapshots"
        => "The job takes no snapshots, so new statements cannot continue where it stands. Stop it, and start it with them.";
    "no-such-address" => "There is nothing at this address. GET /openapi.json lists what there is.";
    "no-such-edge"
        => "No rows pass from the one stage to the other. GET /v1/jobs/JOB lists the stages.";
    "no-such-job" => "There is no job of this name. GET /v1/jobs lists them.";
    "no-such-letter"
        => "The job has no dead letter of this name. GET /v1/jobs/JOB/dead-letters lists them.";
    "no-such-operation"
        => "The last 1,000 operations since the server began are remembered; this is none of them.";
    "no-such-page"
        => "Of a result of the SQL gateway the next page and the one before can be read; this is neither, or the operation has no \
         result.";
    "no-such-revision" => "The job has no such revision. GET /v1/jobs/JOB/revisions lists them.";
    "no-such-session"
        => "The SQL gateway has no such session: it was closed, or nobody has used it for a while ('flink-gateway.session-timeout'), \
         or the server was started again. Open another one.";
    "no-such-snapshot"
        => "The job has no snapshot of this number. GET /v1/jobs/JOB/snapshots lists those that are kept.";
    "no-such-stage" => "The job has no stage of this name. The answer lists those that it has.";
    "no-such-table"
        => "The job has no materialized table of this name, or has not run since the server began. The answer lists those that it has.";
    "no-such-token"
        => "There is no token of this name: GET /v1/tokens lists them. Or the job has given no token of rows that looks so.";
    "no-such-trial"
        => "The job has no such trial. Trials are remembered until the server ends, the last 20 of each job.";
    "no-threads"
        => "The system gives no thread. The process may be at its limit of threads or of memory.";
    "not-a-query"
        => "POST /v1/query takes declarations and SELECTs, and writes nothing. PUT /v1/jobs/NAME makes a job of an INSERT.";
    "not-running" => "The job does not run, so there is nothing to see of it at this moment.";
    "not-supported" => "The statements have something that this program does not do.";
    "not-undecided" => "No state of the job is at stake, so there is nothing to approve.";
    "not-yet" => "The job is about to run. Send the rows again in a moment.";
    "order"
        => "The contract of the job brings rows into a sequence in which this row has no place. Start the job from scratch, or \
         append the mended records to its input.";
    "origin-wrong"
        => "The request comes from a web page of another site, and such pages may ask for nothing here.";
    "panicked" => "A fault of this program. Please report it.";
    "parameter-wrong"
        => "A parameter of the address is unknown, or its value is none. GET /openapi.json lists parameters.";
    "refused" => "The server has refused without saying why in a form that the client reads.";
    "replaced"
        => "A later request has taken the place of this one: the job was stopped, or changed again.";
    "role-wrong"
        => "The token may not do this. Roles are read, operate, write and admin, each with what those before it may; a token can \
         be for jobs whose names begin with a prefix.";
    "row-wrong"
        => "A row of the body cannot be read, or is not what the table declares: the message has its line or number. None of the \
         rows was taken. 'bad-data' of the table can say that such rows are left out.";
    "runs" => "The job runs. Stop it before it starts elsewhere.";
    "statement-wrong"
        => "The statements are wrong. `diagnostics` has the places in the text, in characters and in units of UTF-16.";
    "storage-failed"
        => "The disk, or what takes its place, refuses. What was answered before is safe; nothing is half-written.";
    "takes-its-course"
        => "The operation cannot be cancelled at this moment, or at all: the message says why, and what can be done instead.";
    "takes-no-rows"
        => "The table is read or written by the job, but takes no rows from clients. Tables with 'connector' = 'http' and \
         'scan.mode' = 'server' or 'listen' do.";
    "token-wrong"
        => "The request shows no token, or one that is unknown or has ended. `thalweg token create NAME` makes one; \
         `Authorization: Bearer …` shows it. After ten wrong ones from an address each costs a second.";
    "too-large"
        => "Statements have at most 1 MiB, and bodies 2 MiB; those of rows 16 MiB, or what 'scan.listen.body-max' of the table says. \
         Send fewer rows in each.";
    "too-many" => "One request is about more than it may be. Choose fewer.";
    "too-many-points"
        => "The numbers of a job's stages over time are too many for one answer. Name stages (?stages=…), or a larger step.";
    "too-many-requests" => "32 requests are in work at a time. Try again in a moment.";
    "too-many-rows"
        => "The job reads more slowly than rows come, or its next snapshot is not there yet. Nothing of the body was taken: send it \
         again after what Retry-After says.";
    "too-many-streams"
        => "64 streams are open at a time. Close one; a page needs one for everything.";
    "too-many-taps" => "16 people look at the rows of a job at a time.";
    "too-slow" => "A body has to come within 30 s.";
    "trial-runs" => "A trial of the job is under way. Wait for its end, which its operation shows.";
    "undecided"
        => "The statements have no use for state that the job's snapshot holds. Approve that it goes (POST /v1/jobs/JOB/approve with \
         the stages, or ?approve=drop-state), or put statements that use it.";
    "went-back"
        => "New statements did not run, or kept no snapshot in time ('upgrade.confirm-within'), so the job continues with the old \
         ones, from the snapshot that it stopped with. Of dead letters that were to be read again: the job went back to a \
         snapshot before their records, and reads those from its input.";
};

/// All codes.
#[cfg_attr(test, utoipa::path(get, path = "/docs/errors", tag = "server", responses((status = 200, content_type = "text/markdown"))))]
pub async fn codes() -> Response {
    let lines =
        CODES.iter().map(|(code, text)| format!("- [`{code}`](/docs/errors/{code}): {text}\n"));
    markdown(format!("# Problems\n\n{}", lines.collect::<String>()))
}

/// What a code means, and what can be done.
#[cfg_attr(test, utoipa::path(get, path = "/docs/errors/{code}", tag = "server", params(("code" = String, Path)),
    responses((status = 200, content_type = "text/markdown"))))]
pub async fn code(Path(code): Path<String>) -> Outcome<Response> {
    let known = CODES.iter().find(|(known, _)| *known == code);
    let (code, text) = known.ok_or_else(|| {
        Problem::new(404, "no-such-address", "there is no such code; /docs/errors lists them")
    })?;
    Ok(markdown(format!("# {code}\n\n{text}\n")))
}

fn markdown(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// What the sources of this crate give as a code: the second argument of `Problem::new`, and
    /// what errors of the engine become.
    fn codes_of_sources(folder: &std::path::Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                codes_of_sources(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source");
            for call in text.split("Problem::new(").skip(1) {
                let second =
                    call.split_once(',').and_then(|(_, rest)| rest.trim_start().strip_prefix('"'));
                let code = second.and_then(|rest| rest.split_once('"')).map(|(code, _)| code);
                found.extend(code.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_code_has_its_page() {
        let mut used = BTreeSet::new();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        codes_of_sources(&folder, &mut used);
        let of_engine =
            ["statement-wrong", "not-supported", "data-wrong", "in-use", "job-failed", "internal"];
        used.extend(of_engine.map(str::to_owned));
        let known: BTreeSet<String> = CODES.iter().map(|(code, _)| (*code).to_owned()).collect();
        assert!(used.contains("host-wrong") && used.len() > 30, "{used:?}");
        assert_eq!(known, used, "a code without a page, or a page without a code");
        assert!(CODES.is_sorted_by_key(|(code, _)| *code));
    }
}
