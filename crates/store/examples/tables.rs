//! An SQLite file from lines of JSON, as other programs' databases are: for measuring how fast those are imported.
//!
//! `tables FILE` reads `{"table": .., "row": {COLUMN: VALUE, ..}}` line by line from its standard input. The first row of a
//! table names its columns; `id` is its key, and `session_id` has an index. `cargo xtask bench import` runs it.

use std::collections::HashMap;
use std::error::Error;
use std::io::BufRead as _;

use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(file) = std::env::args().nth(1) else { return Err("usage: tables FILE < LINES".into()) };
    let database = Connection::open(file)?;
    database.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; BEGIN")?;
    let mut inserts: HashMap<String, String> = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let (Some(table), Some(row)) = (line["table"].as_str(), line["row"].as_object()) else {
            return Err("a line has no table or no row".into());
        };
        if !inserts.contains_key(table) {
            let columns: Vec<String> = row.keys().map(|name| format!("\"{name}\"")).collect();
            database.execute_batch(&format!(
                "CREATE TABLE \"{table}\" ({}, PRIMARY KEY (\"id\"))",
                columns.join(", ")
            ))?;
            if row.contains_key("session_id") {
                database.execute_batch(&format!(
                    "CREATE INDEX \"{table}_session\" ON \"{table}\" (\"session_id\")"
                ))?;
            }
            let places = vec!["?"; columns.len()].join(", ");
            let insert = format!("INSERT INTO \"{table}\" ({}) VALUES ({places})", columns.join(", "));
            inserts.insert(table.to_owned(), insert);
        }
        let values = row.values().map(|value| match value {
            Value::Null => Sql::Null,
            Value::Number(number) => number.as_i64().map_or(Sql::Null, Sql::Integer),
            Value::String(text) => Sql::Text(text.clone()),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => Sql::Text(value.to_string()),
        });
        database.prepare_cached(&inserts[table])?.execute(params_from_iter(values))?;
    }
    database.execute_batch("COMMIT")?;
    Ok(())
}
