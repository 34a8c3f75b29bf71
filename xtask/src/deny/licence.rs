//! Licence expressions: `MIT OR (Apache-2.0 WITH LLVM-exception AND BSD-3-Clause)`, and the older `MIT/Apache-2.0`.

use anyhow::{Result, bail};
use std::collections::BTreeSet;

/// Expressions longer than this, in words, are refused rather than parsed: real ones have fewer than ten.
const MOST_WORDS: usize = 100;

/// True when the allowed licences are enough to use something under `expression`.
pub(crate) fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if words.len() > MOST_WORDS {
        bail!("has more than {MOST_WORDS} words");
    }
    let mut parser = Parser { words: &words, at: 0, allowed };
    let value = parser.any()?;
    match parser.peek() {
        None => Ok(value),
        Some(word) => bail!("goes on with {word:?} where it should end"),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
    allowed: &'a BTreeSet<String>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self) -> Result<bool> {
        let mut value = self.all()?;
        while self.take("OR") {
            value |= self.all()?;
        }
        Ok(value)
    }

    fn all(&mut self) -> Result<bool> {
        let mut value = self.one()?;
        while self.take("AND") {
            value &= self.one()?;
        }
        Ok(value)
    }

    fn one(&mut self) -> Result<bool> {
        if self.take("(") {
            let value = self.any()?;
            if !self.take(")") {
                bail!("has a parenthesis that is not closed");
            }
            return Ok(value);
        }
        let mut licence = self.name()?;
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.name()?);
        }
        Ok(self.allowed.contains(&licence))
    }

    fn name(&mut self) -> Result<String> {
        let Some(word) = self.peek() else { bail!("ends where a licence should stand") };
        if ["OR", "AND", "WITH", "(", ")"].contains(&word) {
            bail!("has {word:?} where a licence should stand");
        }
        self.at += 1;
        Ok(word.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_weighed() {
        let allowed =
            ["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        for (expression, wanted) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("mit", Some(false)),
            ("MIT OR GPL-3.0-only", Some(true)),
            ("GPL-3.0-only OR MIT AND ISC", Some(true)),
            ("MIT AND GPL-3.0-only", Some(false)),
            ("(MIT OR GPL-3.0-only) AND (ISC)", Some(true)),
            ("Apache-2.0/MIT", Some(true)),
            ("Apache-2.0 / GPL", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("MIT ISC", None),
            ("(MIT", None),
            ("MIT)", None),
            ("OR MIT", None),
        ] {
            assert_eq!(satisfied(expression, &allowed).ok(), wanted, "{expression:?}");
        }
        assert!(satisfied(&"(".repeat(10_000), &allowed).is_err());
    }
}
