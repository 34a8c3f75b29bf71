//! `quipu models`: what can be called.

use std::io::Write as _;

use quipu_host::{Home, KeptCatalogue, OpenRequest};
use quipu_protocol::Model;
use quipu_providers::{CatalogueSource, SourcedModel, is_supported};

use crate::args::{ModelsArgs, StoreArg};
use crate::console::current_dir;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, note, printable};

pub(crate) async fn run(args: &ModelsArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    if let Some(from) = &args.refresh {
        return refresh(&home, from.as_deref(), args.json).await;
    }
    if args.built_in {
        let was_other = quipu_host::remove_catalogue(&home)?;
        note(if was_other {
            "The built-in catalogue is used again."
        } else {
            "The built-in catalogue is used."
        });
        return Ok(());
    }
    home.sources().models().gather().await;
    let settings = home.settings();
    let wanted = args.search.as_deref().unwrap_or_default().to_lowercase();
    let matches = |model: &Model| {
        let id = format!("{}/{}", model.provider, model.id).to_lowercase();
        id.contains(&wanted) || model.name.to_lowercase().contains(&wanted)
    };
    // What keeps a new session from having one is said where one begins.
    let here = current_dir().unwrap_or_default();
    let request = OpenRequest { here: here.clone(), ..OpenRequest::default() };
    let begins_with = quipu_host::model_of(&home, &settings, &request, (&here, None)).ok();
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let paint = Paint::stdout();
    let (mut shown, mut hidden) = (0, 0);
    for SourcedModel { model, source } in quipu_host::sourced_models(&home, &settings).await {
        if !matches(&model) {
            continue;
        }
        let available = settings.is_available(&model);
        let chosen =
            begins_with.as_ref().is_some_and(|it| (&it.provider, &it.id) == (&model.provider, &model.id));
        if !available && !args.all {
            hidden += 1;
            continue;
        }
        shown += 1;
        if args.json {
            let line = serde_json::json!({
                "provider": model.provider,
                "id": model.id,
                "name": model.name,
                "api": model.api,
                "contextWindow": model.context_window,
                "maxTokens": model.max_tokens,
                "reasoning": model.reasoning,
                "input": model.input,
                "cost": model.cost,
                "available": available,
                "chosen": chosen,
                "supported": is_supported(&model),
                "source": &*source,
            });
            writeln!(out, "{line}")?;
            continue;
        }
        let why = match (available, is_supported(&model)) {
            (true, _) if chosen => "  (new sessions here)",
            (true, _) => "",
            (false, true) => "  (no credential)",
            (false, false) => "  (its API is not supported yet)",
        };
        let name = printable(&format!("{}/{}", model.provider, model.id));
        let limits = format!("{}k context, {}k output", model.context_window / 1000, model.max_tokens / 1000);
        let price = format!("${}/${} per million", model.cost.input, model.cost.output);
        let source = printable(&source);
        writeln!(out, "{}  {limits}, {price}  {}{}", paint.bold(&name), paint.dim(&source), paint.dim(why))?;
    }
    out.flush()?;
    if !args.json && hidden > 0 && settings.default_model().is_none() {
        note(
            "You cannot use a model yet: add a key with `quipu auth set PROVIDER`; `quipu demo` needs none.",
        );
    }
    if !args.json && hidden > 0 {
        note(format!(
            "{hidden} more have no credential or an API that is not supported yet: quipu models --all"
        ));
    }
    if !args.json && shown + hidden == 0 {
        note("No model matches.");
    }
    if !args.json {
        let CatalogueSource { date, from } = settings.catalogue();
        match from {
            Some(from) => note(format!("Catalogue of {date} from {from}.")),
            None => note(format!("Built-in catalogue of {date}.")),
        }
    }
    Ok(())
}

/// Problems of a catalogue that are named at most.
const NAMED: usize = 10;

async fn refresh(home: &Home, from: Option<&str>, json: bool) -> Result<(), Failure> {
    let KeptCatalogue { path, catalogue } = quipu_host::refresh_catalogue(home, from).await?;
    for problem in catalogue.problems.iter().take(NAMED) {
        note(format!("Ignored: {problem}"));
    }
    if let Some(more) = catalogue.problems.len().checked_sub(NAMED).filter(|more| *more > 0) {
        note(format!("Ignored: {more} more"));
    }
    let mut out = crate::console::stdout();
    if json {
        let row = serde_json::json!({
            "models": catalogue.models,
            "providers": catalogue.providers,
            "date": catalogue.source.date,
            "from": catalogue.source.from,
            "ignored": catalogue.problems.len(),
            "path": path,
        });
        writeln!(out, "{row}")?;
    } else {
        let (models, providers, date) = (catalogue.models, catalogue.providers, &catalogue.source.date);
        writeln!(out, "Kept in {}: {models} models of {providers} providers, of {date}.", path.display())?;
    }
    Ok(())
}
