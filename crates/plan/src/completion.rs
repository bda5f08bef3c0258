//! What can be written at a place of a text of statements: tables, columns, functions, words,
//! settings, connectors and their options.
//!
//! The text need not be right: it is being written. Statements before the one at the place are
//! carried out as far as they declare something, those that are wrong are passed over, and of the
//! statement itself only tokens are looked at. So an answer is a guess, and never an error.
//!
//! What it does not do: it does not know the grammar, so it offers words that cannot stand there.

mod scan;
mod statement;

use std::collections::BTreeSet;

use thalweg_core::connector::{ConnectorDescription, OptionDescription, OptionKind};
use thalweg_core::quoting::quoted_name;

use self::scan::{Place, scan};
use self::statement::{Named, StatementText};
use crate::ast::Name;
use crate::catalog::{KEYS, SettingKind, path};
use crate::parser::parse_script;
use crate::planner::Planner;
use crate::windows::WINDOW_FUNCTIONS;

/// Words of the dialect.
const WORDS: &str = "ADD ALL ALTER ANALYZE AND AS ASC BEGIN BETWEEN BY CASE CAST COMMENT COMPILE CREATE CROSS CURRENT \
    DATABASE DELETE DESC DESCRIBE DESCRIPTOR DISTINCT DROP ELSE END ENFORCED EXCEPT EXECUTE EXISTS EXPLAIN FALSE FETCH \
    FILTER FOLLOWING FOR FROM FULL GROUP GROUPING HAVING IF IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN KEY LATERAL \
    LEFT LIKE LIMIT MATCHED MATCH_RECOGNIZE MATERIALIZED METADATA NOT NULL OF ON OR ORDER OUTER OVER OVERWRITE PARTITION \
    PARTITIONED PLAN PRECEDING PRIMARY RANGE RECURSIVE RENAME RESET RIGHT ROLLUP ROW ROWS SELECT SET SETS SHOW STATEMENT \
    STOP SYSTEM_TIME TABLE TABLES TEMPORARY THEN TO TRUE UNBOUNDED UNION UNNEST UPDATE USE USING VALUES VIEW VIRTUAL \
    WATERMARK WHEN WHERE WINDOW WITH WITHIN";
/// Words that statements begin with.
const FIRST_WORDS: &str =
    "ALTER COMPILE CREATE DESCRIBE DROP EXECUTE EXPLAIN INSERT RESET SELECT SET SHOW STOP USE WITH";
/// Words behind which a table stands.
const BEFORE_TABLES: [&str; 8] =
    ["FROM", "JOIN", "INTO", "TABLE", "DESCRIBE", "DESC", "VIEW", "UPDATE"];
/// Types of columns.
const TYPES: &str = "ARRAY BIGINT BINARY BOOLEAN BYTES CHAR DATE DECIMAL DOUBLE FLOAT INT MAP MULTISET SMALLINT STRING TIME \
    TIMESTAMP TIMESTAMP_LTZ TINYINT VARBINARY VARCHAR VARIANT";

/// What can be written at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// Where the word begins that one of them takes the place of, in characters.
    pub from: usize,
    /// The most likely kinds first.
    pub items: Vec<Completion>,
}

/// Something that can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What it is called.
    pub label: String,
    /// What it is.
    pub kind: CompletionKind,
    /// Its type, its default, its values: a few words.
    pub detail: String,
    /// What it means.
    pub info: Option<String>,
    /// What is written.
    pub insert: String,
}

/// What a completion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompletionKind {
    /// A column of a table that the statement names.
    Column,
    /// A table, a view, or a database before one.
    Table,
    /// A function.
    Function,
    /// A word of the dialect.
    Word,
    /// A type.
    Type,
    /// A key of SET.
    Setting,
    /// An option of a connector.
    Option,
    /// What an option or a setting can be.
    Value,
}

impl Completion {
    fn new(kind: CompletionKind, label: &str, detail: impl Into<String>) -> Completion {
        let (label, insert) = (label.to_owned(), label.to_owned());
        Completion { label, kind, detail: detail.into(), info: None, insert }
    }

    /// A name, in backticks where it needs them.
    fn name(kind: CompletionKind, name: &str, detail: impl Into<String>) -> Completion {
        let is_plain = |c: char| c.is_alphanumeric() || c == '_';
        let is_word = name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit());
        let insert = if is_word { name.to_owned() } else { quoted_name(name) };
        Completion { insert, ..Completion::new(kind, name, detail) }
    }

    fn with_info(self, info: &str) -> Completion {
        Completion { info: Some(info.to_owned()), ..self }
    }
}

impl Planner {
    /// What can be written at a place of a text, which is counted in characters. Tables are those
    /// of the planner, and those that the text declares before the place.
    pub fn complete(&self, text: &str, place: usize) -> Completions {
        let before: String = text.chars().take(place).collect();
        let scanned = scan(&before);
        let mut planner = self.fork();
        let statements = scanned.statements.iter().map(|range| &before[range.clone()]);
        statements
            .filter(|text| !text.trim().is_empty())
            .for_each(|text| planner.try_to_declare(text));
        let whole = &text[scanned.start..];
        let end = scan(whole).statements.first().map_or(whole.len(), |first| first.end);
        let own = &before[scanned.start..];
        let (typed, items) = match scanned.place {
            Place::Comment => (0, Vec::new()),
            Place::Text(from) => {
                let typed = &before[from..];
                let statement = StatementText::new(&before[scanned.start..from - 1]);
                let whole = &whole[..end];
                (typed.chars().count(), planner.in_text(&statement, (own, whole), typed))
            }
            Place::Code => {
                let typed = typed_word(own);
                let statement = StatementText::new(&own[..own.len() - typed.len()]);
                // Without the word, which may open a name that nothing closes.
                let behind = &whole[own.len().min(end)..end];
                let around = format!("{} {behind}", &own[..own.len() - typed.len()]);
                let around = StatementText::around(&around);
                let items = planner.in_code(&statement, &around);
                let quoted = typed.strip_prefix('`');
                let word = quoted.unwrap_or(typed).to_lowercase();
                let is_name = |item: &Completion| {
                    matches!(item.kind, CompletionKind::Column | CompletionKind::Table)
                };
                let begins = |item: &Completion| {
                    item.label.to_lowercase().starts_with(&word)
                        && (quoted.is_none() || is_name(item))
                };
                (typed.chars().count(), items.into_iter().filter(begins).collect())
            }
        };
        Completions { from: before.chars().count() - typed, items }
    }

    /// Carries out the declarations of a text. One that is wrong is as if it were not there.
    fn try_to_declare(&mut self, text: &str) {
        for statement in parse_script(text).unwrap_or_default() {
            // Wrong ones are what the checks of the text are for; jobs are no declarations.
            let _ = self.execute_ddl(&statement);
        }
    }

    /// What a text in quotes can be.
    fn in_text(
        &self,
        statement: &StatementText,
        texts: (&str, &str),
        typed: &str,
    ) -> Vec<Completion> {
        let typed = typed.to_lowercase();
        let begins = |item: &Completion| item.label.to_lowercase().starts_with(&typed);
        let is_setting = statement.is_first(&["SET", "RESET"]);
        let items = match statement.key_before_equals() {
            Some(key) if is_setting => setting_values(&key),
            Some(key) => self.option_values(&key, texts),
            None if is_setting => settings(),
            None if statement.is_in_options() => self.options(texts),
            None => Vec::new(),
        };
        items.into_iter().filter(begins).collect()
    }

    /// The connector that the options of a statement name, before the place or behind it.
    fn connector(&self, (before, whole): (&str, &str)) -> Option<&ConnectorDescription> {
        let name = statement::option_of(before, "connector");
        let name = name.or_else(|| statement::option_of(whole, "connector"))?;
        self.connectors().descriptions().find(|of| of.name == name)
    }

    fn options(&self, texts: (&str, &str)) -> Vec<Completion> {
        let first = Completion::new(CompletionKind::Option, "connector", "required")
            .with_info("where the rows of the table are");
        let Some(connector) = self.connector(texts) else { return vec![first] };
        let options = connector.all_options().map(|option| {
            let detail = [option.values().replace('`', ""), option.default_text().replace('`', "")];
            let detail = detail.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
            Completion::new(CompletionKind::Option, option.name, detail.join("; "))
                .with_info(option.help)
        });
        std::iter::once(first).chain(options).collect()
    }

    fn option_values(&self, key: &str, texts: (&str, &str)) -> Vec<Completion> {
        let value = |name: &str, about: &str| Completion::new(CompletionKind::Value, name, about);
        if key == "connector" {
            let all = self.connectors().descriptions();
            return all.map(|of| value(of.name, of.summary)).collect();
        }
        let Some(connector) = self.connector(texts) else { return Vec::new() };
        if connector.option(key).is_some()
            && key.ends_with("format")
            && !connector.formats.is_empty()
        {
            return connector.formats.iter().map(|of| value(of.name, of.summary)).collect();
        }
        connector.option(key).map(words_of_option).unwrap_or_default()
    }

    /// What can stand where no text is.
    fn in_code(&self, statement: &StatementText, around: &StatementText) -> Vec<Completion> {
        if let Some(qualifier) = statement.qualifier() {
            return self.behind_point(&qualifier, around);
        }
        if statement.is_empty() {
            return words(FIRST_WORDS, CompletionKind::Word);
        }
        let mut items = Vec::new();
        if statement.ends_with_word(&BEFORE_TABLES) {
            items.extend(self.tables());
            items.extend(words("IF LATERAL TABLE UNNEST VALUES", CompletionKind::Word));
            return items;
        }
        if statement.ends_with_call("TABLE") {
            return window_functions();
        }
        items.extend(
            around
                .declared()
                .iter()
                .map(|(name, kind)| Completion::name(CompletionKind::Column, name, kind.clone())),
        );
        let tables: BTreeSet<String> =
            self.named(around).into_iter().map(|named| named.table).collect();
        items.extend(tables.iter().flat_map(|table| self.columns(table)));
        items.extend(self.functions());
        items.extend(words(WORDS, CompletionKind::Word));
        items.extend(words(TYPES, CompletionKind::Type));
        items.extend(self.tables());
        items
    }

    /// Columns of a table or of its alias, or tables of a database.
    fn behind_point(&self, qualifier: &str, around: &StatementText) -> Vec<Completion> {
        let named = self.named(around);
        let is_meant = |named: &&Named| named.alias == qualifier || named.table == qualifier;
        if let Some(named) = named.iter().find(is_meant) {
            return self.columns(&named.table);
        }
        let here = self.catalog().current();
        let of_database = |name: String| {
            let (database, table) = here.object(&name);
            let is_own = database == here.database(qualifier);
            is_own.then(|| Completion::name(CompletionKind::Table, &table, "table"))
        };
        self.catalog().names().into_iter().filter_map(of_database).collect()
    }

    /// The tables and views that a statement names.
    fn named(&self, statement: &StatementText) -> Vec<Named> {
        statement.named(|name| {
            let key = self.catalog().key(name);
            self.catalog().table(&key).is_some() || self.catalog().view(&key).is_some()
        })
    }

    fn tables(&self) -> Vec<Completion> {
        let of = |name: String| {
            let key = self.catalog().key(&name);
            let what = if self.catalog().view(&key).is_some() { "view" } else { "table" };
            let parts = path::parts(&name);
            let insert: Vec<String> = parts
                .iter()
                .map(|part| Completion::name(CompletionKind::Table, part, "").insert)
                .collect();
            let insert = insert.join(".");
            Completion { insert, ..Completion::new(CompletionKind::Table, &name, what) }
        };
        self.catalog().names().into_iter().map(of).collect()
    }

    fn columns(&self, table: &str) -> Vec<Completion> {
        let name = Name { text: table.to_owned(), span: thalweg_core::Span::default() };
        let described = self.columns_of(&name).map(|found| found.rows).unwrap_or_default();
        let column = |row: &Vec<String>| {
            let [name, kind, ..] = &row[..] else { return None };
            Some(Completion::name(CompletionKind::Column, name, format!("{kind} of {table}")))
        };
        described.iter().filter_map(column).collect()
    }

    fn functions(&self) -> Vec<Completion> {
        let names = self.function_names();
        let of = |name: &String| Completion {
            insert: format!("{name}("),
            ..Completion::new(CompletionKind::Function, name, "")
        };
        names.iter().map(of).collect()
    }
}

fn window_functions() -> Vec<Completion> {
    let of = |function: &crate::windows::WindowFunction| Completion {
        insert: format!("{}(", function.name),
        ..Completion::new(CompletionKind::Function, function.name, function.usage)
    };
    WINDOW_FUNCTIONS.iter().map(of).collect()
}

fn words(all: &str, kind: CompletionKind) -> Vec<Completion> {
    all.split_whitespace().map(|word| Completion::new(kind, word, "")).collect()
}

fn settings() -> Vec<Completion> {
    let of = |key: &crate::catalog::SettingKey| {
        Completion::new(CompletionKind::Setting, key.name, key.default).with_info(key.doc)
    };
    KEYS.iter().map(of).collect()
}

fn setting_values(key: &str) -> Vec<Completion> {
    let found = KEYS.iter().find(|own| own.name == key);
    let Some(found) = found else { return Vec::new() };
    let value = |name: &str| {
        let detail = if name == found.default { "default" } else { "" };
        Completion::new(CompletionKind::Value, name, detail)
    };
    match found.kind {
        SettingKind::Word(words) => words.iter().map(|word| value(word)).collect(),
        _ if found.default.is_empty() => Vec::new(),
        _ => vec![value(found.default)],
    }
}

fn words_of_option(option: &OptionDescription) -> Vec<Completion> {
    let value = |name: &str| Completion::new(CompletionKind::Value, name, "");
    match option.kind {
        OptionKind::Words(words) => words.iter().map(|word| value(word)).collect(),
        OptionKind::Boolean => vec![value("true"), value("false")],
        _ => Vec::new(),
    }
}

/// The word that ends at the end of a text, with a backtick before it if one opens it.
fn typed_word(text: &str) -> &str {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let start = text
        .rfind(|c| !is_of_word(c))
        .map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8));
    let opens = text[..start].ends_with('`') && text[..start].matches('`').count() % 2 == 1;
    &text[start - usize::from(opens)..]
}
