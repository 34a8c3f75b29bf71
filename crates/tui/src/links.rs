//! Where links lead (`OSC 8`). A style holds a number; the addresses are here, made safe: what a terminal is told of them
//! is printable ASCII, and leads to the web, a mailbox, or a file of this machine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Addresses that are remembered together; then all are forgotten, and texts that stand there still lead nowhere.
const MOST: usize = 4_096;
/// Bytes of an address, as terminals take them.
const LONGEST: usize = 2_083;

/// Where a text leads; nowhere by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link(u32);

/// The addresses that texts lead to.
#[derive(Debug, Clone, Default)]
pub struct Links(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// What paths begin at; empty where files are another machine's.
    directory: String,
    numbers: HashMap<Arc<str>, u32>,
    addresses: HashMap<u32, Arc<str>>,
    last: u32,
}

impl PartialEq for Links {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Links {}

impl Links {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Paths that are not absolute begin at this directory from now on. Until this is said, no path leads anywhere.
    pub fn set_directory(&self, directory: &str) {
        directory.clone_into(&mut self.table().directory);
    }

    /// A link to where Markdown says: an address, or a path.
    #[must_use]
    pub fn to(&self, target: &str) -> Link {
        let scheme = target.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref().filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            Some("http" | "https" | "mailto") => self.number(target.into()),
            Some("file") if !self.table().directory.is_empty() => self.number(target.into()),
            None if !target.starts_with('#') => {
                self.file(target.split_once('#').map_or(target, |(path, _)| path))
            }
            _ => Link::default(),
        }
    }

    /// A link to a file.
    #[must_use]
    pub fn file(&self, path: &str) -> Link {
        let directory = self.table().directory.clone();
        if directory.is_empty() || path.is_empty() || path.starts_with('~') {
            return Link::default();
        }
        let path = std::path::Path::new(&directory).join(path);
        let mut address = String::from("file://");
        for byte in path.to_string_lossy().bytes() {
            match byte {
                b'/' | b'-' | b'.' | b'_' | b'~' => address.push(char::from(byte)),
                byte if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
                byte => address.push_str(&format!("%{byte:02X}")),
            }
        }
        self.number(address.into())
    }

    fn number(&self, address: Arc<str>) -> Link {
        if address.len() > LONGEST || !address.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Link::default();
        }
        let mut table = self.table();
        if let Some(number) = table.numbers.get(&address) {
            return Link(*number);
        }
        if table.numbers.len() >= MOST {
            table.numbers.clear();
            table.addresses.clear();
        }
        table.last = table.last.wrapping_add(1).max(1);
        let number = table.last;
        table.numbers.insert(address.clone(), number);
        table.addresses.insert(number, address);
        Link(number)
    }

    /// Where a link leads, if it is still known.
    pub(crate) fn address(&self, link: Link) -> Option<Arc<str>> {
        self.table().addresses.get(&link.0).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_link_addresses_are_dropped() {
        let links = Links::default();
        let of = |links: &Links, target: &str| links.address(links.to(target)).map(|found| found.to_string());
        for same in ["https://example.org/a?b=c#d", "HTTP://x", "mailto:a@example.org"] {
            assert_eq!(of(&links, same).as_deref(), Some(same));
        }
        let long = format!("https://{}", "x".repeat(3_000));
        for none in [
            "javascript:alert(1)",
            "https://a b",
            "https://a\x1b\\b",
            "https://a\x07",
            "ssh://host",
            "#part",
            "",
            "data:text/html,x",
            "src/main.rs",
            "file:///etc/passwd",
            "https://\u{e9}",
            &long,
        ] {
            assert_eq!(of(&links, none), None, "{none:?}");
        }
        links.set_directory("/work/a b");
        for (path, address) in [
            ("src/main.rs#L10", "file:///work/a%20b/src/main.rs"),
            ("/etc/\u{e9}\x1b", "file:///etc/%C3%A9%1B"),
            ("file:///etc/hosts", "file:///etc/hosts"),
        ] {
            assert_eq!(of(&links, path).as_deref(), Some(address));
        }
        assert_eq!(of(&links, "~/x"), None);
        assert_eq!(links.to("https://example.org/a?b=c#d"), links.to("https://example.org/a?b=c#d"));
    }

    #[test]
    fn link_table_is_bounded() {
        let links = Links::default();
        let first = links.to("https://example.org/first");
        for number in 0..3 * MOST {
            let _link = links.to(&format!("https://example.org/{number}"));
        }
        assert!(links.table().addresses.len() <= MOST);
        assert_eq!(links.address(first), None);
    }
}
