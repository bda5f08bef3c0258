//! Lists of statuses, as Flink's connector writes them: `2XX,404`.

/// Statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codes(Vec<(u16, u16)>);

impl Codes {
    /// Those of a text, with `,` or `;` between them; `None` if it is no such list.
    pub fn read(text: &str) -> Option<Codes> {
        let words = text.split([',', ';']).map(str::trim).filter(|word| !word.is_empty());
        words.map(range).collect::<Option<Vec<_>>>().map(Codes)
    }

    /// True if a status is among them.
    pub fn has(&self, status: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

fn range(word: &str) -> Option<(u16, u16)> {
    if let Some(class) = word.to_ascii_uppercase().strip_suffix("XX") {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let status: u16 = word.parse().ok().filter(|status| (100..600).contains(status))?;
    Some((status, status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_numbers_and_classes() {
        let codes = Codes::read("2XX, 404;410").expect("a list");
        let found: Vec<u16> = (100..600).filter(|&status| codes.has(status)).collect();
        assert_eq!((found.len(), found[0], found[100]), (102, 200, 404));
        assert_eq!(Codes::read(""), Some(Codes::default()));
        for wrong in ["2X", "9XX", "ok", "99", "4000"] {
            assert_eq!(Codes::read(wrong), None, "{wrong}");
        }
    }
}
