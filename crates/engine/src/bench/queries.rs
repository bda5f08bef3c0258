//! The texts of the queries. They are part of the program, so that it needs no file to run them.
//! `nexmark` is a link to `benches/nexmark`, so that a packaged crate has them as well.

use thalweg_core::connector::near_miss;
use thalweg_core::{Error, Result};

use super::Preset;

/// A query of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// What it is called, such as `q5`.
    pub name: &'static str,
    /// Its statements. `${events}` stands for the options of the tables of events.
    pub text: &'static str,
}

macro_rules! texts {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(Query {
            name: $name,
            text: include_str!(concat!("nexmark/", $folder, $name, ".sql")),
        }),*]
    };
}

const NEXMARK: &[Query] = texts!("":
    "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15",
    "q16", "q17", "q18", "q19", "q20", "q21", "q22", "q23");

const PEER: &[Query] = texts!("peer/": "q0", "q1", "q2", "q5s500", "q5s10", "q7", "q8", "session");

/// The queries over the events of a preset.
pub fn queries(preset: Preset) -> &'static [Query] {
    match preset {
        Preset::Nexmark | Preset::Beam => NEXMARK,
        Preset::Peer => PEER,
    }
}

/// The query of this name, in any case.
///
/// # Errors
/// If there is none; names the nearest.
pub fn find(preset: Preset, name: &str) -> Result<&'static Query> {
    let all = queries(preset);
    all.iter().find(|query| query.name.eq_ignore_ascii_case(name.trim())).ok_or_else(|| {
        let names = || all.iter().map(|query| query.name);
        let help = match near_miss(name, names()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        Error::plan(format!("there is no query '{name}' over the events of preset '{preset}'"))
            .hint(help)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_gets_help() {
        assert_eq!(find(Preset::Nexmark, "Q5").expect("there is one").name, "q5");
        let error = find(Preset::Peer, "sesion").expect_err("there is none");
        assert_eq!(error.help(), Some("did you mean session?"));
        let error = find(Preset::Peer, "wordcount").expect_err("there is none");
        assert!(
            error.help().is_some_and(|help| help.starts_with("there are q0, q1, q2, q5s500")),
            "{error}"
        );
    }
}
