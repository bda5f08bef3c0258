//! Files that were listed, each of which is one that was known before, perhaps under another name,
//! or a new one.

use std::collections::HashMap;
use std::sync::Arc;

use super::input_file::InputFile;
use super::stamp::Stamp;

/// The files of a table as they are now, until each has found whose it is.
pub struct Listing {
    files: Vec<Option<Arc<InputFile>>>,
    by_label: HashMap<Arc<str>, usize>,
    by_place: HashMap<(u64, u64), Vec<usize>>,
}

impl Listing {
    /// All of these, in this order.
    pub fn new(files: impl IntoIterator<Item = Arc<InputFile>>) -> Listing {
        let files: Vec<_> = files.into_iter().map(Some).collect();
        let (mut by_label, mut by_place) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (at, file) in files.iter().flatten().enumerate() {
            by_label.insert(file.label.clone(), at);
            if let Some(stamp) = file.stamp {
                by_place.entry(stamp.place()).or_default().push(at);
            }
        }
        Listing { files, by_label, by_place }
    }

    /// Takes the file that has this name and lies where it lay.
    pub fn take_same(&mut self, label: &str, stamp: Option<Stamp>) -> Option<Arc<InputFile>> {
        let file = self.labelled(label)?;
        let is_same = match (stamp, file.stamp) {
            (Some(then), Some(now)) => then.place() == now.place(),
            _ => true,
        };
        if is_same { self.take(label) } else { None }
    }

    /// Takes a file that lies where it lay, and has another name.
    pub fn take_moved(&mut self, stamp: Stamp) -> Option<Arc<InputFile>> {
        let at = self.by_place.get(&stamp.place())?;
        at.iter().find_map(|&at| self.files[at].take())
    }

    /// The file of this name.
    pub fn labelled(&self, label: &str) -> Option<&Arc<InputFile>> {
        self.files[*self.by_label.get(label)?].as_ref()
    }

    /// Takes the file of this name.
    pub fn take(&mut self, label: &str) -> Option<Arc<InputFile>> {
        self.files[*self.by_label.get(label)?].take()
    }

    /// Puts a file back: it was not what it seemed to be.
    pub fn put_back(&mut self, file: Arc<InputFile>) {
        if let Some(&at) = self.by_label.get(&file.label) {
            self.files[at] = Some(file);
        }
    }

    /// Those that were not taken.
    pub fn into_rest(self) -> impl Iterator<Item = Arc<InputFile>> {
        self.files.into_iter().flatten()
    }
}
