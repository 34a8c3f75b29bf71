//! Servers as real child processes, good and bad ones.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod renewal;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod support;
