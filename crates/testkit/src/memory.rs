//! What a process has in memory, as the kernel counts it.

use std::fs;

/// Memory of a process's own, in kB.
///
/// Pages of files do not count, of which most are the program itself: how many of them are in memory depends on
/// the file system and on what it has read ahead, not on what the process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// What it has now.
    pub own: u64,
    /// The most that it had so far. Where pages of files were mapped since then, it had more by at most their size.
    pub peak: u64,
}

/// The memory of a process; `None` where it has ended, and where the system does not say (other than Linux).
pub fn process_memory(process: u32) -> Option<ProcessMemory> {
    memory_in(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

fn memory_in(status: &str) -> Option<ProcessMemory> {
    let count = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_suffix(" kB")?.trim().parse().ok()
    };
    let peak = count("VmHWM:")?.saturating_sub(count("RssFile:")?);
    let own = count("RssAnon:")?;
    // The kernel does not read the counts at one moment.
    Some(ProcessMemory { own, peak: peak.max(own) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_without_pages_of_files() {
        let status = "Name:\tquipu\nVmPeak:\t  900000 kB\nVmHWM:\t  151000 kB\nVmRSS:\t  120000 kB\n\
                      RssAnon:\t   30000 kB\nRssFile:\t   90000 kB\nRssShmem:\t       0 kB\nThreads:\t4\n";
        assert_eq!(memory_in(status), Some(ProcessMemory { own: 30_000, peak: 61_000 }));
        assert_eq!(memory_in("Name:\tgone\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn memory_that_was_given_back_counts_in_the_peak() {
        let Some(before) = process_memory(std::process::id()) else { return };
        let held = vec![1_u8; 64 << 20];
        let with = process_memory(std::process::id()).unwrap();
        assert!(with.own >= before.own + 60_000 && with.peak >= with.own, "{before:?}, {with:?}");
        drop(held);
        let after = process_memory(std::process::id()).unwrap();
        assert!(after.own < with.own - 30_000 && after.peak >= with.own - 10_000, "{with:?}, {after:?}");
    }
}
