//! Tests of the memory.

#[cfg(test)]
mod citations;
