//! Tests of the crate through its public door.

#[cfg(test)]
mod agents;
#[cfg(test)]
mod classify;
#[cfg(test)]
mod cloud_credentials;
#[cfg(unix)]
#[cfg(test)]
mod cloud_machines;
#[cfg(test)]
mod code_assist;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod credentials;
#[cfg(test)]
#[path = "../../../testkit/tests/shared/fuzz.rs"]
mod driver;
#[cfg(test)]
mod embed;
#[cfg(test)]
mod encode;
#[cfg(test)]
mod encode_codex;
#[cfg(test)]
mod encode_completions;
#[cfg(test)]
mod encode_contents;
#[cfg(test)]
mod encode_converse;
#[cfg(test)]
mod encode_mistral;
#[cfg(test)]
mod encode_pi_messages;
#[cfg(test)]
mod encode_responses;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod google_credentials;
#[cfg(test)]
mod growth;
#[cfg(test)]
mod headers;
#[cfg(test)]
mod http;
#[cfg(test)]
mod keys;
#[cfg(unix)]
#[cfg(test)]
mod login_peers;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod logins_recorded;
#[cfg(test)]
mod model_sources;
#[cfg(test)]
mod peer_bodies;
#[cfg(test)]
mod quirks;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod renewal;
#[cfg(test)]
mod server_tools;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod subscription;
#[cfg(test)]
mod test_string;
#[cfg(test)]
mod wires;

#[cfg(test)]
mod wrong_api;
