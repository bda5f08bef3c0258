//! Any text becomes statements or an error that renders; nothing panics or takes for ever.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_plan::{diagnostic, parser};

fuzz_target!(|text: &str| {
    if let Err(error) = parser::parse_script(text) {
        let rendered = diagnostic::render(&error, "fuzz.sql", text, false);
        assert!(rendered.contains(error.message().lines().next().unwrap_or_default()));
    }
});
