//! Tests of the memory.

#[cfg(test)]
mod active;
#[cfg(test)]
mod citations;
#[cfg(test)]
mod context;
#[cfg(test)]
mod dream;
#[cfg(test)]
mod files;
#[cfg(test)]
mod notes;
#[cfg(test)]
mod projects;
#[cfg(test)]
mod search;
#[cfg(test)]
mod support;
#[cfg(test)]
mod taint;
#[cfg(test)]
mod watch;
