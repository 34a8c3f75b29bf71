//! The proxy over real HTTP on the loopback address, with real stores.

#[cfg(test)]
mod beside;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod latency;
#[cfg(test)]
mod pass;
#[cfg(test)]
mod record;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tobe;
