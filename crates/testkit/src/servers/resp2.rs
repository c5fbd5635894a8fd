//! RESP2, as much of it as it takes to command a Redis server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// The answer of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Several replies, one after the other.
    Array(Vec<Self>),
    /// A number.
    Integer(i64),
    /// Nothing.
    Nil,
    /// A status or a bulk string; bytes that are no UTF-8 are replaced.
    Text(String),
}

impl Reply {
    /// The text; panics if the reply is anything else.
    pub fn text(self) -> String {
        let Self::Text(text) = self else {
            panic!("not a text: {self:?}");
        };
        text
    }
}

/// A connection that speaks just enough RESP2 to command a server.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(super) fn open(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command and awaits its answer, which may be an error.
    pub fn command(&mut self, words: &[&str]) -> Result<Reply, String> {
        let answer = self.send(words);
        answer.unwrap_or_else(|error| panic!("{words:?} was not answered: {error}"))
    }

    /// The outer error is the connection's, the inner one the server's.
    pub(super) fn send(&mut self, words: &[&str]) -> io::Result<Result<Reply, String>> {
        self.0.get_mut().write_all(&request(words))?;
        self.receive()
    }

    fn receive(&mut self) -> io::Result<Result<Reply, String>> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        let reply = match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => return Ok(Err(rest.to_owned())),
            ":" => Reply::Integer(number(rest)?),
            "$" => self.bulk(number(rest)?)?,
            "*" => return self.array(number(rest)?),
            _ => return Err(io::Error::other(format!("not RESP2: {line:?}"))),
        };
        Ok(Ok(reply))
    }

    fn bulk(&mut self, length: i64) -> io::Result<Reply> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(Reply::Nil);
        };
        let mut bytes = vec![0; length + "\r\n".len()];
        self.0.read_exact(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        Ok(Reply::Text(text.into_owned()))
    }

    fn array(&mut self, length: i64) -> io::Result<Result<Reply, String>> {
        if length < 0 {
            return Ok(Ok(Reply::Nil));
        }
        let items: Result<_, _> = (0..length).map(|_| self.receive()).collect::<io::Result<_>>()?;
        Ok(items.map(Reply::Array))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// A command as clients send it.
pub fn request(words: &[&str]) -> Vec<u8> {
    let lines = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), lines.collect::<String>()).into_bytes()
}

fn number(digits: &str) -> io::Result<i64> {
    digits.parse().map_err(io::Error::other)
}
