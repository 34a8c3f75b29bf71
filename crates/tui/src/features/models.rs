//! Models and levels of thinking: to choose from, or one after the other.

use std::sync::Arc;

use quipu_protocol::{Command, Model, Setting, Thinking};

use crate::component::Chooser;
use crate::host::{CycleModel, ModelChoice, SessionRequest};
use crate::levels::{level_name, level_named};
use crate::picker::{Picker, PickerRow};
use crate::{Action, Effect, Purpose, Request, SlashCommand, State};

pub(crate) const MODEL: SlashCommand =
    SlashCommand::new("model", "[NAME]", "choose another model, from the next turn", model)
        .completes()
        .with_key(Action::ModelSelect);
pub(crate) const THINKING: SlashCommand =
    SlashCommand::new("thinking", "[LEVEL]", "set how hard the model thinks", thinking).completes();

/// Which way models are gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CycleDirection {
    /// The one after the one that answers.
    Next,
    /// The one before it.
    Previous,
}

/// Lists the models that match a part of a name; all of them without one.
pub(crate) fn choose_model(part: &str, effects: &mut Vec<Effect>) {
    let part = part.trim().to_owned();
    let show = move |state: &mut State, models, _: &mut Vec<Effect>| show_models(state, models, &part);
    effects.push(Effect::Ask(Request::to_host("models", |host| host.models(), show)));
}

fn show_models(state: &mut State, models: Vec<Arc<Model>>, part: &str) {
    let now = state.standing.model.as_ref();
    let at = models
        .iter()
        .position(|model| now.is_some_and(|now| (&now.provider, &now.id) == (&model.provider, &model.id)));
    let rows = models
        .into_iter()
        .map(|model| {
            let text = format!("{}/{}", model.provider, model.id);
            let detail = format!("{} · {}k", model.name, model.context_window / 1_000);
            PickerRow::new(model, text, detail)
        })
        .collect();
    let mut picker = Picker::new("Model", rows).starting_at(at.unwrap_or(0));
    if !part.is_empty() {
        picker.paste(part);
    }
    state.show(Chooser::new(picker, |state, model: Arc<Model>, effects| {
        switch(state, Some((model.provider.clone(), model.id.clone())), None, effects);
    }));
}

fn cycled(direction: CycleDirection) -> Request {
    let then = move |state: &mut State, models: Vec<CycleModel>, effects: &mut Vec<Effect>| {
        cycle(state, &models, direction, effects);
    };
    Request::to_host("cycled", |host| host.cycled(), then)
}

fn cycle(state: &mut State, models: &[CycleModel], direction: CycleDirection, effects: &mut Vec<Effect>) {
    let now = state.standing.model.as_ref();
    let (provider, id) = match (&state.opening.wanted.0, now) {
        (Some((provider, id)), _) => (provider.as_str(), id.as_str()),
        (None, Some(model)) => (model.provider.as_str(), model.id.as_str()),
        (None, None) => ("", ""),
    };
    let at = models.iter().position(|(model, _)| model.provider == provider && model.id == id);
    if models.len() < 1 + usize::from(at.is_some()) {
        state.hint = Some("There is no other model; `/login` adds a login or a key for more".into());
        return;
    }
    let next = match (at, direction) {
        (Some(at), CycleDirection::Previous) => (at + models.len() - 1) % models.len(),
        (Some(at), CycleDirection::Next) => (at + 1) % models.len(),
        (None, _) => 0,
    };
    let (model, thinking) = &models[next];
    let model = (model.provider.clone(), model.id.clone());
    let level = thinking.map_or(String::new(), |level| format!(", thinking {}", level_name(level)));
    let hint = format!("Model: {}/{}{level}", model.0, model.1);
    switch(state, Some(model), *thinking, effects);
    state.hint = Some(hint);
}

impl State {
    /// The host keeps a choice for the sessions that begin later.
    pub(crate) fn keep_choice(choice: ModelChoice, effects: &mut Vec<Effect>) {
        let keep = Request::to_host("choice", |host| host.keep_choice(choice), |_, (), _| {});
        effects.push(Effect::Ask(keep));
    }

    /// Sends what is to be changed in the session.
    pub(crate) fn send_settings(&mut self, settings: Vec<(Setting, ModelChoice)>, effects: &mut Vec<Effect>) {
        self.opening.unanswered += settings.len();
        let send = |(setting, choice)| Effect::Send(Command::Set { setting }, Purpose::Set(choice));
        effects.extend(settings.into_iter().map(send));
    }

    /// The session answered one of them. What was chosen since then is wanted until it is answered too.
    pub(crate) fn setting_answered(&mut self, choice: &ModelChoice, is_refused: bool) {
        self.opening.unanswered -= 1;
        let (model, thinking) = &mut self.opening.wanted;
        if self.opening.unanswered == 0 {
            (*model, *thinking) = (None, None);
        } else if is_refused && choice.chosen {
            model.take_if(|(provider, id)| (&*provider, &*id) == (&choice.provider, &choice.id));
        } else if is_refused {
            thinking.take_if(|level| Some(*level) == choice.thinking);
        }
    }

    /// The model after the one that answers.
    pub(crate) fn next_model(&mut self, effects: &mut Vec<Effect>) {
        effects.push(Effect::Ask(cycled(CycleDirection::Next)));
    }

    /// The model before the one that answers.
    pub(crate) fn previous_model(&mut self, effects: &mut Vec<Effect>) {
        effects.push(Effect::Ask(cycled(CycleDirection::Previous)));
    }

    /// The level after the one that holds.
    pub(crate) fn next_thinking(&mut self, effects: &mut Vec<Effect>) {
        let levels = &self.standing.levels;
        if levels.len() < 2 {
            self.hint = Some("This model has only one level of thinking".into());
            return;
        }
        let now = self.opening.wanted.1.unwrap_or(self.standing.thinking);
        let at = levels.iter().position(|level| *level == now).map_or(0, |at| at + 1);
        let next = levels[at % levels.len()];
        switch(self, None, Some(next), effects);
        self.hint = Some(format!("Thinking: {}", level_name(next)));
    }
}

/// Opens a session with this choice, which is kept once it is open.
pub(crate) fn open_with(
    state: &mut State,
    model: Option<(String, String)>,
    thinking: Option<Thinking>,
    effects: &mut Vec<Effect>,
) {
    let chosen = model.clone();
    state.opening.chosen = chosen.map(|(provider, id)| ModelChoice { provider, id, chosen: true, thinking });
    let open = SessionRequest { model, thinking, ..state.opening.latest.clone() };
    state.opening.begin(open, effects);
}

/// The model that holds, or will once it is accepted.
fn current(state: &State) -> Option<(String, String)> {
    let standing = state.standing.model.as_ref().map(|model| (model.provider.clone(), model.id.clone()));
    state.opening.wanted.0.clone().or(standing)
}

fn model(state: &mut State, name: &str, effects: &mut Vec<Effect>) {
    match name.split_once('/') {
        Some((provider, id)) => switch(state, Some((provider.to_owned(), id.to_owned())), None, effects),
        None => choose_model(name, effects),
    }
}

fn thinking(state: &mut State, name: &str, effects: &mut Vec<Effect>) {
    if let Some(level) = level_named(name) {
        return switch(state, None, Some(level), effects);
    }
    let levels = &state.standing.levels;
    let rows = levels.iter().map(|level| PickerRow::new(*level, level_name(*level), "")).collect();
    let at = levels.iter().position(|level| *level == state.standing.thinking);
    let picker = Picker::new("Thinking", rows).starting_at(at.unwrap_or(0));
    state.show(Chooser::new(picker, |state, level, effects| switch(state, None, Some(level), effects)));
}

/// Another model or level, from the next request on.
fn switch(
    state: &mut State,
    model: Option<(String, String)>,
    thinking: Option<Thinking>,
    effects: &mut Vec<Effect>,
) {
    if state.opening.unready && !state.opening.under_way {
        return open_with(state, model, thinking, effects);
    }
    let mut changes = Vec::new();
    if let Some((provider, id)) = model.clone() {
        let choice = ModelChoice { provider: provider.clone(), id: id.clone(), chosen: true, thinking: None };
        changes.push((Setting::Model { provider, id }, choice));
    }
    if let Some((level, (provider, id))) = thinking.zip(model.clone().or_else(|| current(state))) {
        let choice = ModelChoice { provider, id, chosen: false, thinking };
        changes.push((Setting::Thinking { level }, choice));
    }
    if state.opening.under_way {
        state.opening.settings.extend(changes);
    } else {
        state.send_settings(changes, effects);
    }
    state.opening.wanted = (model.or(state.opening.wanted.0.take()), thinking.or(state.opening.wanted.1));
    if state.activity.working.is_some() {
        state.hint = Some("From the next turn".into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quipu_protocol::{Ack, Command, Model, Refusal, Setting, Thinking};

    use super::{CycleDirection, cycle};
    use crate::editor::Editor;
    use crate::{Bindings, Effect, Purpose, Size, State, Theme, UiEvent};

    fn model(id: &str) -> Arc<Model> {
        Arc::new(Model { id: id.into(), provider: "testing".into(), ..Model::default() })
    }

    /// What a press of the key sends: names of models, and who is to be answered.
    fn press(state: &mut State, level: Option<Thinking>) -> (Vec<String>, Vec<Purpose>) {
        let models = [(model("a"), level), (model("b"), None), (model("c"), None)];
        let mut effects = Vec::new();
        cycle(state, &models, CycleDirection::Next, &mut effects);
        let sent = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send(Command::Set { setting: Setting::Model { id, .. } }, purpose) => Some((id, purpose)),
            Effect::Send(_, purpose) => Some((String::new(), purpose)),
            _ => None,
        });
        let (mut names, purposes): (Vec<String>, _) = sent.unzip();
        names.retain(|name| !name.is_empty());
        (names, purposes)
    }

    #[test]
    fn keys_pressed_before_the_answer_go_on_from_what_was_chosen() {
        let mut state =
            State::new(Size::default(), Theme::plain(), Bindings::default(), Editor::default(), 0);
        state.opening.under_way = false;
        state.standing.model = Some(model("c"));
        let (first, answers) = press(&mut state, Some(Thinking::High));
        assert_eq!((first, answers.len()), (vec!["a".to_owned()], 2), "a model and a level");
        let (second, last) = press(&mut state, None);
        assert_eq!(second, ["b"]);
        // The session has the first by then, and not yet the second.
        state.standing.model = Some(model("a"));
        for purpose in answers {
            state.on(UiEvent::Sent(purpose, Ok(Ack::Handled)), 0);
        }
        assert_eq!(press(&mut state, None).0, ["c"]);
        // One that is refused at once is wanted no more, whatever is still to be answered.
        let refused = Refusal::NoSuchModel { why: "it is gone".into() };
        state.on(UiEvent::Sent(Purpose::Set(choice("c")), Err(refused)), 0);
        assert_eq!(state.opening.wanted.0, None);
        // Once all is answered, what the session has counts, whoever chose it.
        for purpose in last {
            state.on(UiEvent::Sent(purpose, Ok(Ack::Handled)), 0);
        }
        assert_eq!(press(&mut state, None).0, ["b"]);
    }

    fn choice(id: &str) -> super::ModelChoice {
        super::ModelChoice { provider: "testing".into(), id: id.into(), chosen: true, thinking: None }
    }
}
