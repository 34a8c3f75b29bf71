//! The past of a project as summaries over time: coarse for long ago, fine for today.

pub mod cover;
pub mod delay;
pub mod disturb;
pub mod grounding;
