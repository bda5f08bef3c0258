//! Enough of Rust's lexical rules to look for things in code and not in comments or strings.
//!
//! [`split`] gives two texts with as many lines as the source: the code with comments and the
//! contents of literals blanked, and the comments alone. It does not know macros or types. Raw
//! strings, nested comments, and lifetimes next to character literals are understood.

/// A source text taken apart. Both parts have the lines of the source.
pub struct Split {
    /// Everything but comments and the insides of string and character literals.
    pub code: String,
    /// Only what stands in comments.
    pub comments: String,
}

/// Takes a source text apart.
pub fn split(source: &str) -> Split {
    let mut lexer = Lexer { rest: source, code: String::new(), comments: String::new() };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    Split { code: lexer.code, comments: lexer.comments }
}

/// Blanks items behind `#[cfg(test)]`, `#[cfg(all(test, …))]`, `#[test]` and `#[cfg(loom)]` in a
/// text that [`split`] returned as code.
pub fn without_tests(code: &str) -> String {
    let mut kept = code.to_string();
    let mut from = 0;
    while let Some(start) = find_test_attribute(&kept, from) {
        let end = item_end(&kept, start);
        let blank: String =
            kept[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        kept.replace_range(start..end, &blank);
        from = start + blank.len();
    }
    kept
}

/// The names of modules that are declared, but not written out, behind a test attribute.
pub fn test_modules(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut from = 0;
    while let Some(start) = find_test_attribute(code, from) {
        let end = item_end(code, start);
        let item = code[start..end].trim_end_matches(';');
        if let Some((_, name)) = item.rsplit_once("mod ") {
            names.push(name.trim().to_string());
        }
        from = end;
    }
    names
}

/// The line, from 1, in which the byte at `position` stands.
pub fn line_of(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

/// True for a character that can be part of a name.
pub fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The position behind the bracket that closes the one at `open`.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, character) in code[open..].char_indices() {
        match character {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return open + offset + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn find_test_attribute(code: &str, from: usize) -> Option<usize> {
    const ATTRIBUTES: [&str; 4] = ["#[cfg(test)]", "#[cfg(all(test", "#[test]", "#[cfg(loom)]"];
    ATTRIBUTES.iter().filter_map(|wanted| code[from..].find(wanted)).min().map(|at| from + at)
}

/// The end of the item that starts with attributes at `start`: behind its block or semicolon.
fn item_end(code: &str, start: usize) -> usize {
    let mut position = start;
    while let Some(character) = code[position..].chars().next() {
        match character {
            '{' => return closing(code, position),
            '(' | '[' => position = closing(code, position),
            ';' => return position + 1,
            other => position += other.len_utf8(),
        }
    }
    code.len()
}

struct Lexer<'a> {
    rest: &'a str,
    code: String,
    comments: String,
}

impl Lexer<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            self.comment(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment_length(self.rest));
        } else if let Some(length) = self.raw_string_length().or_else(|| self.string_length()) {
            self.literal(length);
        } else {
            // A whole word at once, so that the r of `for` does not begin a raw string.
            let word = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
            self.copy(word.max(self.rest.chars().next().map_or(1, char::len_utf8)));
        }
    }

    fn copy(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.code.push_str(taken);
        self.comments.extend(taken.chars().map(blank));
        self.rest = rest;
    }

    fn comment(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.code.extend(taken.chars().map(blank));
        self.comments.push_str(taken);
        self.rest = rest;
    }

    fn literal(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.code.push('"');
        self.code.extend(taken.chars().filter(|&c| c == '\n'));
        self.code.push('"');
        self.comments.extend(taken.chars().map(blank));
        self.rest = rest;
    }

    /// The length of a raw string (`r"…"`, `br#"…"#`) that starts here.
    fn raw_string_length(&self) -> Option<usize> {
        let prefix = ["r", "br", "cr"].iter().find(|prefix| {
            let behind = self.rest.strip_prefix(**prefix);
            behind.is_some_and(|rest| rest.trim_start_matches('#').starts_with('"'))
        })?;
        let hashes = self.rest[prefix.len()..].chars().take_while(|&c| c == '#').count();
        let body = prefix.len() + hashes + 1;
        let end = format!("\"{}", "#".repeat(hashes));
        Some(self.rest[body..].find(&end).map_or(self.rest.len(), |at| body + at + end.len()))
    }

    /// The length of a string or character literal that starts here. A lifetime is none.
    fn string_length(&self) -> Option<usize> {
        let quote = self.rest.chars().next().filter(|&c| c == '"' || c == '\'')?;
        if quote == '\'' && !is_character_literal(&self.rest[1..]) {
            return None;
        }
        let mut escaped = false;
        for (offset, character) in self.rest.char_indices().skip(1) {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return Some(offset + 1),
                _ => {}
            }
        }
        Some(self.rest.len())
    }
}

fn blank(character: char) -> char {
    if character == '\n' { '\n' } else { ' ' }
}

fn is_character_literal(behind_quote: &str) -> bool {
    let mut characters = behind_quote.chars();
    characters.next() == Some('\\') || characters.next() == Some('\'')
}

fn block_comment_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut position) = (0, 0);
    while position + 1 < bytes.len() {
        match &bytes[position..position + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                position += 1;
                continue;
            }
        }
        position += 2;
        if depth == 0 {
            return position;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code() {
        let source =
            "let a = \"x.unwrap() \\\" y\"; // .unwrap()\n/* a /* b */ c */ f('\"', r#\"\"#);";
        let Split { code, comments } = split(source);
        assert_eq!(code.replace(' ', ""), "leta=\"\";\nf(\"\",\"\");");
        assert!(comments.contains("// .unwrap()") && comments.contains("/* a /* b */ c */"));
        assert_eq!(code.lines().count(), comments.lines().count());
    }

    #[test]
    fn lifetimes_are_no_character_literals() {
        let code = split("fn f<'a>(x: &'a str) -> char { 'x' }").code;
        assert_eq!(code, "fn f<'a>(x: &'a str) -> char { \"\" }");
    }

    #[test]
    fn test_items_are_blanked_with_their_lines_kept() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c(); }\n}\nfn d() {}\n";
        let kept = without_tests(code);
        assert!(kept.contains("fn a()") && kept.contains("fn d()") && !kept.contains("fn b()"));
        assert_eq!(kept.lines().count(), code.lines().count());
    }

    #[test]
    fn modules_declared_for_tests_are_found() {
        assert_eq!(test_modules("mod a;\n#[cfg(test)]\nmod checks;\nmod b;"), ["checks"]);
    }
}
