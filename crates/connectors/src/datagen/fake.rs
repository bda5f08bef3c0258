//! Values that look like those of people: names, addresses, numbers of a form. They are written
//! as in flink-faker: `#{Name.full_name}`, `#{number.numberBetween '1','6'}`,
//! `#{regexify '[a-f]{4}'}`, with any text around. The word lists are small ones of our own.

use std::fmt;

use regex_syntax::Parser;
use regex_syntax::hir::{Class, Hir, HirKind};
use thalweg_core::shim::SplitMix64;

use super::words::{
    CITIES, COLORS, COUNTRIES, DOMAINS, FIRST_NAMES, LAST_NAMES, LOREM, PRODUCTS, STREETS, TRADES,
};

/// How often what may come any number of times comes more than it must, at most.
const REPEATS_MORE: u32 = 8;
/// The longest value of a regular expression.
const PATTERN_LENGTH_MAX: u32 = 1_000;

/// An expression that makes texts.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Call(Call),
}

/// What stands between `#{` and `}`.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    /// One of these words.
    Word(&'static [&'static str]),
    FullName,
    Email,
    Domain,
    Street,
    StreetAddress,
    Company,
    Ip,
    Uuid,
    Boolean,
    Sentence,
    /// An integer from the first to the second, without the second.
    Between(i64, i64),
    /// One of these.
    Option(Vec<String>),
    /// `#` is a digit, `?` a letter.
    Form(String),
    /// What this regular expression matches.
    Pattern(Hir),
}

/// Why an expression is none.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names without arguments.
const PLAIN: &[(&str, Call)] = &[
    ("name.firstname", Call::Word(FIRST_NAMES)),
    ("name.lastname", Call::Word(LAST_NAMES)),
    ("name.fullname", Call::FullName),
    ("name.name", Call::FullName),
    ("address.city", Call::Word(CITIES)),
    ("address.country", Call::Word(COUNTRIES)),
    ("address.streetname", Call::Street),
    ("address.streetaddress", Call::StreetAddress),
    ("company.name", Call::Company),
    ("commerce.productname", Call::Word(PRODUCTS)),
    ("color.name", Call::Word(COLORS)),
    ("lorem.word", Call::Word(LOREM)),
    ("lorem.sentence", Call::Sentence),
    ("internet.emailaddress", Call::Email),
    ("internet.domainname", Call::Domain),
    ("internet.ipv4address", Call::Ip),
    ("internet.uuid", Call::Uuid),
    ("bool.bool", Call::Boolean),
];

/// Names without arguments that are forms.
const FORMS: &[(&str, &str)] = &[
    ("address.zipcode", "#####"),
    ("phonenumber.phonenumber", "###-###-####"),
    ("phonenumber.cellphone", "###-###-####"),
    ("number.digit", "#"),
    ("number.randomdigit", "#"),
];

/// What can be called, for messages.
const KNOWN: &str = "Name.fullName, Name.firstName, Name.lastName, Address.city, Address.country, \
    Address.streetName, Address.streetAddress, Address.zipCode, PhoneNumber.phoneNumber, Company.name, \
    Commerce.productName, Color.name, Lorem.word, Lorem.sentence, Internet.emailAddress, Internet.domainName, \
    Internet.ipV4Address, Internet.uuid, Bool.bool, Number.digit, Number.numberBetween '1','10', \
    Options.option 'a','b', regexify '[a-f]{4}', numerify '##', letterify '??', bothify '??-##'";

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// If it calls what there is not, or is not complete.
    pub fn read(text: &str) -> Result<Expression, Wrong> {
        let (mut parts, mut left) = (Vec::new(), text);
        while let Some((before, rest)) = left.split_once("#{") {
            let end = end_of_call(rest).ok_or_else(|| Wrong("a '#{' has no '}'".to_owned()))?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Call(Call::read(&rest[..end])?));
            left = &rest[end + 1..];
        }
        if !left.is_empty() {
            parts.push(Part::Text(left.to_owned()));
        }
        Ok(Expression(parts))
    }

    /// Appends a value that these random numbers decide.
    pub fn append(&self, text: &mut String, numbers: &mut SplitMix64) {
        for part in &self.0 {
            match part {
                Part::Text(fixed) => text.push_str(fixed),
                Part::Call(call) => call.append(text, numbers),
            }
        }
    }
}

/// Where a call ends: at the first `}` that is not quoted.
fn end_of_call(text: &str) -> Option<usize> {
    let mut is_quoted = false;
    text.find(|c| {
        is_quoted ^= c == '\'';
        c == '}' && !is_quoted
    })
}

/// The arguments of a call: quoted texts with `,` between them.
fn arguments(text: &str) -> Result<Vec<String>, Wrong> {
    let (mut found, mut left) = (Vec::new(), text.trim());
    while !left.is_empty() {
        let quoted = left.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
        let Some((argument, rest)) = quoted else {
            return Err(Wrong(format!("arguments are quoted: {left}")));
        };
        found.push(argument.to_owned());
        left = rest.trim_start();
        left = left.strip_prefix(',').unwrap_or(left).trim_start();
    }
    Ok(found)
}

impl Call {
    fn read(text: &str) -> Result<Call, Wrong> {
        let text = text.trim();
        let (name, rest) = text.split_at(text.find([' ', '\'']).unwrap_or(text.len()));
        let known: String =
            name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
        let arguments = arguments(rest)?;
        let needs = |what: &str| Wrong(format!("{name} needs {what}"));
        match (known.as_str(), arguments.as_slice()) {
            ("number.numberbetween", [from, to]) => match (from.parse(), to.parse()) {
                (Ok(from), Ok(to)) if from < to => Ok(Call::Between(from, to)),
                _ => Err(needs("two integers, the smaller one first")),
            },
            ("options.option", options) if !options.is_empty() => {
                Ok(Call::Option(options.to_vec()))
            }
            ("regexify", [pattern]) => pattern_call(pattern),
            ("numerify" | "letterify" | "bothify", [form]) => Ok(Call::Form(form.clone())),
            ("number.numberbetween", _) => Err(needs("two arguments: '1','10'")),
            ("options.option", _) => Err(needs("options: 'a','b'")),
            ("regexify" | "numerify" | "letterify" | "bothify", _) => Err(needs("one argument")),
            (plain, []) => {
                let call = PLAIN.iter().find(|(known, _)| *known == plain);
                let form = FORMS.iter().find(|(known, _)| *known == plain);
                let form = || form.map(|(_, form)| Call::Form((*form).to_owned()));
                let call = call.map(|(_, call)| call.clone()).or_else(form);
                call.ok_or_else(|| Wrong(format!("there is no {name}; there are {KNOWN}")))
            }
            _ => Err(Wrong(format!("{name} with these arguments is not known; there are {KNOWN}"))),
        }
    }

    fn append(&self, text: &mut String, numbers: &mut SplitMix64) {
        match self {
            Call::Word(words) => text.push_str(one_of(words, numbers)),
            Call::FullName => {
                text.push_str(one_of(FIRST_NAMES, numbers));
                text.push(' ');
                text.push_str(one_of(LAST_NAMES, numbers));
            }
            Call::Email => {
                text.push_str(&one_of(FIRST_NAMES, numbers).to_lowercase());
                text.push('.');
                text.push_str(&one_of(LAST_NAMES, numbers).to_lowercase());
                text.push_str(&format!("{}@", numbers.below(100)));
                text.push_str(one_of(DOMAINS, numbers));
            }
            Call::Domain => text.push_str(one_of(DOMAINS, numbers)),
            Call::Street => append_street(text, numbers),
            Call::StreetAddress => {
                text.push_str(&format!("{} ", 1 + numbers.below(200)));
                append_street(text, numbers);
            }
            Call::Company => {
                text.push_str(one_of(LAST_NAMES, numbers));
                text.push(' ');
                text.push_str(one_of(TRADES, numbers));
            }
            Call::Ip => {
                let mut byte = || numbers.below(256);
                text.push_str(&format!("{}.{}.{}.{}", byte(), byte(), byte(), byte()));
            }
            Call::Uuid => append_uuid(text, numbers),
            Call::Boolean => text.push_str(one_of(&["false", "true"], numbers)),
            Call::Sentence => append_sentence(text, numbers),
            Call::Between(from, to) => {
                let number = from.wrapping_add(numbers.below(to.wrapping_sub(*from) as u64) as i64);
                text.push_str(&number.to_string());
            }
            Call::Option(options) => {
                text.push_str(&options[numbers.below(options.len() as u64) as usize]);
            }
            Call::Form(form) => form.chars().for_each(|c| text.push(filled(c, numbers))),
            Call::Pattern(pattern) => append_match(pattern, text, numbers),
        }
    }
}

/// A regular expression whose matches are not too long.
fn pattern_call(pattern: &str) -> Result<Call, Wrong> {
    let wrong = |why: &dyn fmt::Display| Wrong(format!("'{pattern}': {why}"));
    let parsed = Parser::new().parse(pattern).map_err(|error| wrong(&error))?;
    match length_of(&parsed) {
        length if length <= PATTERN_LENGTH_MAX => Ok(Call::Pattern(parsed)),
        _ => Err(wrong(&format!("matches may be longer than {PATTERN_LENGTH_MAX} characters"))),
    }
}

/// How often a repetition comes at most.
fn repeats_max(min: u32, max: Option<u32>) -> u32 {
    max.unwrap_or(min.saturating_add(REPEATS_MORE)).min(min.saturating_add(PATTERN_LENGTH_MAX))
}

/// The length of the longest match.
fn length_of(pattern: &Hir) -> u32 {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => u32::try_from(literal.0.len()).unwrap_or(u32::MAX),
        HirKind::Class(_) => 1,
        HirKind::Repetition(it) => length_of(&it.sub).saturating_mul(repeats_max(it.min, it.max)),
        HirKind::Capture(it) => length_of(&it.sub),
        HirKind::Concat(all) => all.iter().map(length_of).fold(0, u32::saturating_add),
        HirKind::Alternation(all) => all.iter().map(length_of).max().unwrap_or(0),
    }
}

fn append_match(pattern: &Hir, text: &mut String, numbers: &mut SplitMix64) {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => text.push(one_of_class(class, numbers)),
        HirKind::Repetition(it) => {
            let more = u64::from(repeats_max(it.min, it.max) - it.min);
            let times = u64::from(it.min) + numbers.below(more + 1);
            (0..times).for_each(|_| append_match(&it.sub, text, numbers));
        }
        HirKind::Capture(it) => append_match(&it.sub, text, numbers),
        HirKind::Concat(all) => all.iter().for_each(|it| append_match(it, text, numbers)),
        HirKind::Alternation(all) => {
            append_match(&all[numbers.below(all.len() as u64) as usize], text, numbers);
        }
    }
}

/// A character of a class: of ASCII, where it has such that can be seen.
fn one_of_class(class: &Class, numbers: &mut SplitMix64) -> char {
    let ranges: Vec<(u32, u32)> = match class {
        Class::Unicode(class) => {
            class.ranges().iter().map(|r| (u32::from(r.start()), u32::from(r.end()))).collect()
        }
        Class::Bytes(class) => {
            class.ranges().iter().map(|r| (u32::from(r.start()), u32::from(r.end()))).collect()
        }
    };
    let seen = ranges.iter().map(|&(from, to)| (from.max(0x20), to.min(0x7E)));
    let seen: Vec<(u32, u32)> = seen.filter(|(from, to)| from <= to).collect();
    let ranges = if seen.is_empty() { ranges } else { seen };
    let count = ranges.iter().map(|(from, to)| u64::from(to - from) + 1).sum();
    let mut left = if count == 0 { 0 } else { numbers.below(count) };
    for (from, to) in ranges {
        let length = u64::from(to - from) + 1;
        if left < length {
            return char::from_u32(from + left as u32).unwrap_or('?');
        }
        left -= length;
    }
    '?'
}

fn one_of<'w>(words: &[&'w str], numbers: &mut SplitMix64) -> &'w str {
    words[numbers.below(words.len() as u64) as usize]
}

fn filled(c: char, numbers: &mut SplitMix64) -> char {
    let one_of =
        |first: u8, count, numbers: &mut SplitMix64| char::from(first + numbers.below(count) as u8);
    match c {
        '#' => one_of(b'0', 10, numbers),
        '?' => one_of(b'a', 26, numbers),
        other => other,
    }
}

fn append_street(text: &mut String, numbers: &mut SplitMix64) {
    text.push_str(one_of(LAST_NAMES, numbers));
    text.push(' ');
    text.push_str(one_of(STREETS, numbers));
}

fn append_sentence(text: &mut String, numbers: &mut SplitMix64) {
    for at in 0..4 + numbers.below(5) {
        let word = one_of(LOREM, numbers);
        match at {
            0 => text.push_str(&format!("{}{}", word[..1].to_uppercase(), &word[1..])),
            _ => text.push_str(&format!(" {word}")),
        }
    }
    text.push('.');
}

fn append_uuid(text: &mut String, numbers: &mut SplitMix64) {
    let (high, low) = (numbers.next_u64(), numbers.next_u64());
    // Version 4, of the usual variant.
    let high = (high & !0xF000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    text.push_str(&format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFFF,
        low >> 48,
        low & 0xFFFF_FFFF_FFFF
    ));
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn values_have_the_form_that_is_asked_for() {
        for (expression, form) in [
            ("#{Name.full_name}", r"[A-Z]\w+ [A-Z]\w+"),
            ("#{Internet.emailAddress}", r"[a-z]+\.[a-z]+\d+@[a-z.]+"),
            ("x#{number.numberBetween '-3','5'}y", "x(-[123]|[0-4])y"),
            ("#{regexify '(a|b){2,3}[0-9a-f]+\\d?-.x*'}", r"(a|b){2,3}[0-9a-f]+\d?-.x*"),
            ("#{Options.option 'a}b','c'}#{bothify '?#'}", r"(a\}b|c)[a-z]\d"),
            (
                "#{Internet.uuid}",
                r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
            ),
            ("#{Address.streetAddress}, #{Address.zip_code} #{Address.city}", r"\d+ .+, \d{5} .+"),
            ("#{lorem.sentence}", r"[A-Z][a-z]+( [a-z]+){3,7}\."),
            ("#{Internet.ipV4Address}", r"(\d{1,3}\.){3}\d{1,3}"),
            ("plain", "plain"),
        ] {
            let read = Expression::read(expression).expect("an expression");
            let form = Regex::new(&format!("^(?:{form})$")).expect("a pattern");
            for seed in 0..200 {
                let mut text = String::new();
                read.append(&mut text, &mut SplitMix64::new(seed));
                assert!(form.is_match(&text), "{expression}: {text}");
            }
        }
    }

    #[test]
    fn what_is_no_expression_is_refused_and_says_what_there_is() {
        let wrong = |text: &str| Expression::read(text).expect_err("wrong").to_string();
        assert!(wrong("#{Name.fullNam}").contains("Name.fullName"));
        assert!(wrong("#{Name.fullName").contains("has no '}'"));
        assert!(wrong("#{regexify '('}").contains("'('"));
        assert!(wrong("#{regexify 'a{900}{900}'}").contains("longer"));
        assert!(wrong("#{number.numberBetween '2','1'}").contains("smaller"));
        assert!(wrong("#{regexify [a]}").contains("quoted"));
    }
}
