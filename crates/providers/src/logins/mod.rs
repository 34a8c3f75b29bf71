//! Logins: how a person lets a program use an account, and how its tokens are renewed.
//!
//! A provider's login is a row of data ([`Logins`]); the flows are generic. A [`PendingLogin`] has begun and waits for
//! the person. Nothing here reads or writes a file of credentials: that is the business of `credentials`.

mod browser;
mod callback;
mod code;
mod device;
mod error;
mod pending;
mod renewal;
mod request;
mod rows;
mod sent;
mod tokens;

pub use callback::Callback;
pub use code::{challenge, pasted, random};
pub use error::LoginError;
pub(crate) use pending::DOMAIN;
pub use pending::{LoginOptions, LoginPrompt, PendingLogin};
pub(crate) use renewal::renewed;
pub(crate) use request::{LoginBody, LoginRequest, checked};
pub(crate) use rows::{BodyForm, LoginRow};
pub use rows::{LoginMethod, Logins};
pub(crate) use sent::{base_url, sent_headers};
pub use tokens::LoginTokens;
pub(crate) use tokens::token as header_token;
