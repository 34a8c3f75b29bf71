//! What is kept of the outputs of long commands, and whose it is.

use quipu::KeptOutputs;
use quipu_store::{OpenOptions, RefName, SearchIndex, Store as _};

use super::{Finding, State, is_absent};
use crate::exit::Failure;
use quipu_host::Home;

/// All that is kept.
#[derive(Default)]
struct Survey {
    /// Of sessions that are in the store.
    owned: Vec<KeptOutputs>,
    /// Of sessions that are not.
    gone: Vec<KeptOutputs>,
    /// Of other stores.
    others: Vec<KeptOutputs>,
    /// Beside the directories of sessions, as they were printed.
    loose: Option<KeptOutputs>,
}

async fn survey(home: &Home) -> Result<Survey, Failure> {
    let outputs = home.outputs();
    let path = outputs.root().display().to_string();
    let all = home.clone();
    let work = tokio::task::spawn_blocking(move || {
        let mut others = Vec::new();
        for other in all.outputs_of_others()? {
            others.extend(other.kept()?);
        }
        Ok((outputs.kept()?, others))
    });
    let kept = work.await.unwrap_or_else(|error| Err(error.into()));
    let (kept, others) = kept.map_err(|error| cannot(&path, &error))?;
    let mut survey = Survey { others, ..Survey::default() };
    if kept.is_empty() {
        return Ok(survey);
    }
    let options = OpenOptions { search_index: SearchIndex::Asked, ..OpenOptions::default() };
    let store = if is_absent(home) { None } else { Some(home.open(&options)?) };
    for one in kept {
        let Some(session) = &one.session else {
            survey.loose = Some(one);
            continue;
        };
        let head = match &store {
            Some(store) => store.head(&RefName::session(session)).await?,
            None => None,
        };
        if head.is_some() { survey.owned.push(one) } else { survey.gone.push(one) }
    }
    Ok(survey)
}

fn cannot(path: &str, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{path}: {error}"))
}

fn sum<'a>(all: impl IntoIterator<Item = &'a KeptOutputs>) -> (u64, u64) {
    all.into_iter().fold((0, 0), |(files, bytes), one| (files + one.files, bytes + one.bytes))
}

fn size((files, bytes): (u64, u64)) -> String {
    format!("{files} file{}, {} KiB", if files == 1 { "" } else { "s" }, bytes.div_ceil(1024))
}

/// How much is kept, and what of it nobody needs.
pub(super) async fn finding(home: &Home) -> Finding {
    let found = match survey(home).await {
        Ok(found) => found,
        Err(error) => return Finding { what: "outputs", state: State::Note, detail: error.message },
    };
    let mut detail = format!(
        "saved outputs of long commands: {}, of {} session{}",
        size(sum(&found.owned)),
        found.owned.len(),
        if found.owned.len() == 1 { "" } else { "s" }
    );
    if !found.others.is_empty() {
        detail.push_str(&format!("; {} of other stores (`--store`)", size(sum(&found.others))));
    }
    let mut state = State::Good;
    if !found.gone.is_empty() {
        state = State::Note;
        detail.push_str(&format!("; {} of removed sessions", size(sum(&found.gone))));
    }
    if let Some(loose) = &found.loose {
        state = State::Note;
        detail.push_str(&format!(
            "; {} of an earlier version, unsealed, so they may contain secrets",
            size((loose.files, loose.bytes))
        ));
    }
    if state == State::Note {
        let flag = crate::home::store_flag(home);
        detail.push_str(&format!("; `quipu doctor --drop-outputs{flag}` removes those that no session uses"));
    }
    Finding { what: "outputs", state, detail }
}

/// Removes what no session has.
pub(super) async fn drop_unowned(home: &Home) -> Result<(State, String), Failure> {
    let found = survey(home).await?;
    let outputs = home.outputs();
    let path = outputs.root().display().to_string();
    let what = size(sum(found.gone.iter().chain(&found.loose)));
    let work = tokio::task::spawn_blocking(move || {
        if found.loose.is_some() {
            outputs.remove_loose()?;
        }
        found
            .gone
            .iter()
            .filter_map(|one| one.session.as_ref())
            .try_for_each(|session| outputs.remove(session))
    });
    let done = work.await.unwrap_or_else(|error| Err(error.into()));
    done.map_err(|error| cannot(&path, &error))?;
    Ok((State::Good, format!("removed outputs that no session uses: {what}")))
}
