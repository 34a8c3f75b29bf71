//! The past of a project as summaries over time: coarse for long ago, fine for today.

mod range;

pub use range::{RangeError, TimeRange};
