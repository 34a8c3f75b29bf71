//! Tests against the real machine.

#[cfg(test)]
mod confined;
#[cfg(test)]
mod machine;
