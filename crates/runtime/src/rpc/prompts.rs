//! What a program says to the agent, and the queues.

use std::time::Duration;

use quipu_host::CommandCall;
use quipu_protocol::{
    Ack, Command, CommandValue, Content, ItemId, NAME_LIMIT, Notice, QueueMode, Refusal, Ui, UserInput,
};
use quipu_rpc::{RpcImage, StreamingBehavior, data_text};

use super::active::{ActiveSession, HeldMessage};
use super::state::{CommandOutcome, FrontState, ResponseHold};

/// How long a command is waited for that a server is about to add.
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages that wait for a run at most.
const HELD: usize = 256;

/// What a message that begins with a slash may name.
enum Expansion {
    /// Something to say.
    Input(UserInput),
    /// It was a command, and is done.
    Handled,
}

impl FrontState {
    pub(super) async fn prompt(
        &self,
        active: &ActiveSession,
        message: String,
        images: Vec<RpcImage>,
        behavior: Option<StreamingBehavior>,
        hold: &mut Option<ResponseHold>,
    ) -> CommandOutcome {
        let Expansion::Input(input) = self.expand(active, message, images, true).await? else {
            return Ok(None);
        };
        let when = match behavior {
            None => QueueMode::Now,
            Some(behavior) => mode_of(behavior),
        };
        let mut guard = active.shown.prompt();
        let sent = active.session.send(Command::Prompt { input, when }).await;
        if let Ok(Ack::Started(run)) = &sent {
            guard.began(run.clone());
        }
        *hold = Some(ResponseHold::Prompt { _guard: guard });
        match sent {
            Ok(_) => {
                for HeldMessage { queue, input } in active.shown.take_held() {
                    let queued = Command::Prompt { input: input.clone(), when: mode_of(queue) };
                    if active.session.send(queued).await.is_err() {
                        // It waits for the next one.
                        active.shown.hold(HeldMessage { queue, input });
                    }
                }
                Ok(None)
            }
            Err(Refusal::Busy) => Err(
                "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
                    .into(),
            ),
            Err(refused) => Err(refused.to_string().into()),
        }
    }

    pub(super) async fn queue(
        &self,
        active: &ActiveSession,
        message: String,
        images: Vec<RpcImage>,
        queue: StreamingBehavior,
    ) -> CommandOutcome {
        let Expansion::Input(input) = self.expand(active, message, images, false).await? else {
            return Ok(None);
        };
        if active.is_busy() {
            let queued = Command::Prompt { input, when: mode_of(queue) };
            return active
                .session
                .send(queued)
                .await
                .map(|_| None)
                .map_err(|refused| refused.to_string().into());
        }
        let is_empty =
            input.content.iter().all(|block| block.as_text().is_some_and(|text| text.trim().is_empty()));
        if is_empty {
            return Err(Refusal::Empty.to_string().into());
        }
        if active.shown.held() >= HELD {
            return Err(Refusal::QueueFull.to_string().into());
        }
        // No run is there that it could steer: it waits for the next one.
        let line = active.shown.hold(HeldMessage { queue, input });
        self.output.send(line).await;
        Ok(None)
    }

    /// What a message says; one that names a command is what that gives.
    async fn expand(
        &self,
        active: &ActiveSession,
        message: String,
        images: Vec<RpcImage>,
        runs_all: bool,
    ) -> Result<Expansion, String> {
        let commands = self.home.commands();
        let line = message.strip_prefix('/').unwrap_or_default();
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !name.is_empty() {
            commands.settled(name, PATIENCE).await;
        }
        let is_command = !name.is_empty() && commands.runnable().iter().any(|spec| spec.name == name);
        let mut input = if is_command {
            if !runs_all && !is_resource(active, name) {
                return Err(format!(
                    "Extension command \"/{name}\" cannot be queued. Use prompt() or execute the command when not streaming."
                ));
            }
            let call =
                CommandCall { arguments: arguments.trim().to_owned(), session: Some(active.session.clone()) };
            match commands.run(name, call).await.map_err(|error| error.to_string())? {
                CommandValue::Prompt { input } => input,
                CommandValue::Text { text } => {
                    let notice = Ui::Notice { notice: Notice::note(text) };
                    self.output.send(quipu_rpc::ui_line(&format!("command-{name}"), &notice)).await;
                    return Ok(Expansion::Handled);
                }
                CommandValue::Done => return Ok(Expansion::Handled),
            }
        } else {
            UserInput::from(message)
        };
        input.content.extend(images.into_iter().map(Content::from));
        Ok(Expansion::Input(input))
    }

    pub(super) async fn clear_queue(&self, active: &ActiveSession) -> CommandOutcome {
        let snapshot = active.snapshot().await.map_err(|refused| refused.to_string())?;
        let held = active.shown.take_held();
        let mut lists = [Vec::new(), Vec::new()];
        let queues = [
            (&snapshot.steering, StreamingBehavior::Steer),
            (&snapshot.follow_up, StreamingBehavior::FollowUp),
        ];
        for (list, (waiting, queue)) in lists.iter_mut().zip(queues) {
            let items: Vec<ItemId> = waiting.iter().map(|item| item.id.clone()).collect();
            if !items.is_empty() {
                match active.session.send(Command::Unqueue { items }).await {
                    Ok(Ack::Unqueued(taken)) => list.extend(taken.iter().map(UserInput::text)),
                    Ok(_) => {}
                    Err(refused) => return Err(refused.to_string().into()),
                }
            }
            list.extend(held.iter().filter(|one| one.queue == queue).map(|one| one.input.text()));
        }
        if !held.is_empty() {
            self.output.send(quipu_rpc::queue_line(&[], &[])).await;
        }
        let [steering, follow_up] = lists;
        Ok(Some(data_text(&serde_json::json!({ "steering": steering, "followUp": follow_up }))))
    }

    pub(super) async fn rename(&self, active: &ActiveSession, name: &str) -> CommandOutcome {
        let name = name.trim().to_owned();
        if name.is_empty() {
            return Err("Session name cannot be empty".into());
        }
        let characters = name.chars().count();
        if characters > NAME_LIMIT {
            return Err(Refusal::LabelTooLong { characters }.to_string().into());
        }
        let rename = Command::Rename { name: name.clone() };
        self.change(active, rename, |wanted| wanted.name = Some(name), |wanted| wanted.name = None).await
    }
}

fn mode_of(behavior: StreamingBehavior) -> QueueMode {
    match behavior {
        StreamingBehavior::Steer => QueueMode::Steer,
        StreamingBehavior::FollowUp => QueueMode::FollowUp,
    }
}

/// Whether a command is a template or a skill.
fn is_resource(active: &ActiveSession, name: &str) -> bool {
    let skill = name.strip_prefix("skill:").unwrap_or(name);
    active.resources.templates.iter().any(|template| template.name == name)
        || active.resources.skills.iter().any(|known| known.name == skill)
}
