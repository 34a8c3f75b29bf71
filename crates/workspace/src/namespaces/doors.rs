//! Connections between the network of a session and that of the user, as far as a person allowed them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

/// Connections through one door at a time.
const MOST: usize = 256;
/// How long the other side may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// How often a port that another program has is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A network: the session's, or with `None` that of the user, in which the keeper is.
type Network = Option<Arc<OwnedFd>>;

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("quipu-door".to_owned()).spawn(work).map(drop)
}

fn enter(network: &Network) -> io::Result<()> {
    match network {
        Some(network) => Ok(setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?),
        None => Ok(()),
    }
}

/// A port of the session can be reached by the user's programs, at the same port of this machine. A server may listen on
/// either address that `localhost` has.
pub(super) fn let_in(port: u16, session: &Arc<OwnedFd>) -> io::Result<()> {
    let targets =
        vec![format!("{}:{port}", Ipv4Addr::LOCALHOST), format!("[{}]:{port}", Ipv6Addr::LOCALHOST)];
    open(None, port, Some(session.clone()), targets)
}

/// A listener on a port of `localhost` in the network of the session, whichever is free.
pub(super) fn listen_anywhere(session: &Arc<OwnedFd>) -> io::Result<TcpListener> {
    let session = Some(session.clone());
    let listen = move || {
        enter(&session)?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
    };
    // A thread of its own: there is no way back from that network.
    std::thread::spawn(listen).join().map_err(|_| io::Error::other("a thread panicked"))?
}

/// A service of the user (`HOST:PORT`) can be reached by commands, at the same port of `localhost`.
pub(super) fn let_out(service: &str, session: &Arc<OwnedFd>) -> io::Result<()> {
    let port = service.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let port = port.ok_or_else(|| io::Error::other(format!("{service} is not HOST:PORT")))?;
    open(Some(session.clone()), port, None, vec![service.to_owned()])
}

/// Listens in one network, and connects to the first of `targets` that answers in the other.
fn open(here: Network, port: u16, there: Network, targets: Vec<String>) -> io::Result<()> {
    let live = Arc::new(AtomicUsize::new(0));
    let targets: Arc<[String]> = targets.into();
    // This thread stays in the network of the user: there is no way back into it.
    thread(move || {
        let listener = std::thread::spawn(move || listen(&here, port)).join();
        let Ok(Ok(listener)) = listener else { return };
        for arrived in listener.incoming() {
            let Ok(arrived) = arrived else {
                std::thread::sleep(AGAIN);
                continue;
            };
            if live.fetch_add(1, Ordering::SeqCst) >= MOST {
                live.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (there, targets, counted) = (there.clone(), targets.clone(), live.clone());
            let passed = thread(move || {
                // Either side may go at any time.
                pass(arrived, &there, &targets).ok();
                counted.fetch_sub(1, Ordering::SeqCst);
            });
            if passed.is_err() {
                live.fetch_sub(1, Ordering::SeqCst);
            }
        }
    })
}

fn listen(here: &Network, port: u16) -> io::Result<TcpListener> {
    enter(here)?;
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok(listener),
            Err(_) => std::thread::sleep(AGAIN),
        }
    }
}

fn pass(arrived: TcpStream, there: &Network, targets: &[String]) -> io::Result<()> {
    enter(there)?;
    let addresses = targets.iter().filter_map(|target| target.to_socket_addrs().ok()).flatten();
    let mut connected = Err(io::ErrorKind::NotFound.into());
    for address in addresses {
        connected = TcpStream::connect_timeout(&address, CONNECT);
        if connected.is_ok() {
            break;
        }
    }
    let (mut ours, mut theirs) = (arrived, connected?);
    let (mut back_from, mut back_to) = (theirs.try_clone()?, ours.try_clone()?);
    let back = std::thread::Builder::new().spawn(move || {
        io::copy(&mut back_from, &mut back_to).ok();
        back_to.shutdown(Shutdown::Write).ok();
    })?;
    io::copy(&mut ours, &mut theirs).ok();
    theirs.shutdown(Shutdown::Write).ok();
    back.join().map_err(|_| io::Error::other("a thread panicked"))
}
