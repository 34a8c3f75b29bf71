//! A directory with files and the tools to try on it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use quipu_protocol::{Content, Json};
use quipu_tools::{
    BackgroundCommands, Confinement, Find, Grep, Invocation, Ls, Tool, ToolContext, ToolOutput, builtin,
    builtin_with_background,
};
use quipu_workspace::{Access, OutputPlace};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cx: ToolContext,
    pub(crate) progress: Arc<Mutex<Vec<String>>>,
    tools: Vec<Arc<dyn Tool>>,
}

impl Bench {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let progress = Arc::new(Mutex::new(Vec::new()));
        let told = progress.clone();
        let cx = ToolContext {
            session: None,
            run: "run".into(),
            cwd: dir.path().join("work"),
            env: Arc::new([]),
            outputs: OutputPlace::as_printed(dir.path().join("spill")),
            progress: Arc::new(move |text| told.lock().unwrap().push(text.to_owned())),
            cancel: CancellationToken::new(),
            sees_images: true,
            access: Access::default(),
            sandbox: None,
            background: None,
        };
        std::fs::create_dir(&cx.cwd).unwrap();
        for (name, bytes) in files {
            std::fs::write(cx.cwd.join(name), bytes).unwrap();
        }
        let mut tools = builtin();
        let search: [Arc<dyn Tool>; 3] = [Arc::new(Grep::new()), Arc::new(Find::new()), Arc::new(Ls::new())];
        tools.extend(search);
        Self { dir, cx, progress, tools }
    }

    /// With background commands.
    pub(crate) fn with_background() -> Self {
        let mut bench = Self::new(&[]);
        bench.cx.background = Some(BackgroundCommands::default());
        bench.tools = builtin_with_background(Confinement::None);
        bench
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.cx.cwd.join(name)
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<dyn Tool> {
        self.tools.iter().find(|tool| tool.spec().name == name).unwrap().clone()
    }

    /// Runs a call as the engine does: validated first.
    pub(crate) async fn run(&self, name: &str, args: Value) -> ToolOutput {
        let tool = self.tool(name);
        match quipu_tools::validate(tool.spec(), &Json::from(args)) {
            Ok(args) => tool.run(Invocation { id: "c".into(), args }, &self.cx).await,
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }

    /// All files of the working directory, by name.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = std::fs::read_dir(&self.cx.cwd)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    }
}

pub(crate) fn text(output: &ToolOutput) -> &str {
    output.content.first().and_then(Content::as_text).unwrap_or_default()
}

/// Runs one call on a fresh directory; a text that begins with `!` must be an error.
pub(crate) async fn check(
    tool: &str,
    args: Value,
    before: &[(&str, &[u8])],
    expect: &str,
    after: &[(&str, &[u8])],
) -> ToolOutput {
    let bench = Bench::new(before);
    let output = bench.run(tool, args.clone()).await;
    let (is_error, expect) = match expect.strip_prefix('!') {
        Some(expect) => (true, expect),
        None => (false, expect),
    };
    let said = text(&output).replace(&bench.cx.cwd.display().to_string(), "CWD");
    assert_eq!(said, expect, "{args}");
    assert_eq!(output.is_error, is_error, "{args}");
    let after: Vec<(String, Vec<u8>)> =
        after.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
    assert_eq!(bench.files(), after, "{args}");
    output
}
