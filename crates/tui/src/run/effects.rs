//! What the state asks for is begun; what comes of it is an input.

use std::path::PathBuf;

use quipu_protocol::{Command, Setting};

use super::{Run, Up, lent};
use crate::editor::Query;
use crate::host::Printed;
use crate::state::{Effect, Got, Input};
use crate::{Left, osc};

impl Run {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        let host = self.host.clone();
        match effect {
            Effect::Send(command, purpose) => self.send(command, purpose),
            Effect::Open(open) => self.open(open),
            Effect::Models => self.begin(async move { Input::Got(Got::Models(host.models().await)) }),
            Effect::Cycle(choice) => {
                self.begin(async move { Input::Got(Got::Cycled(host.cycled().await, choice)) });
            }
            Effect::Sessions(filter) => {
                self.begin(async move { Input::Got(Got::Sessions(host.sessions().await, filter)) });
            }
            Effect::Tree(reach, below) => {
                self.begin(async move {
                    let rows = host.tree(reach.clone(), below).await;
                    Input::Got(Got::Tree(reach, rows, below))
                });
            }
            Effect::Compare(a, b) => {
                // Side by side is for the eye.
                let most = if self.linear.is_some() { 79 } else { usize::MAX };
                let columns = self.state.size.columns.min(most);
                self.begin(async move { Input::Got(Got::Compared(host.compare(a, b, columns).await)) });
            }
            Effect::Foresee(node) => {
                let session = self.session.clone();
                self.begin(async move {
                    let plan = match session {
                        Some(session) => session.plan_files(node).await,
                        None => Err(quipu::Refused::Closed),
                    };
                    let plan = plan.map(|plan| crate::plan::lines(&plan).join("\n"));
                    Input::Got(Got::Foreseen(node, plan.map_err(|refused| refused.to_string())))
                });
            }
            Effect::Settings => {
                self.begin(async move {
                    Input::Got(Got::Settings(host.arguments("settings".into(), None).await))
                });
            }
            Effect::KeepSetting(setting) => {
                self.begin(async move { Input::Got(Got::Set(host.set(setting).await)) });
            }
            Effect::ReadSettings => {
                self.begin(async move { Input::Got(Got::Set(host.edited().await)) });
            }
            Effect::Arguments(id, command, head) => {
                self.begin(async move {
                    // Where nothing can be offered, what is written counts.
                    let offered = host.arguments(command, head).await.unwrap_or_default();
                    Input::Offered(id, offered, false)
                });
            }
            Effect::Unfold(row) => {
                if let crate::TreeKind::Folded { below, depth, count } = row.kind {
                    self.begin(async move {
                        Input::Got(Got::Unfolded(below, host.unfold(below, depth, count, row.level).await))
                    });
                }
            }
            Effect::Preview(node) => {
                self.begin(async move { Input::Got(Got::Preview(node, host.preview(node).await)) });
            }
            Effect::Search(words) => {
                let said = crate::commands::words(&words);
                self.begin(async move { Input::Got(Got::Found(host.search(said).await, words)) });
            }
            Effect::Resolve(name) => {
                self.begin(async move { Input::Got(Got::Resolved(host.resolve(name).await)) });
            }
            Effect::Said(head) => {
                self.begin(async move { Input::Got(Got::Said(host.said(head).await)) });
            }
            Effect::Command(words) => {
                let what = words.join(" ");
                // What it changes is done when the session has taken it.
                let open =
                    self.session.clone().filter(|_| words.first().is_some_and(|word| word == "permissions"));
                self.begin(async move {
                    let mut printed = host.command(words).await;
                    if let (Some(session), Ok(Printed { ok: ok @ true, err, .. })) = (open, &mut printed)
                        && let Err(refused) =
                            session.send(Command::Set { setting: Setting::Permissions }).await
                    {
                        *ok = false;
                        err.push_str(&format!("The open session did not take it: {refused}\n"));
                    }
                    Input::Got(Got::Printed(what, printed))
                });
            }
            Effect::Clone(session) => {
                self.begin(async move { Input::Got(Got::Made(host.clone_session(session).await)) });
            }
            Effect::LocalServers => {
                self.begin(async move { Input::Got(Got::LocalServers(host.local_servers().await)) });
            }
            Effect::Providers(wanted) => {
                self.begin(async move { Input::Got(Got::Providers(host.providers().await, wanted)) });
            }
            Effect::KeepKey(provider, key) => self.keep_key(provider, key, false),
            Effect::KeepUnchecked(provider, key) => self.keep_key(provider, key, true),
            Effect::StopChecking => {
                if let Some(checking) = self.checking.take() {
                    checking.abort();
                }
            }
            Effect::Foreground(words) => {
                let work = host.foreground(words);
                self.lend_to(work, |ended, _| Input::Returned(ended));
            }
            Effect::Edit(text) => self.edit(&text),
            Effect::EditSettings => match lent::editor() {
                Ok(mut editor) => {
                    editor.arg(host.settings_path());
                    self.lend(editor, |ended, _| match ended {
                        Ok(()) => Input::EditedSettings,
                        Err(error) => Input::Edited(Err(error)),
                    });
                }
                Err(error) => self.take(Input::Edited(Err(error))),
            },
            Effect::Copy(_) if self.tty.abilities().dumb => {
                self.state.warn("This terminal reaches no clipboard; /export writes the session to a file");
            }
            Effect::Copy(text) => match osc::clipboard(&text) {
                Some(bytes) => {
                    self.tty.write(bytes);
                    if self.linear.is_some() {
                        self.state.warn("It was given to the terminal for the clipboard");
                    }
                }
                None => self.state.warn("That is too long for the clipboard"),
            },
            Effect::Notify(text) => self.tty.write(osc::notify(&text, self.tty.abilities().notify)),
            Effect::Complete(id, query) => self.complete(id, query),
            Effect::Draft => self.unsaved = true,
            Effect::Sent(text) => self.keeper.sent(text),
            Effect::PasteImage => {
                let directory = std::env::temp_dir();
                let work = tokio::task::spawn_blocking(move || crate::clipboard_image(&directory));
                self.begin(async move {
                    Input::Image(work.await.map_err(|error| error.to_string()).and_then(|found| found))
                });
            }
            Effect::Suspend => self.suspends = true,
            Effect::Leave => {
                let session = self.session.as_ref().map(|session| session.view());
                let said = session.filter(|view| view.head.is_some()).map(|view| view.session);
                self.left = Some(Left::Quit(said));
            }
        }
    }

    fn keep_key(&mut self, provider: String, key: String, unasked: bool) {
        let host = self.host.clone();
        self.checking = Some(self.begin_stoppable(async move {
            let kept = host.keep_key(provider.clone(), key.clone(), unasked).await;
            Input::Got(Got::Kept(provider, key, kept))
        }));
    }

    /// Looks for what may be meant.
    fn complete(&mut self, id: u64, query: Query) {
        match query {
            Query::Files { text, fresh } => {
                if self.finder.is_none() {
                    let up = self.up.clone();
                    let found = move |found: crate::FoundFiles| {
                        let input = Input::Offered(found.id, found.files, found.more);
                        drop(up.send(Up::Input(Box::new(input))));
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
                self.begin(async move { Input::Offered(id, work.await.unwrap_or_default(), false) });
            }
            Query::Argument { .. } => self.take(Input::Offered(id, Vec::new(), false)),
        }
    }
}
