//! What a table was measured on: without it no number can be compared.

use std::path::Path;
use std::process::Command;

/// Above this load, waiting for others is part of every number.
const QUIET_LOAD: f64 = 0.5;

/// Three lines of Markdown: machine, software, conditions. What the system does not tell is left out.
pub(super) fn describe(root: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let processor = read_field("/proc/cpuinfo", "model name")
        .or_else(|| output(root, "sysctl", &["-n", "machdep.cpu.brand_string"]))
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = read_field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(String::new(), |kib| format!(", {} GiB", kib.div_ceil(1 << 20)));
    let system = output(root, "uname", &["-sr"]).unwrap_or_else(|| std::env::consts::OS.to_owned());
    let compiler = output(root, "rustc", &["--version"]).unwrap_or_else(|| "rustc unknown".to_owned());
    let commit =
        output(root, "git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let changed = output(root, "git", &["status", "--porcelain"]).is_some_and(|text| !text.is_empty());
    let changed = if changed { " with uncommitted changes" } else { "" };
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let condition = match load {
        Some(load) if load > QUIET_LOAD => {
            format!("load {load:.2} before the start: NOT quiet, do not quote")
        }
        Some(load) => format!("load {load:.2} before the start"),
        None => "load unknown".to_owned(),
    };
    format!(
        "Machine: {cores} x {processor}{memory}, {system}.\nBuild: commit {commit}{changed}, {compiler}, release.\nConditions: {condition}.\n"
    )
}

fn read_field(path: &str, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

fn output(root: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
