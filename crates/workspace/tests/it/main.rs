//! Tests against the real machine.

#[cfg(test)]
mod confined;
#[cfg(test)]
mod fresh_home;
#[cfg(test)]
mod helpers;
#[cfg(test)]
mod machine;
