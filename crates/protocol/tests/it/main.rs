//! The JSON form of what crosses the seam.

// The attribute tells the lints that helpers of tests are tests as well.
#[cfg(test)]
mod forms;
#[cfg(test)]
mod usage;
