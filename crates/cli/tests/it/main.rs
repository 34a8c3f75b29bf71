//! The `quipu` command as its users meet it: the real binary, real files, processes and signals. The model is a
//! scripted server on the loopback address. Every test ends with the same questions: did the store keep the exact
//! bytes of every request, and is it healthy (see [`support::World`])?

#[cfg(test)]
mod acp;
#[cfg(test)]
mod active_memory;
#[cfg(test)]
mod activity;
#[cfg(test)]
mod agent_budget;
#[cfg(test)]
mod agent_hooks;
#[cfg(test)]
mod agent_worktrees;
#[cfg(test)]
mod agents;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod archive;
#[cfg(test)]
mod background;
#[cfg(test)]
mod bookmark;
#[cfg(test)]
mod branch;
#[cfg(test)]
mod branch_files;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod budget;
#[cfg(test)]
mod caches;
#[cfg(test)]
mod catalogue;
#[cfg(test)]
mod cloud;
#[cfg(test)]
mod command_hooks;
#[cfg(test)]
mod commit_trailers;
#[cfg(test)]
mod compact;
#[cfg(test)]
mod config;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod containers;
#[cfg(test)]
mod context;
#[cfg(test)]
mod continued;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod diagnostics;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod dreams;
#[cfg(test)]
#[cfg(test)]
mod erased;
#[cfg(test)]
mod events;
#[cfg(test)]
mod export;
#[cfg(test)]
mod export_page;
#[cfg(test)]
mod exports;
#[cfg(test)]
mod fallback;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod first_run;
#[cfg(test)]
mod flush;
#[cfg(test)]
mod forest;
#[cfg(test)]
mod forgotten;
#[cfg(test)]
mod graph;
#[cfg(test)]
mod hash;
#[cfg(test)]
mod helpers;
#[cfg(test)]
mod hostile_views;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod image_tool;
#[cfg(test)]
mod import_kill;
#[cfg(test)]
mod import_settings;
#[cfg(test)]
mod input;
#[cfg(test)]
mod keychain;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod later;
#[cfg(test)]
mod life;
#[cfg(test)]
mod live_permissions;
#[cfg(test)]
mod live_settings;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod look;
#[cfg(test)]
mod machine;
#[cfg(test)]
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_resources;
#[cfg(test)]
mod mcp_server;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod memory_costs;
#[cfg(test)]
mod memory_history;
#[cfg(test)]
mod memory_search;
#[cfg(test)]
mod memory_watch;
#[cfg(test)]
mod merge;
#[cfg(test)]
mod missing_cwd;
#[cfg(test)]
mod model_choice;
#[cfg(test)]
mod network;
#[cfg(test)]
mod offline;
#[cfg(test)]
mod output_schema;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod past;
#[cfg(test)]
mod past_context;
#[cfg(test)]
mod past_model;
#[cfg(test)]
mod past_proof;
#[cfg(test)]
mod past_terminal;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod permission_rules;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod persona;
#[cfg(test)]
mod pi_extension;
#[cfg(test)]
mod plan_fronts;
#[cfg(test)]
mod plan_model;
#[cfg(test)]
mod planning;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod preview;
#[cfg(test)]
mod print;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod prune;
#[cfg(test)]
mod pty;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod record;
#[cfg(test)]
mod reopened;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod rpc_mode;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod schedule_answers;
#[cfg(test)]
mod schedule_costs;
#[cfg(test)]
mod schedule_jobs;
#[cfg(test)]
mod schedule_unit;
#[cfg(test)]
mod search;
#[cfg(test)]
mod searches;
#[cfg(test)]
mod second_front;
#[cfg(test)]
mod semantic;
#[cfg(test)]
mod serve_network;
#[cfg(test)]
mod server_tools;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod session_file;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod shell_profile;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod skills;
#[cfg(test)]
mod slash;
#[cfg(test)]
mod state_limits;
#[cfg(test)]
mod state_takeover;
#[cfg(test)]
mod stays;
#[cfg(test)]
mod support;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod terminal_graph;
#[cfg(test)]
mod terminal_kept;
#[cfg(test)]
mod terminal_login;
#[cfg(test)]
mod terminal_picture;
#[cfg(test)]
mod terminal_rough;
#[cfg(test)]
mod terminal_shell;
#[cfg(test)]
mod tmux;
#[cfg(test)]
mod tobe;
#[cfg(test)]
mod tobe_files;
#[cfg(test)]
mod tool_policy;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod trees;
#[cfg(test)]
mod troubleshooting;
#[cfg(test)]
mod twice;
#[cfg(test)]
mod undo;
#[cfg(test)]
mod undo_files;
#[cfg(test)]
mod update;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod web;
#[cfg(test)]
mod wires;
