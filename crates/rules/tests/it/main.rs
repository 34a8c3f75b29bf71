//! What rules say of commands, paths, hosts and tools.

#[cfg(test)]
mod bash;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod language;
#[cfg(test)]
mod laws;
