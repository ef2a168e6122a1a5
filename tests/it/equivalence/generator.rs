//! Random tables, changes and queries of the supported grammar, all from one seed.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// A column's type, as far as expressions care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Int,
    Text,
    Bool,
}

/// Something that a query can read.
#[derive(Clone, Debug)]
struct Relation {
    name: String,
    columns: Vec<(String, Type)>,
}

/// A materialized view to be.
#[derive(Clone, Debug)]
pub struct View {
    /// Its name.
    pub name: String,
    /// Its query.
    pub query: String,
    columns: Vec<(String, Type)>,
}

/// See the module's documentation.
pub struct Generator {
    rng: SmallRng,
    seed: u64,
    tables: Vec<Relation>,
    next_view: usize,
}

impl Generator {
    /// The same seed gives the same statements.
    pub fn new(seed: u64) -> Self {
        let columns = |names: &[(&str, Type)]| names.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect();
        let tables = vec![
            Relation {
                name: format!("s{seed}_t1"),
                columns: columns(&[("id", Type::Int), ("a", Type::Int), ("b", Type::Int), ("s", Type::Text)]),
            },
            Relation {
                name: format!("s{seed}_t2"),
                columns: columns(&[("id", Type::Int), ("k", Type::Int), ("f", Type::Bool), ("s", Type::Text)]),
            },
            Relation { name: format!("s{seed}_t3"), columns: columns(&[("k", Type::Int), ("v", Type::Int), ("f", Type::Bool)]) },
        ];
        Generator { rng: SmallRng::seed_from_u64(seed), seed, tables, next_view: 0 }
    }

    /// True in `percent` of the cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.rng.random_range(0..all.len())]
    }

    /// Two tables with a primary key (one of two columns), one without.
    pub fn tables(&self) -> Vec<String> {
        let s = self.seed;
        vec![
            format!("CREATE TABLE s{s}_t1 (id INT PRIMARY KEY, a INT, b BIGINT, s VARCHAR)"),
            format!("CREATE TABLE s{s}_t2 (id INT, k INT, f BOOLEAN, s VARCHAR, PRIMARY KEY (id, k))"),
            format!("CREATE TABLE s{s}_t3 (k INT, v BIGINT, f BOOLEAN)"),
        ]
    }

    /// Drops the tables.
    pub fn drops(&self) -> Vec<String> {
        self.tables.iter().map(|t| format!("DROP TABLE {}", t.name)).collect()
    }

    fn literal(&mut self, of: Type, key: bool) -> String {
        if !key && self.chance(15) {
            return "NULL".into();
        }
        match of {
            Type::Int => self.rng.random_range(if key { 0..12 } else { -3..8 }).to_string(),
            Type::Text => format!("'{}'", self.pick(&["x", "y", "", "Zebra", "x'' y"])),
            Type::Bool => (*self.pick(&["true", "false"])).into(),
        }
    }

    /// A few INSERTs, UPDATEs and DELETEs.
    pub fn changes(&mut self) -> Vec<String> {
        (0..1 + self.below(4)).map(|_| self.change()).collect()
    }

    fn change(&mut self) -> String {
        let index = self.below(3);
        let table = self.tables[index].clone();
        let keys = [1, 2, 0][index];
        match self.below(10) {
            0..=5 => {
                let count = 1 + self.below(6);
                let row = |g: &mut Self| {
                    let cells: Vec<String> = table.columns.iter().enumerate().map(|(i, (_, t))| g.literal(*t, i < keys)).collect();
                    format!("({})", cells.join(", "))
                };
                let all: Vec<String> = (0..count).map(|_| row(self)).collect();
                format!("INSERT INTO {} VALUES {}", table.name, all.join(", "))
            }
            6..=7 => {
                let (column, of) = table.columns[keys + self.below(table.columns.len() - keys)].clone();
                let value = match of {
                    Type::Int if self.chance(50) => format!("{column} + 1"),
                    other => self.literal(other, false),
                };
                format!("UPDATE {} SET {column} = {value} WHERE {}", table.name, self.predicate(&table.columns, "", 1))
            }
            _ => format!("DELETE FROM {} WHERE {}", table.name, self.predicate(&table.columns, "", 1)),
        }
    }

    fn column(&mut self, columns: &[(String, Type)], of: Type, prefix: &str) -> Option<String> {
        let fitting: Vec<&String> = columns.iter().filter(|(_, t)| *t == of).map(|(n, _)| n).collect();
        if fitting.is_empty() { None } else { Some(format!("{prefix}{}", self.pick(&fitting))) }
    }

    fn integer(&mut self, columns: &[(String, Type)], prefix: &str) -> String {
        let Some(column) = self.column(columns, Type::Int, prefix) else { return self.rng.random_range(0..5).to_string() };
        match self.below(6) {
            0 => format!("{column} + {}", self.below(4)),
            1 => format!("{column} * 2 - 1"),
            2 => format!("coalesce({column}, {})", self.below(4)),
            3 => format!("CASE WHEN {column} > 2 THEN 1 ELSE 0 END"),
            _ => column,
        }
    }

    fn predicate(&mut self, columns: &[(String, Type)], prefix: &str, depth: usize) -> String {
        if depth > 0 && self.chance(25) {
            let (left, right) = (self.predicate(columns, prefix, depth - 1), self.predicate(columns, prefix, depth - 1));
            return format!("({left} {} {right})", self.pick(&["AND", "OR"]));
        }
        match self.below(5) {
            0 => match self.column(columns, Type::Text, prefix) {
                Some(c) => (*self.pick(&[&format!("{c} = 'x'"), &format!("{c} LIKE '%e%'"), &format!("{c} IS NOT NULL")])).clone(),
                None => "1 = 1".into(),
            },
            1 => match self.column(columns, Type::Bool, prefix) {
                Some(c) => (*self.pick(&[&c, &format!("NOT {c}"), &format!("{c} IS NULL")])).clone(),
                None => "1 = 1".into(),
            },
            2 => match self.column(columns, Type::Int, prefix) {
                Some(c) => format!("{c} IS NULL"),
                None => "1 = 1".into(),
            },
            _ => format!("{} {} {}", self.integer(columns, prefix), self.pick(&["<", ">", "=", "<>", ">="]), self.rng.random_range(-2..7)),
        }
    }

    /// A view over tables and earlier views.
    pub fn view(&mut self, earlier: &[View]) -> View {
        let mut inputs = self.tables.clone();
        inputs.extend(earlier.iter().map(|v| Relation { name: v.name.clone(), columns: v.columns.clone() }));
        let (query, columns) = match self.below(8) {
            0 => self.filter_project(&inputs),
            1 | 2 => self.aggregate(&inputs),
            3..=5 => self.join(&inputs),
            6 => self.union(&inputs),
            _ => self.distinct(&inputs),
        };
        self.next_view += 1;
        View { name: format!("s{}_v{}", self.seed, self.next_view), query, columns }
    }

    fn where_clause(&mut self, columns: &[(String, Type)], prefix: &str) -> String {
        if self.chance(60) { format!(" WHERE {}", self.predicate(columns, prefix, 2)) } else { String::new() }
    }

    fn filter_project(&mut self, inputs: &[Relation]) -> (String, Vec<(String, Type)>) {
        let input = self.pick(inputs).clone();
        let mut items = Vec::new();
        let mut columns = Vec::new();
        for i in 0..1 + self.below(3) {
            let (name, of) = self.pick(&input.columns).clone();
            let item = if of == Type::Int { self.integer(&input.columns, "") } else { name };
            items.push(format!("{item} AS c{i}"));
            columns.push((format!("c{i}"), of));
        }
        let filter = self.where_clause(&input.columns, "");
        (format!("SELECT {} FROM {}{filter}", items.join(", "), input.name), columns)
    }

    fn calls(&mut self, columns: &[(String, Type)], prefix: &str) -> (Vec<String>, Vec<(String, Type)>) {
        let mut items = Vec::new();
        let mut out = Vec::new();
        for i in 0..1 + self.below(4) {
            let number = self.integer(columns, prefix);
            let text = self.column(columns, Type::Text, prefix);
            let flag = self.column(columns, Type::Bool, prefix);
            let (call, of) = match self.below(10) {
                0 => ("count(*)".to_owned(), Type::Int),
                1 => (format!("count({number})"), Type::Int),
                2 => (format!("sum({number})"), Type::Int),
                3 => (format!("min({number})"), Type::Int),
                4 => (format!("max({number})"), Type::Int),
                5 => (format!("count(DISTINCT {number})"), Type::Int),
                6 => (format!("sum(DISTINCT {number})"), Type::Int),
                7 => (text.map_or("count(*)".into(), |t| format!("count(DISTINCT {t})")), Type::Int),
                8 => match flag {
                    Some(f) => ((*self.pick(&[&format!("bool_and({f})"), &format!("bool_or({f})")])).clone(), Type::Bool),
                    None => ("count(*)".into(), Type::Int),
                },
                _ => match text {
                    Some(t) => ((*self.pick(&[&format!("min({t})"), &format!("max({t})")])).clone(), Type::Text),
                    None => (format!("max({number})"), Type::Int),
                },
            };
            let filter = if self.chance(25) { format!(" FILTER (WHERE {})", self.predicate(columns, prefix, 0)) } else { String::new() };
            items.push(format!("{call}{filter} AS m{i}"));
            out.push((format!("m{i}"), of));
        }
        (items, out)
    }

    fn aggregate(&mut self, inputs: &[Relation]) -> (String, Vec<(String, Type)>) {
        let input = self.pick(inputs).clone();
        let (mut items, mut columns) = self.calls(&input.columns, "");
        let filter = self.where_clause(&input.columns, "");
        if self.chance(20) {
            return (format!("SELECT {} FROM {}{filter}", items.join(", "), input.name), columns);
        }
        let (name, of) = self.pick(&input.columns).clone();
        let key = if of == Type::Int && self.chance(30) { format!("{name} % 3") } else { name };
        items.insert(0, format!("{key} AS g"));
        columns.insert(0, ("g".into(), of));
        let having = if self.chance(25) { " HAVING count(*) > 1" } else { "" };
        (format!("SELECT {} FROM {}{filter} GROUP BY {key}{having}", items.join(", "), input.name), columns)
    }

    fn join(&mut self, inputs: &[Relation]) -> (String, Vec<(String, Type)>) {
        let (left, right) = (self.pick(inputs).clone(), self.pick(inputs).clone());
        let keys = (self.column(&left.columns, Type::Int, "l."), self.column(&right.columns, Type::Int, "r."));
        let (Some(l), Some(r)) = keys else { return self.filter_project(inputs) };
        let kind = *self.pick(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let mut condition = format!("{l} = {r}");
        if self.chance(30)
            && let (Some(a), Some(b)) = (self.column(&left.columns, Type::Int, "l."), self.column(&right.columns, Type::Int, "r."))
        {
            condition.push_str(&format!(" AND {a} {} {b}", self.pick(&["<", "<=", "<>", "="])));
        }
        let from = format!("FROM {} l {kind} {} r ON {condition}", left.name, right.name);
        let filter = if self.chance(30) { self.where_clause(&left.columns, "l.") } else { String::new() };
        let both: Vec<(String, Type)> = left
            .columns
            .iter()
            .map(|(n, t)| (format!("l.{n}"), *t))
            .chain(right.columns.iter().map(|(n, t)| (format!("r.{n}"), *t)))
            .collect();
        if self.chance(35) {
            let (mut items, mut columns) = self.calls(&both, "");
            let (key, of) = self.pick(&both).clone();
            items.insert(0, format!("{key} AS g"));
            columns.insert(0, ("g".into(), of));
            return (format!("SELECT {} {from}{filter} GROUP BY {key}", items.join(", ")), columns);
        }
        let mut items = Vec::new();
        let mut columns = Vec::new();
        for i in 0..1 + self.below(4) {
            let (name, of) = self.pick(&both).clone();
            items.push(format!("{name} AS c{i}"));
            columns.push((format!("c{i}"), of));
        }
        (format!("SELECT {} {from}{filter}", items.join(", ")), columns)
    }

    fn union(&mut self, inputs: &[Relation]) -> (String, Vec<(String, Type)>) {
        let mut branches = Vec::new();
        for _ in 0..2 + self.below(2) {
            let input = self.pick(inputs).clone();
            let number = self.integer(&input.columns, "");
            let filter = self.where_clause(&input.columns, "");
            branches.push(format!("SELECT {number} AS c0 FROM {}{filter}", input.name));
        }
        let all = *self.pick(&[" UNION ALL ", " UNION ALL ", " UNION "]);
        (branches.join(all), vec![("c0".into(), Type::Int)])
    }

    fn distinct(&mut self, inputs: &[Relation]) -> (String, Vec<(String, Type)>) {
        let (query, columns) = self.filter_project(inputs);
        (query.replacen("SELECT", "SELECT DISTINCT", 1), columns)
    }
}
