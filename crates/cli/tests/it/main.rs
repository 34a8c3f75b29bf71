//! The `quipu` command as its users meet it: the real binary, real files, processes and signals. The model is a
//! scripted server on the loopback address. Every test ends with the same questions: did the store keep the exact
//! bytes of every request, and is it healthy (see [`support::World`])?

mod demo;
mod events;
mod faults;
mod hash;
mod input;
mod kill;
mod look;
mod print;
mod servers;
mod signals;
mod support;
mod tools;
mod twice;
