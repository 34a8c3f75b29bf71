//! Searches with a limit, where some of what they find is shown to nobody.

use std::collections::HashMap;
use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId};
use quipu_store::{
    Fut, Graph, Hit, Order, ReadModel as _, RefMove, RefName, SearchQuery, SqliteStore, Store as _,
    StoreError, Withdrawal, WithdrawnSource,
};

use crate::support::*;

/// All of this session.
struct WithdrawnSession(&'static str);

impl WithdrawnSource for WithdrawnSession {
    fn withdrawn<'a>(
        &'a self,
        _: &'a dyn Graph,
        nodes: &'a [(NodeId, SessionId)],
    ) -> Fut<'a, HashMap<NodeId, Withdrawal>> {
        let gone = nodes.iter().filter(|(_, session)| session.as_str() == self.0);
        let gone: HashMap<NodeId, Withdrawal> =
            gone.map(|(node, _)| (*node, Withdrawal::Superseded)).collect();
        Box::pin(async move { Ok::<_, StoreError>(gone) })
    }
}

/// A session whose user says so many lanterns.
async fn say(store: &SqliteStore, name: &str, count: i64, at: i64) {
    let session = SessionId::from(name);
    let mut last = None;
    for n in 0..=count {
        let entry = match n {
            0 => session_start(&session, "/w", None),
            _ => user(&format!("a lantern, {name} {n}"), at + n),
        };
        let (id, mut commit) = entry_commit(last, &entry, at + n);
        commit.moves.push(RefMove::swap(RefName::session(&session), last, id, "step"));
        store.commit(commit).await.unwrap();
        last = Some(id);
    }
}

#[tokio::test]
async fn searches_find_what_stands_behind_much_that_is_withdrawn() {
    let store = SqliteStore::in_memory().unwrap();
    say(&store, "first", 4, T).await;
    say(&store, "second", 4, T + 100).await;
    say(&store, "gone", 60, T + 200).await;
    store.tell_withdrawn(Arc::new(WithdrawnSession("gone")));
    let found = async |query: SearchQuery| {
        let found = store.search(query).await.unwrap();
        assert!(!found.cut);
        found.hits
    };
    let sessions = |hits: &[Hit]| -> Vec<String> {
        hits.iter().map(|hit| hit.session.as_ref().unwrap().as_str().to_owned()).collect()
    };
    for order in [Order::Newest, Order::Best] {
        let query = SearchQuery { words: "lantern".into(), limit: 6, order, ..SearchQuery::default() };
        let hits = found(query.clone()).await;
        assert_eq!(sessions(&hits), ["second", "second", "second", "second", "first", "first"], "{order:?}");
        let few = SearchQuery { limit: 2, per_session: Some(1), ..query.clone() };
        let hits = found(few).await;
        assert_eq!(sessions(&hits), ["second", "first"], "{order:?}");
        let all = SearchQuery { withdrawn: true, ..query };
        assert_eq!(sessions(&found(all).await), ["gone"; 6], "{order:?}");
    }
}
