//! Payloads of each host, as its real program sent them, and what is written into its configuration.

#[cfg(test)]
mod configurations;
#[cfg(test)]
mod payloads;
