//! Covers for a question: down to what was said, by words and by meaning.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use quipu_past::cover::{Charge, Verdict};
use quipu_past::page::{PageAsk, PastPage};
use quipu_past::prove::{AblationAsk, Reader, ReaderFut, ReaderPrompt, ask_questions, read_questions};
use quipu_past::{
    CoverDetail, CoverSearch, CoverStock, PastIndex, ReviewState, cover_session, set_review_state,
};
use quipu_protocol::{Message, SessionId, UnixMs};
use quipu_store::{SessionQuery, WordVectors};

use crate::support::*;

const CHARGE: Charge = Charge { characters: 4, image: 1_600 };

/// Answers that say nothing special, long enough that no summary has their ends.
fn filler(about: &str) -> String {
    format!("It went as we thought with {about}. {}", "Nothing else is to be told of it. ".repeat(12))
}

/// Days of ten turns each; in the midst of an answer of the third day stands a fact.
async fn days(world: &World) {
    for day in 0..8_i64 {
        let mut said: Vec<(UnixMs, Message)> = Vec::new();
        for turn in 0..10_i64 {
            let at = EPOCH + day * DAY + turn * MINUTE;
            said.push(asked(&format!("Go on with part {turn} of the survey of day {day}."), at));
            let mut text = filler(&format!("part {turn}"));
            if (day, turn) == (3, 6) {
                text.push_str("The heron gate opens with the number 7411. ");
                text.push_str(&filler("the rest"));
            }
            if (day, turn) == (5, 2) {
                text.push_str("The automobile is parked below the bridge. ");
            }
            said.push(answered(&text, at + 1_000));
        }
        world.say(&format!("day{day}"), &said).await;
    }
    world.build().await;
}

async fn stock(world: &World) -> (PastIndex, CoverStock) {
    let index = world.index().await;
    let stock = CoverStock::read(&*world.store, &world.scope, &index, CHARGE).await.unwrap();
    (index, stock)
}

fn search(world: &World, words: Option<Arc<dyn WordVectors>>, detail: CoverDetail) -> CoverSearch<'_> {
    CoverSearch { store: &*world.store, scope: &world.scope, words, detail }
}

async fn about(world: &World, stock: &CoverStock, question: &str, detail: CoverDetail) -> CoverStock {
    stock.about(&search(world, None, detail), question, None).await.unwrap()
}

#[tokio::test]
async fn question_leads_down_to_what_was_said() {
    let world = World::new();
    days(&world).await;
    let (_, stock) = stock(&world).await;
    let question = "What number opens the heron gate?";
    let before = stock.cover(1_500, Some(question));
    assert!(!before.text.contains("7411"), "no summary has it: {}", before.text);
    let stock = about(&world, &stock, question, CoverDetail::Turns).await;
    let found = stock.cover(1_500, Some(question));
    assert!(found.text.contains("] - It went as we thought with part 6."), "{}", found.text);
    assert!(found.text.contains("opens with the number 7411"), "{}", found.text);
    assert!(found.cost <= 1_500 && found.text.chars().count() <= 6_000, "{}", found.cost);
    // Days that have nothing to do with it are there as summaries.
    assert!(found.cover.members.iter().any(|member| stock.id(&member.id).is_some()), "{:?}", found.cover);
    // What is not served beside it is said.
    let raw = found.cover.members.iter().filter(|member| stock.id(&member.id).is_none()).count();
    assert!(raw > 0 && found.cover.gaps.iter().any(|gap| gap.chunks > 0), "{:?}", found.cover.gaps);
    // The chunk that it is of stands aside.
    let split = found.cover.decisions.iter().any(|one| matches!(one.verdict, Verdict::Split(_)));
    assert!(split, "{:?}", found.cover.decisions);
    // The same again, and nothing of it for another question.
    assert_eq!(stock.cover(1_500, Some(question)), found);
    let again = about(&world, &stock, question, CoverDetail::Turns).await;
    assert_eq!(again.cover(1_500, Some(question)), found);
    assert!(!stock.cover(1_500, None).text.contains("7411"));
}

#[tokio::test]
async fn question_splits_chunks_alone_where_that_is_asked() {
    let world = World::new();
    days(&world).await;
    let (_, stock) = stock(&world).await;
    let question = "What number opens the heron gate?";
    let stock = about(&world, &stock, question, CoverDetail::Chunks).await;
    let found = stock.cover(4_000, Some(question));
    assert!(found.cover.members.iter().all(|member| stock.id(&member.id).is_some()));
    // No summary has a word of it; the chunk of that day is known by what was said.
    let level = |day: i64| {
        let at = EPOCH + day * DAY;
        let of_the_day = found.cover.members.iter().filter(|member| member.span.contains(at));
        let ids: BTreeSet<_> = of_the_day.map(|member| member.id).collect();
        found.cover.decisions.iter().filter(|one| ids.contains(&one.id)).map(|one| one.level).max()
    };
    assert!(level(3) > level(4), "{:?} {:?}", level(3), level(4));
}

#[tokio::test]
async fn question_of_a_session_does_not_find_the_session() {
    let world = World::new();
    days(&world).await;
    let question = "What number opens the heron gate?";
    // More of them than hits are looked at.
    let said: Vec<_> = (0..150).map(|nth| asked(question, EPOCH + 9 * DAY + nth * MINUTE)).collect();
    world.say("asking", &said).await;
    let (_, stock) = stock(&world).await;
    let (search, asking) = (search(&world, None, CoverDetail::Turns), SessionId::from("asking"));
    let stock = stock.about(&search, question, Some(&asking)).await.unwrap();
    let found = stock.cover(1_500, Some(question));
    assert!(found.text.contains("opens with the number 7411"), "{}", found.text);
}

#[tokio::test]
async fn turns_of_a_retracted_chunk_are_not_served() {
    let world = World::new();
    days(&world).await;
    let (index, before) = stock(&world).await;
    let day = |at: UnixMs| index.live().filter(move |chunk| chunk.level == 0 && chunk.span.contains(at));
    let told: Vec<_> = day(EPOCH + 3 * DAY + 6 * MINUTE + 1_000).map(|chunk| chunk.id).collect();
    assert_eq!(told.len(), 1);
    let question = "What number opens the heron gate?";
    let with = about(&world, &before, question, CoverDetail::Turns).await;
    assert!(with.cover(4_000, Some(question)).text.contains("7411"));
    set_review_state(&*world.store, &world.scope, told[0], ReviewState::Retracted, NOW).await.unwrap();
    let (_, after) = stock(&world).await;
    let without = about(&world, &after, question, CoverDetail::Turns).await;
    assert!(!without.cover(4_000, Some(question)).text.contains("7411"));
}

/// A model to which some words mean the same.
struct Synonyms;

impl WordVectors for Synonyms {
    fn id(&self) -> &str {
        "synonyms"
    }

    fn width(&self) -> usize {
        8
    }

    fn word(&self, word: &str) -> Arc<[f32]> {
        let mut vector = [0.0; 8];
        if ["car", "vehicle", "automobile"].iter().any(|known| word.starts_with(known)) {
            vector[0] = 1.0;
        } else {
            // All others are far from it, and from each other as far as eight numbers can say.
            let sum =
                word.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            vector[1 + (sum % 7) as usize] = 1.0;
        }
        Arc::from(vector)
    }
}

#[tokio::test]
async fn question_in_other_words_is_known_by_meaning() {
    let world = World::new();
    days(&world).await;
    let (_, stock) = stock(&world).await;
    let question = "vehicle";
    let words: Option<Arc<dyn WordVectors>> = Some(Arc::new(Synonyms));
    let by_words = about(&world, &stock, question, CoverDetail::Turns).await.cover(1_000, Some(question));
    assert!(!by_words.text.contains("automobile"), "{}", by_words.text);
    let known = stock.about(&search(&world, words, CoverDetail::Turns), question, None).await.unwrap();
    let by_meaning = known.cover(1_000, Some(question));
    assert!(by_meaning.text.contains("automobile is parked"), "{}", by_meaning.text);
}

/// Answers nothing, and keeps what it was shown.
#[derive(Default)]
struct SilentReader(Mutex<Vec<String>>);

impl Reader for SilentReader {
    fn answer<'a>(&'a self, prompt: &'a ReaderPrompt) -> ReaderFut<'a> {
        self.0.lock().unwrap().push(prompt.text.clone());
        Box::pin(std::future::ready(Ok("unknown".to_owned())))
    }
}

/// The chunks that a page has chosen, by the beginnings of their ids.
fn chosen_of(page: &PastPage) -> BTreeSet<String> {
    let mut text = Vec::new();
    page.write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let data = |name: &str| -> serde_json::Value {
        let (_, data) = text.split_once(&format!("id=data-{name}>")).unwrap();
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
    };
    let ids = data("chunks")["ids"].as_str().unwrap().to_owned();
    let decisions = data("rest")["cover"]["decisions"].clone();
    let chosen = decisions.as_array().unwrap().iter().filter(|one| one[1] == "chosen");
    let place = |one: &serde_json::Value| usize::try_from(one[0].as_u64().unwrap()).unwrap() * 12;
    chosen.map(|one| ids[place(one)..place(one) + 12].to_owned()).collect()
}

#[tokio::test]
async fn cover_of_a_page_and_of_a_proof_is_that_of_a_session() {
    let world = World::new();
    days(&world).await;
    let (index, stock) = stock(&world).await;
    let question = "What number opens the heron gate?";
    let questions = serde_json::json!({ "question": question, "answer": 7411 }).to_string();
    let questions = read_questions(&questions).unwrap();
    let search = search(&world, None, CoverDetail::Chunks);
    let known = stock.about(&search, question, None).await.unwrap();
    let mut others = 0;
    for budget in (400..4_000).step_by(300) {
        let served = known.serve(budget, Some(question), NOW);
        let reader = SilentReader::default();
        let ask = AblationAsk { tokens: budget, chunks: 0, is_blind: false, boundary: NOW, seed: 1 };
        ask_questions(&search, &index, &stock, &questions, (ask, &reader)).await;
        let shown = reader.0.lock().unwrap()[0].clone();
        let keys: Vec<&str> =
            shown.lines().filter_map(|line| Some(line.strip_prefix('[')?.split_once(']')?.0)).collect();
        assert_eq!(keys, served.members.iter().map(|member| member.key.as_str()).collect::<Vec<_>>());
        let ask = PageAsk {
            budget,
            charge: CHARGE,
            about: Some(question.to_owned()),
            asking: None,
            boundary: None,
            request: None,
            now: NOW,
        };
        let page = PastPage::read(&*world.store, &world.scope, &index, ask, None).await.unwrap();
        let ids: BTreeSet<String> =
            served.members.iter().map(|member| member.id.to_string()[..12].to_owned()).collect();
        assert_eq!(chosen_of(&page), ids, "{budget}");
        others += usize::from(stock.serve(budget, Some(question), NOW).members != served.members);
    }
    assert!(others > 0, "words of summaries alone choose the same");
}

#[tokio::test]
async fn cover_of_a_session_has_what_it_is_about_as_it_was_said() {
    let world = World::new();
    days(&world).await;
    let rows = world.store.sessions(SessionQuery::default()).await.unwrap();
    let row = rows.iter().find(|row| row.id.as_str() == "day3").unwrap();
    let cover = |about: Option<&'static str>| cover_session(&*world.store, row, 2_000, CHARGE, (about, None));
    let blind = cover(None).await.unwrap();
    assert!(!blind.text.contains("7411"), "{}", blind.text);
    let known = cover(Some("What number opens the heron gate?")).await.unwrap();
    assert!(known.text.contains("opens with the number 7411"), "{}", known.text);
    // What stands before and behind it is not lost.
    for part in ["part 0 of the survey", "part 9 of the survey"] {
        assert!(blind.text.contains(part) && known.text.contains(part), "{part}: {}", known.text);
    }
    assert!(known.cost <= 2_000 && known.nodes == blind.nodes);
    // Words that nothing has change nothing.
    assert_eq!(cover(Some("zebra")).await.unwrap(), blind);
}

#[tokio::test]
async fn cover_for_the_newest_request_does_not_find_it() {
    let world = World::new();
    days(&world).await;
    let question = "What number opens the heron gate?";
    let asked = world.say("day3", &[asked(question, EPOCH + 3 * DAY + 11 * MINUTE)]).await[0];
    let rows = world.store.sessions(SessionQuery::default()).await.unwrap();
    let row = rows.iter().find(|row| row.id.as_str() == "day3").unwrap();
    let about = (Some(question), Some(asked));
    let cover = cover_session(&*world.store, row, 2_000, CHARGE, about).await.unwrap();
    assert!(cover.text.contains("opens with the number 7411"), "{}", cover.text);
}

#[tokio::test]
async fn cover_of_a_long_session_uses_its_budget() {
    let world = World::new();
    let mut said: Vec<(UnixMs, Message)> = Vec::new();
    for turn in 0..160_i64 {
        let at = EPOCH + turn * MINUTE;
        said.push(asked(&format!("Go on with part {turn} of the survey."), at));
        said.push(answered(&filler(&format!("part {turn} {}", "and more ".repeat(60))), at + 1_000));
    }
    world.say("long", &said).await;
    let rows = world.store.sessions(SessionQuery::default()).await.unwrap();
    let row = rows.iter().find(|row| row.id.as_str() == "long").unwrap();
    // Coarse where there is no room for more, and all of it used that can be.
    for budget in [1_500, 2_500, 4_000] {
        let cover = cover_session(&*world.store, row, budget, CHARGE, (None, None)).await.unwrap();
        assert!(cover.cost <= budget && cover.cost * 3 >= budget, "{} of {budget}", cover.cost);
        assert!(cover.text.contains("part 0 of the survey"), "{}", cover.text);
    }
}
