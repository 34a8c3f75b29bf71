//! Where commands cannot be confined.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Network, SandboxSupport};

pub(crate) fn support() -> SandboxSupport {
    SandboxSupport::Missing
}

pub(crate) fn closed_network() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "commands cannot be confined on this system"))
}

pub(crate) fn close_writing() -> io::Result<()> {
    closed_network()
}

pub(crate) fn close_writing_except(_: &[PathBuf]) -> io::Result<()> {
    closed_network()
}

/// There is none here.
#[derive(Debug)]
pub(crate) struct Holder;

impl Holder {
    pub(crate) fn start(_: &[PathBuf], _: &Path, _: Network) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "commands cannot be confined on this system"))
    }

    pub(crate) fn run<T: Send + 'static>(&self, _: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "commands cannot be confined on this system"))
    }
}
