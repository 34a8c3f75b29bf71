//! Characters to words and operators, and those to parts. It keeps no tree: each part counts, wherever it stands.

use super::{COMMAND_LIMIT, DEPTH_LIMIT, FileUse, PARTS_LIMIT, Part, SimpleCommand, Unit, Unreadable, Word};

/// Reads one text. Substitutions are read by readers of their own.
#[derive(Debug)]
struct Reader {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    /// Parts of the substitutions in the words that were read.
    inner: Vec<Part>,
    /// Here-documents whose text begins behind the line: the delimiter, whether it was quoted, whether tabs are cut.
    documents: Vec<(String, bool, bool)>,
    /// What was looked at and not read yet.
    looked: Option<PeekedToken>,
}

/// A token, where it begins and ends, and the parts in it. Kept, or nested substitutions would be read again and again.
#[derive(Debug)]
struct PeekedToken {
    from: usize,
    to: usize,
    token: Token,
    inner: Vec<Part>,
}

/// What the reader comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// `;`, `&&`, `|`, `(`, `>`, …
    Operator(&'static str),
    Newline,
    End,
}

/// The longest first.
const OPERATORS: [&str; 22] = [
    "&>>", "<<<", "<<-", ";;&", "&&", "||", "|&", ";;", ";&", "&>", ">>", ">&", ">|", "<&", "<>", "<<", ";",
    "&", "|", "(", ")", ">",
];

/// Characters that a person does not see, or takes for others.
pub(crate) fn is_misleading(char: char) -> bool {
    (char.is_control() && !matches!(char, '\n' | '\t'))
        || (!char.is_ascii() && char.is_whitespace())
        || matches!(char, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn is_name_start(char: char) -> bool {
    char.is_ascii_alphabetic() || char == '_'
}

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

impl Reader {
    fn new(text: &str, depth: usize) -> Result<Self, Unreadable> {
        if text.len() > COMMAND_LIMIT {
            return Err(Unreadable("the command is longer than 32 KiB"));
        }
        if depth > DEPTH_LIMIT {
            return Err(Unreadable("it is nested too deeply"));
        }
        Ok(Self {
            chars: text.chars().collect(),
            at: 0,
            depth,
            inner: Vec::new(),
            documents: Vec::new(),
            looked: None,
        })
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn ahead(&self, by: usize) -> Option<char> {
        self.chars.get(self.at + by).copied()
    }

    fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += 1;
        Some(char)
    }

    /// As it was written, from there to here.
    fn source(&self, from: usize) -> String {
        self.chars.get(from..self.at).unwrap_or_default().iter().collect::<String>().trim().to_owned()
    }

    fn skip_blanks(&mut self) {
        loop {
            match (self.peek(), self.ahead(1)) {
                (Some(' ' | '\t'), _) => self.at += 1,
                (Some('\\'), Some('\n')) => self.at += 2,
                (Some('#'), _) => {
                    while self.peek().is_some_and(|char| char != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// The next token, which stays to be read.
    fn look(&mut self) -> Result<Token, Unreadable> {
        if let Some(looked) = self.looked.as_ref().filter(|looked| looked.from == self.at) {
            return Ok(looked.token.clone());
        }
        let (from, before) = (self.at, std::mem::take(&mut self.inner));
        let token = self.read_token();
        let inner = std::mem::replace(&mut self.inner, before);
        let to = std::mem::replace(&mut self.at, from);
        self.looked = Some(PeekedToken { from, to, token: token.clone()?, inner });
        token
    }

    fn token(&mut self) -> Result<Token, Unreadable> {
        match self.looked.take() {
            Some(looked) if looked.from == self.at => {
                self.at = looked.to;
                self.inner.extend(looked.inner);
                Ok(looked.token)
            }
            _ => self.read_token(),
        }
    }

    fn read_token(&mut self) -> Result<Token, Unreadable> {
        self.skip_blanks();
        let Some(char) = self.peek() else { return Ok(Token::End) };
        if char == '\n' {
            self.at += 1;
            return Ok(Token::Newline);
        }
        if !matches!((char, self.ahead(1)), ('<' | '>', Some('(')))
            && let Some(operator) = self.operator()
        {
            return Ok(Token::Operator(operator));
        }
        let from = self.at;
        let word = self.word()?;
        let has_lines = self.chars.get(from..self.at).unwrap_or_default().contains(&'\n');
        if has_lines && !self.documents.is_empty() {
            return Err(Unreadable("a line ends within a word before a here-document"));
        }
        Ok(Token::Word(word))
    }

    fn operator(&mut self) -> Option<&'static str> {
        let is_here =
            |operator: &&&str| operator.chars().enumerate().all(|(by, char)| self.ahead(by) == Some(char));
        let found = OPERATORS.iter().chain([&"<"]).find(is_here).copied()?;
        self.at += found.len();
        Some(found)
    }

    /// Whether a redirection follows at once, as behind a number.
    fn redirects_at_once(&self) -> bool {
        matches!(self.peek(), Some('<' | '>')) && self.ahead(1) != Some('(')
    }

    fn word(&mut self) -> Result<Word, Unreadable> {
        let (mut word, start) = (Word::default(), self.at);
        let mut braces = false;
        while let Some(char) = self.peek() {
            match char {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | ')' => break,
                '<' | '>' if self.ahead(1) == Some('(') => {
                    self.at += 2;
                    self.nested()?;
                    word.units.push(Unit::Unknown);
                }
                '<' | '>' => break,
                '(' => return Err(Unreadable("it has a parenthesis within a word")),
                '\\' => match (self.ahead(1), self.ahead(2)) {
                    (Some('\n'), _) => self.at += 2,
                    (Some(escaped), _) => {
                        word.quote();
                        word.units.push(Unit::Char(escaped));
                        self.at += 2;
                    }
                    (None, _) => return Err(Unreadable("it ends in a backslash")),
                },
                '\'' => {
                    self.at += 1;
                    word.quote();
                    loop {
                        match self.next().ok_or(Unreadable("a quote is not closed"))? {
                            '\'' => break,
                            char => word.units.push(Unit::Char(char)),
                        }
                    }
                }
                '"' => {
                    self.at += 1;
                    self.double(&mut word)?;
                }
                '$' => self.dollar(&mut word, false)?,
                '`' => self.backquotes(&mut word, false)?,
                '*' | '?' | '[' => {
                    // `[` alone is a program, and `[[` a word of the language.
                    let brackets = self.chars.get(start..).unwrap_or_default().iter();
                    let brackets = brackets.take_while(|char| **char == '[').count();
                    let ends = matches!(self.chars.get(start + brackets), None | Some(' ' | '\t' | '\n'));
                    let is_literal = matches!(brackets, 1 | 2) && ends;
                    word.units.push(if is_literal { Unit::Char('[') } else { Unit::Unknown });
                    word.splits |= !is_literal;
                    word.is_pattern |= !is_literal;
                    self.at += 1;
                }
                '~' if matches!(self.chars.get(self.at.wrapping_sub(1)), Some('=' | ':'))
                    && self.at > start =>
                {
                    word.units.push(Unit::Unknown);
                    self.at += 1;
                }
                '~' if self.at == start => {
                    word.units.push(Unit::Home);
                    self.at += 1;
                }
                _ => {
                    braces |= char == '{';
                    word.units.push(Unit::Char(char));
                    self.at += 1;
                }
            }
        }
        let has = |char| word.units.contains(&Unit::Char(char));
        let dots = word.units.windows(2).any(|two| two == [Unit::Char('.'), Unit::Char('.')]);
        // Braces may become several words, also the name of a program.
        if braces && (has(',') || dots) {
            word = Word { quoted: word.quoted, is_pattern: true, ..Word::unknown() };
        }
        Ok(word)
    }

    /// Behind a double quote, to the next one.
    fn double(&mut self, word: &mut Word) -> Result<(), Unreadable> {
        word.quote();
        loop {
            match self.peek().ok_or(Unreadable("a quote is not closed"))? {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '\\' => {
                    let escaped = self.ahead(1).ok_or(Unreadable("a quote is not closed"))?;
                    match escaped {
                        '\n' => {}
                        '$' | '`' | '"' | '\\' => word.units.push(Unit::Char(escaped)),
                        char => word.units.extend([Unit::Char('\\'), Unit::Char(char)]),
                    }
                    self.at += 2;
                }
                '$' => self.dollar(word, true)?,
                '`' => self.backquotes(word, true)?,
                char => {
                    word.units.push(Unit::Char(char));
                    self.at += 1;
                }
            }
        }
    }

    fn dollar(&mut self, word: &mut Word, within_quotes: bool) -> Result<(), Unreadable> {
        self.at += 1;
        // All arguments are several words in quotes, too.
        word.splits |= !within_quotes || self.peek() == Some('@');
        match self.peek() {
            Some('(') if self.ahead(1) == Some('(') => {
                self.at += 2;
                self.arithmetic()?;
            }
            Some('(') => {
                self.at += 1;
                self.nested()?;
            }
            Some('{') => {
                self.at += 1;
                self.parameter()?;
            }
            Some('[') => return Err(Unreadable("it has `$[`")),
            Some('\'') if !within_quotes => {
                self.at += 1;
                loop {
                    match self.next().ok_or(Unreadable("a quote is not closed"))? {
                        '\'' => break,
                        '\\' => drop(self.next()),
                        _ => {}
                    }
                }
                word.quote();
            }
            Some('"') if !within_quotes => {
                self.at += 1;
                self.double(&mut Word::default())?;
                word.quote();
            }
            Some(char) if is_name_start(char) => {
                while self.peek().is_some_and(is_name) {
                    self.at += 1;
                }
            }
            Some('0'..='9' | '@' | '*' | '#' | '?' | '$' | '!' | '-') => self.at += 1,
            Some('\\') if self.ahead(1) == Some('\n') => {
                return Err(Unreadable("a line ends behind `$`"));
            }
            Some(_) | None => {
                word.units.push(Unit::Char('$'));
                return Ok(());
            }
        }
        word.units.push(Unit::Unknown);
        Ok(())
    }

    /// `${NAME}` and simple forms of it. Others can run commands: `${a[…]}`, `${a@P}`, `${a:…}`, `${!a}`.
    fn parameter(&mut self) -> Result<(), Unreadable> {
        let from = self.at;
        while self.next().ok_or(Unreadable("a brace is not closed"))? != '}' {}
        let content: String =
            self.chars.get(from..self.at.saturating_sub(1)).unwrap_or_default().iter().collect();
        let name = content.strip_prefix('#').unwrap_or(&content);
        let rest = name.trim_start_matches(is_name);
        let operator = [":-", "-", ":+", "+", "%%", "%", "##", "#"]
            .into_iter()
            .find_map(|operator| rest.strip_prefix(operator));
        let is_plain =
            |text: &str| text.chars().all(|char| char.is_ascii_alphanumeric() || "_./*-".contains(char));
        let known = name.len() != rest.len() && (rest.is_empty() || operator.is_some_and(is_plain));
        if known { Ok(()) } else { Err(Unreadable("an expansion of a variable can run commands")) }
    }

    /// `$((…))` of numbers. A name in it would be evaluated, and can run commands.
    fn arithmetic(&mut self) -> Result<(), Unreadable> {
        const WHY: Unreadable = Unreadable("arithmetic with more than numbers can run commands");
        let mut open = 2_usize;
        while open > 0 {
            match self.next().ok_or(WHY)? {
                '(' => open += 1,
                ')' => open -= 1,
                char if char.is_ascii_digit() || " +-*/%<>=!&|^~?:".contains(char) => {}
                _ => return Err(WHY),
            }
            // Two commands, one in the other, are closed like that as well.
            if open == 1 && self.peek() != Some(')') && self.chars.get(self.at - 1) == Some(&')') {
                return Err(WHY);
            }
        }
        Ok(())
    }

    /// Behind `$(`, `<(` or `>(`: commands up to the closing parenthesis.
    fn nested(&mut self) -> Result<(), Unreadable> {
        let depth = self.depth + 1;
        if depth > DEPTH_LIMIT {
            return Err(Unreadable("it is nested too deeply"));
        }
        if !self.documents.is_empty() {
            return Err(Unreadable("a substitution follows a here-document"));
        }
        let chars = std::mem::take(&mut self.chars);
        let (inner, documents) = (Vec::new(), Vec::new());
        let mut reader = Reader { chars, at: self.at, depth, inner, documents, looked: None };
        let mut parts = Vec::new();
        let done = list(&mut reader, Ending::Parenthesis, &mut parts);
        self.chars = reader.chars;
        self.at = reader.at;
        self.inner.append(&mut parts);
        done
    }

    fn backquotes(&mut self, word: &mut Word, within_quotes: bool) -> Result<(), Unreadable> {
        self.at += 1;
        let from = self.at;
        while self.next().ok_or(Unreadable("a backquote is not closed"))? != '`' {}
        let content: String =
            self.chars.get(from..self.at.saturating_sub(1)).unwrap_or_default().iter().collect();
        let is_tricky = |char| char == '\\' || char == '#' || (within_quotes && matches!(char, '"' | '\''));
        if content.contains(is_tricky) {
            return Err(Unreadable("it has quotes, comments or backslashes within backquotes"));
        }
        let (parts, unreadable) = parse(&content, self.depth + 1);
        self.inner.extend(parts);
        if let Some(unreadable) = unreadable {
            return Err(unreadable);
        }
        word.units.push(Unit::Unknown);
        word.splits |= !within_quotes;
        Ok(())
    }

    /// The texts of here-documents, which begin with the line that begins here.
    fn read_documents(&mut self) -> Result<(), Unreadable> {
        for (delimiter, quoted, tabs) in std::mem::take(&mut self.documents) {
            loop {
                if self.at >= self.chars.len() {
                    return Err(Unreadable("a here-document has no end"));
                }
                let rest = self.chars.get(self.at..).unwrap_or_default();
                let length = rest.iter().position(|char| *char == '\n').unwrap_or(rest.len());
                let line: String = rest.get(..length).unwrap_or_default().iter().collect();
                self.at = (self.at + length + 1).min(self.chars.len());
                let shown = if tabs { line.trim_start_matches('\t') } else { line.as_str() };
                if shown == delimiter {
                    break;
                }
                let expands = ["\\", "`", "$(", "${", "$["].iter().any(|sign| line.contains(sign));
                if !quoted && expands {
                    return Err(Unreadable("a here-document is expanded; quote its delimiter"));
                }
            }
        }
        Ok(())
    }
}

/// Where a list of commands ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Text,
    Parenthesis,
    /// One of these words, where a command could begin.
    Words(&'static [&'static str]),
}

/// Words that begin what is not followed.
const UNREAD: [&str; 7] = ["case", "select", "function", "coproc", "[[", "((", "]]"];
/// Words that cannot begin a command.
const MISPLACED: [&str; 9] = ["then", "elif", "else", "fi", "do", "done", "esac", "in", "}"];

/// The parts of a command line, and why no more of it can be read, if so. `depth`: how many commands it stands in.
pub(crate) fn parse(text: &str, depth: usize) -> (Vec<Part>, Option<Unreadable>) {
    let mut parts = Vec::new();
    let mut reader = match Reader::new(text, depth) {
        Ok(reader) => reader,
        Err(unreadable) => return (parts, Some(unreadable)),
    };
    let mut unreadable = list(&mut reader, Ending::Text, &mut parts).err();
    if text.chars().any(is_misleading) {
        unreadable = Some(Unreadable("it has characters that cannot be seen"));
    }
    // What was read of the part that could not be.
    parts.append(&mut reader.inner);
    (parts, unreadable)
}

/// Commands up to the end, which is read as well.
fn list(reader: &mut Reader, ending: Ending, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    let mut may_end = true;
    loop {
        if parts.len() > PARTS_LIMIT {
            return Err(Unreadable("it has more than 256 parts"));
        }
        match reader.look()? {
            Token::End => {
                if ending == Ending::Text && may_end && reader.documents.is_empty() {
                    reader.token()?;
                    return Ok(());
                }
                return Err(Unreadable("it ends before it is complete"));
            }
            Token::Newline => {
                reader.token()?;
                reader.read_documents()?;
            }
            Token::Operator(")") => {
                reader.token()?;
                if ending == Ending::Parenthesis && may_end && reader.documents.is_empty() {
                    return Ok(());
                }
                return Err(Unreadable("a parenthesis is not expected"));
            }
            Token::Operator("(") => {
                command(reader, parts)?;
                may_end = separator(reader)?;
            }
            Token::Operator(operator) if is_redirection(operator) => {
                command(reader, parts)?;
                may_end = separator(reader)?;
            }
            Token::Operator(_) => return Err(Unreadable("an operator is not expected")),
            Token::Word(word) => {
                if let Ending::Words(words) = ending
                    && may_end
                    && words.iter().any(|end| word.is_reserved(end))
                {
                    // Left to be read: its reader looks which one it is.
                    return Ok(());
                }
                command(reader, parts)?;
                may_end = separator(reader)?;
            }
        }
    }
}

/// What follows a command. Whether a list can end behind it.
fn separator(reader: &mut Reader) -> Result<bool, Unreadable> {
    match reader.look()? {
        Token::Operator(";" | "&") => {
            reader.token()?;
            Ok(true)
        }
        Token::Operator("&&" | "||" | "|" | "|&") => {
            reader.token()?;
            Ok(false)
        }
        Token::Newline | Token::End | Token::Operator(")") => Ok(true),
        Token::Operator(_) => Err(Unreadable("an operator is not expected")),
        Token::Word(_) => Err(Unreadable("a word is not expected")),
    }
}

fn is_redirection(operator: &str) -> bool {
    matches!(operator, ">" | ">>" | ">|" | ">&" | "&>" | "&>>" | "<" | "<>" | "<&" | "<<" | "<<-" | "<<<")
}

fn command(reader: &mut Reader, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    if let Token::Operator("(") = reader.look()? {
        reader.token()?;
        if reader.peek() == Some('(') {
            return Err(Unreadable("it has `((`"));
        }
        deeper(reader, |reader| list(reader, Ending::Parenthesis, parts))?;
        return redirections(reader, parts);
    }
    let Token::Word(first) = reader.look()? else { return simple(reader, parts) };
    let is = |words: &[&str]| words.iter().any(|word| first.is_reserved(word));
    if is(&UNREAD) {
        return Err(Unreadable("it has a construct that is not followed (`case`, `[[`, a function, …)"));
    }
    if is(&MISPLACED) {
        return Err(Unreadable("a word of the shell's language is not expected"));
    }
    if is(&["!"]) {
        reader.token()?;
        return command(reader, parts);
    }
    if is(&["time"]) {
        reader.token()?;
        if let Token::Word(option) = reader.look()?
            && option.is_reserved("-p")
        {
            reader.token()?;
        }
        return command(reader, parts);
    }
    if is(&["{"]) {
        reader.token()?;
        deeper(reader, |reader| {
            list(reader, Ending::Words(&["}"]), parts)?;
            keyword(reader, "}")
        })?;
        return redirections(reader, parts);
    }
    if is(&["while", "until"]) {
        reader.token()?;
        deeper(reader, |reader| {
            list(reader, Ending::Words(&["do"]), parts)?;
            body(reader, parts)
        })?;
        return redirections(reader, parts);
    }
    if is(&["if"]) {
        reader.token()?;
        deeper(reader, |reader| branches(reader, parts))?;
        return redirections(reader, parts);
    }
    if is(&["for"]) {
        reader.token()?;
        deeper(reader, |reader| {
            let Token::Word(name) = reader.token()? else { return Err(Unreadable("`for` has no name")) };
            let name =
                name.text().filter(|_| name.quoted.is_none()).ok_or(Unreadable("`for` has no name"))?;
            parts.push(Part::Variable(name));
            keyword(reader, "in")?;
            while let Token::Word(_) = reader.look()? {
                reader.token()?;
                parts.append(&mut reader.inner);
            }
            match reader.token()? {
                Token::Operator(";") => {}
                Token::Newline => reader.read_documents()?,
                _ => return Err(Unreadable("`for` is not complete")),
            }
            while reader.look()? == Token::Newline {
                reader.token()?;
            }
            body(reader, parts)
        })?;
        return redirections(reader, parts);
    }
    simple(reader, parts)
}

fn deeper(
    reader: &mut Reader,
    work: impl FnOnce(&mut Reader) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    reader.depth += 1;
    if reader.depth > DEPTH_LIMIT {
        return Err(Unreadable("it is nested too deeply"));
    }
    let done = work(reader);
    reader.depth -= 1;
    done
}

fn keyword(reader: &mut Reader, word: &str) -> Result<(), Unreadable> {
    match reader.token()? {
        Token::Word(found) if found.is_reserved(word) => Ok(()),
        _ => Err(Unreadable("a construct of the shell's language is not complete")),
    }
}

fn body(reader: &mut Reader, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    keyword(reader, "do")?;
    list(reader, Ending::Words(&["done"]), parts)?;
    keyword(reader, "done")
}

fn branches(reader: &mut Reader, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    list(reader, Ending::Words(&["then"]), parts)?;
    keyword(reader, "then")?;
    loop {
        list(reader, Ending::Words(&["elif", "else", "fi"]), parts)?;
        let Token::Word(next) = reader.token()? else {
            return Err(Unreadable("`if` is not complete"));
        };
        if next.is_reserved("fi") {
            return Ok(());
        }
        if next.is_reserved("else") {
            list(reader, Ending::Words(&["fi"]), parts)?;
            return keyword(reader, "fi");
        }
        list(reader, Ending::Words(&["then"]), parts)?;
        keyword(reader, "then")?;
    }
}

/// Behind a compound command.
fn redirections(reader: &mut Reader, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    loop {
        match reader.look()? {
            Token::Operator(operator) if is_redirection(operator) => {
                reader.token()?;
                redirection(reader, operator, parts)?;
            }
            // A number that belongs to a redirection, or a word that is not expected.
            Token::Word(word) if is_number(&word) => {
                reader.token()?;
                if !reader.redirects_at_once() {
                    return Err(Unreadable("a word is not expected"));
                }
            }
            _ => return Ok(()),
        }
    }
}

fn is_number(word: &Word) -> bool {
    let text = word.text().unwrap_or_default();
    word.quoted.is_none() && !text.is_empty() && text.chars().all(|char| char.is_ascii_digit())
}

/// Behind its operator.
fn redirection(reader: &mut Reader, operator: &str, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    let from = reader.at;
    let Token::Word(target) = reader.token()? else {
        return Err(Unreadable("a redirection leads nowhere"));
    };
    parts.append(&mut reader.inner);
    let text = target.text();
    let usage = match operator {
        "<<" | "<<-" => {
            let delimiter = text.filter(|text| !text.is_empty() && !text.contains('\n'));
            let delimiter = delimiter.ok_or(Unreadable("the end of a here-document is not known"))?;
            // Versions of bash disagree where its text is.
            if reader.depth > 0 {
                return Err(Unreadable("it has a here-document within another command"));
            }
            reader.documents.push((delimiter, target.quoted.is_some(), operator == "<<-"));
            return Ok(());
        }
        "<<<" => return Ok(()),
        "<&" | ">&" if is_number(&target) || text.as_deref() == Some("-") => return Ok(()),
        "<&" => return Err(Unreadable("a redirection leads to a number that is not known")),
        "<" => FileUse::Read,
        _ => FileUse::Write,
    };
    let source = format!("{operator} {}", reader.source(from));
    parts.push(Part::Redirection { usage, path: target, source });
    Ok(())
}

fn simple(reader: &mut Reader, parts: &mut Vec<Part>) -> Result<(), Unreadable> {
    let from = reader.at;
    let mut command = SimpleCommand::default();
    let mut redirected = Vec::new();
    loop {
        match reader.look()? {
            Token::Operator(operator) if is_redirection(operator) => {
                reader.token()?;
                redirection(reader, operator, &mut redirected)?;
            }
            Token::Operator("(") => return Err(Unreadable("it defines a function")),
            Token::Word(word) => {
                reader.token()?;
                let at_once = reader.redirects_at_once();
                if at_once && is_number(&word) {
                    continue;
                }
                if at_once && word.units.first() == Some(&Unit::Char('{')) {
                    return Err(Unreadable("a redirection sets a variable"));
                }
                match assignment(&word).filter(|_| command.words.is_empty()) {
                    Some(assigned) => command.variables.push(assigned?),
                    None => command.words.push(word),
                }
            }
            Token::Newline | Token::Operator(_) | Token::End => break,
        }
    }
    command.source = reader.source(from);
    parts.append(&mut reader.inner);
    if !command.words.is_empty() || !command.variables.is_empty() {
        parts.push(Part::Command(command));
    }
    parts.append(&mut redirected);
    Ok(())
}

/// The variable that a word sets, if it does.
fn assignment(word: &Word) -> Option<Result<(String, Word), Unreadable>> {
    let sign = word.units.iter().position(|unit| *unit == Unit::Char('='))?;
    if word.quoted.is_some_and(|quote| quote <= sign) {
        return None;
    }
    let (name, value) = word.units.split_at(sign);
    let char = |unit: &Unit| if let Unit::Char(char) = unit { Some(*char) } else { None };
    // `a[…]=` evaluates what stands in the brackets.
    if name.first().and_then(char).is_some_and(|char| char.is_ascii_alphabetic() || char == '_')
        && name.contains(&Unit::Unknown)
    {
        return Some(Err(Unreadable("an element of an array is set")));
    }
    let name: String = name.iter().map(char).collect::<Option<_>>()?;
    let name = name.strip_suffix('+').unwrap_or(&name);
    let is_name = name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
        && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    let value = value.get(1..).unwrap_or_default().to_vec();
    is_name.then(|| Ok((name.to_owned(), Word { units: value, ..word.clone() })))
}
