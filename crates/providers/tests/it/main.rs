//! Tests of the crate through its public door.

#[cfg(test)]
mod encode;
#[cfg(test)]
mod encode_completions;
#[cfg(test)]
mod http;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod wires;
