//! The network of a session: a loopback device and nothing else.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket,
};

/// `RTM_NEWLINK`.
const NEW_LINK: u16 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST: u16 = 5;
/// `IFF_UP`.
const UP: u32 = 1;
/// The loopback device is the first of each network.
const LOOPBACK: i32 = 1;

/// Brings the loopback device of this thread's network up.
pub(super) fn bring_loopback_up() -> io::Result<()> {
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    // `nlmsghdr`: length, type, flags, number, port.
    let mut message = Vec::with_capacity(32);
    message.extend(32_u32.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    // `ifinfomsg`: family, padding, type, index, flags, which of them change.
    message.extend([0, 0, 0, 0]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 64];
    let got = File::from(socket).read(&mut answer)?;
    // Behind the header: 0, or an error below 0.
    let error =
        answer.get(..got).and_then(|answer| answer.get(16..20)?.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the kernel gave no answer")),
    }
}
