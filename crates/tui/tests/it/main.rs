//! The terminal, looked at from outside.

mod blocks;
