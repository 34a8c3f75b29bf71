//! Who writes to a session: a lease on its ref, renewed while the session is open, taken over from the dead.

use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use quipu_store::{Graph, Owner, RefName, StoreError};
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// How long a lease lasts without renewal. Within one machine it ends with its process; the time is for other machines.
const TTL: Duration = Duration::from_secs(300);
/// How often it is renewed. Seldom, for each time wakes up a process at rest.
const RENEW: Duration = Duration::from_secs(100);

/// What the times of renewal are counted from, in this process.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// When leases are renewed: at the same times for all sessions of the process, so that many at rest wake it up together.
pub(crate) fn renewals() -> Interval {
    let since = Instant::now().saturating_duration_since(*BEGAN);
    let rest = since.as_nanos() % RENEW.as_nanos();
    let passed = Duration::from_nanos(u64::try_from(rest).unwrap_or_default());
    let mut renewals = tokio::time::interval_at(Instant::now() + (RENEW - passed), RENEW);
    renewals.set_missed_tick_behavior(MissedTickBehavior::Skip);
    renewals
}

/// The lease that a session task holds.
pub(crate) struct Lease {
    store: Arc<dyn Graph>,
    owner: Owner,
    held: Mutex<Option<RefName>>,
}

/// Whether a lease was got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseResult {
    Acquired,
    /// A living process has it.
    HeldBy(String),
}

impl Lease {
    pub(crate) fn new(store: Arc<dyn Graph>) -> Self {
        // Unique for each session object, so that two in one process are two writers.
        let owner = Owner(format!("{}:{}", process(std::process::id()), crate::clock::fresh_id()));
        Self { store, owner, held: Mutex::new(None) }
    }

    /// Takes the lease, also from a process that is dead.
    pub(crate) async fn take(&self, name: &RefName) -> Result<LeaseResult, StoreError> {
        for _ in 0..2 {
            match self.store.lease(name, &self.owner, TTL).await {
                Ok(_) => {
                    if let Ok(mut held) = self.held.lock() {
                        *held = Some(name.clone());
                    }
                    return Ok(LeaseResult::Acquired);
                }
                Err(StoreError::Fenced { owner, .. }) if is_dead(&owner) => {
                    match self.store.lease(name, &Owner(owner), Duration::ZERO).await {
                        // Fenced: somebody else was faster, and is met in the next round.
                        Ok(_) | Err(StoreError::Fenced { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Err(StoreError::Fenced { owner, .. }) => return Ok(LeaseResult::HeldBy(owner)),
                Err(error) => return Err(error),
            }
        }
        Ok(LeaseResult::HeldBy(String::new()))
    }

    /// Takes or renews; after a branch the name is another one. A failure is met at the next commit, whose
    /// compare-and-swap decides.
    pub(crate) async fn hold(&self, name: &RefName) {
        if self.store.lease(name, &self.owner, TTL).await.is_ok()
            && let Ok(mut held) = self.held.lock()
        {
            *held = Some(name.clone());
        }
    }

    /// Gives it back.
    pub(crate) async fn release(&self) {
        let held = self.held.lock().ok().and_then(|mut held| held.take());
        if let Some(name) = held {
            // If this fails, the lease runs out by itself, or is taken over once this process is gone.
            drop(self.store.lease(&name, &self.owner, Duration::ZERO).await);
        }
    }
}

/// Gives a lease back also where the work on it is dropped.
struct LeaseGuard(Option<Lease>);

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let (Some(lease), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { lease.release().await });
        }
    }
}

/// Does this while nobody else writes to a ref; `busy` is the error where somebody living does.
///
/// # Errors
/// `busy`, what the store says, and what the work does.
pub async fn with_lease<T, E: From<StoreError>>(
    store: &Arc<dyn Graph>,
    name: &RefName,
    busy: impl FnOnce() -> E,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let lease = Lease::new(store.clone());
    if lease.take(name).await? != LeaseResult::Acquired {
        return Err(busy());
    }
    let mut guard = LeaseGuard(Some(lease));
    let mut work = std::pin::pin!(work);
    let done = loop {
        match tokio::time::timeout(RENEW, &mut work).await {
            Ok(done) => break done,
            Err(_) => {
                if let Some(lease) = &guard.0 {
                    lease.hold(name).await;
                }
            }
        }
    };
    if let Some(lease) = guard.0.take() {
        lease.release().await;
    }
    done
}

/// `host:pid:start`, as far as the system tells.
fn process(pid: u32) -> String {
    format!("{}:{pid}:{}", host(), started(pid).unwrap_or_default())
}

fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().replace(':', "_")).unwrap_or_default()
}

/// The words behind the name of a process, as the system tells of it: its state first.
fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces and parentheses.
    let rest = &stat[stat.rfind(')')? + 1..];
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// When a process began, in clock ticks since boot; tells two processes with one number apart.
fn started(pid: u32) -> Option<String> {
    stat(pid)?.into_iter().nth(19)
}

/// Whether a process has ended and its parent has not asked how.
fn is_zombie(pid: u32) -> bool {
    let ended =
        stat(pid).is_some_and(|words| words.first().is_some_and(|state| state == "Z" || state == "X"));
    // The first thread may have ended before others.
    ended && std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.take(2).count() == 1)
}

/// Whether the owner of a lease is a process of this machine that is gone: its lease does not count any more.
pub fn is_dead_owner(owner: &str) -> bool {
    is_dead(owner)
}

fn is_dead(owner: &str) -> bool {
    let mut parts = owner.split(':');
    let (Some(their_host), Some(pid), Some(start)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(pid) = pid.parse::<u32>() else { return false };
    if their_host != host() {
        return false;
    }
    let Ok(number) = i32::try_from(pid) else { return false };
    let gone =
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(number), None) == Err(nix::errno::Errno::ESRCH);
    gone || started(pid).is_some_and(|now| now != start) || is_zombie(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn renewals_of_all_sessions_come_together() {
        let mut first = renewals();
        tokio::time::advance(Duration::from_secs(30)).await;
        let mut second = renewals();
        for _ in 0..3 {
            let (one, two) = (first.tick().await, second.tick().await);
            assert!(one.max(two) - one.min(two) < Duration::from_millis(2), "{one:?} {two:?}");
        }
    }

    #[test]
    fn the_living_and_the_dead() {
        let me = process(std::process::id());
        assert!(!is_dead(&format!("{me}:x")));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(is_dead(&format!("{}:{pid}:1:x", host())));
        assert!(!is_dead("elsewhere:1:1:x"));
        assert!(!is_dead("nonsense"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_nobody_waited_for_is_dead() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let owner = format!("{}:x", process(child.id()));
        assert!(!is_dead(&owner));
        child.kill().unwrap();
        while !is_zombie(child.id()) {
            std::thread::yield_now();
        }
        assert!(is_dead(&owner));
        child.wait().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_reused_number_is_another_process() {
        assert!(is_dead(&format!("{}:{}:1:x", host(), std::process::id())));
    }
}
