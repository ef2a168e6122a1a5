//! Properties of stream plans that goldens would not show to be right.

use super::{Session, check_graph};
use crate::statement::Bound;
use eddyline_protocol::plan::{JoinKind, MaterializeMode};
use eddyline_protocol::{Dispatch, FragmentGraph, Head, NodeKind};

const SETUP: &str = "
    CREATE TABLE a (id INT PRIMARY KEY, x INT, y BIGINT, s VARCHAR);
    CREATE TABLE b (id INT PRIMARY KEY, x INT, z BIGINT);
    CREATE TABLE h (x INT, w VARCHAR);
    CREATE SOURCE src (x INT, w VARCHAR, v DOUBLE PRECISION) WITH (connector = 'datagen');
    CREATE MATERIALIZED VIEW dup AS SELECT w FROM h UNION ALL SELECT s FROM a;";

fn graph(query: &str) -> (FragmentGraph, eddyline_protocol::Relation) {
    let session = Session::with(SETUP);
    let sql = format!("CREATE MATERIALIZED VIEW v AS {query}");
    match session.bind(&sql).unwrap_or_else(|e| panic!("{e:?} in {sql}")) {
        Bound::CreateRelation(c) => {
            let graph = c.graph.expect("a graph");
            check_graph(&graph);
            (graph, c.relation)
        }
        other => panic!("{other:?}"),
    }
}

fn nodes(graph: &FragmentGraph) -> Vec<&NodeKind> {
    graph.fragments.iter().flat_map(|f| f.chain.iter().map(|n| &n.kind)).collect()
}

fn mode(graph: &FragmentGraph) -> MaterializeMode {
    nodes(graph).into_iter().find_map(|n| if let NodeKind::Materialize(m) = n { Some(m.mode) } else { None }).expect("it materializes")
}

#[test]
fn aggregation_after_a_join_on_the_same_key_needs_no_exchange() {
    let (graph, _) = graph("SELECT a.x, a.s, count(*) AS n FROM a JOIN b ON a.x = b.x GROUP BY a.s, a.x");
    let joined = graph.fragments.iter().find(|f| matches!(f.head, Head::Join(_))).expect("a join");
    assert!(joined.chain.iter().any(|n| matches!(n.kind, NodeKind::HashAgg(_))), "in the join's fragment");
    assert!(joined.chain.iter().any(|n| matches!(n.kind, NodeKind::Materialize(_))), "and materialized there");
}

#[test]
fn global_aggregates_are_singletons() {
    let (graph, relation) = graph("SELECT count(*) AS n FROM a");
    assert!(relation.key.is_empty());
    assert_eq!(mode(&graph), MaterializeMode::Keyed);
    assert!(graph.edges.iter().any(|e| e.dispatch == Dispatch::Single));
    assert_eq!(graph.tables[0].key.len(), 0);
}

#[test]
fn sources_keep_min_and_max_without_values() {
    let agg = |query: &str| {
        let (graph, _) = graph(query);
        nodes(&graph)
            .into_iter()
            .find_map(|n| if let NodeKind::HashAgg(a) = n { Some(a.as_ref().clone()) } else { None })
            .expect("an aggregate")
    };
    let source = agg("SELECT x, max(v) AS m, count(DISTINCT w) AS d FROM src GROUP BY x");
    assert!(source.append_only && source.calls[0].multiset.is_none() && source.calls[1].multiset.is_some());
    let table = agg("SELECT x, max(y) AS m FROM a GROUP BY x");
    assert!(!table.append_only && table.calls[0].multiset.is_some());
}

#[test]
fn row_ids_are_made_only_where_a_key_is_needed() {
    let has_row_id = |query: &str| nodes(&graph(query).0).iter().any(|n| matches!(n, NodeKind::RowId));
    assert!(has_row_id("SELECT x FROM src"));
    assert!(!has_row_id("SELECT x, count(*) AS n FROM src GROUP BY x"));
    let (_, relation) = graph("SELECT x FROM src");
    assert!(relation.append_only && relation.columns[1].hidden && relation.key == [1]);
}

#[test]
fn rows_that_may_repeat_are_counted() {
    let (graph, relation) = graph("SELECT w FROM dup WHERE w <> 'x'");
    assert_eq!(mode(&graph), MaterializeMode::Multiset);
    assert!(relation.key.is_empty());
    assert_eq!(graph.tables[0].schema.fields().len(), 2, "the row and its weight");
}

#[test]
fn outer_join_keys_and_padding() {
    let (graph, relation) = graph("SELECT a.s, b.z FROM a LEFT JOIN b ON a.id = b.id");
    let join = graph.fragments.iter().find_map(|f| if let Head::Join(j) = &f.head { Some(j) } else { None }).expect("a join");
    assert_eq!(join.kind, JoinKind::Left);
    assert_eq!(relation.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["s", "z", "_id"], "the left key alone is enough");
    let (_, relation) = self::graph("SELECT a.s, b.z FROM a LEFT JOIN b ON a.x = b.x");
    assert_eq!(relation.key.len(), 2, "both keys are needed");
    assert!(relation.columns[3].nullable, "the right key may be padding");
}

#[test]
fn many_shapes_make_sound_graphs() {
    for query in [
        "SELECT * FROM a",
        "SELECT s, upper(s) AS u FROM a WHERE x > 3 AND s LIKE 'x%'",
        "SELECT x + 1 AS y, count(*) FILTER (WHERE y > 3) AS n, avg(y) AS m FROM a GROUP BY x + 1 HAVING count(*) > 2",
        "SELECT count(*) AS n, sum(y) AS s, avg(x) AS m, bool_and(x > 3) AS b FROM a",
        "SELECT DISTINCT x, s FROM a",
        "SELECT a.s, h.w FROM a JOIN h ON a.x = h.x WHERE a.y > 10",
        "SELECT a.s, h.w FROM a FULL JOIN h ON a.x = h.x",
        "SELECT a.s, h.w FROM a RIGHT JOIN h ON a.x = h.x AND a.s < h.w",
        "SELECT q.m FROM (SELECT x, max(y) AS m FROM a GROUP BY x) q JOIN b ON q.x = b.x",
        "SELECT x FROM a UNION SELECT x FROM b UNION ALL SELECT x FROM src",
        "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)",
        "SELECT a.id FROM a WHERE a.x NOT IN (1, 2, 3)",
        "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)",
        "SELECT a.s FROM a WHERE a.y > (SELECT avg(z) FROM b)",
        "SELECT a.id, (SELECT sum(z) FROM b WHERE b.x = a.x) AS total FROM a",
        "WITH t AS (SELECT x, count(*) AS n FROM a GROUP BY x) SELECT t1.x FROM t t1 JOIN t t2 ON t1.n = t2.n",
        "SELECT date_trunc('day', TIMESTAMP '2020-01-01') AS d, x FROM a",
        "SELECT coalesce(s, 'none') AS s, nullif(x, 0) AS x, CASE x WHEN 1 THEN 'one' ELSE 'many' END AS c FROM a",
        "SELECT a.x FROM a JOIN b USING (x)",
        "SELECT count(*) AS n FROM a JOIN b ON a.x = b.x AND a.y = b.z JOIN h ON h.x = b.x",
        "SELECT sum(CASE WHEN x IS NULL THEN 1 ELSE 0 END) AS n, s FROM a GROUP BY s ORDER BY s",
        "SELECT w, count(*) AS n FROM dup GROUP BY w",
        "SELECT x, CAST(y AS INT) AS i, CAST(v AS INT) AS j FROM a JOIN (SELECT x AS sx, v FROM src) q ON q.sx = a.x",
        "SELECT a.x, b.x AS bx FROM a JOIN b ON a.x = b.id AND a.x = b.x",
    ] {
        graph(query);
    }
}
