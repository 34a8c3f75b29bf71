//! What the agent and the keeper say to each other over a socket: frames of bytes, with open files.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Files that go with one frame, at most.
const FILES: usize = 4;
/// Bytes of one frame, at most: more than a system lets a program be started with.
const MOST: usize = 64 << 20;

/// Sends one frame. It blocks where the other side does not read.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?.to_le_bytes();
    let mut sent = {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(io::Error::other("too many files for one message"));
        }
        let parts = [IoSlice::new(&length), IoSlice::new(bytes)];
        rustix::io::retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?
    };
    let whole = [&length, bytes].concat();
    while sent < whole.len() {
        let rest = whole.get(sent..).unwrap_or_default();
        sent += rustix::io::retry_on_intr(|| rustix::net::send(socket, rest, SendFlags::NOSIGNAL))?;
    }
    Ok(())
}

/// The next frame; `None` when the other side is gone.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let mut files = Vec::new();
    let mut got = 0;
    while got < length.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = length.get_mut(got..).unwrap_or_default();
        let received = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let received = match received {
            Err(rustix::io::Errno::INTR) => continue,
            received => received?.bytes,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                files.extend(more);
            }
        }
        if received == 0 {
            return if got == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        got += received;
    }
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
    if length > MOST {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let room = bytes.get_mut(filled..).unwrap_or_default();
        match rustix::io::read(socket, room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some((bytes, files)))
}

/// Writes the fields of a frame.
#[derive(Debug, Default)]
pub(super) struct Fields(pub(super) Vec<u8>);

impl Fields {
    pub(super) fn put(&mut self, field: impl AsRef<OsStr>) {
        let bytes = field.as_ref().as_bytes();
        self.0.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.0.extend(bytes);
    }

    pub(super) fn put_flag(&mut self, flag: bool) {
        self.put(if flag { "1" } else { "" });
    }

    pub(super) fn put_list<T: AsRef<OsStr>>(&mut self, list: impl ExactSizeIterator<Item = T>) {
        self.put(list.len().to_string());
        list.for_each(|one| self.put(one));
    }
}

/// Reads the fields of a frame.
#[derive(Debug)]
pub(super) struct FrameReader<'a>(pub(super) &'a [u8]);

impl FrameReader<'_> {
    pub(super) fn text(&mut self) -> io::Result<OsString> {
        let cut = || io::Error::other("a message is cut short");
        let (length, rest) = self.0.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(io::Error::other)?;
        let (field, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(OsString::from_vec(field.to_vec()))
    }

    pub(super) fn path(&mut self) -> io::Result<PathBuf> {
        self.text().map(PathBuf::from)
    }

    pub(super) fn flag(&mut self) -> io::Result<bool> {
        self.text().map(|text| !text.is_empty())
    }

    pub(super) fn list(&mut self) -> io::Result<Vec<OsString>> {
        let count = self.text()?.to_str().and_then(|text| text.parse::<usize>().ok());
        let count = count.ok_or_else(|| io::Error::other("a message holds no count"))?;
        (0..count).map(|_| self.text()).collect()
    }

    pub(super) fn paths(&mut self) -> io::Result<Vec<PathBuf>> {
        self.list().map(|list| list.into_iter().map(PathBuf::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn frames_of_any_size_arrive_with_their_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let sizes = [0, 1, 70_000, 5_000_000];
        let thread = std::thread::spawn(move || {
            for size in sizes {
                send(ours.as_fd(), &vec![b'x'; size], &[writer.as_fd()]).unwrap();
            }
        });
        for size in sizes {
            let (bytes, files) = receive(theirs.as_fd()).unwrap().unwrap();
            assert_eq!((bytes.len(), files.len()), (size, 1));
            let mut file = std::fs::File::from(files.into_iter().next().unwrap());
            file.write_all(b"a").unwrap();
        }
        thread.join().unwrap();
        assert!(receive(theirs.as_fd()).unwrap().is_none(), "the other side is gone");
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "aaaa");
    }

    #[test]
    fn damaged_frames_are_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(&[9, 0, 0, 0, 1]).unwrap();
        drop(ours);
        assert!(receive(theirs.as_fd()).is_err());
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(&[0xff; 8]).unwrap();
        assert!(receive(theirs.as_fd()).is_err());
        for bytes in [&[1, 0][..], &[2, 0, 0, 0, 1], &[1, 0, 0, 0, b'x']] {
            assert!(FrameReader(bytes).list().is_err());
        }
        let mut fields = Fields::default();
        fields.put_list(["a", ""].iter());
        fields.put_flag(true);
        let mut reading = FrameReader(&fields.0);
        assert_eq!(reading.list().unwrap(), ["a", ""]);
        assert!(reading.flag().unwrap());
    }
}
