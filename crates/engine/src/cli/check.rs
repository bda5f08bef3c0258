//! `thalweg validate` and `thalweg explain`: the statements are planned, and nothing is opened.

use std::collections::BTreeMap;

use thalweg::session::{Session, SessionOptions};
use thalweg_core::{Error, Result};
use thalweg_plan::catalog::substitute;
use thalweg_plan::diagnostic;

use super::arguments::{ExplainArguments, ScriptArguments, ValidateArguments};
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
        let checked = check(source, &arguments.script, &text, arguments.flink);
        let Checked { statements, refusals } =
            checked.map_err(|error| Failure { error, text: Some(text.clone()) })?;
        let color = use_color(arguments.script.color);
        for refusal in &refusals {
            let message = diagnostic::render(refusal, &source.name, &text, color);
            print(&message.replacen("error", "Flink refuses", 1))?;
        }
        if refusals.is_empty() {
            let plural = if statements == 1 { "" } else { "s" };
            print(&format!("ok: {statements} statement{plural}\n"))?;
            return Ok(0);
        }
        Ok(FAILED)
    })
}

struct Checked {
    statements: usize,
    refusals: Vec<Error>,
}

fn check(
    source: &ScriptSource,
    arguments: &ScriptArguments,
    text: &str,
    for_flink: bool,
) -> Result<Checked> {
    let mut session = Session::new(source.session_options(arguments)?)?;
    let statements = session.validate(text)?;
    let refusals = if for_flink { session.flink_refusals(text)? } else { Vec::new() };
    Ok(Checked { statements, refusals })
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
