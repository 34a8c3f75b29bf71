//! Signatures of requests (SigV4), made by a library.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use futures_util::future::BoxFuture;
use quipu_protocol::UnixMs;

use crate::credentials::{CredentialError, Secret, Sign, SignRequest};
use crate::time::now;

/// What requests are signed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccessKeys {
    pub(super) id: String,
    pub(super) secret: Secret,
    /// What goes with keys that are valid for a while.
    pub(super) token: Option<Secret>,
    /// When they end.
    pub(super) expires: Option<UnixMs>,
}

/// Signs requests to one service in one region.
pub(super) struct Signer {
    pub(super) keys: AccessKeys,
    pub(super) region: String,
    pub(super) service: &'static str,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Signer {
    fn signed(
        &self,
        request: &SignRequest<'_>,
        time: SystemTime,
    ) -> Result<Vec<(String, Secret)>, CredentialError> {
        let failed = |why: &dyn fmt::Display| CredentialError::Unavailable {
            why: format!("the request could not be signed: {why}"),
        };
        let AccessKeys { id, secret, token, .. } = &self.keys;
        let token = token.as_ref().map(|token| token.expose().to_owned());
        let identity = Credentials::new(id, secret.expose(), token, None, "quipu").into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(time)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| failed(&error))?
            .into();
        let headers = request.headers.iter().copied().filter(|(name, _)| is_signed(name));
        let body = SignableBody::Bytes(request.body);
        let signable = SignableRequest::new(request.method, request.url, headers, body);
        let signed = signable.and_then(|signable| sign(signable, &params)).map_err(|error| failed(&error))?;
        let (headers, _) = signed.into_parts().0.into_parts();
        Ok(headers.iter().map(|header| (header.name().to_owned(), Secret::new(header.value()))).collect())
    }
}

/// Headers that nobody changes on the way. Others are not part of the signature.
fn is_signed(name: &str) -> bool {
    matches!(name, "host" | "content-type" | "content-length") || name.starts_with("x-amz-")
}

impl Sign for Signer {
    fn sign<'a>(
        &'a self,
        request: &'a SignRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<(String, Secret)>, CredentialError>> {
        let since = Duration::from_millis(u64::try_from(now()).unwrap_or_default());
        let signed = self.signed(request, SystemTime::UNIX_EPOCH + since);
        Box::pin(std::future::ready(signed))
    }

    fn secrets(&self) -> Vec<Secret> {
        std::iter::once(&self.keys.secret).chain(&self.keys.token).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSP\
        fIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9\
        HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3i\
        SIlTJabIQwj2ICCR/oLxBA==";

    fn signer(token: Option<&str>, service: &'static str) -> Signer {
        let keys = AccessKeys {
            id: "AKIDEXAMPLE".into(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            token: token.map(Secret::new),
            expires: None,
        };
        Signer { keys, region: "us-east-1".into(), service }
    }

    /// The `authorization` of a request at 2015-08-30T12:36:00Z.
    fn authorization(signer: &Signer, request: &SignRequest<'_>) -> String {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let made = signer.signed(request, time).unwrap();
        let header = |name: &str| {
            let found = made.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.expose().to_owned())
        };
        assert_eq!(header("x-amz-date").as_deref(), Some("20150830T123600Z"));
        assert_eq!(header("x-amz-security-token").as_deref(), signer.keys.token.as_ref().map(Secret::expose));
        header("authorization").unwrap()
    }

    fn request<'a>(method: &'a str, headers: &[(&'a str, &'a str)], body: &'a [u8]) -> SignRequest<'a> {
        let host = ("host", "example.amazonaws.com");
        let headers = [&[host], headers].concat();
        SignRequest { method, url: "https://example.amazonaws.com/", headers, body }
    }

    /// The vectors of the published suite, by their names there.
    #[test]
    fn published_vectors_have_their_signatures() {
        let check = |token: Option<&str>, request: &SignRequest<'_>, names: &str, signature: &str| {
            let expect = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders={names}, Signature={signature}"
            );
            assert_eq!(authorization(&signer(token, "service"), request), expect);
        };
        // get-vanilla
        let signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        check(None, &request("GET", &[], b""), "host;x-amz-date", signature);
        // post-vanilla
        let signature = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        check(None, &request("POST", &[], b""), "host;x-amz-date", signature);
        // post-sts-header-before
        let signature = "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead";
        let names = "host;x-amz-date;x-amz-security-token";
        check(Some(TOKEN), &request("POST", &[], b""), names, signature);
        // post-x-www-form-urlencoded
        let signature = "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b";
        let names = "content-length;content-type;host;x-amz-content-sha256;x-amz-date";
        let hash = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";
        let headers = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("content-length", "13"),
            ("x-amz-content-sha256", hash),
        ];
        check(None, &request("POST", &headers, b"Param1=value1"), names, signature);
    }

    #[test]
    fn body_and_type_are_signed_and_what_may_change_is_not() {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let plain = request("POST", &[form], b"Param1=value1");
        let with = |more: &[(&'static str, &'static str)], body: &'static [u8]| {
            authorization(&signer(None, "service"), &request("POST", &[&[form], more].concat(), body))
        };
        let expect = authorization(&signer(None, "service"), &plain);
        assert!(expect.contains("SignedHeaders=content-type;host;x-amz-date,"), "{expect}");
        assert_eq!(with(&[("accept-encoding", "identity"), ("user-agent", "x")], b"Param1=value1"), expect);
        assert_ne!(with(&[], b"Param1=value2"), expect);
        assert!(with(&[("x-amz-new", "1")], b"").contains("host;x-amz-date;x-amz-new,"));
        assert!(!format!("{:?} {:?}", signer(Some("token"), "s"), plain).contains("token"));
    }
}
