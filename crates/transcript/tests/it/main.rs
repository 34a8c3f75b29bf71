//! Entries to parts and back, foreign nodes, conversations.

mod compact;
mod erased;
mod foreign;
mod project;
mod round_trip;
mod strategies;
