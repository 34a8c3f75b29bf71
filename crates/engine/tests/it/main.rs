//! The engine through its public API, on a real store. What holds for every session is checked in `support` for
//! each of these tests: the laws of events, valid conversations, bodies kept to the byte, a sound store.

// The attribute tells the lints that helpers of tests are tests as well.
#[cfg(test)]
mod abort;
#[cfg(test)]
mod agents;
#[cfg(test)]
mod background;
#[cfg(test)]
mod before_compaction;
#[cfg(test)]
mod blame;
#[cfg(test)]
mod budget;
#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod cache_expiry;
#[cfg(test)]
mod changing;
#[cfg(test)]
mod compact;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod early;
#[cfg(test)]
mod estimates;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod file_travel;
#[cfg(test)]
mod files;
#[cfg(test)]
mod follower;
#[cfg(test)]
mod forest;
#[cfg(test)]
mod forgotten;
#[cfg(test)]
mod fork;
#[cfg(test)]
mod history;
#[cfg(test)]
mod hook_laws;
#[cfg(test)]
mod hook_points;
#[cfg(test)]
mod hook_sending;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod image_tool;
#[cfg(test)]
mod jump;
#[cfg(test)]
mod loop_;
#[cfg(test)]
mod moves;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod overflow;
#[cfg(test)]
mod parallel;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod plan_model;
#[cfg(test)]
mod planning;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod policies_again;
#[cfg(test)]
mod policies_bounds;
#[cfg(test)]
mod policies_laws;
#[cfg(test)]
mod pressure;
#[cfg(test)]
mod provenance;
#[cfg(test)]
mod prune;
#[cfg(test)]
mod purposes;
#[cfg(test)]
mod reconnect;
#[cfg(test)]
mod record;
#[cfg(test)]
mod resume;
#[cfg(test)]
mod runner;
#[cfg(test)]
mod safeguard;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod sandbox_example;
#[cfg(test)]
mod sdk_page;
#[cfg(test)]
mod sealing;
#[cfg(test)]
mod shell_profile;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod sources_laws;
#[cfg(test)]
mod spans;
#[cfg(test)]
mod storage;
#[cfg(test)]
mod support;
#[cfg(test)]
mod target;
#[cfg(test)]
mod tobe;
#[cfg(test)]
mod tobe_files;
#[cfg(test)]
mod tool_filter;
#[cfg(test)]
mod turn_limit;
#[cfg(test)]
mod unkept;
#[cfg(test)]
mod wire;
