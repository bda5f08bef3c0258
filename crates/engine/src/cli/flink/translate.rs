//! `thalweg translate --flink`

use thalweg::session::Session;
use thalweg_core::{Error, Result};
use thalweg_plan::flink_check::{FlinkCluster, Queries, Translation};

use super::super::arguments::ScriptArguments;
use super::super::check::{print_findings, substituted};
use super::super::exit::{FAILED, Failure, with_source};
use super::super::flink_arguments::TranslateArguments;
use super::super::source::ScriptSource;
use super::super::terminal::{print, say};

/// Prints the script as Flink takes it; returns the exit status.
pub fn translate(arguments: &TranslateArguments) -> u8 {
    with_source(&arguments.script, |source| {
        let text = substituted(source, &arguments.script)?;
        let cluster = FlinkCluster { jars: arguments.jars.clone(), gets_secrets: false };
        let translation = translation(source, &arguments.script, &text, (&cluster, Queries::Jobs))?;
        match &arguments.output {
            Some(file) => std::fs::write(file, &translation.text)
                .map_err(|error| Error::io(format!("can't write {}: {error}", file.display())))?,
            None => print(&translation.text)?,
        }
        if translation.left.is_empty() {
            return Ok(0);
        }
        let name = match &arguments.output {
            Some(file) => file.display().to_string(),
            None => "the translation".to_owned(),
        };
        let count = translation.left.len();
        let places = if count == 1 { "place has" } else { "places have" };
        say(&format!("{count} {places} no translation:\n"));
        for finding in &translation.left {
            say(&format!("  {name}:{}: {}\n", finding.span.line, finding.message));
        }
        Ok(FAILED)
    })
}

/// Plans a script here, then translates it.
pub(super) fn translation(
    source: &ScriptSource,
    arguments: &ScriptArguments,
    text: &str,
    (cluster, queries): (&FlinkCluster, Queries),
) -> std::result::Result<Translation, Failure> {
    let translated = || -> Result<Translation> {
        let mut session = Session::new(source.session_options(arguments)?)?;
        session.validate(text)?;
        session.translate_for_flink(text, cluster, queries)
    };
    translated().map_err(|error| Failure { error, text: Some(text.to_owned()) })
}

/// Prints what has no translation.
pub(super) fn print_left(translation: &Translation, arguments: &ScriptArguments) -> Result<()> {
    print_findings(&translation.left, ("the translation", &translation.text), arguments.color)
}
