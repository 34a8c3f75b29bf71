//! What MCP servers cost: a call of a tool beside `read`, and the start of a terminal with skills, hooks and servers beside a plain one.

use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::contest::Contest;
use super::programs::{Contender, Stage};
use super::pty::Pty;
use super::terminal::{milliseconds, percentile, start};
use super::wires::Reply;
use super::{Benchmark, Context, Row};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "mcp",
    about: "calls of an MCP tool beside `read`; start with ten skills, three hooks and two MCP servers",
    run,
};

/// The hidden argument of `cargo xtask bench` that makes it a server.
pub(super) const SERVER: &str = "--mcp-server";
const TOOL: &str = "mcp__one__look";
const TEXT: &str = "one\ntwo\nthree\n";

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = starts(context)?;
    let count = context.sizes.turns.get(1).or(context.sizes.turns.first()).copied().unwrap_or(1);
    for (name, tool, arguments) in [("`read`", "read", r#"{"path":"a.txt"}"#), ("an MCP tool", TOOL, "{}")] {
        rows.extend(calls(
            context,
            &format!("{count} turns of {name}, with servers"),
            (tool, arguments),
            count,
        )?);
    }
    Ok(rows)
}

/// The same session, each turn of which calls one tool.
fn calls(context: &Context, what: &str, (tool, arguments): (&str, &str), count: usize) -> Result<Vec<Row>> {
    let contest = Contest {
        bench: BENCHMARK.name,
        what,
        parts: &[("between reply and request", "ms"), ("processor", "ms")],
        contenders: &[Contender::QuipuOpen],
    };
    let prepare = |stage: &Stage<'_>| {
        std::fs::write(stage.project().join("a.txt"), TEXT)?;
        std::fs::write(stage.settings().join("mcp.json"), servers()?)?;
        stage.run(&stage.prompt(None, "go")?, script(stage, tool, arguments, 1))?;
        ensure!(stage.last_request().contains("three"), "the tool {tool} does not work");
        Ok(())
    };
    contest.run(context, prepare, |stage, ()| {
        let sample = stage.run(&stage.prompt(None, "go")?, script(stage, tool, arguments, count))?;
        // The first call waits for the server to be started.
        let gaps = sample.gaps_ms();
        Ok(vec![percentile(gaps.get(1..).unwrap_or(&gaps), 0.5), Some(sample.cost.cpu_ms)])
    })
}

fn script(stage: &Stage<'_>, tool: &str, arguments: &str, count: usize) -> Vec<Reply> {
    let call = |index: usize| stage.wire().call(&format!("call_{index}"), tool, arguments);
    (0..count).map(call).chain([stage.hello()]).collect()
}

/// Plain, and with what people add, in turn.
fn starts(context: &Context) -> Result<Vec<Row>> {
    let contest = Contest {
        bench: BENCHMARK.name,
        what: "start to a usable prompt",
        parts: &[
            ("plain", "ms"),
            ("with ten skills, three hooks, two MCP servers", "ms"),
            ("with two servers that take 2 s to start", "ms"),
        ],
        contenders: &[Contender::Quipu],
    };
    let prepare = |stage: &Stage<'_>| stage.warm_up();
    contest.run(context, prepare, |stage, _| {
        let usable = || anyhow::Ok(milliseconds(start(&mut Pty::start(&mut stage.interactive()?)?)?.1));
        let home = stage.settings();
        let plain = usable()?;
        add_things(stage)?;
        let laden = usable()?;
        std::fs::write(home.join("mcp.json"), slow_servers()?)?;
        let slow = usable()?;
        std::fs::remove_dir_all(home.join("skills"))?;
        for file in ["settings.json", "mcp.json"] {
            std::fs::remove_file(home.join(file))?;
        }
        Ok(vec![Some(plain), Some(laden), Some(slow)])
    })
}

fn add_things(stage: &Stage<'_>) -> Result<()> {
    let home = stage.settings();
    for at in 0..10 {
        let directory = home.join(format!("skills/skill-{at}"));
        std::fs::create_dir_all(&directory)?;
        let description = "d".repeat(200);
        let text =
            format!("---\nname: skill-{at}\ndescription: {description}\n---\n{}", "Do it.\n".repeat(200));
        std::fs::write(directory.join("SKILL.md"), text)?;
    }
    let hook = json!([{ "hooks": [{ "type": "command", "command": "true" }] }]);
    let hooks = json!({ "hooks": { "SessionStart": hook, "PreToolUse": hook, "Stop": hook } });
    std::fs::write(home.join("settings.json"), hooks.to_string())?;
    Ok(std::fs::write(home.join("mcp.json"), servers()?)?)
}

fn servers() -> Result<String> {
    let this = std::env::current_exe().context("cannot find xtask itself")?;
    let server = json!({ "command": this, "args": ["bench", SERVER] });
    Ok(json!({ "mcpServers": { "one": server, "two": server } }).to_string())
}

fn slow_servers() -> Result<String> {
    let this = std::env::current_exe().context("cannot find xtask itself")?;
    let line = format!("sleep 2; exec '{}' bench {SERVER}", this.display());
    let server = json!({ "command": "sh", "args": ["-c", line] });
    Ok(json!({ "mcpServers": { "one": server, "two": server } }).to_string())
}

/// Serves over stdin and stdout: five tools, each of which gives the same short text.
pub(super) fn serve() -> Result<bool> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?).context("not a message")?;
        let Some(id) = message.get("id") else { continue };
        let tool = |name: &str| json!({ "name": name, "description": "Looks.", "inputSchema": { "type": "object" } });
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "bench", "version": "1" },
            }),
            "tools/list" => {
                let tools = ["look", "a", "b", "c", "d"].map(tool);
                json!({ "tools": tools })
            }
            _ => json!({ "content": [{ "type": "text", "text": TEXT }] }),
        };
        writeln!(out, "{}", json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
        out.flush()?;
    }
    Ok(true)
}
