//! Session files of other agents, read into a store and written from it.

#[cfg(test)]
mod agents;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod compaction;
#[cfg(test)]
mod copilot;
#[path = "../../../testkit/tests/shared/fuzz.rs"]
#[cfg(test)]
mod driver;
#[cfg(test)]
mod each_format;
#[cfg(test)]
mod export;
#[cfg(test)]
mod exports;
#[cfg(test)]
mod follow;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod gemini;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod import;
#[cfg(test)]
mod live;
#[cfg(test)]
mod openclaw;
#[cfg(test)]
mod openclaw_state;
#[cfg(test)]
mod packed;
#[cfg(test)]
mod playfilo;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trees;
#[cfg(test)]
mod zips;
