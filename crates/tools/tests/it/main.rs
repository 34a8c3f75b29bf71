//! The built-in tools, as tables: arguments, files before, expected text, files after.

#[cfg(test)]
mod access;
#[cfg(test)]
mod background;
#[cfg(test)]
mod background_yield;
#[cfg(test)]
mod bash;
#[cfg(test)]
mod bench;
#[cfg(test)]
mod edit;
#[cfg(test)]
mod patch;
#[cfg(test)]
mod read;
#[cfg(test)]
mod search;
#[cfg(test)]
mod validate;
#[cfg(test)]
mod write;
