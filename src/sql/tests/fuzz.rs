//! No text makes the front end panic or overflow its stack.

use super::Session;

const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "LIMIT",
    "JOIN",
    "LEFT",
    "ON",
    "users",
    "id",
    "name",
    "age",
    "(",
    ")",
    ",",
    "*",
    "+",
    "-",
    "/",
    "=",
    "<",
    "1",
    "2.5",
    "'x'",
    "NULL",
    "AND",
    "OR",
    "NOT",
    "IN",
    "EXISTS",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CREATE",
    "TABLE",
    "MATERIALIZED",
    "VIEW",
    "SOURCE",
    "SINK",
    "AS",
    "WITH",
    "count",
    "sum",
    "INT",
    "VARCHAR",
    "PRIMARY",
    "KEY",
    "INSERT",
    "INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE",
    "DROP",
    "CASCADE",
    ";",
    ".",
    "::",
    "[",
    "]",
    "$1",
    "UNION",
    "ALL",
    "DISTINCT",
    "EXPLAIN",
    "SHOW",
    "TABLES",
    "COPY",
    "STDIN",
    "FORMAT",
    "ENCODE",
    "BEGIN",
    "INTERVAL",
    "CAST",
    "OVER",
    "PARTITION",
    "\"q\"",
    "FETCH",
    "DECLARE",
    "CURSOR",
    "FOR",
    "PREPARE",
    "EXECUTE",
    "connector",
    "BETWEEN",
    "LIKE",
    "IS",
    "e'\\n'",
    "--c\n",
];

const SEEDS: &[&str] = &[
    "SELECT id, count(*) FROM users WHERE age > 3 GROUP BY id HAVING count(*) > 1 ORDER BY 1 LIMIT 3",
    "CREATE MATERIALIZED VIEW v AS SELECT age, sum(id) FROM users GROUP BY age",
    "INSERT INTO users (id, name) VALUES (1, 'x'), ($1, $2) RETURNING id",
    "UPDATE users SET age = age + 1 WHERE id IN (SELECT id FROM users)",
    "CREATE SOURCE s (a INT, b VARCHAR) WITH (connector = 'datagen', x.y = '1') FORMAT PLAIN ENCODE JSON (header = 'true')",
    "SELECT CASE WHEN age > 3 THEN 'a' ELSE 'b' END, name::int, (SELECT max(id) FROM users) FROM users u LEFT JOIN users w ON u.id = w.age",
    "COPY users (id, name) FROM STDIN WITH (FORMAT csv, HEADER true, DELIMITER ';')",
];

fn run(session: &Session, text: &str) {
    if let Ok(all) = crate::parse(text) {
        for parsed in &all {
            let _ = session.bind_parsed(parsed, &[]);
        }
    }
}

#[test]
fn token_soup_never_panics() {
    let session = Session::with("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR, age INT)");
    // A fixed linear congruential series: the same cases in every run, a failing one is printed.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut pick = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for case in 0..3000 {
        let text = if case % 2 == 0 {
            let length = 1 + pick(20);
            (0..length).map(|_| WORDS[pick(WORDS.len())]).collect::<Vec<_>>().join(" ")
        } else {
            // A good statement with a few words changed.
            let mut words: Vec<&str> = SEEDS[pick(SEEDS.len())].split(' ').collect();
            for _ in 0..1 + pick(3) {
                let at = pick(words.len());
                match pick(3) {
                    0 => words[at] = WORDS[pick(WORDS.len())],
                    1 => words.insert(at, WORDS[pick(WORDS.len())]),
                    _ if words.len() > 1 => {
                        words.remove(at);
                    }
                    _ => {}
                }
            }
            words.join(" ")
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&session, &text)));
        assert!(result.is_ok(), "case {case} panics: {text}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let session = Session::with("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR, age INT)");
    let n = 10_000;
    let deep = [
        format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n)),
        format!("SELECT {}1", "- ".repeat(n)),
        format!("SELECT {}true", "NOT ".repeat(n)),
        format!("SELECT {}1", "1 + ".repeat(n)),
        format!("SELECT {}1{}", "abs(".repeat(n), ")".repeat(n)),
        format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(n), " END".repeat(n)),
        format!("{}SELECT 1{}", "SELECT * FROM (".repeat(n), ") x".repeat(n)),
        format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(n)),
        format!("SELECT 1{}", "::int".repeat(n)),
        format!("SELECT a{}", "[1]".repeat(n)),
        format!("{}SELECT 1", "EXPLAIN ".repeat(n)),
        format!("SELECT 'a' {}", "|| 'b' ".repeat(n)),
    ];
    for text in &deep {
        let result = crate::parse(text).and_then(|all| session.bind_parsed(&all[0], &[]));
        let error = result.expect_err(&text[..60]);
        let code = error.sqlstate().0;
        assert!(["54001", "42601", "42703", "0A000"].contains(&code), "{}: {error:?}", &text[..60]);
    }
    // Long but flat, or chains that balance, are fine.
    let many: Vec<String> = (0..5000).map(|i| format!("id = {i}")).collect();
    session.bind(&format!("SELECT * FROM users WHERE {}", many.join(" OR "))).unwrap();
    let list: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
    session.bind(&format!("SELECT * FROM users WHERE id IN ({})", list.join(", "))).unwrap();
    let rows: Vec<String> = (0..5000).map(|i| format!("({i}, 'n{i}', {i})")).collect();
    session.bind(&format!("INSERT INTO users VALUES {}", rows.join(", "))).unwrap();
}
