//! The web tools against real servers on loopback.

#[cfg(test)]
mod fetch;
#[cfg(test)]
mod search;
#[cfg(test)]
mod server;
