//! Which model a session asks about images: what may be meant for this machine alone stays on it.

use std::sync::Arc;

use quipu::protocol::{Command, Model, Prices, Setting};
use quipu::{
    FindError, IMAGE_PURPOSE, ImageQuestions, ModelLookupError, Models, Provider, PurposeModel,
    SessionOptions,
};
use serde_json::json;

use crate::support::{Fake, FarProvider, LiveSession, World, call, say};

/// A BMP file of one pixel.
const DOT: &[u8] = b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\0\0\0";

/// Models to choose, and one on another machine for images.
struct ImageModels {
    far: Arc<dyn Provider>,
    near: Arc<dyn Provider>,
    seer: Arc<dyn Provider>,
}

fn model(provider: &str, id: &str) -> Arc<Model> {
    let cost = Prices { input: 0.001, output: 0.001, ..Prices::default() };
    let (id, provider) = (id.into(), provider.into());
    Arc::new(Model { id, provider, api: "test".into(), context_window: 200_000, cost, ..Model::default() })
}

impl Models for ImageModels {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        match id {
            "far" => Ok((model(provider, id), self.far.clone())),
            "near" => Ok((model(provider, id), self.near.clone())),
            _ => {
                let pattern = format!("{provider}/{id}");
                Err(ModelLookupError::NotFound(FindError::UnknownModel { pattern, similar: Vec::new() }))
            }
        }
    }

    fn find_for(&self, purpose: &str) -> Result<Option<PurposeModel>, ModelLookupError> {
        let seer =
            Model { input: vec!["text".into(), "image".into()], ..(*model("elsewhere", "seer")).clone() };
        let found = PurposeModel { model: Arc::new(seer), provider: self.seer.clone(), thinking: None };
        Ok((purpose == IMAGE_PURPOSE).then_some(found))
    }
}

async fn choose(live: &LiveSession, provider: &str, id: &str) {
    let setting = Setting::Model { provider: provider.into(), id: id.into() };
    live.session.send(Command::Set { setting }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_go_where_the_model_of_the_session_now_may_see() {
    let world = World::new();
    std::fs::write(world.cwd().join("dot.bmp"), DOT).unwrap();
    let (near, far, seer) = (Arc::new(Fake::default()), Arc::new(Fake::default()), Arc::new(Fake::default()));
    let look = || call(&[("image", json!({ "prompt": "What?", "path": "dot.bmp" }))]);
    world.fake.push([look(), say("a")]);
    far.push([look(), say("b")]);
    near.push([look(), say("c")]);
    seer.push([say("A dot.")]);
    let models = ImageModels {
        far: Arc::new(FarProvider(far.clone())),
        near: near.clone(),
        seer: Arc::new(FarProvider(seer.clone())),
    };
    let options = SessionOptions {
        images: ImageQuestions::Answered,
        models: Some(Arc::new(models)),
        ..world.options()
    };
    let live = world.create_with(options).await;
    let asked = || seer.bodies().len();
    let last = |live: &LiveSession| live.results().pop().unwrap();

    live.run("Look.").await;
    assert!(last(&live).1.contains("stay on this machine"), "{:?}", last(&live));
    assert_eq!(asked(), 0);
    choose(&live, "elsewhere", "far").await;
    live.run("Look again.").await;
    assert!(last(&live).1.contains("A dot."), "the model now is elsewhere itself: {:?}", last(&live));
    assert_eq!(asked(), 1);
    choose(&live, "test", "near").await;
    live.run("Look once more.").await;
    assert!(last(&live).1.contains("stay on this machine"), "{:?}", last(&live));
    assert_eq!((asked(), far.bodies().len(), near.bodies().len()), (1, 2, 2));
    live.finish().await;
    world.check().await;
}
