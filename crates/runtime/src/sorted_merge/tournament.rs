//! Merges neighbouring sorted runs of times, two and two, until one is left.
//!
//! **Invariant:** the runs lie one behind the other, and a pass puts each merged pair where its two
//! runs stood; so every pass is one walk over two buffers, and a tie goes to the run further left.
//!
//! Which side a row is taken from is computed, not branched on: with inputs that alternate at
//! random the processor would guess wrong for every other row.
//!
//! What it costs: a row moves once per level, 12 bytes, that is log2 of the number of runs.

/// Times and the indices that they had before they were merged.
#[derive(Default)]
pub(super) struct Tournament {
    times: Vec<i64>,
    indices: Vec<u32>,
    /// Where the next pass writes to.
    spare_times: Vec<i64>,
    spare_indices: Vec<u32>,
    /// Where each run ends.
    ends: Vec<usize>,
}

impl Tournament {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.times.clear();
        self.ends.clear();
    }

    /// Adds sorted times behind the run that was begun last, which they must not be older than.
    pub(super) fn extend(&mut self, times: &[i64]) {
        self.times.extend_from_slice(times);
    }

    /// Ends a run. An empty one is none.
    pub(super) fn end_run(&mut self) {
        if self.times.len() > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(self.times.len());
        }
    }

    /// How many runs there are.
    pub(super) fn runs(&self) -> usize {
        self.ends.len()
    }

    /// Merges all runs. Leaves indices in their place, see [`indices`](Self::indices), and returns
    /// the times.
    pub(super) fn merge(&mut self) -> Vec<i64> {
        let rows = self.times.len();
        self.indices.clear();
        self.indices.extend(0..u32::try_from(rows).expect("a merge is bounded by u32::MAX rows"));
        self.spare_times.resize(rows, 0);
        self.spare_indices.resize(rows, 0);
        while self.ends.len() > 1 {
            self.pass();
        }
        std::mem::take(&mut self.times)
    }

    /// Where each merged row stood before.
    pub(super) fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Merges each run at an even place with its right neighbour.
    fn pass(&mut self) {
        let (mut begin, mut merged_ends) = (0, 0);
        let mut place = 0;
        while place < self.ends.len() {
            let middle = self.ends[place];
            let end = self.ends.get(place + 1).copied().unwrap_or(middle);
            merge_neighbours(
                Run { times: &self.times[begin..middle], indices: &self.indices[begin..middle] },
                Run { times: &self.times[middle..end], indices: &self.indices[middle..end] },
                &mut self.spare_times[begin..end],
                &mut self.spare_indices[begin..end],
            );
            self.ends[merged_ends] = end;
            (merged_ends, place, begin) = (merged_ends + 1, place + 2, end);
        }
        self.ends.truncate(merged_ends);
        std::mem::swap(&mut self.times, &mut self.spare_times);
        std::mem::swap(&mut self.indices, &mut self.spare_indices);
    }
}

/// A sorted run.
#[derive(Clone, Copy)]
struct Run<'a> {
    times: &'a [i64],
    indices: &'a [u32],
}

fn merge_neighbours(left: Run, right: Run, times: &mut [i64], indices: &mut [u32]) {
    let (mut l, mut r) = (0, 0);
    let mut out = times.iter_mut().zip(indices.iter_mut());
    while l < left.times.len() && r < right.times.len() {
        let Some((time, index)) = out.next() else { break };
        let (left_time, right_time) = (left.times[l], right.times[r]);
        let (left_index, right_index) = (left.indices[l], right.indices[r]);
        let takes_right = right_time < left_time;
        *time = left_time.min(right_time);
        *index = if takes_right { right_index } else { left_index };
        r += usize::from(takes_right);
        l += usize::from(!takes_right);
    }
    let merged = l + r;
    let rest = if l < left.times.len() {
        Run { times: &left.times[l..], indices: &left.indices[l..] }
    } else {
        Run { times: &right.times[r..], indices: &right.indices[r..] }
    };
    times[merged..].copy_from_slice(rest.times);
    indices[merged..].copy_from_slice(rest.indices);
}
