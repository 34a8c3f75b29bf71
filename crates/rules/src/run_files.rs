//! Which files a command line runs by their paths: programs, and scripts that it hands to interpreters.

use crate::programs::{Nature, is_interpreter, nature};
use crate::shell::{DEPTH_LIMIT, FileUse, Part, Unit, Word, parse};

/// What separates words where a command line cannot be read.
const SEPARATORS: &str = ";&|()<>{}`$\"'=";

/// Words of a command line that may name files which it runs. A path may begin with `~/`, and one that is not absolute begins in the
/// directory of the command, or in one that it changes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFiles {
    /// Directories that it changes to, in order.
    pub directories: Vec<String>,
    /// Programs that are named by a path.
    pub programs: Vec<String>,
    /// The arguments of each interpreter: the script is the first of them that is a file and follows no option; what follows an option
    /// may be one too.
    pub scripts: Vec<Vec<ScriptWord>>,
}

/// An argument of an interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptWord {
    /// Its text.
    pub text: String,
    /// Whether the word before it is an option, whose value it may be.
    pub follows_option: bool,
}

/// What a command line of `bash` may run by path. Where it cannot be read, each of its words that looks like a path counts.
pub fn run_files(command: &str) -> RunFiles {
    let mut found = RunFiles::default();
    found.code(command, 0);
    found
}

impl RunFiles {
    fn code(&mut self, code: &str, depth: usize) {
        let (parts, unreadable) = parse(code, depth);
        for part in &parts {
            if let Part::Command(command) = part {
                self.command(&command.words, depth);
            }
        }
        let from_input = parts
            .iter()
            .any(|part| matches!(part, Part::Command(command) if reads_code(&command.words, depth)));
        if from_input {
            parts.iter().for_each(|part| self.input(part));
        }
        if unreadable.is_some() || from_input || depth >= DEPTH_LIMIT {
            let words = code.split(|letter: char| letter.is_whitespace() || SEPARATORS.contains(letter));
            words.filter(|word| word.contains('/')).for_each(|word| self.program(word));
        }
    }

    fn command(&mut self, words: &[Word], depth: usize) {
        let Some((first, arguments)) = words.split_first() else { return };
        let name = text_of(first);
        let path = name.as_deref().filter(|name| name.contains('/'));
        path.into_iter().for_each(|path| self.program(path));
        let base = name.as_deref().map(|name| name.rsplit('/').next().unwrap_or(name)).unwrap_or_default();
        if matches!(base, "source" | ".") || is_interpreter(base) {
            self.scripts.push(script_words(arguments));
        }
        match nature(words) {
            Nature::Runs(_, rest) if depth < DEPTH_LIMIT => self.command(&rest, depth + 1),
            Nature::Code(code) if depth < DEPTH_LIMIT => self.code(&code, depth + 1),
            Nature::Enters(directory) => self.directories.push(directory),
            Nature::Plain | Nature::Free => {}
            // What it runs is somewhere among its words.
            Nature::Wide(_)
            | Nature::Wrapper(_)
            | Nature::Unclear(_)
            | Nature::Runs(..)
            | Nature::Code(_) => {
                let paths = arguments.iter().filter_map(text_of).filter(|text| text.contains('/'));
                paths.for_each(|path| self.program(&path));
            }
        }
    }

    /// What may be code that an interpreter of the same line reads from its input: a file, or what a program prints.
    fn input(&mut self, part: &Part) {
        let words = match part {
            Part::Redirection { usage: FileUse::Read, path, .. } => std::slice::from_ref(path),
            Part::Command(command) => command.words.get(1..).unwrap_or_default(),
            Part::Redirection { usage: FileUse::Write, .. } | Part::Variable(_) => &[],
        };
        let texts = words.iter().filter_map(text_of);
        self.scripts.extend(texts.map(|text| vec![ScriptWord { text, follows_option: false }]));
    }

    fn program(&mut self, path: &str) {
        if !self.programs.iter().any(|known| known == path) {
            self.programs.push(path.to_owned());
        }
    }
}

/// Whether a command is an interpreter that reads its code from its input.
fn reads_code(words: &[Word], depth: usize) -> bool {
    if let Nature::Runs(_, rest) = nature(words)
        && depth < DEPTH_LIMIT
    {
        return reads_code(&rest, depth + 1);
    }
    let Some((first, arguments)) = words.split_first() else { return false };
    let name = text_of(first).unwrap_or_default();
    is_interpreter(name.rsplit('/').next().unwrap_or_default())
        && (script_words(arguments).is_empty()
            || arguments.iter().filter_map(text_of).any(|text| text == "-s" || text == "-"))
}

fn script_words(arguments: &[Word]) -> Vec<ScriptWord> {
    let mut follows_option = false;
    let mut words = Vec::new();
    for argument in arguments {
        let is_option = argument.may_be_option();
        if let Some(text) = text_of(argument).filter(|_| !is_option) {
            words.push(ScriptWord { text, follows_option });
        }
        follows_option = is_option;
    }
    words
}

/// The text of a word that is known before it runs.
fn text_of(word: &Word) -> Option<String> {
    let letter = |unit: &Unit| match unit {
        Unit::Char(letter) => Some(*letter),
        Unit::Space => Some(' '),
        Unit::Home => Some('~'),
        Unit::Unknown => None,
    };
    word.units.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::run_files;

    fn programs(command: &str) -> Vec<String> {
        run_files(command).programs
    }

    fn scripts(command: &str) -> Vec<String> {
        let words = run_files(command).scripts.into_iter().flatten();
        words.map(|word| format!("{}{}", if word.follows_option { "-" } else { "" }, word.text)).collect()
    }

    #[test]
    fn programs_by_path_are_found_in_each_part() {
        for (command, expect) in [
            ("./run.sh --fast", vec!["./run.sh"]),
            ("cat notes.md | sort", vec![]),
            ("A=1 bin/tool x && /opt/t/other; ls", vec!["bin/tool", "/opt/t/other"]),
            ("env X=1 timeout 5 ./run.sh", vec!["./run.sh"]),
            ("bash -c './inner.sh && ls'", vec!["./inner.sh"]),
            ("echo $(./inner.sh)", vec!["./inner.sh"]),
            ("~/bin/tool", vec!["~/bin/tool"]),
            ("'./with space' a", vec!["./with space"]),
            ("sudo ./run.sh", vec!["./run.sh"]),
            ("case x in *) ./hidden.sh;; esac", vec!["./hidden.sh"]),
            ("$PROGRAM x", vec![]),
        ] {
            let found = programs(command);
            assert!(expect.iter().all(|path| found.iter().any(|one| one == path)), "{command}: {found:?}");
            assert!(!expect.is_empty() || found.is_empty(), "{command}: {found:?}");
        }
    }

    #[test]
    fn scripts_of_interpreters_are_found() {
        assert_eq!(scripts("python3 tool.py data.csv"), ["tool.py", "data.csv"]);
        assert_eq!(scripts("node --require ./hook.js app.js"), ["-./hook.js", "app.js"]);
        assert_eq!(scripts("bash build.sh"), ["build.sh"]);
        assert_eq!(scripts("source env.sh && . other.sh"), ["env.sh", "other.sh"]);
        assert_eq!(scripts("timeout 5 /usr/bin/python3.12 -u t.py"), ["-t.py"]);
        assert_eq!(scripts("cat t.py"), Vec::<String>::new());
    }

    #[test]
    fn code_from_the_input_of_an_interpreter_is_found() {
        for (command, expect) in [
            ("bash <run.sh", "run.sh"),
            ("timeout 5 sh -s a < run.sh", "run.sh"),
            ("cat head.sh run.sh | bash", "run.sh"),
            ("env A=1 python3 - < tool.py", "tool.py"),
        ] {
            assert!(scripts(command).iter().any(|word| word == expect), "{command}: {:?}", scripts(command));
        }
        let here = "cat <<E | sh\n./run.sh\nE";
        assert!(programs(here).contains(&"./run.sh".to_owned()), "{:?}", programs(here));
        assert!(programs("echo ./run.sh | bash -e").contains(&"./run.sh".to_owned()));
        assert_eq!(scripts("python3 tool.py < data.csv"), ["tool.py"]);
        assert_eq!(scripts("cat data.csv | sort > x"), Vec::<String>::new());
    }

    #[test]
    fn directories_are_in_order() {
        assert_eq!(run_files("cd a && cd b && ./x").directories, ["a", "b"]);
    }

    #[test]
    fn broken_lines_end() {
        for command in
            ["'", "$(", "((((((((((((((((((((", "a\u{0}b", &"x;".repeat(20_000), &"$(".repeat(5_000)]
        {
            run_files(command);
        }
    }
}
