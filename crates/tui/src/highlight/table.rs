//! The languages that are known.

/// How a language is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Code,
    /// A comment begins a word only.
    Shell,
    /// Names and values; as in a shell, a comment begins a word.
    Keys,
    Markup,
    Diff,
    Markdown,
}

/// What a string is written in.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// A backslash takes the meaning from what follows it.
    pub(super) escapes: bool,
    /// It may go on in the next line.
    pub(super) lines: bool,
}

/// A language. Lists of words are separated by spaces.
#[derive(Debug)]
pub(super) struct Language {
    /// Its name, aliases, extensions of its files, names of its files; in lower case.
    pub(super) names: &'static str,
    pub(super) mode: Mode,
    pub(super) keywords: &'static str,
    pub(super) types: &'static str,
    pub(super) constants: &'static str,
    pub(super) line_comments: &'static [&'static str],
    pub(super) comments: &'static [(&'static str, &'static str)],
    /// Comments stand within each other.
    pub(super) nested: bool,
    /// One that begins like another comes before it.
    pub(super) strings: &'static [Text],
    /// `'x'` is a character, and `'x` something else.
    pub(super) characters: bool,
    /// `#[..]` is said about what follows, and `name!` is called.
    pub(super) attributes: bool,
    /// Words may be in capitals or not.
    pub(super) any_case: bool,
    /// A name that begins with a capital is a type's.
    pub(super) upper: bool,
    /// What a variable or a decorator begins with.
    pub(super) sigils: &'static str,
    /// What words may have beside letters, digits and `_`.
    pub(super) word: &'static str,
    /// What stands behind the name of a value at the start of a line; `":` anywhere.
    pub(super) keys: &'static str,
    /// What may follow a `#` that a line begins with.
    pub(super) directives: &'static str,
}

const fn text(open: &'static str, close: &'static str) -> Text {
    Text { open, close, escapes: true, lines: false }
}

const fn raw(open: &'static str, close: &'static str) -> Text {
    Text { open, close, escapes: false, lines: true }
}

const fn long(open: &'static str, close: &'static str) -> Text {
    Text { open, close, escapes: true, lines: true }
}

const NONE: Language = Language {
    names: "",
    mode: Mode::Code,
    keywords: "",
    types: "",
    constants: "",
    line_comments: &[],
    comments: &[],
    nested: false,
    strings: &[],
    characters: false,
    attributes: false,
    any_case: false,
    upper: false,
    sigils: "",
    word: "",
    keys: "",
    directives: "",
};

/// What languages with braces share.
const BRACES: Language = Language {
    line_comments: &["//"],
    comments: &[("/*", "*/")],
    strings: &[text("\"", "\"")],
    characters: true,
    constants: "true false null",
    upper: true,
    ..NONE
};

const HASHES: Language =
    Language { line_comments: &["#"], strings: &[long("\"", "\""), raw("'", "'")], ..NONE };

const C_WORDS: &str = "auto break case const continue default do else enum extern for goto if inline register restrict return sizeof static struct switch typedef union volatile while _Alignas _Atomic _Generic _Noreturn _Static_assert _Thread_local";
const C_TYPES: &str = "bool char double float int long short signed unsigned void size_t ssize_t ptrdiff_t intptr_t uintptr_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t wchar_t FILE";
const DIRECTIVES: &str =
    "include define undef if ifdef ifndef elif else endif error warning pragma line region endregion";

pub(super) const LANGUAGES: &[Language] = &[
    Language {
        names: "rust rs",
        keywords: "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait type union unsafe use where while yield",
        types: "bool char f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize",
        constants: "true false None Some Ok Err",
        nested: true,
        attributes: true,
        strings: &[
            raw("r##\"", "\"##"),
            raw("r#\"", "\"#"),
            raw("r\"", "\""),
            raw("br#\"", "\"#"),
            raw("br\"", "\""),
            long("b\"", "\""),
            long("c\"", "\""),
            long("\"", "\""),
        ],
        ..BRACES
    },
    Language {
        names: "python py python3 pyi pyw bzl bazel starlark",
        keywords: "and as assert async await break class continue def del elif else except finally for from global if import in is lambda match case nonlocal not or pass raise return try while with yield self cls",
        types: "bool bytes bytearray complex dict float frozenset int list object set str tuple type",
        constants: "True False None NotImplemented Ellipsis",
        line_comments: &["#"],
        strings: &[
            long("\"\"\"", "\"\"\""),
            long("'''", "'''"),
            long("f\"\"\"", "\"\"\""),
            long("f'''", "'''"),
            long("r\"\"\"", "\"\"\""),
            long("r'''", "'''"),
            text("f\"", "\""),
            text("f'", "'"),
            text("r\"", "\""),
            text("r'", "'"),
            text("b\"", "\""),
            text("b'", "'"),
            text("\"", "\""),
            text("'", "'"),
        ],
        sigils: "@",
        upper: true,
        ..NONE
    },
    Language {
        names: "javascript js jsx mjs cjs node typescript ts tsx mts cts",
        keywords: "abstract as async await break case catch class const continue debugger declare default delete do else enum export extends finally for from function get if implements import in infer instanceof interface is keyof let namespace new of override private protected public readonly return satisfies set static super switch this throw try type typeof var while with yield",
        types: "any bigint boolean never number object string symbol unknown void",
        constants: "true false null undefined NaN Infinity",
        strings: &[text("\"", "\""), text("'", "'"), long("`", "`")],
        characters: false,
        sigils: "@",
        word: "$",
        ..BRACES
    },
    Language {
        names: "go golang",
        keywords: "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var",
        types: "any bool byte comparable complex64 complex128 error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16 uint32 uint64 uintptr",
        constants: "true false nil iota",
        strings: &[text("\"", "\""), raw("`", "`")],
        ..BRACES
    },
    Language {
        names: "c h",
        keywords: C_WORDS,
        types: C_TYPES,
        constants: "true false NULL",
        directives: DIRECTIVES,
        ..BRACES
    },
    Language {
        names: "cpp c++ cc cxx hpp hh hxx h++ cuda cu arduino ino objective-c objc m mm",
        keywords: "alignas alignof auto break case catch class co_await co_return co_yield concept const consteval constexpr constinit const_cast continue decltype default delete do dynamic_cast else enum explicit export extern final for friend goto if inline mutable namespace new noexcept operator override private protected public register reinterpret_cast requires return sizeof static static_assert static_cast struct switch template this thread_local throw try typedef typeid typename union using virtual volatile while",
        types: "bool char char8_t char16_t char32_t double float int long short signed unsigned void wchar_t size_t ssize_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t string vector map set unique_ptr shared_ptr optional",
        constants: "true false nullptr NULL",
        directives: DIRECTIVES,
        strings: &[raw("R\"(", ")\""), text("\"", "\"")],
        ..BRACES
    },
    Language {
        names: "java groovy gradle",
        keywords: "abstract assert break case catch class const continue default do else enum extends final finally for goto if implements import instanceof interface native new non-sealed package permits private protected public record return sealed static strictfp super switch synchronized this throw throws transient try var void volatile while yield def",
        types: "boolean byte char double float int long short",
        strings: &[long("\"\"\"", "\"\"\""), text("\"", "\"")],
        sigils: "@",
        ..BRACES
    },
    Language {
        names: "kotlin kt kts",
        keywords: "abstract actual as break by catch class companion const constructor continue crossinline data do else enum expect external final finally for fun get if import in infix init inline inner interface internal is lateinit noinline object open operator out override package private protected public reified return sealed set super suspend tailrec this throw try typealias val value var vararg when where while",
        nested: true,
        strings: &[raw("\"\"\"", "\"\"\""), text("\"", "\"")],
        sigils: "@",
        ..BRACES
    },
    Language {
        names: "swift",
        keywords: "actor any as associatedtype async await break case catch class continue convenience default defer deinit do else enum extension fallthrough fileprivate final for func guard if import in indirect init inout internal is isolated lazy let mutating nonisolated open operator override private protocol public repeat required rethrows return self Self some static struct subscript super switch throw throws try typealias unowned var weak where while",
        constants: "true false nil",
        nested: true,
        strings: &[long("\"\"\"", "\"\"\""), raw("#\"", "\"#"), text("\"", "\"")],
        sigils: "@",
        characters: false,
        ..BRACES
    },
    Language {
        names: "csharp c# cs csx",
        keywords: "abstract as async await base break case catch checked class const continue default delegate do else enum event explicit extern finally fixed for foreach get goto if implicit in init interface internal is lock namespace new operator out override params partial private protected public readonly record ref required return sealed set sizeof stackalloc static struct switch this throw try typeof unchecked unsafe using var virtual void volatile when where while with yield",
        types: "bool byte char decimal double dynamic float int long nint nuint object sbyte short string uint ulong ushort",
        strings: &[raw("\"\"\"", "\"\"\""), raw("@\"", "\""), text("$\"", "\""), text("\"", "\"")],
        directives: DIRECTIVES,
        ..BRACES
    },
    Language {
        names: "scala sc",
        keywords: "abstract case catch class def derives do else end enum export extends extension final finally for forSome given if implicit import inline lazy match new object opaque open override package private protected return sealed super then this throw trait transparent try type using val var while with yield",
        nested: true,
        strings: &[raw("\"\"\"", "\"\"\""), text("\"", "\"")],
        sigils: "@",
        ..BRACES
    },
    Language {
        names: "dart",
        keywords: "abstract as assert async await base break case catch class const continue covariant default deferred do dynamic else enum export extends extension external factory final finally for get hide if implements import in interface is late library mixin new of on operator part required rethrow return sealed set show static super switch sync this throw try typedef var void when while with yield",
        types: "bool double int num",
        strings: &[long("'''", "'''"), long("\"\"\"", "\"\"\""), text("\"", "\""), text("'", "'")],
        characters: false,
        sigils: "@",
        ..BRACES
    },
    Language {
        names: "zig zon",
        keywords: "addrspace align allowzero and anyframe anytype asm async await break callconv catch comptime const continue defer else enum errdefer error export extern fn for if inline linksection noalias noinline nosuspend opaque or orelse packed pub resume return struct suspend switch test threadlocal try union unreachable usingnamespace var volatile while",
        types: "anyerror anyopaque bool c_char c_int c_long c_uint comptime_float comptime_int f16 f32 f64 f80 f128 i8 i16 i32 i64 i128 isize noreturn type u8 u16 u32 u64 u128 usize void",
        constants: "true false null undefined",
        comments: &[],
        sigils: "@",
        ..BRACES
    },
    Language {
        names: "php php3 phtml",
        keywords: "abstract and array as break callable case catch class clone const continue declare default do echo else elseif empty enddeclare endfor endforeach endif endswitch endwhile enum exit extends final finally fn for foreach function global goto if implements include include_once instanceof insteadof interface isset list match namespace new or print private protected public readonly require require_once return static switch throw trait try unset use var while xor yield",
        types: "bool float int iterable mixed never object self string void",
        constants: "true false null TRUE FALSE NULL",
        line_comments: &["//", "#"],
        strings: &[long("\"", "\""), long("'", "'")],
        characters: false,
        attributes: true,
        sigils: "$",
        ..BRACES
    },
    Language {
        names: "ruby rb rake gemspec gemfile rakefile irb",
        keywords: "alias and begin BEGIN break case class def defined? do else elsif end END ensure extend for if in include loop module next not or private protected public raise redo require require_relative rescue retry return self super then undef unless until when while yield attr_accessor attr_reader attr_writer",
        constants: "true false nil __FILE__ __LINE__",
        comments: &[("=begin", "=end")],
        strings: &[long("\"", "\""), long("'", "'"), text("`", "`")],
        sigils: "$@:",
        word: "?",
        upper: true,
        ..HASHES
    },
    Language {
        names: "elixir ex exs",
        keywords: "after alias and case catch cond def defdelegate defimpl defmacro defmodule defp defprotocol defstruct do else end fn for if import in not or quote raise receive require rescue super throw try unless unquote use when with",
        constants: "true false nil",
        strings: &[long("\"\"\"", "\"\"\""), long("\"", "\""), text("'", "'")],
        sigils: "@:",
        word: "?",
        upper: true,
        ..HASHES
    },
    Language {
        names: "perl pl pm",
        keywords: "and bless chomp cmp continue defined delete die do each else elsif eq exists for foreach ge given gt if keys last le local lt my ne next no not or our package print push qw redo require return say shift sub undef unless until use values wantarray warn when while xor",
        strings: &[long("\"", "\""), long("'", "'")],
        sigils: "$@%",
        mode: Mode::Shell,
        ..HASHES
    },
    Language {
        names: "shell sh bash zsh fish ksh console shellscript shell-session bashrc zshrc profile env",
        mode: Mode::Shell,
        keywords: "if then else elif fi case esac for while until do done in function select time return exit break continue local export readonly declare typeset unset shift source alias trap set eval exec",
        types: "cd echo printf read test mkdir rm cp mv ls cat grep sed awk find xargs curl wget git sudo chmod chown tar cargo npm npx pnpm yarn node python python3 pip docker kubectl make",
        constants: "true false",
        sigils: "$",
        word: "-",
        ..HASHES
    },
    Language {
        names: "powershell ps1 psm1 pwsh",
        keywords: "begin break catch class continue do else elseif end enum exit filter finally for foreach function if in param process return switch throw trap try until using while",
        comments: &[("<#", "#>")],
        any_case: true,
        sigils: "$",
        word: "-",
        mode: Mode::Shell,
        ..HASHES
    },
    Language {
        names: "sql postgresql postgres mysql sqlite plsql psql",
        keywords: "add all alter and any as asc begin between by cascade case check column commit conflict constraint create cross current database default delete desc distinct do drop else end except exists explain false fetch for foreign from full function grant group having if in index inner insert intersect into is join key left like limit materialized natural not nothing offset on or order outer over partition primary procedure recursive references returning revoke right rollback row rows select set table temp temporary then to transaction trigger truncate union unique update using values view when where window with without",
        types: "bigint bigserial blob boolean bytea char character date datetime decimal double float int integer interval json jsonb numeric real serial smallint text time timestamp timestamptz tinyint uuid varchar",
        constants: "null true false",
        line_comments: &["--"],
        comments: &[("/*", "*/")],
        strings: &[
            Text { open: "'", close: "'", escapes: false, lines: true },
            text("\"", "\""),
            text("`", "`"),
        ],
        any_case: true,
        ..NONE
    },
    Language {
        names: "html htm xhtml xml svg vue svelte xsl xsd plist rss csproj",
        mode: Mode::Markup,
        comments: &[("<!--", "-->")],
        strings: &[raw("\"", "\""), raw("'", "'")],
        ..NONE
    },
    Language {
        names: "css scss sass less",
        mode: Mode::Keys,
        keywords: "important from to and not only",
        line_comments: &["//"],
        comments: &[("/*", "*/")],
        strings: &[text("\"", "\""), text("'", "'")],
        sigils: "@$",
        word: "-",
        keys: ":",
        ..NONE
    },
    Language {
        names: "json jsonc json5 jsonl ndjson geojson webmanifest lock",
        mode: Mode::Keys,
        constants: "true false null",
        line_comments: &["//"],
        comments: &[("/*", "*/")],
        strings: &[text("\"", "\""), text("'", "'")],
        keys: "\":",
        ..NONE
    },
    Language {
        names: "yaml yml",
        mode: Mode::Keys,
        constants: "true false null yes no on off",
        strings: &[text("\"", "\""), raw("'", "'")],
        sigils: "&*!",
        word: "-./",
        keys: ":",
        ..HASHES
    },
    Language {
        names: "toml ini cfg conf properties editorconfig gitconfig desktop service",
        mode: Mode::Keys,
        constants: "true false inf nan",
        line_comments: &["#", ";"],
        strings: &[long("\"\"\"", "\"\"\""), raw("'''", "'''"), text("\"", "\""), text("'", "'")],
        word: "-.",
        keys: "=",
        ..NONE
    },
    Language {
        names: "dockerfile docker containerfile",
        mode: Mode::Shell,
        keywords: "add arg as cmd copy entrypoint env expose from healthcheck label maintainer onbuild run shell stopsignal user volume workdir",
        any_case: true,
        sigils: "$",
        word: "-",
        ..HASHES
    },
    Language {
        names: "make makefile mk gnumakefile cmake cmakelists just justfile",
        mode: Mode::Shell,
        keywords: "define else endef endif export ifdef ifeq ifndef ifneq include override private undefine unexport vpath",
        strings: &[text("\"", "\""), text("'", "'")],
        sigils: "$",
        word: "-.",
        keys: ":",
        ..HASHES
    },
    Language {
        names: "lua luau",
        keywords: "and break do else elseif end for function goto if in local not or repeat return then until while",
        constants: "true false nil",
        line_comments: &["--"],
        comments: &[("--[[", "]]"), ("--[==[", "]==]")],
        strings: &[raw("[[", "]]"), text("\"", "\""), text("'", "'")],
        ..NONE
    },
    Language {
        names: "haskell hs lhs elm purescript",
        keywords: "as case class data default deriving do else family forall foreign hiding if import in infix infixl infixr instance let mdo module newtype of pattern proc qualified rec then type where",
        constants: "True False Nothing",
        line_comments: &["--"],
        comments: &[("{-", "-}")],
        nested: true,
        strings: &[text("\"", "\"")],
        characters: true,
        upper: true,
        word: "'",
        ..NONE
    },
    Language {
        names: "nix",
        keywords: "assert else if in inherit let or rec then with",
        constants: "true false null",
        comments: &[("/*", "*/")],
        strings: &[raw("''", "''"), long("\"", "\"")],
        word: "-'",
        ..HASHES
    },
    Language { names: "diff patch udiff", mode: Mode::Diff, ..NONE },
    Language { names: "markdown md mdx mkd", mode: Mode::Markdown, ..NONE },
];
