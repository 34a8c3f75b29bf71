//! Credentials, into `auth.json`.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_archive::openclaw::state::{
    PortableProfile, ProfileFault, ProfileUse, StateDocument, profile_of, use_of,
};
use quipu_providers::{
    AdoptMode, AdoptOutcome, AdoptedCredential, AdoptedPause, AdoptedUse, AuthFile, Secret, adopt_key_use,
};
use serde_json::{Value, json};

use super::{StateOutcome, StatePart, Takeover, TakeoverMode};
use crate::settings::{Key, SettingsFile, set_setting};
use crate::setup::setting_failure;
use crate::{Failure, Source};

/// Credentials of one agent at most.
const PROFILES: usize = 1_000;
/// The setting that orders keys.
const ORDER: &str = "keyOrder";

impl Takeover<'_> {
    /// Takes the credentials of all agents, which are those of every agent here.
    pub(super) fn take_credentials(&mut self) -> Result<(), Failure> {
        let mut documents: Vec<(StateDocument, Option<StateDocument>)> = Vec::new();
        for agent in &self.state.agents {
            documents.extend(agent.profiles.clone().map(|profiles| (profiles, agent.profile_state.clone())));
        }
        documents.extend(self.state.shared_profiles.clone().map(|profiles| (profiles, None)));
        // The name here of each profile that was taken, by its own.
        let mut taken: BTreeMap<String, String> = BTreeMap::new();
        let mut order: Vec<String> = Vec::new();
        for (document, state) in &documents {
            if document.exposed {
                let why = "others than you can read this file".to_owned();
                self.report(StatePart::Credential, &document.path, "", StateOutcome::Note(why));
            }
            let Some(profiles) = document.value.get("profiles").and_then(Value::as_object) else {
                let why = "it has no `profiles`".to_owned();
                self.report(StatePart::Credential, &document.path, "", StateOutcome::Failed(why));
                continue;
            };
            let says = |member: &str, name: &str| {
                let of = |document: &StateDocument| document.value.get(member)?.get(name).cloned();
                of(document).or_else(|| state.as_ref().and_then(of))
            };
            for (name, profile) in profiles.iter().take(PROFILES) {
                let used = says("usageStats", name).map(|stats| use_of(&stats)).unwrap_or_default();
                if let Some(id) = self.take_profile(&document.path, name, profile, used)? {
                    taken.insert(name.clone(), id);
                }
            }
            if profiles.len() > PROFILES {
                let why = format!("it has more than {PROFILES} credentials; the others are left out");
                self.report(StatePart::Credential, &document.path, "", StateOutcome::Failed(why));
            }
            let orders = [Some(document), state.as_ref()].into_iter().flatten();
            let orders = orders.filter_map(|document| document.value.get("order")?.as_object()).flatten();
            for (_, names) in orders {
                let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
                for id in names.filter_map(|name| taken.get(name)) {
                    if !order.contains(id) {
                        order.push(id.clone());
                    }
                }
            }
        }
        self.take_order(documents.first().map(|(document, _)| document.path.as_path()), &order)
    }

    /// Takes one; its name here, where it is the one that is here.
    fn take_profile(
        &mut self,
        file: &Path,
        name: &str,
        profile: &Value,
        used: ProfileUse,
    ) -> Result<Option<String>, Failure> {
        let PortableProfile { id, provider, credential, notes } = match profile_of(name, profile) {
            Ok(portable) => portable,
            Err(fault) => {
                let outcome = StateOutcome::Left(fault_words(&fault));
                self.report(StatePart::Credential, file, name, outcome);
                return Ok(None);
            }
        };
        let secret = |text: String| {
            self.sealer.know("credential", &text);
            Secret::new(text)
        };
        let credential = match credential {
            quipu_archive::openclaw::state::ProfileCredential::Key(key) => {
                AdoptedCredential::Key(secret(key))
            }
            quipu_archive::openclaw::state::ProfileCredential::Variable(name) => {
                AdoptedCredential::Variable(name)
            }
            quipu_archive::openclaw::state::ProfileCredential::Login { access, refresh, expires, fields } => {
                let (access, refresh) = (secret(access), refresh.map(secret));
                AdoptedCredential::Login { access, refresh, expires, fields }
            }
        };
        let is_login = matches!(credential, AdoptedCredential::Login { .. });
        let mode = match self.mode {
            TakeoverMode::Write => AdoptMode::Write,
            TakeoverMode::DryRun => AdoptMode::DryRun,
        };
        let label = format!("auth.json {id}");
        let outcome = AuthFile::new(&self.home.dir).adopt(&id, &credential, mode).map_err(Failure::failed)?;
        let reported = match outcome {
            AdoptOutcome::Added => StateOutcome::Added(label),
            AdoptOutcome::Same => StateOutcome::Same(label),
            AdoptOutcome::Kept => StateOutcome::Kept(label),
        };
        self.report(StatePart::Credential, file, name, reported);
        if outcome == AdoptOutcome::Kept {
            return Ok(None);
        }
        if outcome == AdoptOutcome::Added {
            for note in notes {
                self.report(StatePart::Credential, file, name, StateOutcome::Note(note));
            }
            if is_login && self.home.settings().logins().restriction(&provider).is_some() {
                let why = "its provider allows this login in programs of its own only: it is not used before you log in here and accept that";
                self.report(StatePart::Credential, file, name, StateOutcome::Note(why.to_owned()));
            }
            if mode == AdoptMode::Write {
                let used = adopted_use(used);
                adopt_key_use(&self.home.dir, &id, &used, crate::now()).map_err(Failure::failed)?;
            }
        }
        Ok(Some(id))
    }

    /// The order of keys, unless the user has set one.
    fn take_order(&mut self, file: Option<&Path>, order: &[String]) -> Result<(), Failure> {
        let (Some(file), false) = (file, order.is_empty()) else { return Ok(()) };
        let Some(key) = Key::named(ORDER) else { return Ok(()) };
        let config = self.home.config();
        let row = config.row(key);
        let value = json!(order);
        let outcome = if row.value == value {
            StateOutcome::Same(ORDER.to_owned())
        } else if *row.source != Source::BuiltIn {
            StateOutcome::Kept(ORDER.to_owned())
        } else {
            if self.mode == TakeoverMode::Write {
                let words = value.to_string();
                set_setting(self.home, &SettingsFile::User, ORDER, &words).map_err(setting_failure)?;
            }
            StateOutcome::Added(ORDER.to_owned())
        };
        self.report(StatePart::Credential, file, "order", outcome);
        Ok(())
    }
}

fn fault_words(fault: &ProfileFault) -> String {
    fault.to_string()
}

fn adopted_use(used: ProfileUse) -> AdoptedUse {
    let pause = used.rest.map(|(until, reason, model)| AdoptedPause { until, reason, model });
    AdoptedUse { last_used: used.last_used, errors: used.errors, pause }
}
