//! The stages of a cut as a manifest lists them: everything but the rows of their tables.
//!
//! Watermarks are whole milliseconds; those that stand for no time have names: `"min"` where
//! nothing is promised yet, `"end"` where the input has ended.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use thalweg_core::Watermark;
use thalweg_core::snapshot::{
    AssignerPosition, InputState, LaneState, SinkGuarantee, SinkState, SourceState, SplitState,
    StageState,
};

use super::TableEntry;

/// A watermark as a manifest writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WatermarkText(pub Watermark);

impl Serialize for WatermarkText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Watermark::MIN => serializer.serialize_str("min"),
            Watermark::END => serializer.serialize_str("end"),
            Watermark(time_ms) => serializer.serialize_i64(time_ms),
        }
    }
}

impl<'de> Deserialize<'de> for WatermarkText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let watermark = match (value.as_str(), value.as_i64()) {
            (Some("min"), _) => Watermark::MIN,
            (Some("end"), _) => Watermark::END,
            (_, Some(time_ms)) => Watermark(time_ms),
            _ => return Err(D::Error::custom(format!("{value} is no watermark"))),
        };
        Ok(WatermarkText(watermark))
    }
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StageEntry {
    pub id: String,
    pub name: String,
    pub ended: bool,
    pub places: u64,
    pub inputs: Option<InputsEntry>,
    pub source: Option<SourceEntry>,
    pub sink: Option<SinkEntry>,
    pub state: Vec<TableEntry>,
    pub waiting: Vec<TableEntry>,
}

/// What is known of the inputs of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InputsEntry {
    lanes: Vec<LaneEntry>,
    ended_at: WatermarkText,
    joint: WatermarkText,
    passed: WatermarkText,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LaneEntry {
    watermark: WatermarkText,
    idle: bool,
}

/// How far a source has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourceEntry {
    position: Option<String>,
    assigner: Option<AssignerEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    splits: Vec<SplitEntry>,
    finished: bool,
    idle: bool,
    epoch: u64,
    serial: u64,
    taken: WatermarkText,
    frontier_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AssignerEntry {
    running: WatermarkText,
    taken: WatermarkText,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SplitEntry {
    name: String,
    running: WatermarkText,
    idle: bool,
    ended: bool,
}

/// What a sink has ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SinkEntry {
    guarantee: GuaranteeText,
    handle: Option<String>,
    has_ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GuaranteeText {
    AtLeastOnce,
    Idempotent,
    Transactional,
}

impl StageEntry {
    /// The entry of a stage, without its tables.
    pub fn of<T>(stage: &StageState<T>) -> StageEntry {
        StageEntry {
            id: stage.id.clone(),
            name: stage.name.clone(),
            ended: stage.ended,
            places: stage.places,
            inputs: stage.inputs.as_ref().map(InputsEntry::of),
            source: stage.source.as_ref().map(SourceEntry::of),
            sink: stage.sink.as_ref().map(SinkEntry::of),
            state: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// The stage, with what its tables hold.
    pub fn with_state<T>(&self, state: T, waiting: T) -> StageState<T> {
        StageState {
            id: self.id.clone(),
            name: self.name.clone(),
            ended: self.ended,
            inputs: self.inputs.as_ref().map(InputsEntry::state),
            places: self.places,
            source: self.source.as_ref().map(SourceEntry::state),
            sink: self.sink.as_ref().map(SinkEntry::state),
            state,
            waiting,
        }
    }

    /// All its tables.
    pub fn tables(&self) -> impl Iterator<Item = &TableEntry> {
        self.state.iter().chain(&self.waiting)
    }
}

impl InputsEntry {
    fn of(inputs: &InputState) -> InputsEntry {
        let lane = |lane: &LaneState| LaneEntry {
            watermark: WatermarkText(lane.watermark),
            idle: lane.idle,
        };
        InputsEntry {
            lanes: inputs.lanes.iter().map(lane).collect(),
            ended_at: WatermarkText(inputs.ended_at),
            joint: WatermarkText(inputs.joint),
            passed: WatermarkText(inputs.passed),
        }
    }

    fn state(&self) -> InputState {
        let lane = |lane: &LaneEntry| LaneState { watermark: lane.watermark.0, idle: lane.idle };
        InputState {
            lanes: self.lanes.iter().map(lane).collect(),
            ended_at: self.ended_at.0,
            joint: self.joint.0,
            passed: self.passed.0,
        }
    }
}

impl SourceEntry {
    fn of(source: &SourceState) -> SourceEntry {
        let assigner = |position: &AssignerPosition| AssignerEntry {
            running: WatermarkText(position.running),
            taken: WatermarkText(position.taken),
        };
        let split = |split: &SplitState| SplitEntry {
            name: split.name.to_string(),
            running: WatermarkText(split.running),
            idle: split.idle,
            ended: split.ended,
        };
        SourceEntry {
            position: source.position.clone(),
            assigner: source.assigner.as_ref().map(assigner),
            splits: source.splits.iter().map(split).collect(),
            finished: source.finished,
            idle: source.idle,
            epoch: source.epoch,
            serial: source.serial,
            taken: WatermarkText(source.taken),
            frontier_ms: source.frontier_ms,
        }
    }

    fn state(&self) -> SourceState {
        let assigner = |entry: &AssignerEntry| AssignerPosition {
            running: entry.running.0,
            taken: entry.taken.0,
        };
        let split = |entry: &SplitEntry| SplitState {
            name: entry.name.as_str().into(),
            running: entry.running.0,
            idle: entry.idle,
            ended: entry.ended,
        };
        SourceState {
            position: self.position.clone(),
            assigner: self.assigner.as_ref().map(assigner),
            splits: self.splits.iter().map(split).collect(),
            finished: self.finished,
            idle: self.idle,
            epoch: self.epoch,
            serial: self.serial,
            taken: self.taken.0,
            frontier_ms: self.frontier_ms,
        }
    }
}

impl SinkEntry {
    fn of(sink: &SinkState) -> SinkEntry {
        let guarantee = match sink.guarantee {
            SinkGuarantee::AtLeastOnce => GuaranteeText::AtLeastOnce,
            SinkGuarantee::Idempotent => GuaranteeText::Idempotent,
            SinkGuarantee::Transactional => GuaranteeText::Transactional,
        };
        SinkEntry { guarantee, handle: sink.handle.clone(), has_ended: sink.has_ended }
    }

    fn state(&self) -> SinkState {
        let guarantee = match self.guarantee {
            GuaranteeText::AtLeastOnce => SinkGuarantee::AtLeastOnce,
            GuaranteeText::Idempotent => SinkGuarantee::Idempotent,
            GuaranteeText::Transactional => SinkGuarantee::Transactional,
        };
        SinkState { guarantee, handle: self.handle.clone(), has_ended: self.has_ended }
    }
}
