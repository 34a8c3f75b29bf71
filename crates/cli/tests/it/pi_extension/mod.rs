//! The extension of Pi, in the real Pi, with the real helper.

mod deaths;
mod hostile;
mod pi;
mod recording;
mod travelling;
