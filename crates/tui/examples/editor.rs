//! What the editor costs: `cargo run --release -p quipu-tui --example editor [FILES]`.
//!
//! Prints microseconds: keys behind a megabyte of text, a megabyte pasted, and files looked for while FILES of them
//! (100,000 without it) are walked and when they are known.

#![expect(clippy::print_stdout, reason = "it prints a table")]

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Instant;

use quipu_tui::editor::Editor;
use quipu_tui::keys::{Bindings, parse_key};
use quipu_tui::{FileFinder, FoundFiles, Size, Theme};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = std::env::args().nth(1).map_or(Ok(100_000), |files| files.parse())?;
    keys()?;
    let dir = tempfile::tempdir()?;
    for at in 0..files {
        let below = dir.path().join(format!("crates/part{}/src/module_{}", at % 97, at % 1_009));
        std::fs::create_dir_all(&below)?;
        std::fs::write(below.join(format!("file_{at}.rs")), "")?;
    }
    find(dir.path())
}

fn keys() -> Result<(), Box<dyn std::error::Error>> {
    let size = Size { columns: 120, rows: 12 };
    let (theme, bindings) = (Theme::default(), Bindings::default());
    let mut editor = Editor::default();
    editor.resize(size);
    let words = "a word and another, with 日本 between; ";
    let began = Instant::now();
    editor.set_text(&words.repeat((1 << 20) / words.len()));
    println!("a megabyte of text set                {:>9.0}", micros(began));
    for (name, key) in [("typed behind it", "x"), ("erased", "backspace"), ("a row up", "up")] {
        let key = parse_key(key)?;
        let mut times: Vec<f64> = (0..1_000)
            .map(|_| {
                let began = Instant::now();
                editor.on_key(key, &bindings);
                std::hint::black_box(editor.view(size, &theme));
                micros(began)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("key {name:<20} p50 / p99    {:>9.1} / {:.1}", times[500], times[990]);
    }
    let long = "a line of a paste\n".repeat((1 << 20) / 18);
    editor.clear();
    let began = Instant::now();
    editor.paste(&long);
    println!("a megabyte pasted                     {:>9.0}", micros(began));
    let began = Instant::now();
    std::hint::black_box(editor.text());
    println!("what is sent of it                    {:>9.0}", micros(began));
    Ok(())
}

fn find(root: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (sender, answers) = channel::<FoundFiles>();
    let finder = FileFinder::new(root, move |found| drop(sender.send(found)))?;
    let mut id = 0;
    for text in ["f", "fi", "file_9", "file_99", "file_999", "module_77file", "zzz", ""] {
        id += 1;
        let began = Instant::now();
        finder.find(id, text, id == 1);
        let mut first = None;
        let found = loop {
            let found = answers.recv()?;
            if found.id != id {
                continue;
            }
            first.get_or_insert_with(|| micros(began));
            if !found.more {
                break found;
            }
        };
        let (first, all) = (first.unwrap_or_default(), micros(began));
        println!("@{text:<16} first / last answer {first:>9.0} / {all:.0}, {} files", found.files.len());
    }
    Ok(())
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}
