//! Tests of the public interface.

#[cfg(test)]
mod chunks;
#[cfg(test)]
mod compiler;
#[cfg(test)]
mod cover;
#[cfg(test)]
mod cover_laws;
#[cfg(test)]
mod cursor;
#[cfg(test)]
mod delay;
#[cfg(test)]
mod disturb;
#[cfg(test)]
mod grounding;
#[cfg(test)]
mod grounding_data;
#[cfg(test)]
mod model;
#[cfg(test)]
mod proof;
#[cfg(test)]
mod ranges;
#[cfg(test)]
mod recalled;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trust;
