//! Which files a command line runs by their paths: programs, and scripts that it hands to interpreters.

use crate::programs::{Nature, is_interpreter, is_shell, nature};
use crate::shell::{DEPTH_LIMIT, FileUse, Part, Unit, Word, parse};

/// What separates words where a command line cannot be read.
const SEPARATORS: &str = ";&|()<>{}`$\"'=";
/// Programs that start a shell by themselves, or read commands from their input.
const STARTERS: &[&str] = &[
    "su", "runuser", "ssh", "chroot", "nsenter", "unshare", "at", "batch", "parallel", "expect", "gdb",
    "lldb", "fakeroot", "proot", "script",
];
/// Programs that run others and are no wrappers for rules.
const RUNNERS: &[&str] = &[
    "exec",
    "builtin",
    "trap",
    "docker",
    "podman",
    "kubectl",
    "uv",
    "poetry",
    "pipenv",
    "npx",
    "nix",
    "nix-shell",
];
/// Letters of options of `python` that have no value.
const PYTHON_FLAGS: &str = "uBOsEIbdPqSvx";

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
    /// Whether a pattern (`./s.*`) stands where a program could, or `env` has options that are not followed: nobody knows before it runs
    /// which file that will be.
    pub has_patterns: bool,
    /// Whether it changes to a directory that is not known: a pattern or a variable names it, or it is one of before (`cd -`, `popd`).
    pub enters_unknown: bool,
}

/// An argument of an interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptWord {
    /// Its text; empty where it is a pattern.
    pub text: String,
    /// Whether it is a pattern, which may name any files.
    pub is_pattern: bool,
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
        // Then `cd sub` goes anywhere.
        self.enters_unknown |= code.contains("CDPATH");
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
            self.has_patterns |= has_pattern(code);
        }
    }

    fn command(&mut self, words: &[Word], depth: usize) {
        let Some((first, arguments)) = words.split_first() else { return };
        let name = text_of(first);
        self.has_patterns |= first.is_pattern;
        let path = name.as_deref().filter(|name| name.contains('/'));
        path.into_iter().for_each(|path| self.program(path));
        let base = name.as_deref().map(|name| name.rsplit('/').next().unwrap_or(name)).unwrap_or_default();
        if matches!(base, "source" | ".") || is_interpreter(base) {
            self.scripts.push(script_words(arguments));
        }
        if changes_directory(base) {
            match entered(base, arguments) {
                Some(directory) => self.directories.push(directory),
                None => self.enters_unknown = true,
            }
        }
        if let Some(code) = known_code(arguments).filter(|_| base == "eval" && depth < DEPTH_LIMIT) {
            self.code(&code, depth + 1);
        }
        if base == "env" {
            self.env(arguments, depth);
        }
        match nature(words) {
            Nature::Runs(_, rest) if depth < DEPTH_LIMIT => self.command(&rest, depth + 1),
            Nature::Code(code) if depth < DEPTH_LIMIT => self.code(&code, depth + 1),
            Nature::Enters(_) | Nature::Plain | Nature::Free => {}
            // What it runs is somewhere among its words.
            Nature::Wide(_)
            | Nature::Wrapper(_)
            | Nature::Unclear(_)
            | Nature::Runs(..)
            | Nature::Code(_) => {
                let paths = arguments.iter().filter_map(text_of).filter(|text| text.contains('/'));
                paths.for_each(|path| self.program(&path));
                self.has_patterns |= arguments.iter().any(is_path_pattern);
                // An interpreter among them runs a script, as it does alone.
                let behind = |at: usize| script_words(arguments.get(at + 1..).unwrap_or_default());
                let interpreters =
                    arguments.iter().enumerate().filter(|(_, word)| is_interpreter(&base_of(word)));
                self.scripts.extend(interpreters.map(|(at, _)| behind(at)));
                self.enters_unknown |= arguments.iter().any(|word| changes_directory(&base_of(word)));
                // Each that is followed follows the next one: all of them from here would be more than anybody waits for.
                let mut each = arguments.iter().enumerate().filter(|(_, word)| base_of(word) == "env");
                if let Some((at, _)) = each.next() {
                    self.has_patterns |= each.next().is_some();
                    self.env(arguments.get(at + 1..).unwrap_or_default(), depth);
                }
            }
        }
    }

    /// What `env` runs because of its options: a whole command line in one word (`-S`). Of options that are not followed, such as one
    /// that changes the directory, nobody knows.
    fn env(&mut self, arguments: &[Word], depth: usize) {
        let mut rest = arguments;
        while let Some((word, behind)) = rest.split_first() {
            rest = behind;
            let Some(text) = text_of(word) else {
                self.has_patterns |= word.may_be_option();
                return;
            };
            let code = match text.as_str() {
                "-i" | "-" | "--ignore-environment" | "-0" | "--null" | "-v" | "--debug" => continue,
                "-u" | "--unset" => {
                    rest = rest.get(1..).unwrap_or_default();
                    continue;
                }
                "-S" | "--split-string" => rest.split_first().and_then(|(code, behind)| {
                    rest = behind;
                    text_of(code)
                }),
                "--" => return,
                _ if text.starts_with("--unset=") => continue,
                option if option.starts_with('-') => ["--split-string=", "-S"]
                    .iter()
                    .find_map(|start| option.strip_prefix(start))
                    .map(str::to_owned),
                _ if text.contains('=') => continue,
                // What it runs is followed where it stands.
                _ => return,
            };
            match code.and_then(|code| split_command(&code, rest, depth)) {
                Some(words) => {
                    self.has_patterns |= reads_code(&words, depth + 1);
                    self.command(&words, depth + 1);
                }
                None => self.has_patterns = true,
            }
            return;
        }
    }

    /// What may be code that an interpreter of the same line reads from its input: a file, or what a program prints.
    fn input(&mut self, part: &Part) {
        let words = match part {
            Part::Redirection { usage: FileUse::Read, path, .. } => std::slice::from_ref(path),
            Part::Command(command) => command.words.get(1..).unwrap_or_default(),
            Part::Redirection { usage: FileUse::Write, .. } | Part::Variable(_) => &[],
        };
        self.has_patterns |= words.iter().any(|word| word.is_pattern);
        for text in words.iter().filter_map(text_of) {
            // Such as `if=run.sh`.
            let value = text.split_once('=').map(|(_, value)| value.to_owned());
            let each = [Some(text), value].into_iter().flatten();
            self.scripts
                .extend(each.map(|text| vec![ScriptWord { text, is_pattern: false, follows_option: false }]));
        }
    }

    fn program(&mut self, path: &str) {
        if !self.programs.iter().any(|known| known == path) {
            self.programs.push(path.to_owned());
        }
    }
}

/// Whether a command is, or runs, an interpreter that reads its code from its input, or evaluates what another command prints. What is
/// not known counts as one that does.
fn reads_code(words: &[Word], depth: usize) -> bool {
    let Some((first, arguments)) = words.split_first() else { return false };
    let kind = nature(words);
    match &kind {
        Nature::Runs(_, rest) if depth < DEPTH_LIMIT => return reads_code(rest, depth + 1),
        Nature::Code(code) if depth < DEPTH_LIMIT => return has_reader(code, depth + 1),
        _ => {}
    }
    let name = base_of(first);
    match name.as_str() {
        // `<(…)` is a word of which nothing is known.
        "source" | "." => {
            let is_input = |text: String| names_input(&text);
            arguments.iter().any(|word| text_of(word).map_or(word.units == [Unit::Unknown], is_input))
        }
        "eval" => {
            known_code(arguments).is_none_or(|code| depth >= DEPTH_LIMIT || has_reader(&code, depth + 1))
        }
        _ if is_interpreter(&name) || text_of(first).is_none() => {
            lacks_script(&name, words) || name_input(arguments)
        }
        _ if matches!(kind, Nature::Wrapper(_) | Nature::Runs(..)) || RUNNERS.contains(&name.as_str()) => {
            runs_reader(&name, arguments, depth)
        }
        _ => false,
    }
}

/// Whether a command of this code reads code from the input that they share. What cannot be read may have one.
fn has_reader(code: &str, depth: usize) -> bool {
    let (parts, unreadable) = parse(code, depth);
    let reads = |part: &Part| matches!(part, Part::Command(command) if reads_code(&command.words, depth));
    unreadable.is_some() || parts.iter().any(reads)
}

/// Whether a program that runs others, with these arguments, starts one that reads code from its input.
fn runs_reader(name: &str, arguments: &[Word], depth: usize) -> bool {
    let starts_shell = |word: &Word| {
        let text = text_of(word).unwrap_or_default();
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        matches!(text.as_str(), "--shell" | "--login")
            || letters.is_some_and(|letters| letters.contains(['s', 'i', 'S']))
    };
    let has_input = name_input(arguments);
    STARTERS.contains(&name)
        || (name == "uv" && has_input)
        || (matches!(name, "sudo" | "doas" | "systemd-run") && arguments.iter().any(starts_shell))
        || arguments.iter().enumerate().any(|(at, word)| {
            let Some(text) = text_of(word) else {
                // It may be the program.
                return arguments.get(..at).is_some_and(|before| before.iter().all(Word::may_be_option));
            };
            if text.contains(char::is_whitespace) {
                return depth >= DEPTH_LIMIT || has_reader(&text, depth + 1);
            }
            let (rest, program) = (arguments.get(at..).unwrap_or_default(), base_of(word));
            if !is_interpreter(&program) {
                return false;
            }
            if is_shell(&program)
                && depth < DEPTH_LIMIT
                && let Nature::Code(code) = nature(rest)
            {
                return has_reader(&code, depth + 1);
            }
            has_input || lacks_script(&program, rest)
        })
}

/// Whether no argument of an interpreter is surely the script that it runs, or its code.
fn lacks_script(name: &str, words: &[Word]) -> bool {
    let arguments = words.get(1..).unwrap_or_default();
    let is_python = ["python", "pypy", "ipython"].iter().any(|start| name.starts_with(start));
    match name {
        // They read what their arguments name, and commands from their input.
        "bc" | "ed" | "ex" | "vi" | "vim" | "nvim" | "irb" | "ghci" | "jshell" | "sqlite3" => return true,
        // It reads its input, or what another command prints, only where an argument names that.
        "make" | "gmake" => return !arguments.iter().all(Word::is_known),
        _ => {}
    }
    let mut may_be_value = false;
    for (at, argument) in arguments.iter().enumerate() {
        let text = text_of(argument);
        let Some(option) = text.as_deref().filter(|text| text.starts_with(['-', '+'])) else {
            // What is not known may be nothing.
            if text.is_some() && !may_be_value {
                return matches!((name, text.as_deref()), ("deno" | "bun", Some("repl" | "eval")));
            }
            may_be_value = argument.may_be_option();
            continue;
        };
        if is_shell(name) {
            let letters = option.get(1..).unwrap_or_default();
            // Code that could not be followed may read more of it.
            let has_more = letters.contains(['s', 'c']) || letters.matches(['o', 'O']).count() > 1;
            if option == "-" || (!letters.starts_with('-') && has_more) {
                return true;
            }
        } else if option == "-m" && is_python {
            return nature(words) != Nature::Plain;
        } else if option == "-i" && (is_python || name.starts_with("node")) {
            return true;
        } else if has_code_behind(name, is_python, option) {
            return arguments.get(at + 1).is_none_or(|code| text_of(code).is_none());
        }
        may_be_value = may_have_value(name, is_python, option);
    }
    true
}

/// Whether the argument behind an option of an interpreter is all the code that it runs.
fn has_code_behind(name: &str, is_python: bool, option: &str) -> bool {
    let letters = option.strip_prefix('-').unwrap_or_default();
    match name {
        "sbcl" => false,
        "php" => option == "-r",
        _ if is_python => letters
            .strip_suffix('c')
            .is_some_and(|flags| flags.chars().all(|flag| PYTHON_FLAGS.contains(flag))),
        _ if name.starts_with("perl") || name.starts_with("ruby") => {
            let is_flag = |flag: char| flag.is_ascii_digit() || "ailnpwTW".contains(flag);
            letters.strip_suffix(['e', 'E']).is_some_and(|flags| flags.chars().all(is_flag))
        }
        _ if name.starts_with("node") || name == "bun" => {
            matches!(option, "-e" | "-p" | "-pe" | "--eval" | "--print" | "--test")
        }
        "guile" | "pwsh" | "powershell" => matches!(option, "-c" | "-Command"),
        _ => matches!(option, "-e" | "--eval"),
    }
}

/// Whether the argument behind an option of an interpreter may be its value.
fn may_have_value(name: &str, is_python: bool, option: &str) -> bool {
    if option.starts_with("--") {
        let is_flag = ["--", "--posix", "--norc", "--noprofile", "--login", "--verbose"].contains(&option);
        return !is_flag && !option.contains('=');
    }
    let letters = option.get(1..).unwrap_or_default();
    let flags = match name {
        _ if is_shell(name) => "abefhiklmnprtuvxBCEHPTD",
        _ if is_python => {
            // These take the rest of their word, where there is any.
            if letters.len() > 1 && letters.starts_with(['X', 'W']) {
                return false;
            }
            PYTHON_FLAGS
        }
        _ if name.starts_with("perl") => "acnpstuwTUWX",
        _ => "",
    };
    !letters.chars().all(|letter| flags.contains(letter))
}

/// Whether an argument names the input.
fn name_input(arguments: &[Word]) -> bool {
    arguments.iter().filter_map(text_of).any(|text| names_input(&text))
}

fn names_input(text: &str) -> bool {
    let value = text.rsplit('=').next().unwrap_or_default();
    matches!(value, "-" | "-s" | "-f-") || value.ends_with("stdin") || value.contains("/fd/")
}

/// Whether a command of the shell changes the directory.
fn changes_directory(name: &str) -> bool {
    matches!(name, "cd" | "pushd" | "popd")
}

/// The directory that such a command changes to, where it is known.
fn entered(name: &str, arguments: &[Word]) -> Option<String> {
    let mut rest = arguments;
    let mut are_over = false;
    while let Some((option, behind)) = rest.split_first() {
        match text_of(option)?.as_str() {
            "--" => are_over = true,
            "-L" | "-P" | "-e" | "-@" => {}
            _ => break,
        }
        rest = behind;
        if are_over {
            break;
        }
    }
    let [target] = rest else {
        return (rest.is_empty() && name == "cd").then(|| "~/".to_owned());
    };
    let is_home = target.units.first() == Some(&Unit::Home);
    let text = text_of(target).filter(|_| name != "popd" && !target.is_pattern && !target.splits)?;
    match text.as_str() {
        "" => Some(".".to_owned()),
        "~" if is_home => Some("~/".to_owned()),
        text if text.starts_with('~') && !(is_home && text.starts_with("~/")) => None,
        text if text == "-" || (!are_over && text.starts_with(['-', '+'])) => None,
        _ => Some(text),
    }
}

/// The words that `env -S` makes of its line, with those that follow it; `None` where that is not known.
fn split_command(code: &str, rest: &[Word], depth: usize) -> Option<Vec<Word>> {
    // Its own escapes and variables.
    if code.contains(['\\', '$', '#']) || depth >= DEPTH_LIMIT {
        return None;
    }
    let (parts, unreadable) = parse(&format!("env {code}"), depth + 1);
    match parts.as_slice() {
        [Part::Command(command)] if unreadable.is_none() => {
            Some(command.words.iter().chain(rest).cloned().collect())
        }
        _ => None,
    }
}

/// What `eval` runs, where all of it is known.
fn known_code(arguments: &[Word]) -> Option<String> {
    let texts: Option<Vec<String>> = arguments.iter().map(text_of).collect();
    texts.map(|texts| texts.join(" "))
}

/// The name of a program without its directory; empty where it is not known.
fn base_of(word: &Word) -> String {
    text_of(word).unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned()
}

fn script_words(arguments: &[Word]) -> Vec<ScriptWord> {
    let mut follows_option = false;
    let mut words = Vec::new();
    for argument in arguments {
        let is_option = argument.may_be_option();
        if argument.is_pattern {
            words.push(ScriptWord { text: String::new(), is_pattern: true, follows_option });
        } else if let Some(text) = text_of(argument).filter(|_| !is_option) {
            words.push(ScriptWord { text, is_pattern: false, follows_option });
        }
        follows_option = is_option;
    }
    words
}

/// Whether a word is a pattern of paths.
fn is_path_pattern(word: &Word) -> bool {
    // Braces hide what stands beside them.
    word.is_pattern && (word.units.contains(&Unit::Char('/')) || word.units == [Unit::Unknown])
}

/// Whether something in a line that cannot be read looks like a pattern of paths.
fn has_pattern(code: &str) -> bool {
    let is_end = |letter: char| letter.is_whitespace() || ";&|()<>`$\"'=".contains(letter);
    let is_pattern = |word: &str| {
        word.contains(['*', '?', '[']) || (word.contains('{') && (word.contains(',') || word.contains("..")))
    };
    code.split(is_end).any(|word| word.contains('/') && is_pattern(word))
}

/// The text of a word that is known before it runs.
fn text_of(word: &Word) -> Option<String> {
    let letter = |unit: &Unit| match unit {
        Unit::Char(letter) => Some(*letter),
        Unit::Space => Some(' '),
        Unit::Home => Some('~'),
        Unit::Unknown => None,
    };
    let text: String = word.units.iter().map(letter).collect::<Option<_>>()?;
    // The directory of the command.
    Some(text.strip_prefix("~+/").map_or_else(|| text.clone(), |rest| format!("./{rest}")))
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
            ("~+/bin/tool", vec!["./bin/tool"]),
            ("env -S './run.sh a'", vec!["./run.sh"]),
            ("env -S'./run.sh a'", vec!["./run.sh"]),
            ("env --split-string='A=1 ./run.sh a'", vec!["./run.sh"]),
            ("env -S '-i ./run.sh' a", vec!["./run.sh"]),
            ("env -S./run.sh", vec!["./run.sh"]),
            ("env --split-string=./run.sh", vec!["./run.sh"]),
            ("sudo env -S '-u X ./run.sh a'", vec!["./run.sh"]),
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
        assert_eq!(scripts("sh ~+/run.sh"), ["./run.sh"]);
        assert_eq!(scripts("env -S 'sh run.sh'"), ["run.sh"]);
        assert_eq!(scripts("source env.sh && . other.sh"), ["env.sh", "other.sh"]);
        assert_eq!(scripts("timeout 5 /usr/bin/python3.12 -u t.py"), ["-t.py"]);
        assert_eq!(scripts("sudo -n sh run.sh"), ["run.sh"]);
        assert_eq!(scripts("find . -exec python3 tool.py {} +"), ["tool.py", "{}", "+"]);
        assert_eq!(scripts("cat t.py"), Vec::<String>::new());
    }

    #[test]
    fn code_from_the_input_of_an_interpreter_is_found() {
        for (command, expect) in [
            ("bash <run.sh", "run.sh"),
            ("timeout 5 sh -s a < run.sh", "run.sh"),
            ("cat head.sh run.sh | bash", "run.sh"),
            ("env A=1 python3 - < tool.py", "tool.py"),
            ("bash -euo pipefail < run.sh", "run.sh"),
            ("bash -e -u -o pipefail < run.sh", "run.sh"),
            ("bash -es a b < run.sh", "run.sh"),
            ("bash +o posix < run.sh", "run.sh"),
            ("cat run.sh | bash -o pipefail", "run.sh"),
            ("zsh -o extendedglob < run.sh", "run.sh"),
            ("python3 -X utf8 < tool.py", "tool.py"),
            ("python3 -W ignore -u < tool.py", "tool.py"),
            ("python3 -i first.py < tool.py", "tool.py"),
            ("python3 -m code < tool.py", "tool.py"),
            ("node --input-type module < x", "x"),
            ("perl -MData::Dumper -I lib < x.pl", "x.pl"),
            ("python3 -c \"$(cat tool.py)\"", "tool.py"),
            ("bash -c \"$(cat run.sh)\"", "run.sh"),
            ("sqlite3 data.db < x.sql", "x.sql"),
            ("make -f - < rules.mk", "rules.mk"),
            ("cat run.sh | sudo bash", "run.sh"),
            ("sudo -u me bash -e < run.sh", "run.sh"),
            ("sudo -s < run.sh", "run.sh"),
            ("sudo bash -c \"$(cat run.sh)\"", "run.sh"),
            ("ssh host 'bash -s' < run.sh", "run.sh"),
            ("docker exec -i box sh < run.sh", "run.sh"),
            ("/opt/bin/timeout 5 bash < run.sh", "run.sh"),
            ("$SHELL < run.sh", "run.sh"),
            ("sudo -E $SHELL < run.sh", "run.sh"),
            ("exec -a x bash < run.sh", "run.sh"),
            ("make -f <(cat rules.mk)", "rules.mk"),
            ("cat run.sh | bash -c bash", "run.sh"),
            ("timeout 5 sh -c sh < run.sh", "run.sh"),
            ("sudo sh -c 'cd x; sh' < run.sh", "run.sh"),
            ("bash --norc -c bash < run.sh", "run.sh"),
            ("source /dev/stdin < run.sh", "run.sh"),
            ("bash /dev/stdin < run.sh", "run.sh"),
            ("bash /proc/self/fd/0 a < run.sh", "run.sh"),
            (". <(cat run.sh)", "run.sh"),
            ("bash <(cat run.sh)", "run.sh"),
            ("eval \"$(cat run.sh)\"", "run.sh"),
            ("eval 'cat run.sh | bash'", "run.sh"),
            ("eval bash < run.sh", "run.sh"),
            ("dd if=run.sh | sh", "run.sh"),
        ] {
            assert!(scripts(command).iter().any(|word| word == expect), "{command}: {:?}", scripts(command));
        }
        let here = "cat <<E | sh\n./run.sh\nE";
        assert!(programs(here).contains(&"./run.sh".to_owned()), "{:?}", programs(here));
        assert!(programs("echo ./run.sh | bash -e").contains(&"./run.sh".to_owned()));
        // What is data of a script, or of code in the line, is none.
        for command in [
            "python3 tool.py < data.csv",
            "python3 -u tool.py < data.csv",
            "bash -e run.sh < data.csv",
            "bash -o pipefail run.sh < data.csv",
            "bash -c 'sort' < data.csv",
            "sudo bash run.sh < data.csv",
            "sudo bash -c 'sort -u' < data.csv",
            "sudo sort < data.csv",
            "python3 -c 'x' < data.csv",
            "python3 -m json.tool < data.csv",
            "perl -ne 'print' < data.csv",
            "node -e 'x' < data.csv",
            "source env.sh < data.csv",
            ". \"$HOME/env\" < data.csv",
            "make -j 8 < data.csv",
        ] {
            assert!(!scripts(command).contains(&"data.csv".to_owned()), "{command}: {:?}", scripts(command));
        }
        assert_eq!(scripts("python3 tool.py < data.csv"), ["tool.py"]);
        assert_eq!(scripts("cat data.csv | sort > x"), Vec::<String>::new());
    }

    #[test]
    fn directories_are_in_order() {
        assert_eq!(run_files("cd a && cd b && ./x").directories, ["a", "b"]);
    }

    #[test]
    fn broken_lines_end() {
        for command in [
            "'",
            "$(",
            "((((((((((((((((((((",
            "a\u{0}b",
            &"x;".repeat(20_000),
            &"$(".repeat(5_000),
            &format!("sudo {}", "zsh ".repeat(5_000)),
            &format!("sudo {}", "env -S sudo ".repeat(2_000)),
            &format!("env -S {}", "'sudo env' -S ".repeat(1_000)),
        ] {
            run_files(command);
        }
    }

    #[test]
    fn patterns_are_noticed_where_programs_and_scripts_stand() {
        let has_pattern = |command: &str| {
            let found = run_files(command);
            found.has_patterns || found.scripts.iter().flatten().any(|word| word.is_pattern)
        };
        for command in [
            "./s.*",
            "./s.s? --fast",
            "sh s.s?",
            "sh {a,b}.sh",
            "./{a,b}.sh",
            "env X=1 timeout 5 ./s.*",
            "source en[v].sh",
            "bash -c './s.*'",
            "echo $(./s.*)",
            "cat *.sh | bash",
            "bash < s.*",
            "sudo ./s.*",
            "sudo sh s.s?",
            "case x in x) ./s.*;; esac",
            "for f in ./x/*; do $f; done",
        ] {
            assert!(has_pattern(command), "{command}");
        }
        for command in [
            "./run.sh src/*.rs",
            "cat src/*.rs",
            "'./s.*'",
            "rm -f *.o && ./run.sh",
            "python3 -c 'print(1)'",
            "[ -f x ] && ./run.sh",
        ] {
            assert!(!has_pattern(command), "{command}");
        }
        for unknown in [
            "cd sub*",
            "cd \"$D\"",
            "cd -",
            "pushd",
            "pushd +1",
            "popd",
            "cd -P -",
            "cd ~root",
            "cd a b",
            "builtin cd sub",
            "command cd $D",
            "CDPATH=/x cd sub",
            "cd -x sub",
        ] {
            assert!(run_files(&format!("{unknown} && ./run.sh")).enters_unknown, "{unknown}");
        }
        for (known, directory) in [
            ("cd sub", "sub"),
            ("cd -- -sub", "-sub"),
            ("cd -P sub", "sub"),
            ("pushd sub", "sub"),
            ("cd", "~/"),
            ("cd ~", "~/"),
            ("cd ~/sub", "~/sub"),
            ("cd ~+/sub", "./sub"),
            ("command cd sub", "sub"),
        ] {
            let found = run_files(&format!("{known} && ./run.sh"));
            assert_eq!(
                (found.enters_unknown, found.directories),
                (false, vec![directory.to_owned()]),
                "{known}"
            );
        }
        assert!(!run_files("cd sub && ls *").enters_unknown);
    }
}
