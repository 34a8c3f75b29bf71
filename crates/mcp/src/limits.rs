//! Limits on what a server sends, and on how long it is waited for.

use std::time::Duration;

/// Bytes of one message of a server.
pub const MESSAGE_BYTES: usize = 16 << 20;
/// Lines of a server's output in a row that are no messages.
pub const NOISE_LINES: usize = 100;
/// Tools of one server; the rest is left out.
pub const SERVER_TOOLS: usize = 500;
/// Bytes of the definitions of one server; the rest is left out.
pub const DEFINITIONS_BYTES: usize = 2 << 20;
/// Bytes of one definition: name, description, schema.
pub const DEFINITION_BYTES: usize = 60 << 10;
/// Bytes of a description that the model gets.
pub const DESCRIPTION_BYTES: usize = 16 << 10;
/// Prompts of one server; the rest is left out.
pub const SERVER_PROMPTS: usize = 100;
/// Bytes of the text of a prompt.
pub const PROMPT_BYTES: usize = 256 << 10;
/// Resources of one server that are offered; others can be read by their addresses.
pub const SERVER_RESOURCES: usize = 1_000;
/// Bytes of the address of a resource.
pub const RESOURCE_URI_BYTES: usize = 1_000;
/// Parts of a resource that are read.
pub const RESOURCE_PARTS: usize = 100;
/// Bytes of the text of a resource; the rest is left out.
pub const RESOURCE_TEXT_BYTES: usize = 256 << 10;
/// Blocks of images of a resource.
pub const RESOURCE_IMAGES: usize = 8;
/// Pages of a list of tools, prompts or resources.
pub const LIST_PAGES: usize = 100;
/// Bytes of text of one result.
pub const RESULT_TEXT_BYTES: usize = 50 << 10;
/// Base64 bytes of the images of one result.
pub const RESULT_IMAGE_BYTES: usize = 8 << 20;
/// Blocks of one result.
pub const RESULT_BLOCKS: usize = 1_000;
/// Bytes of a server's stderr that are kept.
pub const STDERR_BYTES: usize = 8 << 10;
/// Requests of a server that are answered at a time.
pub const SERVER_REQUESTS: usize = 8;
/// Estimated tokens of all definitions in a prompt, beyond which a search tool takes their place.
pub const DEFINITION_TOKENS: u64 = 10_000;
/// Definitions in a prompt, beyond which a search tool takes their place.
pub const DEFINITION_COUNT: usize = 100;
/// Tools that a search has made callable at a time.
pub const LOADED_TOOLS: usize = 60;
/// Definitions that one search returns.
pub const SEARCH_RESULTS: usize = 8;
/// How long a server may take to start and to list its tools.
pub const STARTUP: Duration = Duration::from_secs(30);
/// How long a call may go without an answer or progress.
pub const CALL_IDLE: Duration = Duration::from_secs(120);
/// How long a call may take, with progress.
pub const CALL_TOTAL: Duration = Duration::from_secs(3600);
/// How long the first call of a model waits for servers whose tools are not known yet.
pub const FIRST_WAIT: Duration = Duration::from_secs(10);
/// Starts in a row that fail before a server is left alone until it is needed.
pub const STARTS: u32 = 5;
/// The first wait before a server is started again; it doubles each time.
pub const BACKOFF: Duration = Duration::from_millis(500);
/// The longest wait before a server is started again.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// How long a server must have run for its earlier failures to be forgotten.
pub const STABLE: Duration = Duration::from_secs(60);
/// How long reading a resource may take.
pub const RESOURCE_READ: Duration = Duration::from_secs(20);
/// How long a message may take to be written.
pub const WRITE: Duration = Duration::from_secs(30);
