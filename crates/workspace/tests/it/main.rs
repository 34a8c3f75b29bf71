//! Tests against the real machine.

#[cfg(test)]
mod machine;
