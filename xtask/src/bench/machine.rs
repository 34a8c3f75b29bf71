//! What a table was measured on: without it no number can be compared.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Above this share of the processors, waiting for others is part of every number.
const QUIET: f64 = 0.05;
/// How long the machine is watched before the first benchmark. Its load average would show our own build.
const WATCHED: Duration = Duration::from_secs(2);

/// Three lines of Markdown: machine, software, conditions. What the system does not tell is left out. `scratch` is
/// where the files of the run are; `given` is a program that was not built from this checkout.
pub(super) fn describe(root: &Path, scratch: &Path, given: Option<&Path>) -> String {
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
    let condition = match busy_share() {
        Some(share) if share > QUIET => {
            format!("others use {:.0} % of the processors: NOT quiet, do not quote", share * 100.0)
        }
        Some(share) => format!("quiet, others use {:.0} % of the processors", share * 100.0),
        None => "what others use is unknown".to_owned(),
    };
    let build = given.map_or_else(
        || format!("commit {commit}{changed}, {compiler}, release"),
        |program| format!("{}, as given", program.display()),
    );
    // Memory would sync for nothing.
    let files = output(scratch, "stat", &["-f", "-c", "%T", "."])
        .map_or(String::new(), |kind| format!(", files on {kind}"));
    format!(
        "Machine: {cores} x {processor}{memory}, {system}{files}.\nBuild: {build}.\nConditions: {condition}.\n"
    )
}

/// The share of processor time that was not idle while this program waited.
fn busy_share() -> Option<f64> {
    let before = processor_time(&std::fs::read_to_string("/proc/stat").ok()?)?;
    std::thread::sleep(WATCHED);
    let after = processor_time(&std::fs::read_to_string("/proc/stat").ok()?)?;
    let (all, idle) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
    #[expect(clippy::cast_precision_loss, reason = "ticks of two seconds")]
    let share = |part: u64| part as f64 / all as f64;
    (all > 0).then(|| 1.0 - share(idle))
}

/// Ticks of all processors since the start, and those of them that were idle.
fn processor_time(stat: &str) -> Option<(u64, u64)> {
    // user, nice, system, idle, waiting for a disk, interrupts, softer ones, stolen
    let ticks: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).take(8).map_while(|word| word.parse().ok()).collect();
    Some((ticks.iter().sum(), ticks.get(3)? + ticks.get(4)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read() {
        assert_eq!(processor_time("cpu  10 1 5 80 4 0 0 2 9 9\ncpu0 1 1 1 1"), Some((102, 84)));
        assert_eq!(processor_time("cpu 1 2"), None);
        assert_eq!(processor_time(""), None);
    }
}
