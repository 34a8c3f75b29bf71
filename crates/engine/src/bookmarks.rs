//! Bookmarks: names for nodes, as refs that stay where they are put.

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{
    BOOKMARK, Commit, Durability, LoggedMove, RefExpectation, RefMove, RefName, ReflogQuery, StoreError,
};

use crate::change::ChangeError;
use crate::engine::Engine;
use crate::error::OpenError;

/// Bytes of a bookmark's name at most.
pub const BOOKMARK_LIMIT: usize = 256;

/// A name for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    /// The name: at most [`BOOKMARK_LIMIT`] bytes.
    pub name: String,
    /// The node that the name points to.
    pub node: NodeId,
    /// The program that put it there; `None` where our log does not know it.
    pub owner: Option<String>,
    /// When it was put there, as far as our log knows.
    pub at: Option<UnixMs>,
}

/// Why a bookmark was not set or removed.
#[derive(Debug, thiserror::Error)]
pub enum BookmarkError {
    /// The node or the store.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nothing is left of the name, or it is too long.
    #[error(
        "a bookmark name must have 1 to {BOOKMARK_LIMIT} bytes and no control characters; this one has {0} bytes"
    )]
    BadName(usize),
    /// There is no such bookmark.
    #[error("there is no bookmark `{0}`")]
    Unknown(String),
    /// Another program put it where it is.
    #[error("bookmark `{0}` belongs to another program; choose another name")]
    Foreign(String),
}

impl From<StoreError> for BookmarkError {
    fn from(error: StoreError) -> Self {
        Self::Open(error.into())
    }
}

impl From<ChangeError> for BookmarkError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Open(error) => Self::Open(error),
            other => Self::Open(OpenError::Broken { session: "".into(), why: other.to_string() }),
        }
    }
}

impl Engine {
    /// All bookmarks, by name.
    ///
    /// # Errors
    /// `Open` with `Store`.
    pub async fn bookmarks(&self) -> Result<Vec<Bookmark>, BookmarkError> {
        let mut found = Vec::new();
        for head in self.store().heads(BOOKMARK).await? {
            let Some(name) = head.name.bookmarked() else { continue };
            let moved = self.moved_to(&head.name, head.node).await?;
            found.push(Bookmark {
                name: name.to_owned(),
                node: head.node,
                owner: moved.as_ref().map(owner),
                at: moved.as_ref().map(|moved| moved.at),
            });
        }
        Ok(found)
    }

    /// Gives a node a name, or a name another node. Wherever a node can be named, the name does.
    ///
    /// # Errors
    /// `BadName`, `Foreign`; `Open` with `NoSuchNode` or `Store`.
    pub async fn bookmark(&self, name: &str, node: NodeId) -> Result<Bookmark, BookmarkError> {
        let name = self.bookmark_name(name)?;
        self.node_of(node).await?;
        let (bookmark, stands) = self.own_bookmark(&name).await?;
        let commit = Commit {
            moves: vec![RefMove::swap(bookmark, stands, node, "bookmark")],
            durability: Durability::Power,
            ..Commit::default()
        };
        self.store().commit(commit).await?;
        Ok(Bookmark { name, node, owner: Some(crate::AGENT.into()), at: Some(self.now()) })
    }

    /// Takes a name away; gives the node that it named.
    ///
    /// # Errors
    /// `BadName`, `Unknown`, `Foreign`; `Open` with `Store`.
    pub async fn remove_bookmark(&self, name: &str) -> Result<NodeId, BookmarkError> {
        let name = self.bookmark_name(name)?;
        let (bookmark, stands) = self.own_bookmark(&name).await?;
        let node = stands.ok_or(BookmarkError::Unknown(name))?;
        let why = "remove".to_owned();
        let moved = RefMove { name: bookmark, expect: RefExpectation::At(node), to: None, fence: None, why };
        let durability = Durability::Power;
        self.store().commit(Commit { moves: vec![moved], durability, ..Commit::default() }).await?;
        Ok(node)
    }

    /// A name as it is kept: without secrets and control characters.
    fn bookmark_name(&self, name: &str) -> Result<String, BookmarkError> {
        let plain: String = name.chars().filter(|c| !c.is_control()).collect();
        let name = self.sealer().seal(plain.trim()).into_owned();
        if name.is_empty() || name.len() > BOOKMARK_LIMIT {
            return Err(BookmarkError::BadName(name.len()));
        }
        Ok(name)
    }

    /// Where a bookmark of ours stands, or that there is none.
    async fn own_bookmark(&self, name: &str) -> Result<(RefName, Option<NodeId>), BookmarkError> {
        let bookmark = RefName::bookmark(name);
        let stands = self.store().head(&bookmark).await?;
        if let Some(node) = stands {
            let moved = self.moved_to(&bookmark, node).await?;
            if moved.as_ref().map(owner).as_deref() != Some(crate::AGENT) {
                return Err(BookmarkError::Foreign(name.to_owned()));
            }
        }
        Ok((bookmark, stands))
    }

    /// The move that put a ref where it stands.
    async fn moved_to(&self, name: &RefName, node: NodeId) -> Result<Option<LoggedMove>, StoreError> {
        let query = ReflogQuery { name: name.clone(), before: None, moves_only: true, limit: Some(1) };
        let last = self.store().reflog(&query).await?.into_iter().next();
        Ok(last.filter(|last| last.new == Some(node)))
    }
}

/// The program of a writer.
fn owner(moved: &LoggedMove) -> String {
    moved.writer.split('/').next().unwrap_or_default().to_owned()
}
