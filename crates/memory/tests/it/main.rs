//! Tests of the memory.

#[cfg(test)]
mod active;
#[cfg(test)]
mod citations;
