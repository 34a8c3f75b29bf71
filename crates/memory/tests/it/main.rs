//! What memories do, with real files and stores.

#[cfg(test)]
mod dream;
