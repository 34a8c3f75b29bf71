//! New access tokens for old ones.

use super::LoginError;
use super::browser::token_request;
use super::request::{LoginBody, LoginRequest};
use super::rows::{ExchangeRow, LoginRow};
use super::tokens::LoginTokens;

/// Another access token for `refresh`: by the grant of refresh tokens, or in exchange for the token of the login.
pub(crate) async fn renewed(row: &LoginRow, refresh: &str) -> Result<LoginTokens, LoginError> {
    if let Some(exchange) = &row.exchange {
        return exchanged(row, exchange, refresh).await;
    }
    let params = vec![
        ("grant_type", "refresh_token"),
        ("client_id", row.client_id.as_str()),
        ("refresh_token", refresh),
    ];
    let answer = token_request(row, "a refresh", params).send().await?;
    LoginTokens::read(row, &answer, Some(refresh))
}

/// A token that calls are made with, for the token of the login.
pub(super) async fn exchanged(
    row: &LoginRow,
    exchange: &ExchangeRow,
    login: &str,
) -> Result<LoginTokens, LoginError> {
    let request = LoginRequest {
        what: "a token for calls",
        url: &exchange.url,
        headers: &exchange.headers,
        body: LoginBody::Nothing,
        bearer: Some(login),
    };
    let answer = request.send().await?;
    let tokens = LoginTokens::exchanged(row, &answer, login)?;
    super::sent::base_url(row, &tokens.access).map_err(|problem| answer.nonsense(problem))?;
    Ok(tokens)
}
