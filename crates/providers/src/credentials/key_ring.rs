//! Several keys of one provider: which one a call begins with, and which one follows one that was refused.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use quipu_protocol::UnixMs;

use super::key_use::{KeyPlace, KeyUse, RestReason, in_order};
use super::stored::Keys;
use super::use_file::{KeyUseFile, KeyUses};
use super::{
    AuthEntry, AuthFile, AuthFileError, CallOutcome, Credential, CredentialError, CredentialRequest,
    CredentialSource, Credentials, Scheme,
};
use crate::catalogue;
use crate::time::now;
use crate::values;

/// How long a key may be in use before that is written down again.
const NOTED: UnixMs = 60_000;

/// What divides the provider from the name of one of its keys.
const DIVIDER: char = ':';

/// A key of a provider, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyProfile {
    /// The name of its entry in `auth.json`, or where else it comes from.
    id: String,
    place: KeyOrigin,
}

/// Where a key comes from; the order in which keys are tried where nothing else decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyOrigin {
    Login,
    Entry,
    /// The environment or `models.json`.
    Outside,
}

/// A key among several, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStatus {
    /// `PROVIDER` or `PROVIDER:NAME` of `auth.json`, the variable of the environment, or `models.json`.
    pub id: String,
    /// Until when the key is used only if no other can be, and why. `None`: it can be used.
    pub rest: Option<KeyPause>,
}

/// A time in which a key rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPause {
    /// Its end, in milliseconds since the epoch.
    pub until: UnixMs,
    /// Why: `a refusal`, `too many requests` and so on.
    pub after: &'static str,
    /// The only model that it concerns.
    pub model: Option<String>,
}

/// Forgets how the key of this name was used: what is kept under it now is another one. The name is that of its entry in
/// `auth.json` of the directory.
///
/// # Errors
/// When the file of uses cannot be read or written.
pub fn forget_key_use(home: &Path, id: &str) -> Result<(), AuthFileError> {
    KeyUseFile::new(home).forget(id)
}

impl Keys {
    /// The credentials of a provider with several keys, for calls of `model`; `None` where it has one or none.
    pub(crate) fn several(
        &self,
        provider: &str,
        model: &str,
    ) -> Option<Result<Credentials, CredentialError>> {
        let ring = Arc::new(KeyRing::of(self, provider, model)?);
        Some(ring.first().map(|first| Credentials::chosen(Arc::new(SeveralKeys(ring)), first)))
    }

    /// The provider whose key an entry of `auth.json` holds: its name, up to the divider.
    pub(crate) fn provider_of<'a>(&self, entry: &'a str) -> &'a str {
        let is_provider = self.configs.contains_key(entry) || catalogue::provider(entry).is_some();
        match entry.split_once(DIVIDER) {
            Some((provider, name)) if !is_provider && !name.is_empty() => provider,
            _ => entry,
        }
    }

    /// All keys of a provider: of `auth.json` (`entries`), and the one from elsewhere.
    fn profiles(&self, provider: &str, entries: &BTreeMap<String, AuthEntry>) -> Vec<KeyProfile> {
        let stored = entries.iter().filter_map(|(id, entry)| {
            let place = match entry {
                AuthEntry::ApiKey { key: Some(_), .. } => KeyOrigin::Entry,
                AuthEntry::ApiKey { key: None, .. } => return None,
                AuthEntry::Oauth { .. } | AuthEntry::Reference { .. } => KeyOrigin::Login,
            };
            (self.provider_of(id) == provider).then(|| KeyProfile { id: id.clone(), place })
        });
        let outside = self.outside(provider).map(|id| KeyProfile { id, place: KeyOrigin::Outside });
        stored.chain(outside).collect()
    }

    /// Where a key of the provider would come from that is not in `auth.json`: a variable of the environment, or
    /// `models.json`.
    pub(crate) fn outside(&self, provider: &str) -> Option<String> {
        let row = catalogue::provider(provider).into_iter().flat_map(|row| &row.env);
        let set = row.map(|env| &env.name).find(|name| matches!(self.vars.get(*name), Some(Some(_))));
        set.cloned().or_else(|| {
            let key = self.configs.get(provider)?.api_key.as_deref()?;
            let missing = values::variables(key).any(|name| !matches!(self.vars.get(name), Some(Some(_))));
            (!key.is_empty() && !missing).then(|| "models.json".into())
        })
    }

    /// The entry of `auth.json` that holds the key of a provider with one key.
    pub(super) fn entry_for<'a>(
        &self,
        provider: &str,
        entries: &'a BTreeMap<String, AuthEntry>,
    ) -> Option<&'a AuthEntry> {
        let profiles = self.profiles(provider, entries);
        profiles.first().and_then(|profile| entries.get(&profile.id)).or_else(|| entries.get(provider))
    }

    /// Whether `auth.json` has any key of the provider.
    pub(crate) fn has_entry(&self, provider: &str) -> bool {
        self.profiles(provider, &self.auth).iter().any(|profile| profile.place != KeyOrigin::Outside)
    }

    /// The keys of a provider, where it has several, in the order in which they would be tried.
    pub(crate) fn statuses(&self, provider: &str) -> Vec<KeyStatus> {
        let Some(ring) = KeyRing::of(self, provider, "") else { return Vec::new() };
        let (profiles, at) = (self.profiles(provider, &self.auth), now());
        let uses = ring.uses();
        let status = |profile: KeyProfile| {
            let rest = uses.keys.get(&profile.id).and_then(|used| used.any_rest(at));
            let rest = rest.map(|rest| KeyPause {
                until: rest.until,
                after: rest.reason.text(),
                model: rest.model.clone(),
            });
            KeyStatus { id: profile.id, rest }
        };
        ring.ordered(&profiles, &uses, at).into_iter().map(status).collect()
    }
}

/// The source of several keys.
struct SeveralKeys(Arc<KeyRing>);

impl CredentialSource for SeveralKeys {
    fn name(&self) -> &str {
        "stored keys"
    }

    fn credential<'a>(
        &'a self,
        request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
        Box::pin(async move {
            let refused = request.refused.as_ref().map(|it| (it.identity.to_owned(), it.outcome));
            let ring = self.0.clone();
            // A login is renewed before another key takes its place.
            let renewed = ring.keys.renew(&ring.provider, ring.refused_token(request)).await;
            let next = move || {
                let refused = refused.as_ref().map(|(identity, outcome)| (identity.as_str(), *outcome));
                ring.next(refused)
            };
            let next = tokio::task::spawn_blocking(next).await.map_err(|_| CredentialError::Panicked)?;
            next.map_err(|none| renewed.err().unwrap_or(none))
        })
    }

    fn report<'a>(&'a self, identity: &'a str, outcome: &'a CallOutcome) -> BoxFuture<'a, ()> {
        let (ring, identity, outcome) = (self.0.clone(), identity.to_owned(), *outcome);
        Box::pin(async move {
            // A failure to write is reported with the next refusal.
            drop(tokio::task::spawn_blocking(move || ring.report(&identity, outcome)).await);
        })
    }
}

/// The keys of one provider, for calls of one model.
struct KeyRing {
    keys: Keys,
    provider: String,
    model: String,
    file: KeyUseFile,
    state: Mutex<RingState>,
}

#[derive(Default)]
struct RingState {
    /// What this process knows of the uses: what counts where the file cannot be used.
    uses: KeyUses,
    /// What was given last, by the key.
    given: BTreeMap<String, Credential>,
    /// When the use of a key was written down.
    noted: BTreeMap<String, UnixMs>,
    /// Why the last use could not be: then `uses` counts.
    problem: Option<String>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl KeyRing {
    /// The keys of a provider; `None` where it has one or none: then nothing is kept of its use.
    fn of(keys: &Keys, provider: &str, model: &str) -> Option<Self> {
        (keys.profiles(provider, &keys.auth).len() > 1).then(|| Self {
            keys: keys.clone(),
            provider: provider.to_owned(),
            model: model.to_owned(),
            file: KeyUseFile::new(&keys.home),
            state: Mutex::default(),
        })
    }

    /// The key to begin with. Reads files, and may run a command.
    ///
    /// # Errors
    /// When no key can be had: why, of the first.
    fn first(&self) -> Result<Credential, CredentialError> {
        // A login that has expired is renewed when it is asked for.
        self.pick(&self.keys.auth, None, |_| true)
    }

    /// The token of the login that a server refused.
    fn refused_token(&self, request: &CredentialRequest<'_>) -> Option<String> {
        let refused = request.refused.as_ref().filter(|it| it.outcome == CallOutcome::Unauthorised)?;
        match &self.state().given.get(refused.identity)?.scheme {
            Scheme::Bearer(token) => Some(token.expose().to_owned()),
            Scheme::Key(_) | Scheme::Header { .. } | Scheme::Signer(_) | Scheme::None => None,
        }
    }

    /// The key for the next attempt, after one was refused or has expired: the same where it is another one by now, else
    /// the next one that does not rest. Where there is none, the same again.
    ///
    /// # Errors
    /// As [`first`](Self::first); and where the refusal could not be written down, so that others may meet it as well.
    fn next(&self, refused: Option<(&str, CallOutcome)>) -> Result<Credential, CredentialError> {
        let unavailable = |error: AuthFileError| CredentialError::Unavailable { why: error.to_string() };
        let entries = AuthFile::new(&self.keys.home).read_settled().map_err(unavailable)?.known;
        let is_usable = |credential: &Credential| credential.expiry.allows(now());
        let Some((refused, outcome)) = refused else { return self.pick(&entries, None, is_usable) };
        let last = self.state().given.get(refused).cloned();
        if matches!(outcome, CallOutcome::Unauthorised | CallOutcome::Revoked) {
            if let Some(AuthEntry::ApiKey { key: Some(key), .. }) = entries.get(refused) {
                self.keys.printed.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            }
            let profiles = self.keys.profiles(&self.provider, &entries);
            let again = profiles.iter().find(|profile| profile.id == refused);
            let again = again.and_then(|profile| self.get(profile, &entries).ok().flatten());
            let is_other = |again: &Credential| last.as_ref().is_none_or(|last| !again.is_sent_as(last));
            if let Some(again) = again.filter(is_other) {
                return Ok(self.give(again));
            }
        }
        match (self.pick(&entries, Some(refused), is_usable), last) {
            (Err(_), Some(last)) => match self.state().problem.clone() {
                Some(why) => Err(CredentialError::Unavailable { why }),
                None => Ok(last),
            },
            (picked, _) => picked,
        }
    }

    /// Keeps what became of an attempt.
    fn report(&self, identity: &str, outcome: CallOutcome) {
        let at = now();
        let reason = RestReason::of(outcome);
        if reason.is_none() && outcome != CallOutcome::Done {
            return;
        }
        let rests = !catalogue::provider(&self.provider).is_some_and(|row| row.never_rests);
        let (model, mut state) = (self.model.clone(), self.state());
        let noted = state.noted.get(identity).is_some_and(|noted| at.saturating_sub(*noted) < NOTED);
        let known = state.uses.keys.get(identity).is_some_and(KeyUse::has_failed);
        if noted && !known && reason.is_none() {
            return;
        }
        let note = |uses: &mut KeyUses| {
            let used = uses.keys.entry(identity.to_owned()).or_default();
            match reason {
                Some(reason) if rests => used.failed(at, reason, &model),
                Some(_) => used.last_used = at,
                None => used.succeeded(at),
            }
            true
        };
        note(&mut state.uses);
        state.noted.insert(identity.to_owned(), at);
        let mut now_there = None;
        let written = self.file.change(|uses| {
            let changed = note(uses);
            now_there = Some(uses.clone());
            changed
        });
        match (written, now_there) {
            (Ok(()), Some(uses)) => (state.uses, state.problem) = (uses, None),
            (Ok(()), None) => {}
            (Err(error), _) => state.problem = Some(error.to_string()),
        }
    }

    fn state(&self) -> MutexGuard<'_, RingState> {
        // Nothing can break down while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the keys were used, as all processes know it.
    fn uses(&self) -> KeyUses {
        let known = self.state().uses.clone();
        if self.state().problem.is_some() {
            return known;
        }
        // A file that cannot be read is reported where something should be written to it.
        self.file.read().unwrap_or(known)
    }

    fn ordered(&self, profiles: &[KeyProfile], uses: &KeyUses, at: UnixMs) -> Vec<KeyProfile> {
        let places: Vec<_> = profiles
            .iter()
            .map(|profile| KeyPlace {
                id: &profile.id,
                rank: profile.place as u8,
                used: uses.keys.get(&profile.id),
            })
            .collect();
        let mut order = in_order(&places, &self.keys.order, &self.model, at);
        let is_ordered = profiles.iter().any(|profile| self.keys.order.contains(&profile.id));
        let kept = self.keys.kept.get(&self.provider).filter(|_| !is_ordered);
        let is_kept = |place: &KeyPlace<'_>| {
            let rests = place.used.is_some_and(|used| used.rest(at, &self.model).is_some());
            kept.is_some_and(|kept| kept == place.id) && !rests
        };
        if let Some(first) = places.iter().position(is_kept) {
            order.retain(|at| *at != first);
            order.insert(0, first);
        }
        order.into_iter().filter_map(|at| profiles.get(at).cloned()).collect()
    }

    /// The first key that can be had; behind a `refused` one only of those that do not rest.
    fn pick(
        &self,
        entries: &BTreeMap<String, AuthEntry>,
        refused: Option<&str>,
        is_usable: impl Fn(&Credential) -> bool,
    ) -> Result<Credential, CredentialError> {
        let (at, uses) = (now(), self.uses());
        let rests = |id: &str| uses.keys.get(id).is_some_and(|used| used.rest(at, &self.model).is_some());
        let mut why = None;
        for profile in self.ordered(&self.keys.profiles(&self.provider, entries), &uses, at) {
            if refused.is_some_and(|refused| refused == profile.id || rests(&profile.id)) {
                continue;
            }
            match self.get(&profile, entries) {
                Ok(Some(credential)) if is_usable(&credential) => return Ok(self.give(credential)),
                Ok(_) => {}
                Err(problem) => drop(why.get_or_insert(problem)),
            }
        }
        let what = self.keys.advice(&self.provider, &why.unwrap_or_default());
        Err(CredentialError::NeedsLogin { what })
    }

    fn give(&self, credential: Credential) -> Credential {
        self.state().given.insert(credential.identity.clone(), credential.clone());
        credential
    }

    /// The credential of one key.
    fn get(
        &self,
        profile: &KeyProfile,
        entries: &BTreeMap<String, AuthEntry>,
    ) -> Result<Option<Credential>, String> {
        let found = self.keys.look_up_with(&self.provider, entries.get(&profile.id))?;
        Ok(found.map(|credential| Credential { identity: profile.id.clone(), ..credential }))
    }
}
