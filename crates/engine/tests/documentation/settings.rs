//! `docs/configuration.md` has every key of SET, with its default, and its last table is made from
//! the keys.
//!
//! The last table is between `<!-- generated -->` and `<!-- end -->`.

use thalweg_plan::catalog::{KEYS, Origin, SettingKey};

use super::functions::cells;
use super::{compare_or_write, docs, read};

#[test]
fn the_page_about_configuration_has_every_key_and_its_default() {
    let page = read(&docs().join("configuration.md"));
    let (by_hand, _) = page.split_once(BEGIN).expect("a marker");
    let mut wrong = Vec::new();
    for key in KEYS {
        let name = format!("`{}`", key.name);
        if !matches!(key.origin, Origin::Inert(_) | Origin::AliasOf(_)) && !by_hand.contains(&name)
        {
            wrong.push(format!("{name} is missing"));
        }
        let mut rows = by_hand.lines().map(cells).filter(|cells| cells.first() == Some(&name));
        if let Some(row) = rows.next()
            && !key.default.is_empty()
            && row[1].trim_matches('`') != key.default
        {
            wrong.push(format!("the default of {name} is {} and not {}", key.default, row[1]));
        }
    }
    assert!(wrong.is_empty(), "docs/configuration.md: {}", wrong.join("\n"));
}

#[test]
fn the_table_of_keys_is_that_of_the_code() {
    let rows: String = KEYS.iter().map(row).collect();
    compare_or_write(
        "configuration.md",
        &format!("| key | default | in Flink |\n|---|---|---|\n{rows}"),
    );
}

const BEGIN: &str = "<!-- generated -->";

fn row(key: &SettingKey) -> String {
    let SettingKey { name, default, .. } = key;
    let in_flink = match key.origin {
        Origin::Flink => "yes".to_owned(),
        Origin::Ours => "no".to_owned(),
        Origin::AliasOf(other) => format!("yes; here another name of `{other}`"),
        Origin::Inert(why) => format!("yes; here without effect: {why}"),
    };
    let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
    format!("| `{name}` | {default} | {in_flink} |\n")
}
