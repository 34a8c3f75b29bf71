//! Entries to parts and back, foreign nodes, conversations.

mod compact;
mod foreign;
mod project;
mod round_trip;
mod strategies;
