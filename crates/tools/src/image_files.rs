//! Image files of a workspace, for a tool that shows them to another model.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use quipu_protocol::Content;
use quipu_workspace::{Access, FileError, file_key, resolve_existing};
use tokio_util::sync::CancellationToken;

use crate::ToolContext;
use crate::images::{self, image_blocks};
use crate::read::{IMAGE_FILE_LIMIT, load};

/// Why an image file cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ImageFileError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is none.
    #[error("{path} is no image of a kind that models see (PNG, JPEG, GIF, WebP, BMP)", path = .path.display())]
    NoImage {
        /// The file.
        path: PathBuf,
    },
    /// It is one that no model would take.
    #[error("{path} cannot be shown: {why}", path = .path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The work broke off, which is a bug.
    #[error("reading the images broke off, which is a bug in Quipu")]
    Broken,
}

/// The files that paths name as a model writes them, for [`Tool::touches`](crate::Tool::touches).
pub fn named_files(paths: &[String], cx: &ToolContext) -> Vec<PathBuf> {
    paths.iter().map(|path| file_key(&resolve_existing(&cx.cwd, &cx.outside(path)))).collect()
}

/// The images in these files, each as the tool `read` would give it: the image, and in words how it was changed. A file is opened
/// where the call may read.
///
/// # Errors
/// Why one of them cannot be shown.
pub async fn load_images(paths: &[String], cx: &ToolContext) -> Result<Vec<Vec<Content>>, ImageFileError> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| resolve_existing(&cx.cwd, &cx.outside(path))).collect();
    let (access, cancel) = (cx.access.clone(), cx.cancel.clone());
    let work = move || paths.iter().map(|path| load_image(path, &access, &cancel)).collect();
    let work = tokio::task::spawn_blocking(work);
    tokio::select! {
        biased;
        // A read that hangs inside the system is left to itself.
        () = cx.cancel.cancelled() => Err(FileError::Cancelled.into()),
        done = work => done.unwrap_or(Err(ImageFileError::Broken)),
    }
}

fn load_image(
    path: &Path,
    access: &Access,
    cancel: &CancellationToken,
) -> Result<Vec<Content>, ImageFileError> {
    let no_image = || ImageFileError::NoImage { path: path.to_owned() };
    let (mut file, metadata) = access.open_for_reading(path)?;
    let failed = |source| FileError::Io { path: path.to_owned(), action: "cannot read", source };
    let mut magic = Vec::new();
    file.by_ref().take(64).read_to_end(&mut magic).map_err(failed)?;
    images::kind(&magic).ok_or_else(no_image)?;
    if metadata.len() > IMAGE_FILE_LIMIT {
        let (size, limit) = (metadata.len(), IMAGE_FILE_LIMIT);
        return Err(FileError::TooLarge { path: path.to_owned(), size, limit }.into());
    }
    let bytes = load(&mut file, magic, path, cancel, IMAGE_FILE_LIMIT)?;
    let blocks = image_blocks(&bytes).ok_or_else(no_image)?;
    if blocks.iter().any(|block| matches!(block, Content::Image(_))) {
        return Ok(blocks);
    }
    let words = blocks.iter().filter_map(|block| match block {
        Content::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    let why = words.collect::<Vec<_>>().join(" ");
    Err(ImageFileError::Unfit { path: path.to_owned(), why })
}
