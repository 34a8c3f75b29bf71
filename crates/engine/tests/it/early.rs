//! A call that an earlier version began before its session was there.

use quipu::SessionOptions;
use quipu::protocol::{CallRecord, Entry, NodeId, Notice, SessionId};
use quipu::store::{Commit, NewChunk, Op, Step, StepCall, StepState, Store, Until, decode_nodes};

use crate::support::{LiveSession, World, say};

/// A row as such a version left it: the call that the last answer came from, made once more below `head`.
async fn leave_call(world: &World, head: NodeId, id: &SessionId) -> CallRecord {
    let nodes = world.store.lineage(head, Until::Count(1)).await.unwrap();
    let answer = decode_nodes(&*world.store, &nodes).await.unwrap().remove(0);
    let body: &[u8] = b"{\"model\":\"m\"}";
    let body_id = quipu::history::content_of(body).to_string().parse().unwrap();
    let record = CallRecord { head, body: body_id, ..answer.step.call.unwrap() };
    let step = Step {
        run: "early-run".into(),
        call: StepCall::Early,
        state: StepState::Sent,
        data: Some(serde_json::to_vec(&record).unwrap()),
    };
    let commit = Commit {
        chunks: vec![NewChunk::Full { id: body_id, bytes: body.into() }],
        ops: vec![Op::StepPut { session: id.clone(), step }],
        ..Commit::default()
    };
    world.store.commit(commit).await.unwrap();
    record
}

#[tokio::test]
async fn old_early_row_is_reported_as_interrupted_call() {
    let world = World::with([say("Left or right?"), say("Right it is.")]);
    let live = world.create().await;
    live.run("Where to?").await;
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let id = SessionId::from("foreseen");
    let record = leave_call(&world, head, &id).await;

    let options = SessionOptions { id: Some(id.clone()), ..world.options() };
    let opened = world.engine.continue_from(head, options).await.unwrap();
    assert_eq!(opened.notices, [Notice::Interrupted { calls: Vec::new(), model_call: true }]);
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
    let live = LiveSession::of(opened.session).await;
    live.run("Right.").await;
    let end = live.session.view().head.unwrap();
    live.finish().await;
    let nodes = world.store.lineage(end, Until::Count(4)).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    assert!(matches!(&decoded[0].entry, Entry::Session(start) if start.session == id));
    assert!(matches!(&decoded[1].entry, Entry::Meta(json) if json.get().contains("quipu.early")));
    let call = decoded[1].step.call.as_ref().unwrap();
    assert_eq!((call.head, &call.body), (nodes[0].record.parent.unwrap(), &record.body));
}

#[tokio::test]
async fn old_row_is_told_when_a_session_is_opened_that_did_not_use_it() {
    let world = World::with([say("Left or right?")]);
    let live = world.create().await;
    live.run("Where to?").await;
    let (id, head) = (live.id(), live.session.view().head.unwrap());
    live.finish().await;
    leave_call(&world, head, &id).await;
    for told in [vec![Notice::Interrupted { calls: Vec::new(), model_call: true }], Vec::new()] {
        let (live, notices) = world.open(&id).await;
        assert_eq!(notices, told);
        live.finish().await;
    }
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
}
