//! Exchanges with a model kept in a file while they happen ([`Recorder`]), and played again without network or key while the
//! tools are real ([`Replay`]): what really happens is compared with the recording, but for what differs by nature
//! ([`Places`]). `docs/recording.md` describes the file.

mod places;
mod record;
mod recording;
mod replay;

pub use places::Places;
pub use record::Recorder;
pub use recording::RecordingError;
pub use replay::Replay;
