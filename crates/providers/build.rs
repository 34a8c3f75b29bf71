//! Packs the catalogue of models, which as text would be a thirtieth part of the whole program. Each provider's models
//! are packed alone, so that a start unpacks those of one provider only.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;

const CATALOGUE: &str = "data/models.json";
/// Models of logins that the package of the catalogue does not have, in the same form.
const LOGINS: &str = "data/login_models.json";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={CATALOGUE}");
    println!("cargo::rerun-if-changed={LOGINS}");
    let text = std::fs::read_to_string(CATALOGUE)?;
    let logins = std::fs::read_to_string(LOGINS)?;
    let source =
        text.strip_prefix("{\"source\":").and_then(|rest| rest.split_once(",\n\"providers\"")).map(|it| it.0);
    let source = source.ok_or_else(|| format!("{CATALOGUE} does not begin with its source"))?;
    let mut packed = Vec::new();
    let mut groups = String::from("&[\n");
    // The files are laid out in lines: `"provider":[`, a line for each model, `],`.
    let all = format!("{text}{logins}");
    let mut rest = all.as_str();
    while let Some((before, models)) = rest.split_once("\":[\n") {
        let provider = before.rsplit('"').next().unwrap_or_default();
        let end = models.find("\n]").ok_or_else(|| format!("the models of {provider} have no end"))?;
        let start = packed.len();
        let mut encoder = DeflateEncoder::new(&mut packed, Compression::best());
        write!(encoder, "[{}]", &models[..end])?;
        encoder.finish()?;
        writeln!(groups, "    ({provider:?}, {start}..{}),", packed.len())?;
        rest = &models[end..];
    }
    groups.push(']');
    let out = std::env::var_os("OUT_DIR").ok_or("cargo names no directory for what is built")?;
    std::fs::write(Path::new(&out).join("source.json"), source)?;
    std::fs::write(Path::new(&out).join("models.deflate"), packed)?;
    std::fs::write(Path::new(&out).join("models.rs"), groups)?;
    Ok(())
}
