//! JSON Schema, as far as parameters of tools use it: what is wrong with a value, and where.
//!
//! Drafts 4 to 2020-12 with all that they say of a value, but for `format` and `content..`, which describe and do not
//! forbid. Some things cannot be decided here: `unevaluatedItems` and `unevaluatedProperties`, `$dynamicRef` and
//! `$recursiveRef`, a `$ref` to the schema of schemas, an expression that looks around or back, and schemas that lead in
//! circles. What is undecided makes no value wrong, also below `not` and `oneOf`. Everything ends: steps are counted, and
//! expressions take linear time.

mod form;
mod pattern;
mod values;

use std::collections::{HashMap, HashSet};

use regex::Regex;
use serde_json::{Map, Number, Value};

use values::{canonical, cut, is_multiple, listed, order, same};
pub(crate) use values::{is_of, names_type};

/// Values checked, each against one schema, before the rest is left undecided.
const STEPS: usize = 200_000;
/// Schemas within schemas, those that are referred to as well.
const DEPTH: usize = 128;
/// Values of a list, or alternatives, that a complaint names.
const NAMED: usize = 20;
/// Characters of a complaint: alternatives within alternatives say what is wrong with each.
const LONGEST: usize = 1000;

/// A schema that says what its keywords allow it to say.
pub(crate) struct Schema {
    root: Value,
    /// Up to draft 7, nothing counts beside `$ref`.
    lone_ref: bool,
    /// JSON pointers to what has a name: by `$id`, or by the pointer of the document that it is in, `#` and the anchor.
    names: HashMap<String, String>,
    /// By source; nothing where the library cannot say what is meant.
    patterns: HashMap<String, Option<Regex>>,
}

/// What is wrong, and where: names and indices with dots between them.
pub(crate) type Complaint = (String, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fits,
    Unknown,
    Wrong,
}

impl Verdict {
    fn of(fits: bool) -> Self {
        if fits { Self::Fits } else { Self::Wrong }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wrong, _) | (_, Self::Wrong) => Self::Wrong,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Fits, Self::Fits) => Self::Fits,
        }
    }
}

impl Schema {
    /// What is wrong with a value, at most so many; what is wrong further out comes first.
    pub(crate) fn complaints(&self, value: &Value, most: usize) -> Vec<Complaint> {
        let mut check = Check::new(self, most);
        check.value(&self.root, "", value);
        let mut found = std::mem::take(&mut check.complaints);
        found.sort_by_key(|(depth, ..)| *depth);
        found.into_iter().map(|(_, path, message)| (path, message)).collect()
    }

    /// Whether nothing is wrong with a value by a part of this schema.
    pub(crate) fn takes(&self, part: &Value, value: &Value) -> bool {
        Check::new(self, 0).value(part, "", value) != Verdict::Wrong
    }
}

/// One check of one value.
struct Check<'a> {
    schema: &'a Schema,
    steps: usize,
    depth: usize,
    path: Vec<String>,
    most: usize,
    complaints: Vec<(usize, String, String)>,
}

impl<'a> Check<'a> {
    fn new(schema: &'a Schema, most: usize) -> Self {
        Self { schema, steps: STEPS, depth: 0, path: Vec::new(), most, complaints: Vec::new() }
    }

    /// `base` is the pointer of the document that the part is in.
    fn value(&mut self, part: &Value, base: &str, value: &Value) -> Verdict {
        let Value::Object(rules) = part else {
            return self.must(*part != Value::Bool(false), "nothing is allowed here");
        };
        if self.steps == 0 || self.depth == DEPTH {
            return Verdict::Unknown;
        }
        self.steps -= 1;
        self.depth += 1;
        let verdict = self.rules(rules, form::document(rules, &self.schema.names).unwrap_or(base), value);
        self.depth -= 1;
        verdict
    }

    fn rules(&mut self, rules: &Map<String, Value>, base: &str, value: &Value) -> Verdict {
        let schema = self.schema;
        if schema.lone_ref
            && let Some(Value::String(reference)) = rules.get("$ref")
        {
            return self.reference(reference, base, value);
        }
        let mut verdict = Verdict::Fits;
        for (keyword, rule) in rules {
            verdict = verdict.and(match (keyword.as_str(), value) {
                ("$ref", _) => self.reference(rule.as_str().unwrap_or_default(), base, value),
                ("type", _) => self.must_with(is_of(value, rule), || match rule {
                    Value::Array(types) => format!("value is not of types {}", listed(types)),
                    _ => format!("value is not of type {rule}"),
                }),
                ("enum", _) => {
                    let options = items(rule);
                    let one = options.iter().any(|option| same(option, value));
                    self.must_with(one, || format!("value is not one of {}", listed(options)))
                }
                ("const", _) => self.must_with(same(rule, value), || format!("value is not {rule}")),
                ("allOf", _) => self.all(items(rule), base, value),
                ("anyOf", _) => self.any(items(rule), base, value),
                ("oneOf", _) => self.one(items(rule), base, value),
                ("not", _) => match self.quietly(rule, base, value).0 {
                    Verdict::Wrong => Verdict::Fits,
                    Verdict::Unknown => Verdict::Unknown,
                    Verdict::Fits => self.must(false, "value fits what \"not\" forbids"),
                },
                ("if", _) => self.conditional(rules, base, value),
                ("$dynamicRef" | "$recursiveRef", _) => Verdict::Unknown,
                ("unevaluatedItems", Value::Array(_)) | ("unevaluatedProperties", Value::Object(_))
                    if *rule != Value::Bool(true) =>
                {
                    Verdict::Unknown
                }
                ("dependentRequired" | "dependentSchemas" | "dependencies", Value::Object(members)) => {
                    self.dependent(rule, base, value, members)
                }
                (_, Value::Number(number)) => self.number(keyword, rule, rules, number),
                (_, Value::String(text)) => self.text(keyword, rule, text),
                (_, Value::Array(list)) => self.list(keyword, rule, rules, base, list),
                (_, Value::Object(members)) => self.members(keyword, rule, rules, base, members),
                _ => Verdict::Fits,
            });
        }
        verdict
    }

    fn must(&mut self, fits: bool, complaint: &str) -> Verdict {
        self.must_with(fits, || complaint.to_owned())
    }

    fn must_with(&mut self, fits: bool, complaint: impl FnOnce() -> String) -> Verdict {
        if !fits && self.complaints.len() < self.most {
            let message = cut(complaint(), LONGEST);
            self.complaints.push((self.path.len(), self.path.join("."), message));
        }
        Verdict::of(fits)
    }

    /// The verdict on one alternative, and the first complaint.
    fn quietly(&mut self, part: &Value, base: &str, value: &Value) -> (Verdict, Option<String>) {
        let kept = std::mem::take(&mut self.complaints);
        let verdict = self.value(part, base, value);
        let found = std::mem::replace(&mut self.complaints, kept);
        let first = found.into_iter().min_by_key(|(depth, ..)| *depth);
        let first = first.map(
            |(depth, path, message)| {
                if depth == self.path.len() { message } else { format!("{path}: {message}") }
            },
        );
        (verdict, first)
    }

    /// What stands one step further in.
    fn inside(&mut self, step: String, part: &Value, base: &str, value: &Value) -> Verdict {
        self.path.push(step);
        let verdict = self.value(part, base, value);
        self.path.pop();
        verdict
    }

    fn reference(&mut self, reference: &str, base: &str, value: &Value) -> Verdict {
        let schema = self.schema;
        match schema.target(reference, base) {
            Some((part, _, base)) => self.value(part, base, value),
            None => Verdict::Unknown,
        }
    }

    fn all(&mut self, parts: &[Value], base: &str, value: &Value) -> Verdict {
        parts.iter().fold(Verdict::Fits, |verdict, part| verdict.and(self.value(part, base, value)))
    }

    fn any(&mut self, parts: &[Value], base: &str, value: &Value) -> Verdict {
        let (mut unknown, mut reasons) = (false, Vec::new());
        for part in parts {
            let (verdict, reason) = self.quietly(part, base, value);
            match verdict {
                Verdict::Fits => return Verdict::Fits,
                Verdict::Unknown => unknown = true,
                Verdict::Wrong => reasons.extend(reason),
            }
        }
        if unknown {
            return Verdict::Unknown;
        }
        self.must_with(false, || none_of(&reasons))
    }

    fn one(&mut self, parts: &[Value], base: &str, value: &Value) -> Verdict {
        let (mut fits, mut unknown, mut reasons) = (0, false, Vec::new());
        for part in parts {
            let (verdict, reason) = self.quietly(part, base, value);
            match verdict {
                Verdict::Fits => fits += 1,
                Verdict::Unknown => unknown = true,
                Verdict::Wrong => reasons.extend(reason),
            }
        }
        match fits {
            0 if !unknown => self.must_with(false, || none_of(&reasons)),
            0 => Verdict::Unknown,
            1 if unknown => Verdict::Unknown,
            1 => Verdict::Fits,
            _ => self.must_with(false, || {
                format!("value fits {fits} of the alternatives, and must fit exactly one")
            }),
        }
    }

    fn conditional(&mut self, rules: &Map<String, Value>, base: &str, value: &Value) -> Verdict {
        let branch = match self.quietly(&rules["if"], base, value).0 {
            Verdict::Fits => "then",
            Verdict::Wrong => "else",
            Verdict::Unknown => return Verdict::Unknown,
        };
        rules.get(branch).map_or(Verdict::Fits, |part| self.value(part, base, value))
    }

    fn number(
        &mut self,
        keyword: &str,
        rule: &Value,
        rules: &Map<String, Value>,
        number: &Number,
    ) -> Verdict {
        let Value::Number(limit) = rule else { return Verdict::Fits };
        // Draft 4 says by a truth beside the limit that the limit itself is too much.
        let open = |other: &str| rules.get(other) == Some(&Value::Bool(true));
        let order = order(number, limit);
        let (fits, wanted) = match keyword {
            "minimum" if open("exclusiveMinimum") => (order.is_gt(), "more than"),
            "maximum" if open("exclusiveMaximum") => (order.is_lt(), "less than"),
            "minimum" => (order.is_ge(), "at least"),
            "maximum" => (order.is_le(), "at most"),
            "exclusiveMinimum" => (order.is_gt(), "more than"),
            "exclusiveMaximum" => (order.is_lt(), "less than"),
            "multipleOf" => (is_multiple(number, limit), "a multiple of"),
            _ => return Verdict::Fits,
        };
        self.must_with(fits, || format!("value must be {wanted} {limit}"))
    }

    fn text(&mut self, keyword: &str, rule: &Value, text: &str) -> Verdict {
        match keyword {
            "minLength" | "maxLength" => self.size(keyword, rule, text.chars().count(), "characters"),
            "pattern" => match self.matches(rule.as_str().unwrap_or_default(), text) {
                Some(fits) => self.must_with(fits, || format!("value does not match the pattern {rule}")),
                None => Verdict::Unknown,
            },
            _ => Verdict::Fits,
        }
    }

    fn matches(&self, pattern: &str, text: &str) -> Option<bool> {
        self.schema.patterns.get(pattern)?.as_ref().map(|pattern| pattern.is_match(text))
    }

    fn size(&mut self, keyword: &str, rule: &Value, size: usize, of: &str) -> Verdict {
        let Value::Number(limit) = rule else { return Verdict::Fits };
        let order = order(&Number::from(size), limit);
        let (fits, wanted) =
            if keyword.starts_with("min") { (order.is_ge(), "at least") } else { (order.is_le(), "at most") };
        self.must_with(fits, || format!("value has {size} {of}, and must have {wanted} {limit}"))
    }

    fn list(
        &mut self,
        keyword: &str,
        rule: &Value,
        rules: &Map<String, Value>,
        base: &str,
        list: &[Value],
    ) -> Verdict {
        // How many the schemas one by one are for: those of `prefixItems`, or of `items` before 2020-12.
        let single =
            |name: &str| rules.get(name).and_then(Value::as_array).map_or(0, Vec::len).min(list.len());
        match (keyword, rule) {
            ("prefixItems" | "items", Value::Array(parts)) => {
                let pairs = parts.iter().zip(list).enumerate();
                pairs.fold(Verdict::Fits, |verdict, (at, (part, value))| {
                    verdict.and(self.inside(at.to_string(), part, base, value))
                })
            }
            ("items", part) => self.rest(part, base, list, single("prefixItems")),
            ("additionalItems", part) if rules.get("items").is_some_and(Value::is_array) => {
                self.rest(part, base, list, single("items"))
            }
            ("minItems" | "maxItems", _) => self.size(keyword, rule, list.len(), "items"),
            ("uniqueItems", Value::Bool(true)) => {
                let mut seen = HashSet::new();
                let unique = list.iter().all(|value| seen.insert(canonical(value)));
                self.must(unique, "value has an item twice")
            }
            ("contains", part) => self.contains(part, rules, base, list),
            _ => Verdict::Fits,
        }
    }

    fn rest(&mut self, part: &Value, base: &str, list: &[Value], from: usize) -> Verdict {
        if *part == Value::Bool(false) {
            return self.must_with(list.len() <= from, || {
                format!("value has {} items, and must have at most {from}", list.len())
            });
        }
        list.iter().enumerate().skip(from).fold(Verdict::Fits, |verdict, (at, value)| {
            verdict.and(self.inside(at.to_string(), part, base, value))
        })
    }

    fn contains(&mut self, part: &Value, rules: &Map<String, Value>, base: &str, list: &[Value]) -> Verdict {
        let (mut sure, mut unknown) = (0_usize, 0);
        for value in list {
            match self.quietly(part, base, value).0 {
                Verdict::Fits => sure += 1,
                Verdict::Unknown => unknown += 1,
                Verdict::Wrong => {}
            }
        }
        let limit = |name: &str| rules.get(name).and_then(Value::as_f64);
        let least = limit("minContains").unwrap_or(1.0);
        let most = limit("maxContains").unwrap_or(f64::INFINITY);
        let count = |items: usize| u32::try_from(items).map_or(f64::INFINITY, f64::from);
        if count(sure + unknown) < least || count(sure) > most {
            return self.must_with(false, || format!("{sure} items are as \"contains\" wants them"));
        }
        if count(sure) >= least && count(sure + unknown) <= most { Verdict::Fits } else { Verdict::Unknown }
    }

    fn members(
        &mut self,
        keyword: &str,
        rule: &Value,
        rules: &Map<String, Value>,
        base: &str,
        members: &Map<String, Value>,
    ) -> Verdict {
        match (keyword, rule) {
            ("required", Value::Array(names)) => self.required(names, members),
            ("minProperties" | "maxProperties", _) => self.size(keyword, rule, members.len(), "properties"),
            ("properties", Value::Object(parts)) => {
                let mut verdict = Verdict::Fits;
                for (name, part) in parts {
                    if let Some(value) = members.get(name) {
                        verdict = verdict.and(self.inside(name.clone(), part, base, value));
                    }
                }
                verdict
            }
            ("patternProperties", Value::Object(parts)) => {
                let mut verdict = Verdict::Fits;
                for (pattern, part) in parts {
                    for (name, value) in members {
                        verdict = verdict.and(match self.matches(pattern, name) {
                            Some(true) => self.inside(name.clone(), part, base, value),
                            Some(false) => Verdict::Fits,
                            None => Verdict::Unknown,
                        });
                    }
                }
                verdict
            }
            ("additionalProperties", part) => self.additional(part, rules, base, members),
            ("propertyNames", part) => {
                members.keys().map(|name| Value::String(name.clone())).fold(Verdict::Fits, |verdict, name| {
                    let (one, reason) = self.quietly(part, base, &name);
                    verdict.and(match one {
                        Verdict::Wrong => self.must_with(false, || {
                            format!("the name {name} is not allowed: {}", reason.unwrap_or_default())
                        }),
                        other => other,
                    })
                })
            }
            _ => Verdict::Fits,
        }
    }

    fn dependent(
        &mut self,
        rule: &Value,
        base: &str,
        value: &Value,
        members: &Map<String, Value>,
    ) -> Verdict {
        let mut verdict = Verdict::Fits;
        for (_, part) in
            rule.as_object().into_iter().flatten().filter(|(name, _)| members.contains_key(*name))
        {
            verdict = verdict.and(match part {
                Value::Array(names) => self.required(names, members),
                part => self.value(part, base, value),
            });
        }
        verdict
    }

    fn required(&mut self, names: &[Value], members: &Map<String, Value>) -> Verdict {
        names.iter().filter_map(Value::as_str).fold(Verdict::Fits, |verdict, name| {
            let there = members.contains_key(name);
            verdict.and(self.must_with(there, || format!("{name:?} is a required property")))
        })
    }

    fn additional(
        &mut self,
        part: &Value,
        rules: &Map<String, Value>,
        base: &str,
        members: &Map<String, Value>,
    ) -> Verdict {
        let named = rules.get("properties").and_then(Value::as_object);
        let patterns = rules.get("patternProperties").and_then(Value::as_object);
        let (mut verdict, mut surplus) = (Verdict::Fits, Vec::new());
        for (name, value) in members.iter().filter(|(name, _)| !named.is_some_and(|n| n.contains_key(*name)))
        {
            let mut matched = Some(false);
            for pattern in patterns.into_iter().flat_map(Map::keys) {
                matched = match (matched, self.matches(pattern, name)) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                };
            }
            verdict = verdict.and(match matched {
                Some(true) => Verdict::Fits,
                None => Verdict::Unknown,
                Some(false) if *part == Value::Bool(false) => {
                    surplus.push(Value::String(name.clone()));
                    Verdict::Wrong
                }
                Some(false) => self.inside(name.clone(), part, base, value),
            });
        }
        if !surplus.is_empty() {
            self.must_with(false, || format!("additional properties are not allowed: {}", listed(&surplus)));
        }
        verdict
    }
}

fn items(rule: &Value) -> &[Value] {
    rule.as_array().map_or(&[], Vec::as_slice)
}

fn none_of(reasons: &[String]) -> String {
    let shown = &reasons[..reasons.len().min(NAMED)];
    format!("value fits none of the alternatives ({})", shown.join("; "))
}

#[cfg(test)]
mod tests;
