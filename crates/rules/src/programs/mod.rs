//! Programs that run other programs, or code in their arguments; and builtins of the shell that do nothing by themselves.

mod tables;

use tables::{
    CHANGERS, FREE, GIT_OPTIONS, GIT_RUNNERS, GIT_WIDE, INTERPRETERS, OPTIONS, OTHER_SHELLS, SHELLS, WRAPPERS,
};

use crate::shell::{Unit, Word};

/// What a command is, beside its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Rules say what of it.
    Plain,
    /// It does nothing that would need a rule.
    Free,
    /// It can do more than its text shows: only a rule without `*` allows it.
    Wide(&'static str),
    /// The same; what it runs is somewhere in its arguments.
    Wrapper(&'static str),
    /// It runs this, with these variables.
    Runs(Vec<(String, Word)>, Vec<Word>),
    /// It runs this code as a shell does.
    Code(String),
    /// It changes the directory to this.
    Enters(String),
    /// What it does is not known.
    Unclear(&'static str),
}

const INLINE: &str = "it can run code that is in its arguments or its input";
const OPTION: &str = "an option of it runs a program or changes where it works";
const MAYBE: &str = "an argument that is not known could be such an option";
const RUNS: &str = "it runs another program";
const CHANGES: &str = "it changes what later commands mean";

/// What a command is. It has a word.
pub(crate) fn nature(words: &[Word]) -> Nature {
    let Some((program, arguments)) = words.split_first() else { return Nature::Free };
    let Some(path) = program.text().filter(|path| !path.is_empty()) else {
        return Nature::Unclear("the name of the program is not known");
    };
    let (directory, name) = match path.rsplit_once('/') {
        Some((directory, name)) => (Some(directory), name),
        None => (None, path.as_str()),
    };
    let is_system = matches!(directory, None | Some("/bin" | "/usr/bin"));
    let followed = match name {
        _ if directory.is_none() && CHANGERS.contains(&name) => Some(builtin(name, arguments)),
        // It can set a variable.
        "wait" if arguments.iter().any(Word::may_be_option) => Some(Nature::Unclear(CHANGES)),
        _ if directory.is_none() && FREE.contains(&name) => Some(Nature::Free),
        "test" | "[" if directory.is_none() => Some(test(name, arguments)),
        "printf" if directory.is_none() => Some(match arguments.first() {
            Some(first) if first.may_be_option() => Nature::Unclear(CHANGES),
            _ => Nature::Free,
        }),
        "read" if directory.is_none() => Some(read(arguments)),
        "cd" if directory.is_none() => Some(match arguments {
            [target] if !target.may_be_option() => target.text().map_or(Nature::Plain, Nature::Enters),
            _ => Nature::Plain,
        }),
        "command" if directory.is_none() => Some(match arguments.first().and_then(Word::text).as_deref() {
            Some("-v" | "-V") => Nature::Free,
            Some(option) if option.starts_with('-') => Nature::Wrapper(RUNS),
            _ => runs(Some(arguments)),
        }),
        "env" => Some(env(arguments)),
        "xargs" => Some(xargs(arguments)),
        _ if SHELLS.contains(&name) => Some(shell(arguments)),
        _ => wrapped(name, arguments),
    };
    match followed {
        Some(nature @ (Nature::Wide(_) | Nature::Wrapper(_) | Nature::Unclear(_))) => nature,
        Some(_) if !is_system => Nature::Wrapper("it has the name of a known program, and is another one"),
        Some(nature) => nature,
        None => other(name, arguments),
    }
}

/// Whether a program runs a file that its arguments name: shells, and interpreters of other languages.
pub(crate) fn is_interpreter(name: &str) -> bool {
    is_shell(name)
        || INTERPRETERS.contains(&name)
        || name == "python"
        || ["perl", "ruby", "php", "lua", "node", "python", "pypy"]
            .iter()
            .filter_map(|start| name.strip_prefix(start))
            .any(|version| !version.is_empty() && version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Whether a program is a shell.
pub(crate) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) || OTHER_SHELLS.contains(&name)
}

/// Programs that run the rest of their words. `None` for others.
fn wrapped(name: &str, arguments: &[Word]) -> Option<Nature> {
    let operand = |flags: &[&str], valued: &[&str]| operands(arguments, flags, valued);
    Some(runs(match name {
        "timeout" => operand(
            &["--foreground", "--preserve-status", "-v", "--verbose", "-f", "-p"],
            &["-k", "--kill-after", "-s", "--signal"],
        )
        .and_then(|rest| match rest.split_first() {
            Some((time, rest)) if time.is_known() && !time.may_be_option() => Some(rest),
            _ => None,
        }),
        "nice" => operand(&[], &["-n", "--adjustment"]),
        "ionice" => operand(&["-t"], &["-c", "-n", "--class", "--classdata"]),
        "nohup" => operand(&[], &[]),
        "setsid" => operand(&["-w", "--wait", "-f", "--fork", "-c", "--ctty"], &[]),
        "stdbuf" => operand(&[], &["-i", "-o", "-e", "--input", "--output", "--error"]),
        "time" => operand(&["-p", "-v", "--verbose", "--portability"], &["-f", "--format"]),
        "chronic" => operand(&[], &[]),
        _ => return None,
    }))
}

fn runs(rest: Option<&[Word]>) -> Nature {
    match rest {
        Some([]) => Nature::Free,
        Some(rest) => Nature::Runs(Vec::new(), rest.to_vec()),
        None => Nature::Wrapper(RUNS),
    }
}

/// The words behind the options. `None` where an option is not among these.
fn operands<'a>(arguments: &'a [Word], flags: &[&str], valued: &[&str]) -> Option<&'a [Word]> {
    let mut rest = arguments;
    while let Some((first, behind)) = rest.split_first() {
        if !first.may_be_option() {
            break;
        }
        let option = first.text().filter(|_| !first.splits)?;
        if option == "--" {
            return Some(behind);
        }
        let attached = |valued: &str| {
            let value = option.strip_prefix(valued);
            value.is_some_and(|value| {
                if valued.starts_with("--") { value.starts_with('=') } else { !value.is_empty() }
            })
        };
        if flags.contains(&option.as_str()) || valued.iter().any(|one| attached(one)) {
            rest = behind;
        } else if valued.contains(&option.as_str()) {
            let (value, behind) = behind.split_first()?;
            if value.splits {
                return None;
            }
            rest = behind;
        } else {
            return None;
        }
    }
    Some(rest)
}

fn builtin(name: &str, arguments: &[Word]) -> Nature {
    let texts: Option<Vec<String>> = arguments.iter().map(Word::text).collect();
    let harmless = match (name, &texts) {
        ("set", Some(texts)) => texts.iter().all(|text| {
            let is_flags = text
                .strip_prefix(['-', '+'])
                .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "euxo".contains(flag)));
            is_flags || matches!(text.as_str(), "pipefail" | "errexit" | "nounset" | "xtrace")
        }),
        ("export", Some(texts)) => texts
            .iter()
            .all(|text| text.split_once('=').is_some_and(|(name, _)| is_harmless_for_programs(name))),
        ("exec", Some(texts)) => texts.is_empty(),
        _ => false,
    };
    match name {
        _ if harmless => Nature::Free,
        "exec" if arguments.first().is_some_and(|first| !first.may_be_option()) => runs(Some(arguments)),
        "eval" | "source" | "." | "trap" => Nature::Unclear("it evaluates text as commands"),
        _ => Nature::Unclear(CHANGES),
    }
}

/// `test` can evaluate what stands in brackets (`-v a[…]`).
fn test(name: &str, arguments: &[Word]) -> Nature {
    let operands = match (name, arguments.split_last()) {
        ("[", Some((last, rest))) if last.is_reserved("]") => rest,
        ("[", _) => return Nature::Unclear("`[` has no end"),
        _ => arguments,
    };
    let text = |at: usize| operands.get(at).and_then(Word::text).unwrap_or_default();
    let evaluates = |word: &Word| word.text().is_some_and(|text| text == "-v" || text == "-R");
    let is_known = operands.iter().all(Word::is_known) && !operands.iter().any(evaluates);
    let one = operands.iter().all(|word| !word.splits);
    let unary = operands.len() == 2
        && ["-n", "-z", "-f", "-d", "-e", "-s", "-r", "-w", "-x", "-L", "-h"].contains(&text(0).as_str());
    let binary = operands.len() == 3
        && ["=", "==", "!=", "-eq", "-ne", "-lt", "-gt", "-le", "-ge"].contains(&text(1).as_str());
    if is_known || (one && (unary || binary)) { Nature::Free } else { Nature::Unclear(CHANGES) }
}

fn read(arguments: &[Word]) -> Nature {
    let harmless = |word: &Word| word.text().is_some_and(|text| text == "-r" || is_harmless_alone(&text));
    if arguments.iter().all(harmless) { Nature::Free } else { Nature::Unclear(CHANGES) }
}

fn env(arguments: &[Word]) -> Nature {
    let flags = ["-i", "-", "--ignore-environment", "-0", "--null"];
    let Some(mut rest) = operands(arguments, &flags, &["-u", "--unset"]) else {
        return Nature::Wrapper(RUNS);
    };
    let mut variables = Vec::new();
    while let Some((first, behind)) = rest.split_first() {
        let Some(sign) = first.units.iter().position(|unit| *unit == Unit::Char('=')) else { break };
        let (name, value) = first.units.split_at(sign);
        let name = Word { units: name.to_vec(), ..Word::default() };
        let Some(name) = name.text().filter(|_| !first.splits) else { return Nature::Wrapper(RUNS) };
        variables.push((name, Word { units: value.get(1..).unwrap_or_default().to_vec(), ..first.clone() }));
        rest = behind;
    }
    // Alone it prints the variables.
    if rest.is_empty() { Nature::Plain } else { Nature::Runs(variables, rest.to_vec()) }
}

fn xargs(arguments: &[Word]) -> Nature {
    let flags =
        ["-0", "--null", "-r", "--no-run-if-empty", "-t", "--verbose", "-x", "--exit", "-o", "--open-tty"];
    let valued = [
        "-n",
        "--max-args",
        "-P",
        "--max-procs",
        "-L",
        "--max-lines",
        "-s",
        "--max-chars",
        "-d",
        "--delimiter",
        "-a",
        "--arg-file",
        "-E",
        "-I",
        "--replace",
    ];
    let Some(rest) = operands(arguments, &flags, &valued) else { return Nature::Wrapper(RUNS) };
    if rest.is_empty() {
        return Nature::Free;
    }
    let options = arguments.get(..arguments.len() - rest.len()).unwrap_or_default();
    let mut replaced: Vec<String> = Vec::new();
    for (at, option) in options.iter().enumerate() {
        let Some(option) = option.text() else { return Nature::Wrapper(RUNS) };
        let value = match option.as_str() {
            "-I" | "--replace" => options.get(at + 1).and_then(Word::text),
            _ => option.strip_prefix("-I").or(option.strip_prefix("--replace=")).map(str::to_owned),
        };
        replaced.extend(value);
    }
    let mut words: Vec<Word> = rest
        .iter()
        .map(|word| match word.text() {
            Some(text) if replaced.iter().any(|sign| !sign.is_empty() && text.contains(sign)) => {
                Word::unknown()
            }
            _ => word.clone(),
        })
        .collect();
    if replaced.is_empty() {
        words.push(Word::unknown());
    }
    Nature::Runs(Vec::new(), words)
}

fn shell(arguments: &[Word]) -> Nature {
    let mut rest = arguments;
    let mut is_code = false;
    while let Some((first, behind)) = rest.split_first() {
        if !first.may_be_option() {
            break;
        }
        let Some(option) = first.text().filter(|_| !first.splits) else { return Nature::Unclear(INLINE) };
        let known = option
            .strip_prefix('-')
            .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "ceuxlo".contains(flag)));
        if !known {
            return if matches!(option.as_str(), "--version" | "-n") {
                Nature::Plain
            } else {
                Nature::Unclear(INLINE)
            };
        }
        is_code |= option.contains('c');
        rest = behind;
        // Each `o` takes the name of an option.
        if option.contains('o') {
            let Some((value, behind)) = rest.split_first() else { return Nature::Unclear(INLINE) };
            if !value.text().is_some_and(|text| matches!(text.as_str(), "pipefail" | "errexit" | "nounset")) {
                return Nature::Unclear(INLINE);
            }
            rest = behind;
        }
    }
    match rest.first() {
        Some(code) if is_code => match code.text().filter(|_| !code.splits) {
            Some(code) => Nature::Code(code),
            None => Nature::Unclear("the code that a shell runs is not known"),
        },
        Some(script) if script.is_known() => Nature::Plain,
        _ => Nature::Unclear(INLINE),
    }
}

/// Programs whose words are not followed.
fn other(name: &str, arguments: &[Word]) -> Nature {
    if name == "find" {
        return find(arguments);
    }
    if name == "fd" || name == "fdfind" {
        return with_options(arguments, &["--exec", "--exec-batch"], "xX");
    }
    if WRAPPERS.contains(&name) {
        return Nature::Wrapper(RUNS);
    }
    if OTHER_SHELLS.contains(&name) {
        return Nature::Wrapper(INLINE);
    }
    if name == "git" {
        return git(arguments);
    }
    if name == "sed" || name == "gsed" {
        return sed(arguments);
    }
    if name == "awk" {
        return awk(arguments);
    }
    let versions = |rest: &str| rest.chars().all(|char| char.is_ascii_digit() || char == '.');
    if ["python", "pypy"].iter().any(|start| name.strip_prefix(start).is_some_and(versions)) {
        return python(arguments);
    }
    if name == "make" || name == "gmake" {
        return with_options(arguments, &["--eval", "--file", "--makefile", "--directory"], "EfC");
    }
    if INTERPRETERS.contains(&name)
        || ["perl", "ruby", "php", "lua", "node"]
            .iter()
            .any(|start| name.strip_prefix(start).is_some_and(versions))
    {
        return interpreter(name, arguments);
    }
    match OPTIONS.iter().find(|(program, ..)| *program == name) {
        Some((_, long, short)) => with_options(arguments, long, short),
        None => Nature::Plain,
    }
}

/// Whether an argument is, or abbreviates, one of these options.
fn is_option(argument: &str, long: &[&str]) -> bool {
    let name = argument.split('=').next().unwrap_or(argument);
    long.iter().any(|option| {
        if option.starts_with("--") {
            name.len() >= 3 && name.starts_with("--") && option.starts_with(name)
        } else {
            name == *option || name.strip_prefix('-') == Some(option)
        }
    })
}

fn with_options(arguments: &[Word], long: &[&str], short: &str) -> Nature {
    for argument in arguments {
        let Some(text) = argument.text() else {
            if argument.may_be_option() {
                return Nature::Wide(MAYBE);
            }
            continue;
        };
        if text == "--" {
            return Nature::Plain;
        }
        let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or_default();
        if is_option(&text, long) || letters.contains(|letter| short.contains(letter)) {
            return Nature::Wide(OPTION);
        }
    }
    Nature::Plain
}

fn find(arguments: &[Word]) -> Nature {
    for argument in arguments {
        let text = match argument.text() {
            Some(text) if !argument.splits => text,
            _ if argument.may_be_option() => return Nature::Wrapper(MAYBE),
            _ => continue,
        };
        if ["-exec", "-execdir", "-ok", "-okdir"].contains(&text.as_str()) {
            return Nature::Wrapper(RUNS);
        }
        if ["-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"].contains(&text.as_str()) {
            return Nature::Wide("it removes or writes files");
        }
    }
    Nature::Plain
}

fn git(arguments: &[Word]) -> Nature {
    let mut rest = arguments;
    while let Some((first, behind)) = rest.split_first() {
        if !first.may_be_option() {
            break;
        }
        match first.text().as_deref() {
            Some("--no-pager" | "-P" | "--no-optional-locks" | "--literal-pathspecs") => rest = behind,
            Some("--version" | "--help" | "-v" | "-h") => return Nature::Plain,
            _ => return Nature::Wide("an option before the command of git configures it or leads elsewhere"),
        }
    }
    let Some((command, arguments)) = rest.split_first() else { return Nature::Plain };
    let Some(command) = command.text().filter(|_| !command.splits) else { return Nature::Wide(MAYBE) };
    if GIT_WIDE.contains(&command.as_str()) {
        let texts: Vec<String> = arguments.iter().filter_map(Word::text).collect();
        let reads = command == "config"
            && texts.first().is_some_and(|first| {
                ["--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list"]
                    .contains(&first.as_str())
            });
        return if reads {
            Nature::Plain
        } else {
            Nature::Wide("a command of git that runs or configures programs")
        };
    }
    let short = match command.as_str() {
        "clone" => "cu",
        "rebase" => "x",
        "grep" => "O",
        _ => "",
    };
    for argument in arguments {
        let Some(text) = argument.text().filter(|_| !argument.splits) else {
            if argument.may_be_option() && GIT_RUNNERS.contains(&command.as_str()) {
                return Nature::Wide(MAYBE);
            }
            continue;
        };
        if text == "--" {
            break;
        }
        let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')).unwrap_or_default();
        if is_option(&text, GIT_OPTIONS)
            || letters.contains(|letter| short.contains(letter))
            || text.contains("::")
        {
            return Nature::Wide(OPTION);
        }
    }
    Nature::Plain
}

/// A command of git without the options before its name, where there are any.
pub(crate) fn without_options(words: &[Word]) -> Option<Vec<Word>> {
    let (program, arguments) = words.split_first()?;
    let name = program.text()?;
    if name != "git" && !name.ends_with("/git") {
        return None;
    }
    let mut rest = arguments;
    while let Some((first, behind)) = rest.split_first().filter(|(first, _)| first.may_be_option()) {
        let takes_more =
            ["-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"];
        let takes_more = first.text().is_some_and(|option| takes_more.contains(&option.as_str()));
        rest = behind.get(usize::from(takes_more)..).unwrap_or_default();
    }
    let bare = || std::iter::once(Word::of("git")).chain(rest.iter().cloned()).collect();
    (rest.len() != arguments.len()).then(bare)
}

/// Scripts of `sed` that print lines or replace text do nothing else; others can write files and run programs.
fn sed(arguments: &[Word]) -> Nature {
    let mut script = None;
    for argument in arguments {
        let Some(text) = argument.text().filter(|_| !argument.splits) else {
            if script.is_none() || argument.may_be_option() {
                return Nature::Wide(INLINE);
            }
            continue;
        };
        match text.as_str() {
            "-n" | "-E" | "-r" | "-i" | "-u" | "-z" | "-s" | "-ne" | "-nE" | "-Ei" | "-i.bak" => {}
            option if option.starts_with('-') => return Nature::Wide(INLINE),
            _ if script.is_none() => script = Some(text),
            _ => {}
        }
    }
    let script = script.unwrap_or_default();
    let address = |text: &str| {
        !text.is_empty() && text.chars().all(|char| char.is_ascii_digit() || ",$".contains(char))
    };
    let prints = script.strip_suffix(['p', 'd', 'q']).is_some_and(address);
    let replaces = script.strip_prefix('s').is_some_and(|rest| {
        let mut chars = rest.chars();
        let Some(sign) = chars.next().filter(|sign| sign.is_ascii_punctuation() && *sign != '\\') else {
            return false;
        };
        let fields: Vec<&str> = chars.as_str().split(sign).collect();
        let [from, to, flags] = fields.as_slice() else { return false };
        !from.contains(['\n', '\\'])
            && !to.contains(['\n', '\\'])
            && flags.chars().all(|flag| "gIip0123456789".contains(flag))
    });
    if prints || replaces { Nature::Plain } else { Nature::Wide(INLINE) }
}

/// Programs of `awk` that only print fields.
fn awk(arguments: &[Word]) -> Nature {
    let Some(rest) = operands(arguments, &[], &["-F"]) else { return Nature::Wide(INLINE) };
    let program = rest.first().and_then(Word::text).unwrap_or_default();
    let fields = program.trim().strip_prefix("{").and_then(|rest| rest.trim().strip_suffix('}'));
    let fields = fields.and_then(|rest| rest.trim().strip_prefix("print"));
    let is_plain = fields
        .is_some_and(|fields| fields.chars().all(|char| char.is_ascii_digit() || " $,NFR".contains(char)));
    let known = rest.iter().all(|word| word.is_known() && !word.units.contains(&Unit::Char('=')));
    if is_plain && known { Nature::Plain } else { Nature::Wide(INLINE) }
}

fn python(arguments: &[Word]) -> Nature {
    let modules = ["timeit", "code", "pdb", "trace", "profile", "cProfile", "runpy", "IPython", "asyncio"];
    for (at, argument) in arguments.iter().enumerate() {
        let Some(text) = argument.text().filter(|_| !argument.splits) else { return Nature::Wide(INLINE) };
        match text.as_str() {
            "-u" | "-B" | "-O" | "-OO" | "-s" | "-E" | "-I" => {}
            "--version" | "-V" | "--help" | "-h" => return Nature::Plain,
            "-m" => {
                let module = arguments.get(at + 1).and_then(Word::text);
                let is_plain = module.is_some_and(|module| {
                    !modules.contains(&module.as_str()) && !module.is_empty() && !module.starts_with('-')
                });
                return if is_plain { Nature::Plain } else { Nature::Wide(INLINE) };
            }
            option if option.starts_with('-') => return Nature::Wide(INLINE),
            _ => return Nature::Plain,
        }
    }
    Nature::Wide(INLINE)
}

fn interpreter(name: &str, arguments: &[Word]) -> Nature {
    let Some(first) = arguments.first().and_then(Word::text) else { return Nature::Wide(INLINE) };
    let is_editor = ["emacs", "vim", "nvim", "vi", "ex", "ed", "m4", "bc", "sqlite3", "gawk", "mawk", "nawk"];
    match first.as_str() {
        "--version" | "--help" => Nature::Plain,
        "--test" if name.starts_with("node") => {
            with_options(arguments, &["--require", "--import", "--eval", "--print", "--loader"], "rep")
        }
        "eval" | "repl" | "exec" | "x" if matches!(name, "deno" | "bun") => Nature::Wide(INLINE),
        _ if is_editor.contains(&name) || first.starts_with(['-', '+']) => Nature::Wide(INLINE),
        _ => Nature::Plain,
    }
}

/// Whether a variable before a command changes nothing of what it does but how it prints.
pub(crate) fn is_harmless_for_programs(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "RUST_BACKTRACE",
        "RUST_LOG",
        "CI",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "CARGO_TERM_COLOR",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "COLUMNS",
        "LINES",
        "NODE_ENV",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
    ];
    NAMES.contains(&name) || name.starts_with("LC_")
}

/// Whether setting a variable of the shell changes nothing but what later words say.
pub(crate) fn is_harmless_alone(name: &str) -> bool {
    let is_short = (1..=24).contains(&name.len()) && name.starts_with(|char: char| char.is_ascii_lowercase());
    let plain = name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit());
    is_harmless_for_programs(name) || (is_short && plain && name != "histchars")
}
