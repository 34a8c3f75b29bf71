//! Tests of the store. One binary, which also serves as the child process of those tests that need one.

mod child;
mod conformance;
mod faults;
mod foreign;
mod model;
mod processes;
mod support;
