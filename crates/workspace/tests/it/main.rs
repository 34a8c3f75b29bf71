//! Tests against the real machine.

#[cfg(test)]
mod confined;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod containers;
#[cfg(test)]
mod fresh_home;
#[cfg(test)]
mod helpers;
#[cfg(test)]
mod machine;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod private_caches;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod proxy;
#[cfg(test)]
mod reading;
