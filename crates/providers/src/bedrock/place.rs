//! Where calls go: a region, and the address that follows from it.

use quipu_protocol::{Model, ModelError, ModelErrorKind};
use reqwest::Url;

use super::environment::Environment;
use crate::failure::quote;

/// The region of those who name none.
const USUAL_REGION: &str = "us-east-1";

/// Where calls go, and what else the environment says of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BedrockPlace {
    /// The address of the server, without a path for the model.
    pub base_url: String,
    /// The region that requests are signed for.
    pub region: String,
    /// `AWS_BEDROCK_FORCE_CACHE`: caches are asked for although the model's name does not say that it has one.
    pub force_cache: bool,
}

impl BedrockPlace {
    /// The region of a model and the address there. A region in its id comes first, then `AWS_REGION`,
    /// `AWS_DEFAULT_REGION`, the profile, the base URL and `us-east-1`. A base URL of another server stays as it is;
    /// `AWS_ENDPOINT_URL_BEDROCK_RUNTIME` takes the place of the usual one.
    ///
    /// # Errors
    /// `InvalidRequest` when a region is not a valid name, or a profile cannot be read.
    pub(crate) fn of(model: &Model, environment: &Environment) -> Result<Self, ModelError> {
        let invalid = |text: String| ModelError::new(ModelErrorKind::InvalidRequest, text);
        let variable = |name: &str| environment.variable(name);
        let usual = standard_region(&model.base_url);
        let region = match region_of_arn(&model.id).map(|region| ("the id of the model", region.to_owned())) {
            Some(found) => found,
            None => {
                let set = ["AWS_REGION", "AWS_DEFAULT_REGION"];
                let set = set.into_iter().find_map(|name| Some((name, variable(name)?)));
                match set {
                    Some(found) => found,
                    None => {
                        let profile = environment.profile().map_err(|error| invalid(format!("{error}.")))?;
                        let named = profile.and_then(|profile| profile.get("region").map(String::from));
                        let named = named.map(|region| ("the profile", region));
                        named.unwrap_or_else(|| {
                            ("the base URL", usual.as_deref().unwrap_or(USUAL_REGION).to_owned())
                        })
                    }
                }
            }
        };
        let (source, region) = region;
        if !is_region(&region) {
            let region = quote(&region);
            let text =
                format!("{region:?} from {source} is not a region. Set AWS_REGION, such as us-east-1.");
            return Err(invalid(text));
        }
        let base_url = match (&usual, variable("AWS_ENDPOINT_URL_BEDROCK_RUNTIME")) {
            (None, _) if !model.base_url.is_empty() => model.base_url.clone(),
            (_, Some(endpoint)) => endpoint,
            (_, None) => {
                let kind = if model.base_url.contains("//bedrock-runtime-fips.") { "-fips" } else { "" };
                format!("https://bedrock-runtime{kind}.{region}.{}", domain(&region))
            }
        };
        let force_cache = variable("AWS_BEDROCK_FORCE_CACHE").as_deref() == Some("1");
        Ok(Self { base_url, region, force_cache })
    }
}

/// The domain of the servers in a region.
pub(super) fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

pub(super) fn is_region(text: &str) -> bool {
    const LONGEST: usize = 40;
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_part)
}

/// The region in `arn:aws:bedrock:REGION:…`.
fn region_of_arn(id: &str) -> Option<&str> {
    let mut parts = id.split(':');
    let is_arn = parts.next() == Some("arn")
        && parts.next().is_some_and(|part| part.starts_with("aws"))
        && parts.next() == Some("bedrock");
    parts.next().filter(|region| is_arn && !region.is_empty())
}

/// The region of an address of the vendor's own; `None` for other servers.
fn standard_region(base_url: &str) -> Option<String> {
    let url = Url::parse(base_url).ok()?;
    let host = url.host_str()?;
    let rest =
        host.strip_prefix("bedrock-runtime-fips.").or_else(|| host.strip_prefix("bedrock-runtime."))?;
    let region = rest.strip_suffix(".amazonaws.com").or_else(|| rest.strip_suffix(".amazonaws.com.cn"))?;
    is_region(region).then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn place(id: &str, base_url: &str, vars: &[(&str, &str)]) -> Result<BedrockPlace, ModelError> {
        let model = Model { id: id.into(), base_url: base_url.into(), ..Model::default() };
        let vars: BTreeMap<_, _> =
            vars.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        BedrockPlace::of(&model, &Environment::new(vars, None))
    }

    const USUAL: &str = "https://bedrock-runtime.us-east-1.amazonaws.com";

    #[test]
    fn region_decides_the_address() {
        let check = |id: &str, base_url: &str, vars: &[(&str, &str)], region: &str, address: &str| {
            let got = place(id, base_url, vars).unwrap();
            assert_eq!((got.region.as_str(), got.base_url.as_str()), (region, address), "{id} {vars:?}");
        };
        let (west, second) = (("AWS_REGION", "us-west-2"), ("AWS_DEFAULT_REGION", "eu-west-1"));
        let host = |region: &str| format!("https://bedrock-runtime.{region}.amazonaws.com");
        check("m", USUAL, &[], "us-east-1", USUAL);
        check("m", "", &[], "us-east-1", USUAL);
        check("m", &host("eu-central-1"), &[], "eu-central-1", &host("eu-central-1"));
        check("m", &host("eu-central-1"), &[second, west], "us-west-2", &host("us-west-2"));
        check("m", USUAL, &[second], "eu-west-1", &host("eu-west-1"));
        let arn = "arn:aws-us-gov:bedrock:us-gov-west-1:123456789012:application-inference-profile/abc";
        check(arn, USUAL, &[west], "us-gov-west-1", &host("us-gov-west-1"));
        check("arn:aws:s3:x:y", USUAL, &[west], "us-west-2", &host("us-west-2"));
        let china = ("AWS_REGION", "cn-north-1");
        check("m", USUAL, &[china], "cn-north-1", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn");
        let fips = "https://bedrock-runtime-fips.us-east-1.amazonaws.com/";
        check("m", fips, &[west], "us-west-2", "https://bedrock-runtime-fips.us-west-2.amazonaws.com");
        // Servers of one's own.
        let own = ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "https://vpce-1.example");
        check("m", USUAL, &[own, west], "us-west-2", "https://vpce-1.example");
        check("m", &host("eu-central-1"), &[own], "eu-central-1", "https://vpce-1.example");
        check("m", "https://gateway.example/x", &[own], "us-east-1", "https://gateway.example/x");
        let like = "https://bedrock-runtime.us-east-1.amazonaws.com.example.com";
        check("m", like, &[west], "us-west-2", like);
    }

    #[test]
    fn region_that_is_none_is_refused() {
        for region in ["evil.example/", "us east", "US-EAST-1", "a@b", &"x".repeat(41)] {
            let error = place("m", USUAL, &[("AWS_REGION", region)]).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
            assert!(error.message.contains("from AWS_REGION is not a region"), "{error}");
        }
        assert!(place("arn:aws:bedrock:a/b:1:x", USUAL, &[]).is_err());
        let forced = [("AWS_BEDROCK_FORCE_CACHE", "1")];
        assert!(
            place("m", USUAL, &forced).unwrap().force_cache && !place("m", USUAL, &[]).unwrap().force_cache
        );
    }
}
