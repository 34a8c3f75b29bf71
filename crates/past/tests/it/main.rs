//! Tests of the public interface.

#[cfg(test)]
mod chunks;
#[cfg(test)]
mod compiler;
#[cfg(test)]
mod ranges;
#[cfg(test)]
mod support;
