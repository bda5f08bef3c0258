//! Stages of whole scripts, with connectors that open nothing.

use std::sync::Arc;

use thalweg_core::connector::{
    AcceptedChanges, Boundedness, Capabilities, Connector, ConnectorDescription, Connectors,
    SinkCapability, SourceCapability, TableRequest, Waker,
};
use thalweg_core::graph::StageKind;
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::shim::ManualClock;
use thalweg_core::snapshot::SinkGuarantee;
use thalweg_core::{Error, Result, Sink, Source, SourcePoll};

use super::PhysicalPlan;
use crate::ast::StatementKind;
use crate::logical::LogicalKind;
use crate::logical::traversal::post_order;
use crate::logical::upserts::is_unique_by;
use crate::parser::parse_script;
use crate::planner::{Planner, PlannerOptions};

/// A source that delivers nothing and remembers what was asked for.
struct Nothing(String);

impl Source for Nothing {
    fn name(&self) -> String {
        self.0.clone()
    }
    fn start(&mut self, _waker: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, _rows_max: usize) -> Result<SourcePoll> {
        Ok(SourcePoll::End)
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// A connector of this name: 'print' is a sink only, 'stream' never ends.
struct Fake(ConnectorDescription);

impl Fake {
    fn new(name: &'static str) -> Fake {
        let changes = &[AcceptedChanges::Inserts];
        let boundedness = Boundedness::ByOptions;
        let source =
            SourceCapability { boundedness, changes, has_positions: true, prunes_columns: true };
        let capabilities = Capabilities {
            source: (name != "print").then_some(source),
            sink: Some(SinkCapability { changes, guarantee: SinkGuarantee::AtLeastOnce }),
            ..Capabilities::NONE
        };
        Fake(ConnectorDescription {
            capabilities,
            ..ConnectorDescription::new(name, "opens nothing")
        })
    }
}

impl Connector for Fake {
    fn description(&self) -> &ConnectorDescription {
        &self.0
    }
    fn validate(&self, _request: &TableRequest, _as_sink: bool) -> Result<()> {
        Ok(())
    }
    fn is_bounded(&self, _request: &TableRequest) -> bool {
        self.0.name != "stream"
    }
    fn source(&self, request: &TableRequest) -> Result<Box<dyn Source>> {
        let names = request.delivered().columns;
        let names: Vec<String> = names.into_iter().map(|c| c.name).collect();
        Ok(Box::new(Nothing(names.join(","))))
    }
    fn sink(&self, _request: &TableRequest) -> Result<Box<dyn Sink>> {
        Ok(super::no_sink())
    }
}

/// Plans the last statement of a script.
fn plan(text: &str) -> Result<PhysicalPlan> {
    let options = PlannerOptions {
        secrets_folder: None,
        is_remote: false,
        inlets: None,
        base_dir: ".".into(),
        allowed_roots: Vec::new(),
        workers: 2,
        clock: Arc::new(ManualClock::default()),
    };
    let names = ["filesystem", "print", "stream", "x"];
    let connectors =
        Connectors::new(names.map(|name| Arc::new(Fake::new(name)) as Arc<dyn Connector>).into());
    let mut planner = Planner::new(connectors, options);
    for statement in parse_script(text)? {
        match &statement.kind {
            StatementKind::Insert(insert) => {
                planner.explain(&statement)?;
                return planner.plan_insert(std::slice::from_ref(insert));
            }
            StatementKind::StatementSet(inserts) => return planner.plan_insert(inserts),
            StatementKind::Select(query) => {
                return planner.plan_select(query, &mut |_| Ok(super::no_sink()));
            }
            _ => planner.execute_ddl(&statement).map(drop)?,
        }
    }
    panic!("no statement to plan")
}

fn plan_error(text: &str) -> Error {
    match plan(text) {
        Err(error) => error,
        Ok(plan) => panic!("planned: {:?}", names(&plan)),
    }
}

fn names(plan: &PhysicalPlan) -> Vec<&str> {
    plan.stages.iter().map(|stage| stage.name.as_str()).collect()
}

fn count(plan: &PhysicalPlan, of: fn(&StageKind) -> bool) -> usize {
    plan.graph.stages.iter().filter(|stage| of(&stage.kind)).count()
}

fn sources(plan: &PhysicalPlan) -> usize {
    count(plan, |kind| matches!(kind, StageKind::Source { .. }))
}

fn operators(plan: &PhysicalPlan) -> usize {
    count(plan, |kind| matches!(kind, StageKind::Operator(_)))
}

const DEPARTURES: &str = "CREATE TABLE departures (departed TIMESTAMP(3), sched TIMESTAMP(3), \
    carrier STRING, flight INT, origin STRING, dest STRING, delay INT, \
    WATERMARK FOR sched AS departed - INTERVAL '1' HOUR) WITH ('connector'='filesystem');\n\
    CREATE VIEW hours AS SELECT window_start AS hour_start, origin, COUNT(*) AS flights, \
    AVG(CAST(delay AS DOUBLE)) AS mean, MAX(delay) AS worst \
    FROM TABLE(TUMBLE(TABLE departures, DESCRIPTOR(sched), INTERVAL '1' HOUR)) \
    GROUP BY window_start, window_end, origin;\n\
    CREATE TABLE all_hours (hour_start TIMESTAMP(3), origin STRING, flights BIGINT) WITH ('connector'='print');\n\
    CREATE TABLE worst (hour_start TIMESTAMP(3), mean DOUBLE) WITH ('connector'='print');\n\
    CREATE TABLE late (sched TIMESTAMP(3), flight INT) WITH ('connector'='print');\n";

const BOTH: &str = "EXECUTE STATEMENT SET BEGIN \
    INSERT INTO all_hours SELECT hour_start, origin, flights FROM hours; \
    INSERT INTO worst SELECT hour_start, mean FROM hours WHERE flights >= 10 ORDER BY mean DESC LIMIT 10; END;";

#[test]
fn two_sinks_share_one_scan_and_one_aggregate() {
    let plan = plan(&format!("{DEPARTURES}{BOTH}")).expect("it plans");
    assert_eq!(sources(&plan), 1, "{:?}", names(&plan));
    // The window and the sort.
    assert_eq!(operators(&plan), 2, "{:?}", names(&plan));
    assert_eq!(count(&plan, |kind| matches!(kind, StageKind::Sink(_))), 2);
    assert!(plan.is_bounded);
}

#[test]
fn only_needed_columns_are_read_and_only_useful_watermarks_emitted() {
    let plan = plan(&format!("{DEPARTURES}{BOTH}")).expect("it plans");
    let source = plan
        .graph
        .stages
        .iter()
        .position(|stage| matches!(stage.kind, StageKind::Source { .. }))
        .expect("a source");
    let StageKind::Source { source: reader, assigner } = &plan.graph.stages[source].kind else {
        panic!("a source")
    };
    // departed is for the watermark only; MAX(delay) is used by nobody, AVG(delay) is.
    assert_eq!(reader.name(), "departed,sched,origin,delay");
    assert!(assigner.is_some());
    let interest = plan.graph.watermark_interest(thalweg_core::graph::StageId(source));
    let WatermarkInterest::Grids(grids) = interest else { panic!("{interest:?}") };
    assert_eq!(grids.iter().map(|grid| grid.period_ms).collect::<Vec<_>>(), [3_600_000]);
}

#[test]
fn late_rows_reach_their_table_with_its_columns() {
    let plan = plan(&format!("SET 'late.data' = 'late';\n{DEPARTURES}{BOTH}")).expect("it plans");
    let late = plan.graph.stages.iter().find(|stage| stage.inputs.iter().any(|i| i.port == 1));
    let late = late.expect("a stage reads port 1");
    assert_eq!(late.name, "late rows for late");
    let StageKind::Source { source, .. } = &plan.graph.stages[0].kind else { panic!("a source") };
    assert_eq!(source.name(), "departed,sched,flight,origin,delay");
    assert_eq!(count(&plan, |kind| matches!(kind, StageKind::Sink(_))), 3);
}

#[test]
fn late_tables_must_fit_and_be_fed() {
    let set = "SET 'late.data' = 'late';\n";
    let missing = DEPARTURES.replace("flight INT) WITH", "flite INT) WITH");
    let error = plan_error(&format!("{set}{missing}{BOTH}"));
    assert!(error.message().contains("'flite'"), "{error:?}");
    assert!(error.help().is_some_and(|help| help.contains("flight")), "{:?}", error.help());
    let error = plan_error(&format!("{set}{DEPARTURES}SELECT carrier FROM departures"));
    assert!(error.message().contains("nothing in this statement judges"), "{error:?}");
}

#[test]
fn stage_identifiers_do_not_depend_on_the_statement_around() {
    let alone = plan(&format!(
        "{DEPARTURES}INSERT INTO all_hours SELECT hour_start, origin, flights FROM hours"
    ))
    .expect("it plans");
    let again = plan(&format!(
        "{DEPARTURES}INSERT INTO all_hours SELECT hour_start, origin, flights FROM hours WHERE origin <> 'X'"
    ))
    .expect("it plans");
    let window = |plan: &PhysicalPlan| {
        let stage = plan.stages.iter().find(|stage| stage.name == "window departures");
        stage.map(|stage| stage.id.clone())
    };
    assert!(window(&alone).is_some());
    assert_eq!(window(&alone), window(&again));
}

#[test]
fn row_by_row_nodes_are_one_chain() {
    let plan = plan(&format!(
        "{DEPARTURES}SELECT UPPER(o) FROM (SELECT origin o, delay d FROM departures WHERE delay > 0) WHERE d < 9"
    ))
    .expect("it plans");
    assert_eq!(plan.stages.len(), 3, "{:?}", names(&plan));
    assert!(plan.stages[1].name.starts_with("filter departures"));
}

#[test]
fn the_same_branch_twice_in_a_union_is_read_twice_from_one_scan() {
    let plan = plan(&format!(
        "{DEPARTURES}SELECT flight FROM departures UNION ALL SELECT flight FROM departures"
    ))
    .expect("it plans");
    assert_eq!(sources(&plan), 1);
    let sink = plan.graph.stages.last().expect("a sink");
    assert_eq!(sink.inputs.len(), 2);
    assert_ne!(sink.inputs[0], sink.inputs[1]);
}

#[test]
fn the_first_rows_of_an_endless_input_change() {
    let endless = DEPARTURES.replace("'connector'='filesystem'", "'connector'='stream'");
    let first = "SELECT delay FROM departures ORDER BY delay LIMIT 3 OFFSET 2";
    let with = |tables: &str| plan(&format!("{tables}{first}")).expect("it plans");
    assert!(names(&with(&endless)).contains(&"top departures"));
    assert!(names(&with(DEPARTURES)).contains(&"sort departures"), "it ends");
    let error = plan_error(&format!(
        "{endless}CREATE TABLE o (delay INT) WITH ('connector'='filesystem'); INSERT INTO o {first}"
    ));
    assert!(error.message().contains("ORDER BY … LIMIT over an input without an end"), "{error:?}");
    let plan =
        plan(&format!("{endless}SELECT sched FROM departures ORDER BY sched")).expect("it plans");
    assert!(!plan.is_bounded);
    assert_eq!(
        plan.graph.watermark_interest(thalweg_core::graph::StageId(0)),
        WatermarkInterest::Every
    );
}

#[test]
fn constants_are_a_source() {
    let plan = plan("SELECT 1 + 1 AS two, 'x' AS x").expect("it plans");
    assert_eq!(names(&plan)[0], "values");
    let error = plan_error(&format!("{DEPARTURES}SELECT * FROM worst"));
    assert!(error.message().contains("can't be read"), "{error:?}");
}

#[test]
fn explain_shows_what_order_costs() {
    let text = explained("SET 'pipeline.order' = 'arrival';");
    for part in ["order: arrival; ", "order: reorder", "order: scatter by key, reorder"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let text = explained(
        "SET 'pipeline.order' = 'event_time'; \
         SET 'pipeline.order.allow-nondeterministic' = 'true';",
    );
    for part in ["order: event_time (runs may differ", "must be sorted by row time"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let text = explained("");
    assert_eq!(text.matches("order:").count(), 1, "nothing but the contract: {text}");
}

#[test]
fn explain_shows_plan_and_stages() {
    let text = explained("");
    for part in [
        "sched TIMESTAMP(3) *ROWTIME*",
        "TUMBLE(3600000 ms)",
        "(shared, see above)",
        "window departures",
        "emits watermarks: every 3600000 ms",
        "late rows: counted and dropped",
        "order: epoch",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

/// What EXPLAIN says about the statement set over departures under these settings.
fn explained(settings: &str) -> String {
    let options = PlannerOptions {
        secrets_folder: None,
        is_remote: false,
        inlets: None,
        base_dir: ".".into(),
        allowed_roots: Vec::new(),
        workers: 2,
        clock: Arc::new(ManualClock::default()),
    };
    let names = ["filesystem", "print", "stream", "x"];
    let connectors =
        Connectors::new(names.map(|name| Arc::new(Fake::new(name)) as Arc<dyn Connector>).into());
    let mut planner = Planner::new(connectors, options);
    let script = format!("{DEPARTURES}{settings}{BOTH}");
    let statements = parse_script(&script).expect("it parses");
    let (last, declarations) = statements.split_last().expect("statements");
    for statement in declarations {
        planner.execute_ddl(statement).expect("it is declared");
    }
    planner.explain(last).expect("it is explained")
}

const ORDERED: &str = "SET 'pipeline.order' = 'arrival';\n\
    CREATE TABLE t (n INT, ts TIMESTAMP(3), clock AS PROCTIME(), WATERMARK FOR ts AS ts) \
    WITH ('connector'='filesystem'); CREATE TABLE u (n INT) WITH ('connector'='filesystem');\n";

#[test]
fn functions_that_the_data_do_not_decide_are_refused_where_they_stand() {
    let functions = [
        "RAND()",
        "RAND(7)",
        "RAND_INTEGER(5)",
        "UUID()",
        "NOW()",
        "CURRENT_TIMESTAMP",
        "CURRENT_ROW_TIMESTAMP()",
        "LOCALTIMESTAMP",
        "CURRENT_DATE",
        "CURRENT_TIME",
        "LOCALTIME",
        "UNIX_TIMESTAMP()",
        "PROCTIME()",
    ];
    for function in functions {
        let query = format!("SELECT n,\n  n + 1, COALESCE({function}) AS x FROM u");
        let error = plan_error(&format!("{ORDERED}{query}"));
        let span = error.span().unwrap_or_else(|| panic!("{function}: {error}"));
        assert_eq!((span.line, span.column), (4, 19), "{function}: {error}");
        assert!(error.message().contains("'arrival'"), "{function}: {error}");
        let allowed = "SET 'pipeline.order.allow-nondeterministic' = 'true';";
        assert!(plan(&format!("{ORDERED}{allowed}{query}")).is_ok(), "{function}");
        let epoch = "RESET 'pipeline.order';";
        assert!(plan(&format!("{ORDERED}{epoch}{query}")).is_ok(), "{function}");
    }
}

#[test]
fn what_the_clock_decides_is_refused_wherever_it_hides() {
    let place = |query: &str| {
        let error = plan_error(&format!("{ORDERED}{query}"));
        let span = error.span().unwrap_or_else(|| panic!("{query}: {error}"));
        (span.line, span.column)
    };
    assert_eq!(place("SELECT n, clock FROM t"), (2, 50), "a computed column, where it is declared");
    assert_eq!(place("SELECT n FROM t WHERE ts < LOCALTIMESTAMP"), (3, 28));
    let windows = "SELECT COUNT(*) FILTER (WHERE RAND() < 0.5) \
        FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end";
    assert_eq!(place(windows), (3, 31));
    let over = "SELECT SUM(RAND()) OVER (ORDER BY ts) FROM t";
    assert_eq!(place(over), (3, 12));
    let join = "SELECT a.n FROM t AS a JOIN t AS b ON a.n = b.n AND RAND() < 0.5";
    assert_eq!(place(join), (3, 53));
    let pattern = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES SUM(n) AS s \
        PATTERN (A B) DEFINE A AS RAND() < 0.5)";
    assert_eq!(place(pattern), (3, 93));
    let view = "CREATE VIEW v AS SELECT UUID() AS id FROM t;\nSELECT id FROM v";
    assert_eq!(place(view), (3, 25), "a view, where it is declared");
    let skew = "SET 'watermark.max-future-skew' = '1 h';\nSELECT n FROM t";
    let error = plan_error(&format!("{ORDERED}{skew}"));
    assert!(error.message().contains("'watermark.max-future-skew'"), "{error}");
    for decided in ["SELECT n FROM t", "SELECT CURRENT_WATERMARK(ts) FROM t"] {
        assert!(plan(&format!("{ORDERED}{decided}")).is_ok(), "{decided}");
    }
}

#[test]
fn rows_without_a_time_have_no_place_in_event_time() {
    let table = |columns: &str, options: &str| {
        format!(
            "SET 'pipeline.order' = 'event_time'; CREATE TABLE t ({columns}) \
             WITH ('connector' = 'filesystem'{options}); SELECT * FROM t"
        )
    };
    let timed = "ts TIMESTAMP(3), WATERMARK FOR ts AS ts";
    let help = |text: String| plan_error(&text).help().unwrap_or_default().to_owned();
    assert!(help(table("ts TIMESTAMP(3)", "")).contains("WATERMARK"));
    assert!(plan(&table(timed, "")).is_ok());
    assert!(plan(&table(timed, ", 'source.sort-within' = '22 h'")).is_ok());
    assert!(help(table(timed, ", 'source.sort-within' = '22 parsecs'")).contains("a unit"));
    let slip = help(table(timed, ", 'source.sortwithin' = '22 h'"));
    assert_eq!(slip, "did you mean 'source.sort-within'?");
    let sorted = table("n INT", ", 'source.sort-within' = '1 h'");
    assert!(help(sorted.replace("event_time", "epoch")).contains("WATERMARK"));
}

#[test]
fn what_a_table_says_of_its_splits_is_checked() {
    let query = |options: &str| {
        format!(
            "CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
             WITH ('connector' = 'filesystem', {options}); SELECT * FROM t"
        )
    };
    let group = "'scan.watermark.alignment.group' = 'g'";
    let drift = "'scan.watermark.alignment.max-drift' = '5 s'";
    let idle = "'scan.watermark.idle-timeout' = '10 s'";
    let strategy = "'scan.watermark.emit.strategy' = 'ON-EVENT', 'property-version' = '1'";
    assert!(plan(&query(&format!("{group}, {drift}, {idle}, {strategy}"))).is_ok());
    for (wrong, expected) in [
        (group, "go together"),
        (drift, "go together"),
        ("'scan.watermark.idle-timeout' = 'soon'", "a number and a unit"),
        ("'scan.watermark.emit.strategy' = 'often'", "'on-periodic' or 'on-event'"),
    ] {
        let message = plan_error(&query(wrong)).to_string();
        assert!(message.contains(expected), "{wrong}: {message}");
    }
    let slip = plan_error(&query("'scan.watermark.idel-timeout' = '1 s'"));
    assert_eq!(slip.help(), Some("did you mean 'scan.watermark.idle-timeout'?"));
}

/// The watermark before a row is that of its own input, and a pair has two of them.
#[test]
fn no_condition_of_a_join_reads_the_watermark() {
    let tables = ["a", "b"].map(|name| {
        format!(
            "CREATE TABLE {name} (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
             WITH ('connector' = 'filesystem');\n"
        )
    });
    let query = |condition: &str, filter: &str| {
        format!("{}SELECT a.k FROM a JOIN b ON a.k = b.k {condition} {filter}", tables.concat())
    };
    let (within, read) = ("AND a.ts BETWEEN b.ts AND b.ts", "CURRENT_WATERMARK(a.ts) IS NULL");
    for condition in ["", within] {
        let error = plan_error(&query(condition, &format!("AND {read}")));
        assert!(error.message().contains("CURRENT_WATERMARK is not supported"), "{error}");
        assert_eq!(error.span().map(|span| span.line), Some(3));
    }
    assert!(plan(&query(within, &format!("WHERE {read} AND a.k > 3"))).is_ok());
}

#[test]
fn a_join_that_keeps_everything_is_noted() {
    let script = |settings: &str, query: &str| {
        let tables = ["a", "b"].map(|name| {
            format!(
                "CREATE TABLE {name} (k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) \
                 WITH ('connector'='stream');\n"
            )
        });
        format!("{}{settings}SELECT a.k FROM {query}", tables.concat())
    };
    let notes =
        |settings: &str, query: &str| plan(&script(settings, query)).expect("it plans").notes;
    let noted = notes("", "a JOIN b ON a.k = b.k");
    assert_eq!(noted.len(), 1);
    assert!(noted[0].message().contains("the join of a and b keeps every row"), "{noted:?}");
    let expires = notes("SET 'table.exec.state.ttl' = '1 h';", "a JOIN b ON a.k = b.k");
    assert!(expires.is_empty(), "{expires:?}");
    let bounded =
        notes("", "a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '1' HOUR");
    assert!(bounded.is_empty(), "{bounded:?}");
    let hinted = |hint: &str, query: &str| {
        let script =
            script("", query).replace("SELECT", &format!("SELECT /*+ STATE_TTL({hint}) */"));
        plan(&script)
    };
    let join = "a JOIN b ON a.k = b.k";
    let both = hinted("'a' = '1d', 'b' = '12h'", join).expect("it plans");
    assert!(both.notes.is_empty(), "{:?}", both.notes);
    assert!(both.logical[0].inputs()[0].describe().contains("left kept for 86400000 ms"));
    assert_eq!(hinted("'a' = '1d'", join).expect("it plans").notes.len(), 1, "b is kept");
    let group = hinted("'a' = '1d'", "a GROUP BY k").expect("it plans");
    assert!(group.logical[0].describe().contains("kept for 86400000 ms"), "{:?}", group.logical);
    for (hint, query) in [("'c' = '1d'", join), ("'a' = '1d'", "a")] {
        let error = hinted(hint, query).err().expect("nothing follows it");
        assert!(error.message().contains("no join and no GROUP BY follows"), "{error:?}");
    }
}

/// A retraction of the only row that its key can have needs no comparison of rows.
#[test]
fn a_side_that_is_updated_by_the_key_of_a_join_is_known_to_have_one_row_for_each() {
    let views = "CREATE TABLE t (k INT, x INT, v INT) WITH ('connector'='stream');
        CREATE VIEW sums AS SELECT k, SUM(v) AS total FROM t GROUP BY k;
        CREATE VIEW cells AS SELECT k, x, SUM(v) AS total FROM t GROUP BY k, x;\n";
    let cases = [
        ("sums AS a JOIN cells AS b ON a.k = b.k", (true, false)),
        ("cells AS a JOIN cells AS b ON a.k = b.k AND a.x = b.x", (true, true)),
        ("t AS a JOIN sums AS b ON a.k = b.k", (false, true)),
        ("sums AS a JOIN sums AS b ON a.total = b.k", (false, true)),
        ("sums AS a JOIN sums AS b ON CAST(a.k AS BIGINT) = b.k", (true, true)),
        ("sums AS a JOIN sums AS b ON a.k + 1 = b.k", (false, true)),
    ];
    for (from, expected) in cases {
        let plan = plan(&format!("{views} SELECT a.k, b.total FROM {from};"))
            .unwrap_or_else(|error| panic!("{from}: {error}"));
        let joins = post_order(&plan.logical).into_iter();
        let unique = joins.filter_map(|node| match &node.kind {
            LogicalKind::Join { left, right, condition, .. } => Some((
                is_unique_by(left, condition.keys.iter().map(|key| &key.left)),
                is_unique_by(right, condition.keys.iter().map(|key| &key.right)),
            )),
            _ => None,
        });
        assert_eq!(unique.collect::<Vec<_>>(), [expected], "{from}");
    }
}
const TWO_QUERIES: &str = "
    CREATE TABLE trips (k STRING, n INT, m INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
        WITH ('connector' = 'stream');
    CREATE TABLE a (k STRING, n BIGINT) WITH ('connector' = 'print');
    CREATE TABLE b (k STRING, m INT) WITH ('connector' = 'print');
    CREATE TABLE c (k STRING, m INT) WITH ('connector' = 'print');
    EXECUTE STATEMENT SET BEGIN ";
const HOURLY: &str = "INSERT INTO a SELECT k, SUM(n) FROM TABLE(TUMBLE(TABLE trips, DESCRIPTOR(ts), INTERVAL '1' HOUR))
    WHERE n > 0 GROUP BY k, window_start, window_end; ";

/// The identifiers of everything that a snapshot holds something of.
fn stateful_ids(order: &str, inserts: &str) -> Vec<String> {
    let text = format!("SET 'pipeline.order' = '{order}'; {TWO_QUERIES}{inserts} END;");
    let graph = plan(&text).expect("a plan").graph;
    let stages = graph.stages.into_iter();
    let kept = stages.filter(|stage| !matches!(stage.kind, StageKind::Transform(_)));
    kept.map(|stage| stage.id).collect()
}

/// A job resumes from its snapshot when a query is added to it, though the source then delivers
/// more columns, and their places shift.
#[test]
fn a_query_that_is_added_leaves_the_state_of_others_where_it_is() {
    let more = "INSERT INTO b SELECT k, m FROM trips WHERE m > 3;";
    for order in ["epoch", "arrival"] {
        let before = stateful_ids(order, HOURLY);
        let after = stateful_ids(order, &format!("{HOURLY}{more}"));
        assert_eq!(before.len(), 3, "a source, an aggregate, a sink: {before:?}");
        assert!(before.iter().all(|id| after.contains(id)), "{before:?} {after:?}");
        assert_eq!(after.len(), 4);
    }
    // Here rows wait in front of the aggregate, with the columns that reach it.
    let before = stateful_ids("event_time", HOURLY);
    let after = stateful_ids("event_time", &format!("{HOURLY}{more}"));
    assert!(after.contains(&before[0]), "the source keeps its position: {before:?} {after:?}");
}

#[test]
fn what_changes_in_a_query_changes_what_is_behind_it_only() {
    let counts = |filter: &str| HOURLY.replace("n > 0", filter);
    let before = stateful_ids("epoch", &counts("n > 0"));
    let after = stateful_ids("epoch", &counts("n > 1"));
    let by_another = stateful_ids("epoch", &counts("m > 0"));
    for changed in [after, by_another] {
        assert_eq!(changed[0], before[0], "the source");
        assert_ne!(changed[1], before[1], "the aggregate");
        assert_eq!(changed[2], before[2], "the sink");
    }
}

/// What keeps whole rows has all columns that reach it in its state: with others it is something
/// else.
#[test]
fn state_with_other_columns_is_other_state() {
    let ids = |columns: &str| {
        let query = format!(
            "INSERT INTO {} SELECT {columns} FROM (SELECT k, n, m, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS r FROM trips) WHERE r = 1;",
            if columns == "k, m" { "b" } else { "c" }
        );
        stateful_ids("epoch", &query)
    };
    let (of_two, of_one) = (ids("k, m"), ids("k, 1"));
    assert_eq!(of_two[0], of_one[0], "the source");
    assert_ne!(of_two[1], of_one[1], "the first row of each key");
}

/// The kinds of operators of a statement in batch mode, as they are called in identifiers.
fn operators_in_batch_mode(settings: &str, statement: &str) -> Vec<String> {
    let batch = "SET 'execution.runtime-mode' = 'batch';\n";
    let plan = plan(&format!("{batch}{settings}{DEPARTURES}{statement}")).expect("it plans");
    let stages = plan.stages.iter().zip(&plan.graph.stages);
    let operators = stages.filter(|(_, stage)| matches!(stage.kind, StageKind::Operator(_)));
    let kind = |id: &str| id.split('-').next().unwrap_or(id).to_owned();
    operators.map(|(described, _)| kind(&described.id)).collect()
}

#[test]
fn batch_mode_gives_results_of_groups_once() {
    let counts = "SELECT origin, COUNT(*) FROM departures GROUP BY origin";
    assert_eq!(operators_in_batch_mode("", counts), ["aggregate"]);
    let all = "SELECT AVG(CAST(delay AS DOUBLE)) FROM departures";
    assert_eq!(operators_in_batch_mode("", all), ["aggregate"]);
    let twice =
        "SELECT n, COUNT(*) FROM (SELECT COUNT(*) AS n FROM departures GROUP BY origin) GROUP BY n";
    assert_eq!(operators_in_batch_mode("", twice), ["aggregate"; 2]);
    // Its values are those that were new.
    let last = "SELECT origin, LAST_VALUE(DISTINCT dest) FROM departures GROUP BY origin";
    assert_eq!(operators_in_batch_mode("", last), ["group", "final"]);
    assert_eq!(operators_in_batch_mode("", "SELECT DISTINCT origin FROM departures"), ["group"]);
}

#[test]
fn jobs_with_snapshots_keep_the_state_of_groups_as_it_was() {
    let snapshots = "SET 'execution.checkpointing.dir' = 'state';\n\
        CREATE TABLE counts (origin STRING, n BIGINT) WITH ('connector' = 'filesystem');\n";
    let counts = "SELECT origin, COUNT(*) FROM departures GROUP BY origin";
    let written = operators_in_batch_mode(snapshots, &format!("INSERT INTO counts {counts}"));
    assert_eq!(written, ["group", "final"]);
    assert_eq!(operators_in_batch_mode(snapshots, counts), ["aggregate"], "printed");
}

/// The conditions of the joins of a query over a stream l and a bounded table r.
fn joins(statement: &str) -> Vec<String> {
    let tables = "CREATE TABLE l (s STRING, n INT, d DECIMAL(9, 1), p AS PROCTIME()) WITH ('connector'='stream');
        CREATE TABLE r (y INT, d DECIMAL(3, 1)) WITH ('connector'='filesystem');
        CREATE TABLE a (n INT) WITH ('connector'='print');
        CREATE TABLE b (n INT) WITH ('connector'='print');\n";
    let plan = plan(&format!("{tables}{statement}"))
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
    let conditions = post_order(&plan.logical).into_iter().filter_map(|node| match &node.kind {
        LogicalKind::Join { condition, .. } => Some(condition.to_string()),
        _ => None,
    });
    conditions.collect()
}

/// `TRY_CAST(x) = y OR x IS NULL` keeps a row whose x is no number; a join that takes the NULL of
/// TRY_CAST for a partner dropped it.
#[test]
fn a_cast_that_makes_null_of_values_is_no_not_in() {
    let is_null_aware = |conditions: &str| {
        let not_exists =
            format!("SELECT n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE {conditions})");
        joins(&not_exists)[0].contains("NULL on either side is a partner")
    };
    assert!(is_null_aware("l.n = r.y OR l.n IS NULL OR r.y IS NULL"));
    assert!(is_null_aware("CAST(l.s AS INT) = r.y OR l.s IS NULL OR r.y IS NULL"));
    assert!(is_null_aware("CAST(l.n AS DECIMAL(12, 2)) = r.d OR l.n IS NULL OR r.d IS NULL"));
    assert!(!is_null_aware("TRY_CAST(l.s AS INT) = r.y OR l.s IS NULL OR r.y IS NULL"));
    assert!(!is_null_aware("CAST(l.d AS DECIMAL(3, 1)) = r.d OR l.d IS NULL OR r.d IS NULL"));
}

/// A table that is looked up may be read again, which the other join's must not be.
#[test]
fn a_lookup_join_is_not_shared_with_a_join() {
    let join = |sink: &str, time: &str| {
        format!("INSERT INTO {sink} SELECT l.n FROM l JOIN r {time} ON l.n = r.y;")
    };
    let set = |time: &str| {
        format!("EXECUTE STATEMENT SET BEGIN {}{} END;", join("a", ""), join("b", time))
    };
    assert_eq!(joins(&set("")).len(), 1);
    assert_eq!(joins(&set("FOR SYSTEM_TIME AS OF l.p")).len(), 2);
}

/// `TRY_CAST(n AS TINYINT) <= 200` is NULL from rank 128 on; it was read as the first 200 rows.
#[test]
fn a_rank_is_bounded_through_casts_that_hold_it() {
    let of = |bound: &str| {
        plan(&format!(
            "CREATE TABLE t (k INT, v INT) WITH ('connector'='stream');
             SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE {bound};"
        ))
    };
    let is_top_n = |bound: &str| {
        let planned = of(bound).unwrap_or_else(|error| panic!("{bound}: {error}"));
        let is_top = |node: &crate::logical::Node| matches!(node.kind, LogicalKind::TopN { .. });
        post_order(&planned.logical).iter().any(is_top)
    };
    for bound in ["n <= 200", "CAST(n AS INT) <= 200", "TRY_CAST(n AS INT) <= 200"] {
        assert!(is_top_n(bound), "{bound}");
    }
    // All rows are numbered, and those from 128 on left out.
    assert!(!is_top_n("TRY_CAST(n AS TINYINT) <= 200"));
}
