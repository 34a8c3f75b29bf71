//! What policies leave of tools.

#[cfg(test)]
mod laws;
#[cfg(test)]
mod loops;
#[cfg(test)]
mod matching;
#[cfg(test)]
mod scopes;
