//! The server without the command: what its definitions cost, clients that stop reading, the published suite.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod definitions;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod stalled;
#[cfg(test)]
mod support;
