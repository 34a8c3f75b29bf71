//! A model that answers questions from a cover.

use std::sync::{Arc, Mutex, PoisonError};

use quipu::{CallRequest, Limits, Runner, RunnerError, RunnerPurpose, SessionOptions};
use quipu_past::prove::{Reader, ReaderError, ReaderFut, ReaderPrompt};
use quipu_store::Graph;

use crate::{Failure, Home, PROOF_PURPOSE, may_cost, seal_credentials};

/// Tokens of an answer.
const TOKENS: u64 = 300;

/// Asks a model within a budget.
pub struct ModelReader {
    runner: Runner,
    purpose: RunnerPurpose,
    model: String,
    budget: f64,
    spent: Mutex<f64>,
    is_free: bool,
}

impl ModelReader {
    /// The model of this name; without one, that of a new session. With a budget of 0 only a model whose calls cost nothing is asked.
    ///
    /// # Errors
    /// Where there is no such model or no credential, and where it may cost money and the budget is 0.
    pub fn new(
        home: &Home,
        store: Arc<dyn Graph>,
        model: Option<&str>,
        budget: f64,
    ) -> Result<Self, Failure> {
        let settings = home.settings();
        let model = match model {
            Some(name) => settings.find(None, name).map_err(Failure::request)?.model,
            None => settings.default_model().ok_or_else(|| Failure::request("no model has a credential"))?,
        };
        let name = format!("{}/{}", model.provider, model.id);
        let is_free = !may_cost(&model);
        if !is_free && budget <= 0.0 {
            return Err(Failure::request(format!(
                "{name} may cost money, and the budget is 0: give a budget in US dollars, or a model that is free"
            )));
        }
        let provider = settings.provider_for(&model, None).map_err(Failure::request)?;
        let engine = home.engine(store, &settings)?;
        seal_credentials(engine.sealer(), &settings);
        let daily = crate::budget::budget_of(home, None)?;
        let limits = Limits {
            daily_budget: daily.as_ref().map(|daily| daily.dollars),
            wait: home.config().budget.wait,
            ..Limits::default()
        };
        let options = SessionOptions::new(home.dir.clone(), model, provider);
        let runner = engine.runner(SessionOptions { tools: Vec::new(), limits, ..options });
        let purpose = RunnerPurpose::new(PROOF_PURPOSE).map_err(Failure::failed)?;
        Ok(Self { runner, purpose, model: name, budget, spent: Mutex::default(), is_free })
    }

    /// `provider/model`.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// US dollars that it cost until now.
    #[must_use]
    pub fn spent(&self) -> f64 {
        // A sum cannot be half made.
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, prompt: &ReaderPrompt) -> Result<String, ReaderError> {
        let left = self.budget - self.spent();
        if !self.is_free && left <= 0.0 {
            return Err(ReaderError::Spent);
        }
        let request = CallRequest {
            system: prompt.system.clone(),
            max_tokens: TOKENS,
            budget: (!self.is_free).then_some(left),
            ..CallRequest::new(self.purpose.clone(), prompt.text.clone())
        };
        let (answer, cost) = self.runner.charged_call(request).await;
        // Attempts that broke off may have been charged, too.
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) += cost;
        match answer {
            Ok(answer) => Ok(answer.text),
            Err(RunnerError::Budget { .. }) => Err(ReaderError::Spent),
            Err(error) => Err(ReaderError::Failed(error.to_string())),
        }
    }
}

impl Reader for ModelReader {
    fn answer<'a>(&'a self, prompt: &'a ReaderPrompt) -> ReaderFut<'a> {
        Box::pin(self.ask(prompt))
    }
}
