//! The use of several keys of one provider: which comes next, and how long one rests after a failure. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use quipu_protocol::{ModelErrorKind, UnixMs};
use serde::{Deserialize, Serialize};

use super::CallOutcome;

const SECOND: UnixMs = 1_000;
const MINUTE: UnixMs = 60 * SECOND;
const HOUR: UnixMs = 60 * MINUTE;
/// How long a failure counts.
const FAILURES: UnixMs = 24 * HOUR;
/// How often a window doubles at most.
const DOUBLINGS: u32 = 10;

/// Why a key rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RestReason {
    Auth,
    AuthRevoked,
    Quota,
    UsageLimit,
    RateLimited,
    Overloaded,
}

impl RestReason {
    /// Why a key rests after an attempt; `None` where the failure is none of the key's.
    pub(crate) fn of(outcome: CallOutcome) -> Option<Self> {
        match outcome {
            CallOutcome::Unauthorised => Some(Self::Auth),
            CallOutcome::Revoked => Some(Self::AuthRevoked),
            CallOutcome::Quota => Some(Self::Quota),
            CallOutcome::UsageLimit => Some(Self::UsageLimit),
            CallOutcome::RateLimited => Some(Self::RateLimited),
            CallOutcome::Other(ModelErrorKind::Overloaded) => Some(Self::Overloaded),
            CallOutcome::Done | CallOutcome::Other(_) => None,
        }
    }

    /// For people, behind "after".
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Auth => "a refusal",
            Self::AuthRevoked => "it was revoked",
            Self::Quota => "an exhausted quota",
            Self::UsageLimit => "a usage limit",
            Self::RateLimited => "too many requests",
            Self::Overloaded => "an overload",
        }
    }

    /// The length of a window: the `errors`-th failure, and the `same`-th for this reason.
    fn window(self, errors: u32, same: u32) -> UnixMs {
        let doubled = |base: UnixMs, most: UnixMs| most.min(base << same.saturating_sub(1).min(DOUBLINGS));
        match self {
            Self::Quota => doubled(5 * HOUR, 24 * HOUR),
            Self::AuthRevoked => doubled(10 * MINUTE, HOUR),
            Self::Auth | Self::UsageLimit | Self::RateLimited | Self::Overloaded => match errors {
                0 | 1 => 30 * SECOND,
                2 => MINUTE,
                _ => 5 * MINUTE,
            },
        }
    }
}

/// A time in which a key is used only where no other can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PauseWindow {
    pub(crate) until: UnixMs,
    pub(crate) reason: RestReason,
    /// The only model that it concerns; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
}

/// How a key was used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct KeyUse {
    pub(crate) last_used: UnixMs,
    last_failure: UnixMs,
    errors: u32,
    failures: BTreeMap<RestReason, u32>,
    /// A short window, after what may pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    cooldown: Option<PauseWindow>,
    /// A long one, after what a person has to settle.
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled: Option<PauseWindow>,
}

impl KeyUse {
    /// Whether it says more than when the key was used last.
    pub(crate) fn has_failed(&self) -> bool {
        self.errors > 0 || self.cooldown.is_some() || self.disabled.is_some()
    }

    /// Windows that are over end; with the last of them the counts begin anew, or the next failure would count as one of
    /// many.
    pub(crate) fn clear_expired(&mut self, now: UnixMs) {
        let before = self.cooldown.is_some() || self.disabled.is_some();
        self.cooldown.take_if(|rest| rest.until <= now);
        self.disabled.take_if(|rest| rest.until <= now);
        if before && self.cooldown.is_none() && self.disabled.is_none() {
            self.errors = 0;
            self.failures.clear();
        }
    }

    /// It was used, and answered.
    pub(crate) fn succeeded(&mut self, now: UnixMs) {
        *self = Self { last_used: now, ..Self::default() };
    }

    /// It was used, and rests, as another program says.
    pub(crate) fn adopt(&mut self, last_used: UnixMs, errors: u32, window: Option<PauseWindow>) {
        self.last_used = last_used;
        let Some(window) = window else { return };
        self.errors = errors;
        self.last_failure = last_used;
        match window.reason {
            RestReason::Quota | RestReason::AuthRevoked => self.disabled = Some(window),
            RestReason::Auth | RestReason::UsageLimit | RestReason::RateLimited | RestReason::Overloaded => {
                self.cooldown = Some(window);
            }
        }
    }

    /// It failed, with this model.
    pub(crate) fn failed(&mut self, now: UnixMs, reason: RestReason, model: &str) {
        self.clear_expired(now);
        if now.saturating_sub(self.last_failure) > FAILURES {
            self.errors = 0;
            self.failures.clear();
        }
        self.errors = self.errors.saturating_add(1);
        let same = self.failures.entry(reason).or_default();
        *same = same.saturating_add(1);
        (self.last_failure, self.last_used) = (now, now);
        let until = now.saturating_add(reason.window(self.errors, *same));
        let window = match reason {
            RestReason::Quota | RestReason::AuthRevoked => &mut self.disabled,
            RestReason::Auth | RestReason::UsageLimit | RestReason::RateLimited | RestReason::Overloaded => {
                &mut self.cooldown
            }
        };
        match window {
            // Never longer than it was: failures at the same time must not put the end off.
            Some(rest) => {
                if rest.model.as_deref().is_some_and(|limited| limited != model) {
                    rest.model = None;
                }
            }
            None => {
                // What a server has too much of concerns the model; all else the account.
                let is_of_model = matches!(reason, RestReason::RateLimited | RestReason::Overloaded);
                let model = is_of_model.then(|| model.to_owned());
                *window = Some(PauseWindow { until, reason, model });
            }
        }
    }

    /// The window that ends last, for whatever model.
    pub(crate) fn any_rest(&self, now: UnixMs) -> Option<&PauseWindow> {
        let both = self.disabled.iter().chain(&self.cooldown).filter(|rest| rest.until > now);
        both.max_by_key(|rest| rest.until)
    }

    /// The window that keeps it from being used with this model.
    pub(crate) fn rest(&self, now: UnixMs, model: &str) -> Option<&PauseWindow> {
        let concerns =
            |rest: &&PauseWindow| rest.until > now && rest.model.as_deref().is_none_or(|it| it == model);
        let both = self.disabled.iter().chain(&self.cooldown).filter(concerns);
        both.max_by_key(|rest| rest.until)
    }
}

/// A key as far as its place among others goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPlace<'a> {
    pub(crate) id: &'a str,
    /// Those of a lower rank come first: keys of the file before those from elsewhere, logins before keys.
    pub(crate) rank: u8,
    pub(crate) used: Option<&'a KeyUse>,
}

/// The places in the order in which they are tried: as `order` names them, else those that were not used for the longest
/// time first. Those that rest are behind all others, the one whose rest ends first in front. Keys that `order` does not
/// name are behind those that it names.
pub(crate) fn in_order(places: &[KeyPlace<'_>], order: &[String], model: &str, now: UnixMs) -> Vec<usize> {
    let named = |place: &KeyPlace<'_>| order.iter().position(|id| id == place.id).unwrap_or(order.len());
    let mut all: Vec<usize> = (0..places.len()).collect();
    all.sort_by_key(|&at| {
        let Some(place) = places.get(at) else { return (Reverse(false), 0, 0, 0, 0) };
        let rest = place.used.and_then(|used| used.rest(now, model));
        let until = rest.map_or(0, |rest| rest.until);
        let used = place.used.map_or(0, |used| used.last_used);
        (Reverse(rest.is_none()), until, named(place), place.rank, used)
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(uses: &[(UnixMs, RestReason)]) -> KeyUse {
        let mut state = KeyUse::default();
        uses.iter().for_each(|(at, reason)| state.failed(*at, *reason, "m"));
        state
    }

    fn until(state: &KeyUse, now: UnixMs) -> Option<UnixMs> {
        state.rest(now, "m").map(|rest| rest.until)
    }

    const START: UnixMs = 1_700_000_000_000;

    #[test]
    fn windows_grow_with_failures() {
        let lengths = |reason: RestReason| [1, 2, 3, 4, 20].map(|n| reason.window(n, n) / SECOND);
        assert_eq!(lengths(RestReason::RateLimited), [30, 60, 300, 300, 300]);
        assert_eq!(lengths(RestReason::Auth), [30, 60, 300, 300, 300]);
        assert_eq!(lengths(RestReason::Quota).map(|seconds| seconds / 3_600), [5, 10, 20, 24, 24]);
        assert_eq!(lengths(RestReason::AuthRevoked).map(|seconds| seconds / 60), [10, 20, 40, 60, 60]);
    }

    #[test]
    fn active_windows_are_never_extended() {
        let once = failed(&[(START, RestReason::Auth)]);
        assert_eq!(until(&once, START), Some(START + 30 * SECOND));
        let often: Vec<_> = (0..20).map(|n| (START + n * SECOND, RestReason::Auth)).collect();
        assert_eq!(until(&failed(&often), START), Some(START + 30 * SECOND));
        // Another kind of window is one of its own.
        let both = failed(&[(START, RestReason::Auth), (START, RestReason::Quota)]);
        assert_eq!(until(&both, START), Some(START + 5 * HOUR));
    }

    #[test]
    fn expired_windows_begin_the_counts_anew() {
        let mut state = failed(&[(START, RestReason::Auth), (START, RestReason::Auth)]);
        assert_eq!((state.errors, until(&state, START + 30 * SECOND)), (2, None));
        state.failed(START + 31 * SECOND, RestReason::Auth, "m");
        assert_eq!((state.errors, until(&state, START + 31 * SECOND)), (1, Some(START + 61 * SECOND)));
        state.succeeded(START + 70 * SECOND);
        assert_eq!(state, KeyUse { last_used: START + 70 * SECOND, ..KeyUse::default() });
        assert!(!state.has_failed());
    }

    #[test]
    fn rate_limits_concern_one_model_until_another_fails() {
        let mut state = KeyUse::default();
        state.failed(START, RestReason::Overloaded, "m");
        assert!(state.rest(START, "m").is_some() && state.rest(START, "n").is_none());
        let mut state = KeyUse::default();
        state.failed(START, RestReason::RateLimited, "m");
        assert!(state.rest(START, "m").is_some() && state.rest(START, "n").is_none());
        state.failed(START + 1, RestReason::RateLimited, "n");
        assert!(state.rest(START + 1, "n").is_some() && state.rest(START + 1, "other").is_some());
        assert_eq!(until(&state, START), Some(START + 30 * SECOND));
    }

    #[test]
    fn keys_are_tried_in_order() {
        let used = |at| KeyUse { last_used: at, ..KeyUse::default() };
        let (old, new) = (used(1), used(2));
        let soon = failed(&[(START, RestReason::Auth)]);
        let late = failed(&[(START, RestReason::Quota)]);
        let place = |id, rank, used| KeyPlace { id, rank, used };
        let check = |places: &[KeyPlace<'_>], order: &[&str], expect: &[&str]| {
            let order: Vec<String> = order.iter().map(ToString::to_string).collect();
            let ids: Vec<_> =
                in_order(places, &order, "m", START).into_iter().map(|at| places[at].id).collect();
            assert_eq!(ids, expect, "{order:?}");
        };
        let all = [
            place("late", 2, Some(&late)),
            place("soon", 2, Some(&soon)),
            place("new", 2, Some(&new)),
            place("old", 2, Some(&old)),
            place("unused", 2, None),
            place("login", 0, Some(&new)),
            place("outside", 3, None),
        ];
        check(&all, &[], &["login", "unused", "old", "new", "outside", "soon", "late"]);
        check(&all, &["late", "new"], &["new", "login", "unused", "old", "outside", "soon", "late"]);
        check(&[], &["x"], &[]);
    }

    #[test]
    fn failures_of_a_key_make_it_rest() {
        use ModelErrorKind as K;
        for kind in [K::Timeout, K::Server, K::InvalidRequest, K::Malformed, K::UnknownModel, K::Aborted] {
            assert_eq!(RestReason::of(CallOutcome::of(Some(kind))), None, "{kind:?}");
        }
        for (kind, reason) in [
            (K::Auth, RestReason::Auth),
            (K::AuthRevoked, RestReason::AuthRevoked),
            (K::Quota, RestReason::Quota),
            (K::UsageLimit, RestReason::UsageLimit),
            (K::RateLimited, RestReason::RateLimited),
            (K::Overloaded, RestReason::Overloaded),
        ] {
            assert_eq!(RestReason::of(CallOutcome::of(Some(kind))), Some(reason));
        }
    }
}
