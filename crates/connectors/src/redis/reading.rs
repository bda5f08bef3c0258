//! Reads streams by XREAD, from the last entry of each on.

use redis::Value;
use thalweg_core::connector::SplitId;

use super::session::{ANSWER_WAIT, Session, bytes, checked, elements, named, senseless, text};
use crate::messaging::{Client, Inbox, Mark, MarkText, Message, Metadata, Startup, removed_unread};
use crate::network::{Attempt, Failure, Timer};

/// Entries of a stream that are asked for first.
const COUNT_FIRST: usize = 32;
/// The most that are asked for.
const COUNT_MAX: usize = 4_096;
/// Bytes that the entries of an answer should have.
const ANSWER_BYTES: usize = 1 << 20;
/// How long the server waits for entries before it answers that there are none.
const BLOCK_MS: u32 = 1_000;

/// How ids are written: `1526919030474-55`, milliseconds and a number.
pub const IDS: MarkText = MarkText {
    noun: "id",
    write: |mark| format!("{}-{}", (mark >> 64) as u64, mark as u64),
    read: read_id,
};

fn read_id(text: &str) -> Option<Mark> {
    let (millis, number) = text.split_once('-')?;
    let (millis, number) = (millis.parse::<u64>().ok()?, number.parse::<u64>().ok()?);
    Some(Mark::from(millis) << 64 | Mark::from(number))
}

/// What of an entry is its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordField {
    /// The value of this field.
    Named(String),
    /// All fields, as a JSON object of texts.
    All,
}

/// Reads streams.
pub struct StreamReader {
    session: Session,
    field: RecordField,
    ignores_removed: bool,
    /// The splits that were asked for and not answered yet, and since when.
    asked: Option<(Vec<SplitId>, Timer)>,
    /// There was nothing when the server was asked last.
    is_quiet: bool,
    /// How many entries of each stream are asked for.
    count: usize,
}

impl StreamReader {
    /// A reader over this session.
    pub fn new(session: Session, field: RecordField, ignores_removed: bool) -> StreamReader {
        StreamReader {
            session,
            field,
            ignores_removed,
            asked: None,
            is_quiet: false,
            count: COUNT_FIRST,
        }
    }

    /// What the server says of a stream; `None` if it is not there.
    fn info(&mut self, stream: &str) -> Attempt<Option<Value>> {
        let found = self.session.call(redis::cmd("EXISTS").arg(stream))?;
        match found {
            Value::Int(1) => {
                self.session.call(redis::cmd("XINFO").arg("STREAM").arg(stream)).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn id(&self, info: &Value, name: &str) -> Attempt<Option<Mark>> {
        let Some(value) = named(info, name) else { return Ok(None) };
        let read = text(value).and_then(read_id);
        read.map(Some).ok_or_else(|| senseless(self.session.server(), "XINFO STREAM"))
    }

    /// Checks that what lies behind an entry was not removed. Nobody says so: where the entry
    /// itself is gone, those behind it may be, too.
    fn check_kept(&mut self, stream: &str, last: Mark) -> Attempt<()> {
        let Some(info) = self.info(stream)? else { return Ok(()) };
        let newest = self.id(&info, "last-generated-id")?.unwrap_or(last);
        let first = named(&info, "first-entry").and_then(|entry| elements(entry).first());
        let is_there = first.and_then(text).and_then(read_id).is_some_and(|first| first <= last);
        let id = (IDS.write)(last);
        let why = if newest < last {
            format!("stream '{stream}' ends before {id}, which was read: it was created again")
        } else if newest > last && !is_there && !self.ignores_removed {
            format!(
                "stream '{stream}' may have lost entries: {id}, the last that was read, was removed (trimmed, or deleted)"
            )
        } else {
            return Ok(());
        };
        Err(removed_unread(why, "entries"))
    }

    fn ask(&mut self, inbox: &Inbox) -> Attempt<()> {
        let wanted = (0..).zip(inbox.splits()).filter(|(_, split)| split.is_wanted());
        let (splits, streams): (Vec<SplitId>, Vec<_>) =
            wanted.map(|(at, split)| (SplitId(at), split)).unzip();
        if splits.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(self.count);
        // A stream that is paused must not wait long when it is wanted again.
        if self.is_quiet {
            command.arg("BLOCK").arg(BLOCK_MS);
        }
        command.arg("STREAMS");
        for split in &streams {
            command.arg(&*split.name);
        }
        for split in &streams {
            command.arg((IDS.write)(split.last.unwrap_or(0)));
        }
        self.session.put(&command);
        self.session.flush()?;
        self.asked = Some((splits, Timer::default()));
        Ok(())
    }

    fn take(&mut self, splits: &[SplitId], answer: &Value, inbox: &mut Inbox) -> Attempt<()> {
        self.is_quiet = elements(answer).is_empty();
        let (mut entries, mut size) = (0, 0);
        for &split in splits {
            let name = inbox.splits()[split.0 as usize].name.clone();
            let mut streams = elements(answer).iter();
            let found =
                streams.find(|found| elements(found).first().and_then(text) == Some(&*name));
            let found = found.and_then(|found| elements(found).get(1)).map_or(&[][..], elements);
            for entry in found {
                size += self.add(split, entry, inbox)?;
            }
            entries += found.len();
            if found.is_empty() {
                // Behind the last entry that is there some may have been deleted.
                if let Some(stop) = inbox.splits()[split.0 as usize].stop {
                    inbox.reach(split, stop);
                }
                inbox.caught_up(split);
            }
        }
        if entries > 0 {
            let wanted = ANSWER_BYTES * entries / size.max(1) / splits.len();
            self.count = wanted.clamp(1, COUNT_MAX).min(2 * self.count);
        }
        Ok(())
    }

    /// Adds an entry, unless it lies behind where its stream stops. Its size.
    fn add(&self, split: SplitId, entry: &Value, inbox: &mut Inbox) -> Attempt<usize> {
        let wrong = || senseless(self.session.server(), "XREAD");
        let [id, fields] = elements(entry) else { return Err(wrong()) };
        let mark = text(id).and_then(read_id).ok_or_else(wrong)?;
        if inbox.splits()[split.0 as usize].stop.is_some_and(|stop| mark > stop) {
            let stop = inbox.splits()[split.0 as usize].stop.unwrap_or(mark);
            inbox.reach(split, stop);
            return Ok(0);
        }
        let fields = elements(fields);
        let all;
        let value = match &self.field {
            RecordField::Named(name) => {
                let mut pairs = fields.chunks_exact(2);
                let is_named = |pair: &&[Value]| bytes(&pair[0]) == Some(name.as_bytes());
                pairs.find(is_named).and_then(|pair| bytes(&pair[1]))
            }
            RecordField::All => {
                all = as_object(fields);
                Some(all.as_bytes())
            }
        };
        let name = inbox.splits()[split.0 as usize].name.clone();
        let metadata = inbox.wants().iter().map(|key| match key.as_str() {
            "stream" => Metadata::Text(name.to_string()),
            "id" => Metadata::Text((IDS.write)(mark)),
            "timestamp" => Metadata::Time((mark >> 64) as i64),
            "fields" => Metadata::Texts(pairs(fields)),
            _ => Metadata::Null,
        });
        let metadata = metadata.collect();
        inbox.add(Message { split, mark: Some(mark), value, metadata });
        Ok(fields.iter().filter_map(bytes).map(<[u8]>::len).sum::<usize>() + 64)
    }
}

fn pairs(fields: &[Value]) -> Vec<(String, String)> {
    let text =
        |value: &Value| String::from_utf8_lossy(bytes(value).unwrap_or_default()).into_owned();
    fields.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// Fields as a JSON object.
fn as_object(fields: &[Value]) -> String {
    let pairs = pairs(fields).into_iter().map(|(name, value)| (name, value.into()));
    serde_json::Value::Object(pairs.collect()).to_string()
}

impl Client for StreamReader {
    fn connect(&mut self, inbox: &Inbox) -> Attempt<()> {
        self.asked = None;
        self.session.connect()?;
        for split in inbox.splits() {
            // A place in time is no entry.
            if let Some(last) = split.last.filter(|&last| last > 0 && last as u64 != u64::MAX) {
                self.check_kept(&split.name, last)?;
            }
        }
        Ok(())
    }

    fn start_mark(&mut self, split: &str, startup: Startup) -> Attempt<Option<Mark>> {
        match startup {
            Startup::Earliest => Ok(None),
            Startup::Latest => Ok(Some(self.newest(split)?.unwrap_or(0))),
            Startup::Time(millis) => {
                Ok(Some((Mark::from(u64::try_from(millis).unwrap_or(0)) << 64).saturating_sub(1)))
            }
        }
    }

    fn newest(&mut self, split: &str) -> Attempt<Option<Mark>> {
        match self.info(split)? {
            None => Ok(None),
            Some(info) => self.id(&info, "last-generated-id"),
        }
    }

    fn receive(&mut self, inbox: &mut Inbox) -> Attempt<()> {
        if self.asked.is_none() {
            self.ask(inbox)?;
        }
        let Some((splits, since)) = self.asked.take() else {
            std::thread::sleep(crate::network::TICK);
            return Ok(());
        };
        match self.session.poll(true)? {
            Some(answer) => {
                let answer = checked(answer, self.session.server())?;
                self.take(&splits, &answer, inbox)
            }
            None if since.elapsed() > ANSWER_WAIT => Err(Failure::no_answer(ANSWER_WAIT)),
            None => {
                self.asked = Some((splits, since));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_order_of_their_entries() {
        let ids = ["0-0", "5-18446744073709551615", "6-0", "1526919030474-55"];
        let marks: Vec<Mark> = ids.iter().map(|id| read_id(id).expect("an id")).collect();
        assert!(marks.is_sorted());
        assert_eq!(marks.iter().map(|&mark| (IDS.write)(mark)).collect::<Vec<_>>(), ids);
        assert_eq!((read_id("5"), read_id("a-1"), read_id("")), (None, None, None));
    }
}
