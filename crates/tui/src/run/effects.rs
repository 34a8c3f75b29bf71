//! What the state asks for is begun; what comes of it is an input.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use super::{Run, TaskMessage, external};
use crate::editor::{Candidate, Query};
use crate::request::{Context, Request};
use crate::state::{Effect, UiEvent};
use crate::{ExitReason, osc};

impl Run {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(command, purpose) => self.send(command, purpose),
            Effect::Open(open) => self.open(open),
            Effect::Ask(request) => self.ask(request),
            Effect::Stop(stop) => stop.stop(),
            Effect::Foreground(words) => {
                let work = self.host.foreground(words);
                self.lend_to(work, |ended, _| UiEvent::Returned(ended));
            }
            Effect::Edit(text) => self.edit(&text),
            Effect::EditSettings => match external::users_editor() {
                Ok(mut editor) => {
                    editor.arg(self.host.settings_path());
                    self.lend(editor, |ended, _| match ended {
                        Ok(()) => UiEvent::EditedSettings,
                        Err(error) => UiEvent::Edited(Err(error)),
                    });
                }
                Err(error) => self.take(UiEvent::Edited(Err(error))),
            },
            Effect::Copy(_) if self.tty.abilities().dumb => {
                self.state
                    .warn("This terminal cannot reach a clipboard; /export writes the session to a file");
            }
            Effect::Copy(text) => match osc::clipboard(&text) {
                Some(bytes) => {
                    self.tty.write(bytes);
                    if self.linear.is_some() {
                        self.state.warn("Sent to the terminal for the clipboard");
                    }
                }
                None => self.state.warn("The text is too long for the clipboard"),
            },
            Effect::Notify(text) => self.tty.write(osc::notify(&text, self.tty.abilities().notify)),
            Effect::Complete(id, query) => self.complete(id, query),
            Effect::Draft => self.unsaved = true,
            Effect::Sent(text) => self.storage.sent(text),
            Effect::PasteImage => {
                let directory = std::env::temp_dir();
                let work = tokio::task::spawn_blocking(move || crate::clipboard_image(&directory));
                self.begin(
                    async move { UiEvent::Image(work.await.unwrap_or_else(|error| Err(error.into()))) },
                );
            }
            Effect::Suspend => self.suspends = true,
            Effect::Leave => {
                let session = self.session.as_ref().map(|session| session.view());
                let session_id = session.filter(|view| view.head.is_some()).map(|view| view.session);
                self.left = Some(ExitReason::Quit(session_id));
            }
        }
    }

    /// Asks the host; the reply is an input, unless it was stopped.
    fn ask(&mut self, request: Request) {
        let up = self.up.clone();
        let early = up.clone();
        let early = Arc::new(move |reply| {
            // Nobody listens at the end.
            drop(early.send(TaskMessage::Input(Box::new(UiEvent::Reply(reply)))));
        });
        let context = Context { host: self.host.clone(), session: self.session.clone(), early };
        self.tasks.spawn(async move {
            if let Some(reply) = request.carry_out(context).await {
                // Nobody listens at the end.
                drop(up.send(TaskMessage::Input(Box::new(UiEvent::Reply(reply)))));
            }
        });
    }

    /// Looks for what may be meant.
    fn complete(&mut self, id: u64, query: Query) {
        match query {
            Query::Files { text, .. } if self.host.mentions().is_resource(&text) => {
                let mentions = self.host.mentions();
                self.begin(async move {
                    let offered = mentions.suggested(&text).await.into_iter().map(resource).collect();
                    UiEvent::Offered(id, offered, false)
                });
            }
            Query::Files { text, fresh } => {
                let begun = self.host.mentions().begun(&text).into_iter().map(resource).collect();
                *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = (id, begun);
                if self.finder.is_none() {
                    let (up, servers) = (self.up.clone(), self.servers.clone());
                    let found = move |found: crate::FoundFiles| {
                        let (asked, begun) = servers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        let begun = if asked == found.id { begun } else { Vec::new() };
                        let offered = begun.into_iter().chain(found.files).collect();
                        let input = UiEvent::Offered(found.id, offered, found.more);
                        drop(up.send(TaskMessage::Input(Box::new(input))));
                    };
                    self.finder = crate::FileFinder::new(&self.directory, found).ok();
                }
                if let Some(finder) = &self.finder {
                    finder.find(id, &text, fresh);
                }
            }
            Query::Paths { text } => {
                let (base, home) = (self.directory.clone(), std::env::var_os("HOME").map(PathBuf::from));
                let work =
                    tokio::task::spawn_blocking(move || crate::complete_path(&base, home.as_deref(), &text));
                self.begin(async move { UiEvent::Offered(id, work.await.unwrap_or_default(), false) });
            }
            Query::Argument { .. } => self.take(UiEvent::Offered(id, Vec::new(), false)),
        }
    }
}

/// A resource as the editor offers it. Texts are those of a server, made visible.
fn resource(suggestion: quipu_host::ResourceSuggestion) -> Candidate {
    Candidate { text: suggestion.text, detail: suggestion.description, ..Candidate::default() }
}
