//! All SQL of the repository, laid out: it means what it meant, and a second layout changes
//! nothing.

use std::fs;
use std::path::Path;

use thalweg::session::{ExplainFormat, Session, SessionOptions, formatted};

use crate::corpus::Corpus;

/// The plans of a text, or why there are none; places are not compared.
fn plans(folder: &Path, text: &str) -> Result<Vec<String>, String> {
    let options = SessionOptions {
        base_dir: folder.to_owned(),
        allowed_roots: vec![folder.to_owned()],
        workers: Some(1),
        ..SessionOptions::default()
    };
    let mut session = Session::new(options).expect("a session");
    let plans = session.explain(text, ExplainFormat::Text);
    plans.map_err(|error| error.message().replace(|c: char| c.is_ascii_digit(), ""))
}

#[test]
fn all_sql_of_the_repository_means_the_same_when_it_is_laid_out() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout");
    fs::create_dir_all(&folder).expect("a folder");
    let (mut planned, mut refused) = (0, 0);
    for script in Corpus::read().scripts {
        let tokens = script.tokens.iter();
        let text: String = tokens.flat_map(|token| [&*token.before, &*token.text]).collect();
        let text = text.replace("@DIR@", &folder.to_string_lossy());
        let Ok(once) = formatted(&text) else {
            assert!(plans(&folder, &text).is_err(), "{}", script.name);
            refused += 1;
            continue;
        };
        let twice = formatted(&once).expect("what was laid out can be laid out");
        assert_eq!(twice, once, "{}", script.name);
        let (before, after) = (plans(&folder, &text), plans(&folder, &once));
        assert_eq!(before, after, "{}\n{once}", script.name);
        planned += usize::from(after.is_ok());
    }
    println!("{planned} texts planned, {refused} cannot be cut into tokens");
    assert!(planned > 150, "only {planned}");
}
