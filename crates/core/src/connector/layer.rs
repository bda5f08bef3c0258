//! Sources, sinks and connectors around others: a wrapper implements [`SourceLayer`], [`SinkLayer`]
//! or [`ConnectorLayer`], says what it wraps and what it does differently; all other calls are
//! passed on.
//!
//! The lists below are the only places where calls are passed on one by one. A call that is added
//! to a contract and not to its list fails the lints of this crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::{
    AcceptedChanges, Connector, ConnectorDescription, Demand, JobTables, MergedSplit, Sink, Source,
    SourcePoll, SplitId, SplitStatus, StateTable, StateTableRequest, TableRequest, Trouble, Waker,
};
use crate::bundle::RowKind;
use crate::error::Result;
use crate::live::LiveTable;
use crate::lookup::{AsyncLookup, LookupRequest};
use crate::snapshot::{OutputMark, OutputStart, SinkGuarantee};

macro_rules! layer {
    (
        $(#[$about:meta])* $layer:ident [$($bound:ident),+] around $base:ident;
        reading { $(fn $get:ident($($key:ident: $by:ty),*) -> $got:ty;)* }
        $(changing by $inner_mut:ident {
            $(fn $call:ident($($argument:ident: $of:ty),*) $(-> $result:ty)?;)*
        })?
    ) => {
        $(#[$about])*
        pub trait $layer: $($bound +)+ {
            /// What calls are passed on to.
            fn inner(&self) -> &dyn $base;
            $(
                #[doc = concat!("As [`", stringify!($base), "::", stringify!($get), "`].")]
                fn $get(&self $(, $key: $by)*) -> $got {
                    self.inner().$get($($key),*)
                }
            )*
            $(
                /// The same, to change it.
                fn $inner_mut(&mut self) -> &mut dyn $base;
                $(
                    #[doc = concat!("As [`", stringify!($base), "::", stringify!($call), "`].")]
                    fn $call(&mut self $(, $argument: $of)*) $(-> $result)? {
                        self.$inner_mut().$call($($argument),*)
                    }
                )*
            )?
        }

        #[deny(clippy::missing_trait_methods)]
        impl<L: $layer> $base for L {
            $(fn $get(&self $(, $key: $by)*) -> $got {
                $layer::$get(self $(, $key)*)
            })*
            $($(fn $call(&mut self $(, $argument: $of)*) $(-> $result)? {
                $layer::$call(self $(, $argument)*)
            })*)?
        }
    };
}

layer! {
    /// A source around another one.
    SourceLayer [Send] around Source;
    reading {
        fn name() -> String;
        fn is_bounded() -> bool;
        fn buffered_bytes() -> usize;
        fn overdue_ns() -> u64;
        fn bad_rows() -> u64;
        fn reconnects() -> Option<u64>;
        fn position() -> Option<String>;
        fn split_status(split: SplitId) -> SplitStatus;
        fn merged_splits() -> Vec<MergedSplit>;
        fn canceller() -> Option<Waker>;
    }
    changing by inner_mut {
        fn start(waker: Waker) -> Result<()>;
        fn poll(rows_max: usize) -> Result<SourcePoll>;
        fn stop();
        fn pause_split(split: SplitId, is_paused: bool);
        fn seek(position: &str) -> Result<()>;
        fn check_ended(position: &str) -> Result<()>;
        fn claim() -> Result<()>;
        fn open() -> Result<()>;
        fn use_snapshots();
        fn prepare() -> Result<()>;
        fn finish() -> Result<()>;
        fn abort();
        fn committed(position: &str) -> Result<()>;
    }
}

layer! {
    /// A sink around another one.
    SinkLayer [Send] around Sink;
    reading {
        fn name() -> String;
        fn demand() -> Demand;
        fn canceller() -> Option<Waker>;
        fn trouble() -> Option<Trouble>;
    }
    changing by inner_mut {
        fn claim() -> Result<()>;
        fn connect() -> Result<()>;
        fn open() -> Result<()>;
        fn write(batch: &RecordBatch, kinds: Option<&[RowKind]>) -> Result<()>;
        fn flush() -> Result<()>;
        fn finish() -> Result<()>;
        fn abort();
        fn use_transactions() -> SinkGuarantee;
        fn write_at_least_once();
        fn check_start(handle: Option<&str>, start: &OutputStart) -> Result<()>;
        fn mark(mark: &OutputMark) -> Result<()>;
        fn recover(handle: Option<&str>) -> Result<()>;
        fn prepare() -> Result<Option<String>>;
        fn commit(handle: &str) -> Result<()>;
    }
}

layer! {
    /// A connector around another one.
    ConnectorLayer [Send, Sync] around Connector;
    reading {
        fn description() -> &ConnectorDescription;
        fn validate(request: &TableRequest, as_sink: bool) -> Result<()>;
        fn is_bounded(request: &TableRequest) -> bool;
        fn accepted_changes(request: &TableRequest) -> AcceptedChanges;
        fn held_changes(request: &TableRequest) -> AcceptedChanges;
        fn check_snapshots(request: &TableRequest, as_sink: bool) -> Result<()>;
        fn state_options(request: &TableRequest, as_sink: bool) -> BTreeMap<String, String>;
        fn reads_standard_input(request: &TableRequest) -> bool;
        fn checked_columns(request: &TableRequest) -> Vec<String>;
        fn leaves_rows_out(request: &TableRequest) -> bool;
        fn check_files(tables: &JobTables) -> Result<()>;
        fn check_files_after(earlier: &[JobTables], job: &JobTables) -> Result<()>;
        fn check_files_at_once(running: &JobTables, job: &JobTables) -> Result<()>;
        fn source(request: &TableRequest) -> Result<Box<dyn Source>>;
        fn sink(request: &TableRequest) -> Result<Box<dyn Sink>>;
        fn lookup(request: &LookupRequest) -> Result<Arc<dyn AsyncLookup>>;
        fn state_table(request: &StateTableRequest) -> Result<StateTable>;
        fn live_table(request: &TableRequest) -> Result<Arc<LiveTable>>;
    }
}

/// A sink that discards its rows: for measuring, and where a plan is only looked at.
pub struct DiscardSink {
    name: String,
}

impl DiscardSink {
    /// With this name.
    pub fn new(name: impl Into<String>) -> Self {
        DiscardSink { name: name.into() }
    }
}

impl Sink for DiscardSink {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn write(&mut self, _batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
