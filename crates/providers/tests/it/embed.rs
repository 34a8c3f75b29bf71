//! Vectors of texts: from a server over real HTTP, and from the files of a static model.

use std::path::Path;
use std::time::Duration;

use quipu_protocol::{Model, ModelErrorKind, Prices};
use quipu_providers::{
    CallOptions, Credential, Credentials, Embedder, EmbedderSettings, EmbeddingEndpoint, Scheme, Secret,
    Settings, StaticModel,
};
use quipu_testkit::{FakeServer, Reply};
use serde_json::{Value, json};

const KEY: &str = "sk-test-0123456789";

fn endpoint(server: &FakeServer, dimensions: Option<u64>) -> EmbeddingEndpoint {
    let model = Model {
        id: "small".into(),
        base_url: format!("{}/v1", server.url()),
        cost: Prices { input: 2.0, ..Prices::default() },
        ..Model::default()
    };
    let credentials = Credentials::fixed(Credential::new("a test", Scheme::Key(Secret::new(KEY))));
    let options = CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() };
    EmbeddingEndpoint::new(&model, credentials, &[("x-team".into(), "9".into())], dimensions, options)
        .unwrap()
}

fn vectors(rows: &[&[f64]]) -> Reply {
    let data: Vec<Value> =
        rows.iter().enumerate().map(|(n, row)| json!({ "index": n, "embedding": row })).collect();
    let body = json!({ "object": "list", "data": data, "usage": { "prompt_tokens": 5, "total_tokens": 5 } });
    Reply::new(200, "application/json", body.to_string())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_server_gives_vectors_and_what_they_cost() {
    let server = FakeServer::start([vectors(&[&[1.0, 0.0], &[0.0, 2.0]])]);
    let endpoint = endpoint(&server, Some(2));
    assert!(endpoint.is_local() && endpoint.id().ends_with("/v1/embeddings small 2"), "{}", endpoint.id());
    let made = endpoint.embed(&texts(&["red", ""])).await.unwrap();
    assert_eq!(made.vectors, [[1.0, 0.0], [0.0, 2.0]]);
    assert_eq!((made.usage.input, made.usage.cost.total), (5, 10e-6));
    let [asked] = &server.requests()[..] else { panic!("one request") };
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/v1/embeddings"));
    assert_eq!(asked.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!((asked.header("x-team"), asked.header("accept")), (Some("9"), Some("application/json")));
    assert_eq!(asked.json(), json!({ "model": "small", "input": ["red", "."], "dimensions": 2 }));
}

#[tokio::test]
async fn many_texts_are_several_requests_and_long_ones_are_cut() {
    let row: &[f64] = &[1.0];
    let server = FakeServer::start([vectors(&[row; 64]), vectors(&[row; 6]), vectors(&[row])]);
    let endpoint = endpoint(&server, None);
    let made = endpoint.embed(&vec!["word".to_owned(); 70]).await.unwrap();
    assert_eq!((made.vectors.len(), made.usage.input), (70, 10));
    endpoint.embed(&["é".repeat(9_000)]).await.unwrap();
    let lengths: Vec<usize> =
        server.requests().iter().map(|asked| asked.json()["input"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [64, 6, 1]);
    assert_eq!(server.requests()[2].json()["input"][0].as_str().unwrap().chars().count(), 2_000);
}

#[tokio::test]
async fn embedding_retries_and_shortens_long_texts() {
    let long = "the input length exceeds the context window of this model";
    let server = FakeServer::start([
        Reply::error(503, "overloaded_error", "busy"),
        Reply::reset(),
        Reply::error(400, "invalid_request_error", long),
        vectors(&[&[1.0]]),
    ]);
    let made = endpoint(&server, None).embed(&["x".repeat(3_000)]).await.unwrap();
    assert_eq!(made.vectors, [[1.0]]);
    let lengths: Vec<usize> =
        server.requests().iter().map(|asked| asked.json()["input"][0].as_str().unwrap().len()).collect();
    assert_eq!(lengths, [2_000, 2_000, 2_000, 1_000]);
}

#[tokio::test]
async fn embedding_errors_name_the_server_but_not_the_key() {
    for (reply, kind, said) in [
        (
            Reply::error(401, "authentication_error", &format!("bad key {KEY}")),
            ModelErrorKind::Auth,
            "bad key [",
        ),
        (
            Reply::error(404, "not_found_error", "no model small"),
            ModelErrorKind::UnknownModel,
            "no model small",
        ),
        (vectors(&[&[1.0], &[1.0]]), ModelErrorKind::Malformed, "2 vectors for 1 texts"),
        (Reply::new(200, "text/html", "<title>Log in</title>"), ModelErrorKind::Malformed, "Log in"),
        (
            Reply::new(200, "application/json", "{\"data\":[{\"embedding\":[1e999]}]}"),
            ModelErrorKind::Malformed,
            "no vectors",
        ),
        (
            Reply::new(200, "application/json", vec![b' '; 25 << 20]),
            ModelErrorKind::TooLarge,
            "larger than the limit of 25165824 bytes",
        ),
    ] {
        let server = FakeServer::start([reply]);
        let error = endpoint(&server, None).embed(&texts(&["red"])).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(said) && error.message.starts_with("127.0.0.1:"), "{error}");
        assert!(!error.message.contains(KEY), "{error}");
        assert_eq!(server.requests().len(), 1, "{error}");
    }
    // Batches of different models.
    let server = FakeServer::start([vectors(&[&[1.0][..]; 64]), vectors(&[&[1.0, 2.0]])]);
    let error = endpoint(&server, None).embed(&vec!["a".to_owned(); 65]).await.unwrap_err();
    assert!(error.message.contains("different lengths"), "{error}");
}

#[test]
fn the_settings_say_whose_credential_is_sent() {
    let home = tempfile::tempdir().unwrap();
    let models = json!({ "providers": { "mine": {
        "baseUrl": "https://models.example/v1", "api": "openai-completions", "apiKey": "sk-of-mine-1234",
        "models": [{ "id": "small", "cost": { "input": 1.0 } }],
    }}});
    std::fs::write(home.path().join("models.json"), models.to_string()).unwrap();
    let (settings, warnings) = Settings::load(home.path(), &|_| None);
    assert_eq!(warnings, []);
    let made = |text: Value| {
        let read = EmbedderSettings::of_json(&json!({ "search": { "semantic": text } })).unwrap().unwrap();
        settings.embedder(&read).map(|made| (made.id().to_owned(), made.is_local()))
    };
    let id = |id: &str, local| (id.to_owned(), local);
    assert_eq!(
        made(json!({ "provider": "mine", "model": "small" })).unwrap(),
        id("https://models.example/v1/embeddings small", false)
    );
    assert_eq!(
        made(json!({ "endpoint": "http://127.0.0.1:9", "model": "other" })).unwrap(),
        id("http://127.0.0.1:9/v1/embeddings other", true)
    );
    let error = made(json!({ "provider": "nobody", "model": "m" })).unwrap_err();
    assert!(error.message.contains("\"nobody\"") && error.message.contains("endpoint"), "{error}");
    let error = made(json!({ "endpoint": "nonsense", "model": "m" })).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
    let error = made(json!({ "path": "models/none" })).unwrap_err();
    assert!(error.message.contains("config.json cannot be used: it does not exist"), "{error}");
}

/// The bytes of a file with these tensors: name, kind, shape, numbers.
fn tensors(tensors: &[(&str, &str, &[u64], Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, kind, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert((*name).into(), json!({ "dtype": kind, "shape": shape, "data_offsets": offsets }));
        data.extend_from_slice(bytes);
    }
    framed(&Value::Object(header).to_string(), &data)
}

fn framed(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A model of five pieces: `[UNK]`, `red`, `blue`, `##s`, `not`.
fn write_model(directory: &Path, config: &Value, file: &[u8]) {
    let tokenizer = json!({
        "added_tokens": [],
        "normalizer": { "type": "BertNormalizer" },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": { "[UNK]": 0, "red": 1, "blue": 2, "##s": 3, "not": 4 }
        }
    });
    std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(directory.join("config.json"), config.to_string()).unwrap();
    std::fs::write(directory.join("model.safetensors"), file).unwrap();
}

const ROWS: [f32; 10] = [9.0, 9.0, 3.0, 0.0, 0.0, 4.0, 1.0, 1.0, -6.0, 2.0];

#[tokio::test]
async fn a_static_model_gives_the_mean_of_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let said = texts(&["Red blue!", "reds", "unknown", "not not RED"]);
    write_model(
        path,
        &json!({ "normalize": false }),
        &tensors(&[("embeddings", "F32", &[5, 2], floats(&ROWS))]),
    );
    let plain = StaticModel::open(path).unwrap();
    let made = plain.embed(&said).await.unwrap();
    assert_eq!(made.vectors, [[1.5, 2.0], [2.0, 0.5], [0.0, 0.0], [-3.0, 4.0 / 3.0]]);
    assert!(plain.is_local() && plain.id() == StaticModel::open(path).unwrap().id());

    // Of length one; in half precision; with rows that are shared and weighed.
    write_model(
        path,
        &json!({ "normalize": true }),
        &tensors(&[("embeddings", "F32", &[5, 2], floats(&ROWS))]),
    );
    let unit = StaticModel::open(path).unwrap();
    assert_eq!(unit.embed(&said[..1]).await.unwrap().vectors, [[0.6, 0.8]]);
    assert_ne!(unit.id(), plain.id());
    let halves: Vec<u8> = [0x4880_u16, 0x4880, 0x4200, 0, 0, 0x4400, 0x3c00, 0x3c00, 0xc600, 0x4000]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let config = json!({ "normalize": false });
    write_model(path, &config, &tensors(&[("embedding.weight", "F16", &[5, 2], halves)]));
    assert_eq!(StaticModel::open(path).unwrap().embed(&said).await.unwrap().vectors, made.vectors);
    let mapping: Vec<u8> = [0_i64, 1, 0, 1, 0].iter().flat_map(|row| row.to_le_bytes()).collect();
    let weights: Vec<u8> =
        [1.0_f64, 2.0, 0.5, 1.0, 1.0].iter().flat_map(|weight| weight.to_le_bytes()).collect();
    let shared = tensors(&[
        ("embeddings", "F32", &[2, 2], floats(&[8.0, 0.0, 0.0, 2.0])),
        ("mapping", "I64", &[5], mapping),
        ("weights", "F64", &[5], weights),
    ]);
    write_model(path, &config, &shared);
    let shared = StaticModel::open(path).unwrap();
    assert_eq!(shared.embed(&texts(&["red blue"])).await.unwrap().vectors, [[2.0, 2.0]]);
    // Another row is another model, even where all else is the same.
    let mut other = ROWS;
    other[9] = 2.5;
    write_model(path, &config, &tensors(&[("embeddings", "F32", &[5, 2], floats(&other))]));
    assert_ne!(StaticModel::open(path).unwrap().id(), plain.id());
}

#[tokio::test]
async fn damaged_models_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let config = json!({});
    let good = tensors(&[("embeddings", "F32", &[5, 2], floats(&ROWS))]);
    let entry = |shape: &str, offsets: &str| {
        let header =
            format!(r#"{{"embeddings":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
        framed(&header, &floats(&ROWS))
    };
    for (file, said) in [
        (good[..5].to_vec(), "it has no header"),
        (good[..20].to_vec(), "its header would have"),
        (good[..good.len() - 4].to_vec(), "does not fit the file"),
        (framed("{", &[]), "is not JSON"),
        (framed("[]", &[]), "is not an object"),
        ([&u64::MAX.to_le_bytes()[..], b"{}"].concat(), "its header would have"),
        (framed("{}", &[]), "no tensor \"embeddings\""),
        (entry("[5,2]", "[8,48]"), "does not fit the file"),
        (entry("[5,2]", "[40,0]"), "does not fit the file"),
        (entry("[5,2]", "[0]"), "does not fit the file"),
        (entry("[5,2]", "[-1,39]"), "no offsets"),
        (entry("[18446744073709551615,18446744073709551615]", "[0,40]"), "does not fit the file"),
        (entry("[10]", "[0,40]"), "is not a table"),
        (entry("[10,0]", "[0,0]"), "1 to 8192"),
        (entry("[2,5]", "[0,40]"), "2 rows for 5 pieces"),
        (tensors(&[("embeddings", "BF16", &[5, 2], vec![0; 20])]), "\"BF16\""),
        (tensors(&[("embeddings", "I64", &[5, 2], vec![0; 80])]), "row numbers"),
        (
            tensors(&[("embeddings", "F32", &[5, 2], floats(&ROWS)), ("mapping", "I32", &[5], vec![9; 20])]),
            "a row that does not exist",
        ),
        (
            tensors(&[("embeddings", "F32", &[5, 2], floats(&ROWS)), ("mapping", "I8", &[4], vec![0; 4])]),
            "4 numbers for 5 pieces",
        ),
        (
            tensors(&[
                ("embeddings", "F32", &[5, 2], floats(&ROWS)),
                ("weights", "F32", &[5], vec![0xff; 20]),
            ]),
            "a number that is not finite",
        ),
    ] {
        write_model(path, &config, &file);
        let error = StaticModel::open(path).unwrap_err().to_string();
        assert!(error.contains("model.safetensors cannot be used: ") && error.contains(said), "{error}");
    }
    // What only shows in the rows that a text needs.
    let mut rows = ROWS;
    rows[2] = f32::NAN;
    rows[4] = f32::INFINITY;
    write_model(path, &config, &tensors(&[("embeddings", "F32", &[5, 2], floats(&rows))]));
    let model = StaticModel::open(path).unwrap();
    for text in ["red", "blue", "red blue"] {
        let error = model.embed(&texts(&["not", text])).await.unwrap_err();
        assert!(error.message.contains("a number that is not finite"), "{error}");
    }
    model.embed(&texts(&["not"])).await.unwrap();
    // Cut while it is open.
    std::fs::write(path.join("model.safetensors"), b"x").unwrap();
    assert!(model.embed(&texts(&["not"])).await.unwrap_err().message.contains("cannot be used"));
    std::fs::write(path.join("config.json"), "{").unwrap();
    assert!(
        StaticModel::open(path)
            .unwrap_err()
            .to_string()
            .contains("config.json cannot be used: it is not JSON")
    );
    std::fs::write(path.join("config.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(StaticModel::open(path).unwrap_err().to_string().contains("more than 1048576 bytes"));
    std::fs::remove_file(path.join("config.json")).unwrap();
    std::fs::create_dir(path.join("config.json")).unwrap();
    assert!(StaticModel::open(path).unwrap_err().to_string().contains("not a regular file"));
}
