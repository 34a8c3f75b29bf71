//! What a front asks the host for, without a command line.

#[cfg(test)]
mod commands;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod holders;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod taken_in;
