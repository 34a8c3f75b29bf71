//! The terminal, looked at from outside.

// The attribute tells the lints that helpers of tests are tests as well.
#[cfg(test)]
mod blocks;
#[cfg(test)]
mod fake_host;
#[cfg(test)]
mod first;
#[cfg(test)]
mod glass;
#[cfg(test)]
mod input;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod prose;
#[cfg(test)]
mod screen;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod terminal;
