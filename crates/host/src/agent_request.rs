//! How a session of an agent is opened: as `agents.byId` says.

use std::path::PathBuf;

use crate::{Home, OpenRequest};

/// The same request for an agent: with its model, unless the request names one, and in its workspace. What narrows its tools and what it
/// may cost counts from here on.
#[must_use]
pub fn agent_request(home: &Home, request: &OpenRequest, id: &str) -> OpenRequest {
    let mut request = request.clone();
    request.audience.agent = Some(id.to_owned());
    let config = home.config();
    let Some(agent) = config.named_agent(id) else { return request };
    if request.model.is_none() {
        request.model.clone_from(&agent.model);
    }
    if let Some(written) = &agent.workspace {
        let path = match written.strip_prefix('~') {
            Some(below) => std::env::home_dir().map(|home| home.join(below.trim_start_matches('/'))),
            None => Some(PathBuf::from(written)),
        };
        // Without symbolic links, as sessions name it.
        match path.and_then(|path| path.canonicalize().ok()).filter(|path| path.is_dir()) {
            Some(path) => request.here = path,
            None => home.warn(format!("the workspace of the agent `{id}` is not a directory: {written}")),
        }
    }
    request
}
