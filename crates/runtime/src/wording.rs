//! The words of a front.

use quipu_host::Advice;

/// How a front words what goes wrong: a text, and what to do about it where the front knows how.
pub type Wording = fn(&str, Option<&Advice>) -> String;
