//! Ranks that are processes: one [`Rank`] in each, on one host or on several, with messages over TCP.
//!
//! Rank 0 listens where all know; the others come to it, say who they are, and are told where the rest is. Then each pair has a
//! connection, and a thread that reads from it. A process that is killed closes its connections, so the others know at once. What one
//! process finds wrong it tells all, so that every one of them ends with the same words.
//!
//! Nothing is encrypted, and whoever reaches the port may join: for a host of one's own, or a cluster's own network.

use crate::failure::{Failure, FailureCause};
use crate::port::{Group, Settings, Shared};
use crate::rank::Rank;
use crate::rank_environment::RankEnvironment;
use crate::wire::{Links, Said};
use crate::world::caught;
use gpulab_measure::{Error, Result};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the ranks wait for each other at the beginning; a scheduler may start them minutes apart.
const MEET: Duration = Duration::from_secs(120);
/// How long a stranger on the port may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);
const NAME: &str = concat!("gpulab-ranks-", env!("CARGO_PKG_VERSION"));

/// This process' place in a world of processes, connected to all others.
///
/// The code of a rank is the same as in a [`World`](crate::World) of threads. Alone it needs nobody:
/// ```
/// use gpulab_ranks::{Collectives, Op, RankEnvironment, Processes};
/// use std::time::Duration;
/// let place = RankEnvironment { rank: 0, size: 1, local_rank: 0 };
/// let sum = Processes::join(place, "127.0.0.1:29400", Duration::from_secs(10))?.run(|rank| {
///     let mut x = [1.0_f32; 4];
///     rank.all_reduce(&mut x[..], Op::Sum)?;
///     Ok(x[0])
/// })?;
/// assert_eq!(sum, 1.0);
/// # Ok::<(), gpulab_measure::Error>(())
/// ```
pub struct Processes {
    place: RankEnvironment,
    shared: Arc<Shared>,
    links: Arc<Links>,
    readers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process of rank {} of {}", self.place.rank, self.place.size)
    }
}

/// Another process, as it was met.
struct Met {
    stream: TcpStream,
    /// Its host and process number, for who looks for it.
    who: String,
}

impl Processes {
    /// The place that the launcher gave this process, at the place where its ranks meet. A rank that waits in a call for longer than
    /// `limit` ends the world.
    ///
    /// # Errors
    /// As [`RankEnvironment::from_environment`], [`RankEnvironment::rendezvous_endpoint`] and [`Processes::join`].
    pub fn from_environment(limit: Duration) -> Result<Processes> {
        let place = RankEnvironment::from_environment()?;
        let at = place.rendezvous_endpoint(|name| std::env::var(name).ok())?;
        Processes::join(place, &at, limit)
    }

    /// Takes that place among all processes that come to `at`, host and port of rank 0. Returns once all have come.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the port is taken, some ranks do not come within two minutes, two have the same number, or another
    /// world size or version: all ranks that are there then fail.
    pub fn join(place: RankEnvironment, at: &str, limit: Duration) -> Result<Processes> {
        let met = if place.size == 1 { vec![None] } else { meet(place, at, Instant::now() + MEET)? };
        let mut streams = Vec::new();
        for one in &met {
            let stream = one.as_ref().map(|one| one.stream.try_clone()).transpose().map_err(|error| lost(&error))?;
            streams.push(stream.map(Mutex::new));
        }
        let links = Arc::new(Links(streams));
        let settings = Settings { limit, rendezvous: false, recorded: false, faults: Vec::new() };
        let shared = Arc::new(Shared::new(place.size, settings, Some(Arc::clone(&links))));
        let reader = |(peer, met): (usize, Option<Met>)| {
            let (met, shared) = (met?, Arc::clone(&shared));
            let thread = std::thread::Builder::new().name(format!("from rank {peer}"));
            Some(thread.spawn(move || listen(&shared, peer, place.rank, met)).expect("the system gives a thread"))
        };
        let readers = met.into_iter().enumerate().filter_map(reader).collect();
        Ok(Processes { place, shared, links, readers })
    }

    /// Runs `code` as this process' rank, and waits until all others have ended as well.
    ///
    /// # Errors
    /// A [`Failure`], as soon as any rank of the world panics, dies or returns an error, when calls do not fit together, or when one is
    /// late: the same in every process.
    pub fn run<T>(self, code: impl FnOnce(&Rank) -> Result<T>) -> Result<T, Failure> {
        let world = Arc::new(Group { id: 0, members: (0..self.place.size).collect() });
        let rank = Rank::new(Arc::clone(&self.shared), world, self.place.rank);
        let mut result = None;
        let with = caught(|| {
            result = Some(code(&rank)?);
            Ok(())
        });
        self.shared.ended(self.place.rank, with);
        if self.shared.failed().is_none() {
            self.links.tell_all(&Said::Goodbye);
            self.shared.wait_for_all(self.place.rank);
        }
        if let Some((cause, ranks, what, fix)) = self.shared.failed() {
            self.links.tell_all(&Said::Failed { cause, ranks, what, fix });
            // Closed at once, the connection could lose what was just said.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(1) && !self.readers.iter().all(JoinHandle::is_finished) {
                std::thread::sleep(PAUSE);
            }
        }
        self.links.close();
        self.readers.into_iter().for_each(|reader| reader.join().expect("readers do not panic"));
        self.shared.outcome().map(|_| result.expect("it has not failed"))
    }
}

/// Takes in what one other process says, until its connection ends.
fn listen(shared: &Shared, peer: usize, me: usize, met: Met) {
    let (mut from, mut well) = (BufReader::with_capacity(1 << 16, met.stream), false);
    loop {
        match Said::decode(&mut from) {
            Ok(Said::Message(frame)) => shared.arrived(peer, me, frame),
            Ok(Said::Goodbye) => {
                well = true;
                shared.ended(peer, None);
            }
            Ok(Said::Failed { cause, ranks, what, fix }) => {
                shared.fail_with(cause, ranks, what, &fix);
                return;
            }
            Err(_) if well => return,
            Err(error) => {
                let what = format!("rank {peer} is gone ({}): its connection ended without a word ({error})", met.who);
                let fix = "look for that process in its host's log (out of memory? killed?), and start again from the last checkpoint";
                shared.fail_with(FailureCause::Died, vec![peer], what, fix);
                return;
            }
        }
    }
}

fn lost(error: &std::io::Error) -> Error {
    Error::invalid(
        format!("the connection to another rank broke while the ranks met: {error}"),
        "look at the first error of the other ranks, then start all of them again",
    )
}

/// A line, byte by byte: nothing behind it is read.
fn read_line(stream: &mut TcpStream) -> std::io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < 1 << 20 {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return String::from_utf8(line).map_err(std::io::Error::other);
        }
        line.push(byte[0]);
    }
    Err(std::io::Error::other("a line without an end"))
}

/// The next one who comes and says a line of ours; strangers are passed over. None when time is up.
fn next_hello(listener: &TcpListener, until: Instant) -> Result<Option<(TcpStream, Vec<String>)>> {
    listener.set_nonblocking(true).map_err(|error| lost(&error))?;
    while Instant::now() < until {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let ready = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(HELLO)));
        if let Some(line) = ready.ok().and_then(|()| read_line(&mut stream).ok()) {
            let words: Vec<String> = line.split(' ').map(ToString::to_string).collect();
            if words[0].starts_with("gpulab-ranks-") {
                return Ok(Some((stream, words)));
            }
        }
    }
    Ok(None)
}

fn connect(at: &str, until: Instant) -> Result<TcpStream> {
    let mut last = "it has no address".to_string();
    while Instant::now() < until {
        let addresses: Vec<SocketAddr> = match at.to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(error) => {
                last = error.to_string();
                Vec::new()
            }
        };
        for address in addresses {
            match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.to_string(),
            }
        }
        std::thread::sleep(PAUSE);
    }
    Err(Error::invalid(
        format!("no rank 0 at {at} within {} s: {last}", MEET.as_secs()),
        "look whether rank 0 runs, and whether its host and port (MASTER_ADDR, MASTER_PORT) can be reached from here",
    ))
}

/// Connections to all other ranks, by rank.
fn meet(place: RankEnvironment, at: &str, until: Instant) -> Result<Vec<Option<Met>>> {
    let met = if place.rank == 0 { receive_all(place, at, until)? } else { visit(place, at, until)? };
    for one in met.iter().flatten() {
        let ready = one.stream.set_nodelay(true).and_then(|()| one.stream.set_read_timeout(None));
        ready.map_err(|error| lost(&error))?;
    }
    Ok(met)
}

/// Rank 0: all others come, and are told where the rest is.
fn receive_all(place: RankEnvironment, at: &str, until: Instant) -> Result<Vec<Option<Met>>> {
    let listener = TcpListener::bind(at).map_err(|error| {
        Error::invalid(
            format!("rank 0 cannot listen at {at}: {error}"),
            "choose another port for all ranks (MASTER_PORT), or end the program that has this one",
        )
    })?;
    let mut met: Vec<Option<(Met, String)>> = (0..place.size).map(|_| None).collect();
    let refuse = |met: &mut Vec<Option<(Met, String)>>, what: String, fix: &str| {
        for (one, _) in met.iter_mut().flatten() {
            // Who is gone has no use for it.
            let _ = writeln!(one.stream, "no {what}\t{fix}");
        }
        Error::invalid(what, fix)
    };
    while met.iter().flatten().count() < place.size - 1 {
        let Some((mut stream, words)) = next_hello(&listener, until)? else {
            let missing: Vec<String> =
                (1..place.size).filter(|rank| met[*rank].is_none()).map(|rank| rank.to_string()).collect();
            let what = format!(
                "of {} ranks these have not come to {at} within {} s: {}",
                place.size,
                MEET.as_secs(),
                missing.join(", ")
            );
            return Err(refuse(
                &mut met,
                what,
                "look at the first lines of their logs, and whether their hosts can reach that port",
            ));
        };
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).unwrap_or(usize::MAX);
        let (rank, size, port) = (number(1), number(2), number(3));
        let who =
            format!("{}, process {}", stream.peer_addr().map_or(String::new(), |at| at.ip().to_string()), number(4));
        let wrong = if words[0] != NAME {
            Some((format!("{who} is of {}, and rank 0 of {NAME}", words[0]), "start the same program on all hosts"))
        } else if size != place.size {
            Some((
                format!("rank {rank} ({who}) says that there are {size} ranks, and rank 0 says {}", place.size),
                "start all ranks by one launcher, with one world size",
            ))
        } else if rank == 0 || rank >= size || met[rank].is_some() {
            Some((
                format!("{who} says that it is rank {rank} of {size}, and that place is taken or does not exist"),
                "give each process a number of its own",
            ))
        } else {
            None
        };
        if let Some((what, fix)) = wrong {
            let _ = writeln!(stream, "no {what}\t{fix}");
            return Err(refuse(&mut met, what, fix));
        }
        let address = stream.peer_addr().map_err(|error| lost(&error))?.ip();
        let address = SocketAddr::new(address, u16::try_from(port).unwrap_or(0)).to_string();
        met[rank] = Some((Met { stream, who: who.clone() }, format!("{address} {who}")));
    }
    let all: Vec<String> = met.iter().map(|one| one.as_ref().map_or(String::new(), |one| one.1.clone())).collect();
    let answer = format!("ok {}\t{}\n", std::process::id(), all.join("\t"));
    for (one, _) in met.iter_mut().flatten() {
        one.stream.write_all(answer.as_bytes()).map_err(|error| lost(&error))?;
    }
    Ok(met.into_iter().map(|one| one.map(|one| one.0)).collect())
}

/// The others: to rank 0, then to each rank before this one; those behind it come here.
fn visit(place: RankEnvironment, at: &str, until: Instant) -> Result<Vec<Option<Met>>> {
    let mut first = connect(at, until)?;
    let own = first.local_addr().and_then(|own| TcpListener::bind((own.ip(), 0))).map_err(|error| lost(&error))?;
    let port = own.local_addr().map_err(|error| lost(&error))?.port();
    let hello = format!("{NAME} {} {} {port} {}\n", place.rank, place.size, std::process::id());
    // As long as rank 0 may wait for the last one.
    let ready = first.write_all(hello.as_bytes()).and_then(|()| first.set_read_timeout(Some(MEET + HELLO)));
    let answer = ready.and_then(|()| read_line(&mut first)).map_err(|error| lost(&error))?;
    if let Some(refused) = answer.strip_prefix("no ") {
        let (what, fix) = refused.split_once('\t').unwrap_or((refused, "look at the error of rank 0"));
        return Err(Error::invalid(what, fix));
    }
    let fields: Vec<&str> = answer.trim_start_matches("ok ").split('\t').collect();
    let mut met: Vec<Option<Met>> = (0..place.size).map(|_| None).collect();
    // fields[0] is rank 0's process, fields[1 + r] rank r.
    let of = |rank: usize| fields.get(1 + rank).and_then(|field| field.split_once(' ')).unwrap_or(("", ""));
    let host = first.peer_addr().map_or(String::new(), |at| at.ip().to_string());
    met[0] = Some(Met { stream: first, who: format!("{host}, process {}", fields[0]) });
    for (rank, one) in met.iter_mut().enumerate().take(place.rank).skip(1) {
        let mut stream = connect(of(rank).0, until)?;
        let hello = format!("{NAME} {}\n", place.rank);
        stream.write_all(hello.as_bytes()).map_err(|error| lost(&error))?;
        *one = Some(Met { stream, who: of(rank).1.to_string() });
    }
    while met.iter().flatten().count() < place.size - 1 {
        let Some((stream, words)) = next_hello(&own, until + HELLO)? else {
            let missing = (place.rank + 1..place.size).find(|rank| met[*rank].is_none()).unwrap_or(place.rank);
            return Err(Error::invalid(
                format!("rank {missing} ({}) has not come to rank {}", of(missing).1, place.rank),
                "look whether the hosts can reach each other, and not rank 0's alone",
            ));
        };
        let rank = words.get(1).and_then(|word| word.parse::<usize>().ok()).unwrap_or(usize::MAX);
        if (place.rank + 1..place.size).contains(&rank) && met[rank].is_none() {
            met[rank] = Some(Met { stream, who: of(rank).1.to_string() });
        }
    }
    Ok(met)
}
