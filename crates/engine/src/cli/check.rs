//! `thalweg validate` and `thalweg explain`: the statements are planned, and nothing is opened.

use std::collections::BTreeMap;

use thalweg::session::{Session, SessionOptions};
use thalweg_core::{Error, Result};
use thalweg_plan::catalog::substitute;
use thalweg_plan::diagnostic;
use thalweg_plan::flink_check::{Finding, FlinkCluster, Severity};

use super::arguments::{ColorChoice, ExplainArguments, ScriptArguments, ValidateArguments};
use super::exit::{FAILED, Failure, with_source};
use super::source::ScriptSource;
use super::terminal::{print, use_color};

/// The statements with `${NAME}` replaced.
pub fn substituted(source: &ScriptSource, arguments: &ScriptArguments) -> Result<String> {
    let parameters: BTreeMap<String, String> = arguments.parameters.iter().cloned().collect();
    substitute(&source.text, &parameters)
}

/// Checks the statements; returns the exit status.
pub fn validate(arguments: &ValidateArguments) -> u8 {
    with_source(&arguments.script, |source| {
        let text = substituted(source, &arguments.script)?;
        let checked = check(source, &arguments.script, &text);
        let (session, statements) =
            checked.map_err(|error| Failure { error, text: Some(text.clone()) })?;
        let cluster = FlinkCluster { jars: arguments.jars.clone(), gets_secrets: false };
        let findings = match arguments.flink {
            true => session.flink_findings(&text, &cluster)?,
            false => Vec::new(),
        };
        print_findings(&findings, (&source.name, &text), arguments.script.color)?;
        if findings.iter().all(|finding| finding.severity == Severity::Ignored) {
            let plural = if statements == 1 { "" } else { "s" };
            print(&format!("ok: {statements} statement{plural}\n"))?;
            return Ok(0);
        }
        Ok(FAILED)
    })
}

/// Plans the statements in a session of their own; how many there are.
fn check(
    source: &ScriptSource,
    arguments: &ScriptArguments,
    text: &str,
) -> Result<(Session, usize)> {
    let mut session = Session::new(source.session_options(arguments)?)?;
    let statements = session.validate(text)?;
    Ok((session, statements))
}

/// Prints what Flink refuses and ignores, each with its place.
pub fn print_findings(
    findings: &[Finding],
    (name, text): (&str, &str),
    color: ColorChoice,
) -> Result<()> {
    for finding in findings {
        let error = Error::plan(finding.message.clone()).at(finding.span);
        let message = diagnostic::render(&error, name, text, use_color(color));
        let word = match finding.severity {
            Severity::Refused => "Flink refuses",
            Severity::Ignored => "Flink ignores",
        };
        print(&message.replacen("error", word, 1))?;
    }
    Ok(())
}

/// Prints how the queries would run; returns the exit status.
pub fn explain(arguments: &ExplainArguments) -> u8 {
    with_source(&arguments.script, |source| {
        let options = SessionOptions {
            workers: arguments.workers.map(usize::from),
            ..source.session_options(&arguments.script)?
        };
        let text = substituted(source, &arguments.script)?;
        let explained = Session::new(options)
            .and_then(|mut session| session.explain(&text, arguments.format.into()));
        let plans = explained.map_err(|error| Failure { error, text: Some(text) })?;
        print(&plans.join("\n"))?;
        Ok(0)
    })
}
