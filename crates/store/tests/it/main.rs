//! Tests of the store. One binary, which also serves as the child process of those tests that need one.

// The attribute tells the lints that helpers of tests are tests as well.
#[cfg(test)]
mod bulk;
#[cfg(test)]
mod child;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod dreams;
#[cfg(test)]
mod erase;
#[cfg(test)]
mod erase_structure;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod job_runs;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod memory_jobs;
#[cfg(test)]
mod model;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod recall;
#[cfg(test)]
mod retain;
#[cfg(test)]
mod salvage;
#[cfg(test)]
mod search;
#[cfg(test)]
mod search_shown;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod spend;
#[cfg(test)]
mod support;
#[cfg(test)]
mod twins;
#[cfg(test)]
mod vectors;
