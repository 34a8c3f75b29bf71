//! The engine through its public API, on a real store. What holds for every session is checked in `support` for
//! each of these tests: the laws of events, valid conversations, bodies kept to the byte, a sound store.

mod abort;
mod crash;
mod loop_;
mod parallel;
mod pressure;
mod resume;
mod sealing;
mod storage;
mod support;
mod wire;
