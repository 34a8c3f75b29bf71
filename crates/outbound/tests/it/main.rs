//! The pieces of a reply, and the whole way of one.

#[cfg(test)]
mod chunker;
#[cfg(test)]
mod chunker_laws;
#[cfg(test)]
mod delivery;
#[cfg(test)]
mod directives;
#[cfg(test)]
mod duplicates;
#[cfg(test)]
mod faulty_sink;
#[cfg(test)]
mod splits;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod tags;
