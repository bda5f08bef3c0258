//! Java's regular expressions in the syntax of the regex crate.
//!
//! In Java `\w`, `\d`, `\s`, `\p{Alpha}` and the like are ASCII, and `(?i)` folds ASCII letters;
//! here they would be of all Unicode. A pattern with the flag `u` or `U` keeps Unicode, as in Java.
//!
//! Only what means something else is rewritten. What the regex crate does not know (look-around,
//! back-references) is left for it to refuse.

use std::iter::Peekable;
use std::str::Chars;

/// The same pattern for the regex crate.
pub(super) fn translated(pattern: &str) -> String {
    let mut writer = Writer {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        folds: false,
        groups: Vec::new(),
        is_unicode: asks_for_unicode(pattern),
    };
    writer.write();
    writer.out
}

/// True if a group of flags has `u` or `U`.
fn asks_for_unicode(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|group| {
        let mut flags = group.chars().take_while(|c| c.is_ascii_alphabetic());
        let is_named = group.starts_with("P<");
        !is_named && flags.any(|flag| matches!(flag, 'u' | 'U'))
    })
}

struct Writer<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    /// Letters match in both cases.
    folds: bool,
    /// Whether letters were folded before each open group.
    groups: Vec<bool>,
    is_unicode: bool,
}

impl Writer<'_> {
    fn write(&mut self) {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape(),
                '[' => self.class(),
                '(' => self.group(),
                ')' => {
                    self.folds = self.groups.pop().unwrap_or(self.folds);
                    self.out.push(')');
                }
                c if self.folds && c.is_ascii_alphabetic() => {
                    self.out.extend(['[', c, swapped(c), ']']);
                }
                c => self.out.push(c),
            }
        }
    }

    /// What follows a backslash. A class becomes one in brackets, which may stand within brackets.
    fn escape(&mut self) {
        let Some(c) = self.rest.next() else { return self.out.push('\\') };
        match (c, ascii_class(c)) {
            (_, Some(class)) if !self.is_unicode => self.class_of(class, c.is_ascii_uppercase()),
            ('Q', _) => self.quoted(),
            ('p' | 'P', _) if self.rest.peek() == Some(&'{') => self.property(c == 'P'),
            _ => self.out.extend(['\\', c]),
        }
    }

    fn class_of(&mut self, members: &str, is_negated: bool) {
        self.out.push_str(if is_negated { "[^" } else { "[" });
        self.out.push_str(members);
        self.out.push(']');
    }

    /// `\Q…\E` is a text as it stands.
    fn quoted(&mut self) {
        let mut text = String::new();
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                break;
            }
            text.push(c);
        }
        self.out.push_str(&regex::escape(&text));
    }

    /// `\p{Name}`: the classes of POSIX are ASCII.
    fn property(&mut self, is_negated: bool) {
        self.rest.next();
        let name: String = std::iter::from_fn(|| self.rest.next_if(|c| *c != '}')).collect();
        match posix_class(&name).filter(|_| !self.is_unicode) {
            Some(class) => {
                self.rest.next();
                self.class_of(class, is_negated);
            }
            None => {
                self.out.push_str(if is_negated { "\\P{" } else { "\\p{" });
                self.out.push_str(&name);
            }
        }
    }

    /// `[…]`, of which the opening bracket was read.
    fn class(&mut self) {
        self.out.push('[');
        self.out.extend(self.rest.next_if_eq(&'^'));
        // A bracket that stands first is a member.
        if self.rest.next_if_eq(&']').is_some() {
            self.out.push_str("\\]");
        }
        while let Some(c) = self.rest.next() {
            match c {
                ']' => return self.out.push(']'),
                '[' => self.class(),
                '\\' => self.escape(),
                c => self.member(c),
            }
        }
    }

    /// A character of a class, or a range that begins with it.
    fn member(&mut self, low: char) {
        let mut ahead = self.rest.clone();
        let is_end = |c: &char| !matches!(c, ']' | '[' | '\\');
        let high = ahead.next_if_eq(&'-').and_then(|_| ahead.next_if(is_end));
        let Some(high) = high else {
            self.out.push(low);
            if self.folds && low.is_ascii_alphabetic() {
                self.out.push(swapped(low));
            }
            return;
        };
        self.rest = ahead;
        self.out.extend([low, '-', high]);
        if self.folds {
            for (first, last) in [('a', 'z'), ('A', 'Z')] {
                let (from, to) = (low.max(first), high.min(last));
                if from <= to {
                    self.out.extend([swapped(from), '-', swapped(to)]);
                }
            }
        }
    }

    /// A group of which the bracket was read, with its flags or its name.
    fn group(&mut self) {
        self.out.push('(');
        self.groups.push(self.folds);
        if self.rest.next_if_eq(&'?').is_none() {
            return;
        }
        let flags: String =
            std::iter::from_fn(|| self.rest.next_if(|c| c.is_ascii_alphabetic() || *c == '-'))
                .collect();
        match self.rest.peek() {
            Some(':' | ')') if !flags.is_empty() => self.flags(&flags),
            Some('<') => {
                // The letters of a name are none of the text.
                self.out.push('?');
                self.out.push_str(&flags);
                let name = std::iter::from_fn(|| self.rest.next_if(|c| *c != '>'));
                self.out.extend(name);
            }
            _ => {
                self.out.push('?');
                self.out.push_str(&flags);
            }
        }
    }

    /// `(?flags)` or `(?flags:`. Folding is done here, unless it is Unicode's.
    fn flags(&mut self, flags: &str) {
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        if !self.is_unicode {
            self.folds = (self.folds || on.contains('i')) && !off.contains('i');
        }
        let kept = |flags: &str| -> String {
            let is_kept = |c: &char| !matches!(c, 'u' | 'U') && (self.is_unicode || *c != 'i');
            flags.chars().filter(is_kept).collect()
        };
        let (on, off) = (kept(on), kept(off));
        let dash = if off.is_empty() { "" } else { "-" };
        let is_open = self.rest.next() == Some(':');
        match (is_open, on.is_empty() && off.is_empty()) {
            (true, _) => self.out.push_str(&format!("?{on}{dash}{off}:")),
            (false, true) => drop(self.out.pop()),
            (false, false) => self.out.push_str(&format!("?{on}{dash}{off})")),
        }
        if !is_open {
            // The flags are for the rest of the group that they stand in.
            self.groups.pop();
        }
    }
}

fn swapped(c: char) -> char {
    if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() }
}

/// The members of `\d` and kin; an upper case letter means all others.
fn ascii_class(letter: char) -> Option<&'static str> {
    Some(match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => " \\t\\n\\x0B\\x0C\\r",
        _ => return None,
    })
}

fn posix_class(name: &str) -> Option<&'static str> {
    Some(match name {
        "Lower" => "a-z",
        "Upper" => "A-Z",
        "Alpha" => "A-Za-z",
        "Digit" => "0-9",
        "Alnum" => "0-9A-Za-z",
        "Punct" => "!-/:-@\\[-`\\{-~",
        "Graph" => "!-~",
        "Print" => " -~",
        "Blank" => " \\t",
        "Cntrl" => "\\x00-\\x1F\\x7F",
        "XDigit" => "0-9A-Fa-f",
        "Space" => " \\t\\n\\x0B\\x0C\\r",
        "ASCII" => "\\x00-\\x7F",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pattern, a text, whether Java finds the one in the other.
    const FOUND: [(&str, &str, bool); 26] = [
        (r"^\w$", "ä", false),
        (r"^\W$", "ä", true),
        (r"^[\w-]+$", "a-b_1", true),
        (r"^[\w-.]+$", "a-b.c", true),
        (r"^[^\W\d]+$", "ab", true),
        (r"^[^\W\d]+$", "ab1", false),
        (r"\d", "\u{661}", false),
        (r"^\s$", "\u{a0}", false),
        (r"(?i)ABC", "xabcx", true),
        ("(?i)Ä", "ä", false),
        ("(?iu)Ä", "ä", true),
        ("(?i)k", "\u{212a}", false),
        (r"(?U)^\w$", "ä", true),
        ("a(?i)b", "Ab", false),
        ("a(?i)b", "aB", true),
        ("((?i)a)b", "AB", false),
        ("(?i:a)b", "Ab", true),
        ("(?i)a(?-i)b", "AB", false),
        ("(?i)[a-c]x", "BX", true),
        ("(?i)^[^a-c]$", "B", false),
        ("(?i)[W-b]", "z", true),
        ("(?i)(?<abc>x)", "X", true),
        (r"^\p{Lower}+$", "ä", false),
        (r"^\p{L}+$", "日本", true),
        (r"^\Qa.b\E.$", "a.bc", true),
        (r"[a-z&&[^b]]", "b", false),
    ];

    #[test]
    fn patterns_find_what_java_finds() {
        for (pattern, text, found) in FOUND {
            let regex = translated(pattern);
            let compiled = regex::Regex::new(&regex);
            let compiled = compiled.unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), found, "{pattern} ({regex}) in {text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_left_to_be_refused() {
        for pattern in ["(?=a)", "(?<!a)b", "a\\", "[", "[a", "(", "(?", "(?i", r"\p{", "(?<n", ")"]
        {
            assert!(regex::Regex::new(&translated(pattern)).is_err(), "{pattern}");
        }
    }
}
