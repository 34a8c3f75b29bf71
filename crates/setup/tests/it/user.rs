//! A user with agents.

use std::path::{Path, PathBuf};

use quipu_setup::{
    Agent, AgentPlan, Goal, PieceContent, Placement, Setup, SetupContext, SetupError, Syntax, agents,
};

/// A home directory, and the program that agents are to start.
pub(crate) struct User {
    dir: tempfile::TempDir,
    pub(crate) program: String,
    /// Files of the agent that get a hook: a list in JSON, or a file of its own.
    pub(crate) hooks: Vec<PathBuf>,
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
}

impl User {
    /// With these directories.
    pub(crate) fn new(directories: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("quipu-setup-").tempdir().unwrap();
        let user = Self {
            dir,
            program: "/opt/the \"q\"/quipu".to_owned(),
            variables: Vec::new(),
            hooks: Vec::new(),
        };
        for directory in directories {
            std::fs::create_dir_all(user.path(directory)).unwrap();
        }
        std::fs::create_dir_all(user.path("")).unwrap();
        user
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("home").join(name)
    }

    /// A path outside of the home directory.
    pub(crate) fn elsewhere(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path(".quipu")
    }

    pub(crate) fn with<T>(&self, name: &str, act: impl FnOnce(&SetupContext<'_>, &Agent) -> T) -> T {
        let variable = |name: &str| {
            self.variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.clone())
        };
        let (user_home, home) = (self.path(""), self.home());
        let context = SetupContext {
            variable: &variable,
            user_home: &user_home,
            home: &home,
            program: &self.program,
            environment: &[],
        };
        let mut agents = agents(&context);
        for agent in agents.iter_mut().filter(|agent| agent.is_named(name)) {
            for file in &self.hooks {
                let content = match file.extension().is_some_and(|end| end == "json") {
                    true => PieceContent::Value {
                        syntax: Syntax::Json,
                        placement: Placement::Element(vec!["hooks".into(), "Stop".into()]),
                        value: format!("{} hook {} Stop", self.program, agent.name).into(),
                    },
                    false => PieceContent::File(format!("call {}\n", self.program)),
                };
                agent.add(file.clone(), None, content);
            }
        }
        act(&context, agents.iter().find(|agent| agent.is_named(name)).unwrap())
    }

    pub(crate) fn plan(&self, agent: &str, goal: Goal) -> AgentPlan {
        self.with(agent, |context, agent| Setup::read(&self.home()).unwrap().plan(context, agent, goal))
    }

    /// Plans and writes.
    pub(crate) fn apply(&self, agent: &str, goal: Goal) -> Result<AgentPlan, SetupError> {
        self.with(agent, |context, agent| {
            let mut setup = Setup::lock(&self.home())?;
            let plan = setup.plan(context, agent, goal);
            setup.apply(&plan, goal)?;
            Ok(plan)
        })
    }

    /// All paths in the home directory, apart from Quipu's own.
    pub(crate) fn tree(&self) -> Vec<PathBuf> {
        fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                if entry.file_name() != ".quipu" {
                    found.push(entry.path());
                    if entry.file_type().unwrap().is_dir() {
                        walk(&entry.path(), found);
                    }
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(""), &mut found);
        found.sort();
        found
    }
}
