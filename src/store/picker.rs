//! What to compact next: a pure function of a version.
//!
//! Runs are ordered by age: every file of level 0 is one, newest first; then every other level. Tiered: when enough runs of one size class
//! are at the young end they become one run, so a row is rewritten once per class (about log4 of the data over an upload). Lazily leveled at
//! the bottom: when all younger runs together outgrow the oldest one, everything merges, which bounds dead bytes to about the live ones.
//! A large file that meets no other of the task is not rewritten: it moves as it is, so cold tables cost hot ones nothing.

use eddyline_protocol::{SstInfo, Version};
use eddyline_types::TableId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The level of the first run ever made; younger runs take the levels above it.
const DEEPEST_LEVEL: usize = 30;
/// Runs below this part of a file's size are of one class: uploads of a quiet system.
const SMALLEST_CLASS: u64 = 16;
/// Runs of the smallest class that start a merge.
const SMALL_FAN_IN: usize = 8;
/// Runs of any other class that start a merge.
const FAN_IN: usize = 4;

/// One compaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Task {
    /// Files to be merged: runs from the newest to the oldest, the files of a run follow each other per table.
    pub merged: Vec<Vec<Arc<SstInfo>>>,
    /// Files that only change their level.
    pub moved: Vec<Arc<SstInfo>>,
    /// Files that go without a trace: they hold dropped tables only.
    pub deleted: Vec<Arc<SstInfo>>,
    /// Where the output goes.
    pub level: u32,
    /// Files older than those of the task: a tombstone above one of their keys must be kept.
    pub older: Vec<Arc<SstInfo>>,
    /// Files that stay in the output's level: output files are cut so that none spans one of them.
    pub beside: Vec<Arc<SstInfo>>,
}

struct Run {
    level: usize,
    files: Vec<Arc<SstInfo>>,
    bytes: u64,
}

/// The most useful task; `None`: the version is in shape. `file_bytes`: the size at which files are ended.
pub(crate) fn pick(version: &Version, file_bytes: u64) -> Option<Task> {
    let dropped: BTreeSet<TableId> = version.dropped.iter().copied().collect();
    let deleted: Vec<_> = version.files().filter(|f| f.tables.iter().all(|t| dropped.contains(&t.table))).cloned().collect();
    if !deleted.is_empty() {
        return Some(Task { deleted, ..Task::default() });
    }
    let runs = runs(version);
    let smallest = (file_bytes / SMALLEST_CLASS).max(1);
    let count = young_runs(&runs, smallest).or_else(|| all_runs(&runs, smallest)).or_else(|| no_slot(&runs));
    count.map(|count| task(version, &runs, count, file_bytes)).or_else(|| mostly_dropped(version, &dropped))
}

fn runs(version: &Version) -> Vec<Run> {
    let run = |level, files: Vec<Arc<SstInfo>>| Run { level, bytes: files.iter().map(|f| f.size_bytes).sum(), files };
    let mut runs = vec![];
    for (level, files) in version.levels.iter().enumerate().filter(|(_, files)| !files.is_empty()) {
        if level == 0 {
            runs.extend(files.iter().rev().map(|f| run(0, vec![f.clone()])));
        } else {
            runs.push(run(level, files.clone()));
        }
    }
    runs
}

/// Size classes grow by 4.
fn class(bytes: u64, smallest: u64) -> u32 {
    (bytes / smallest).checked_ilog(4).map_or(0, |c| c + 1)
}

/// How many runs from the young end to merge because one class is full.
fn young_runs(runs: &[Run], smallest: u64) -> Option<usize> {
    let class = |run: &Run| class(run.bytes, smallest);
    let highest = runs.iter().map(class).max()?;
    (0..=highest).find_map(|limit| {
        let window = runs.iter().take_while(|r| class(r) <= limit).count();
        let full = runs[..window].iter().filter(|r| class(r) == limit).count();
        (full >= if limit == 0 { SMALL_FAN_IN } else { FAN_IN }).then_some(window)
    })
}

/// All runs, when the younger ones together are larger than the oldest.
fn all_runs(runs: &[Run], smallest: u64) -> Option<usize> {
    let (oldest, young) = runs.split_last()?;
    let bytes: u64 = young.iter().map(|r| r.bytes).sum();
    let fan_in = if oldest.bytes < smallest { SMALL_FAN_IN } else { FAN_IN };
    (runs.len() >= fan_in && bytes > oldest.bytes).then_some(runs.len())
}

/// Level 0 and level 1, when level 1 is taken and level 0 is in need: all levels are in use, which the classes make very unlikely.
fn no_slot(runs: &[Run]) -> Option<usize> {
    let young = runs.iter().take_while(|r| r.level <= 1).count();
    (young > SMALL_FAN_IN && runs[young - 1].level == 1).then_some(young)
}

fn task(version: &Version, runs: &[Run], mut count: usize, file_bytes: u64) -> Task {
    // Level 0 merges into the free level above the next run; if there is none, that run joins.
    let level = loop {
        let oldest = &runs[count - 1];
        let next = runs.get(count).map_or(DEEPEST_LEVEL + 1, |r| r.level);
        if oldest.level > 0 {
            break oldest.level;
        }
        if next > 1 {
            break next - 1;
        }
        count += 1;
    };
    let (inputs, rest) = runs.split_at(count);
    let files: Vec<&Arc<SstInfo>> = inputs.iter().flat_map(|r| &r.files).collect();
    let alone = |file: &Arc<SstInfo>| {
        file.size_bytes * 2 >= file_bytes
            && file.tables.iter().all(|t| !version.dropped.contains(&t.table))
            && files.iter().all(|other| other.object == file.object || !overlap(file, other))
    };
    let mut task = Task { level: level as u32, older: rest.iter().flat_map(|r| r.files.clone()).collect(), ..Task::default() };
    for run in inputs {
        let (kept, merged): (Vec<_>, Vec<_>) = run.files.iter().cloned().partition(|f| alone(f));
        if !merged.is_empty() {
            task.merged.push(merged);
        }
        if run.level == level { task.beside.extend(kept) } else { task.moved.extend(kept) }
    }
    // One run alone has nothing to merge with.
    if task.merged.len() == 1 && task.merged[0].iter().all(|f| f.tables.iter().all(|t| !version.dropped.contains(&t.table))) {
        let only = task.merged.remove(0);
        let stays = |f: &Arc<SstInfo>| version.levels.get(level).is_some_and(|l| l.iter().any(|g| g.object == f.object));
        let (kept, moved): (Vec<_>, Vec<_>) = only.into_iter().partition(stays);
        task.beside.extend(kept);
        task.moved.extend(moved);
    }
    task
}

/// Rewrites a file whose rows are mostly of dropped tables, where it is.
fn mostly_dropped(version: &Version, dropped: &BTreeSet<TableId>) -> Option<Task> {
    let dead = |f: &SstInfo| f.tables.iter().filter(|t| dropped.contains(&t.table)).map(|t| t.rows).sum::<u64>() * 2 > f.rows;
    let (level, file) =
        version.levels.iter().enumerate().skip(1).flat_map(|(l, files)| files.iter().map(move |f| (l, f))).find(|(_, f)| dead(f))?;
    let others =
        |range: std::ops::Range<usize>| version.levels[range].iter().flatten().filter(|f| f.object != file.object).cloned().collect();
    Some(Task {
        merged: vec![vec![file.clone()]],
        level: level as u32,
        older: others(level + 1..version.levels.len()),
        beside: others(level..level + 1),
        ..Task::default()
    })
}

/// Whether two files have keys of one table in one range.
pub(crate) fn overlap(a: &SstInfo, b: &SstInfo) -> bool {
    a.tables.iter().any(|x| b.tables.iter().any(|y| x.table == y.table && x.first_key <= y.last_key && y.first_key <= x.last_key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use eddyline_protocol::VersionDelta;
    use eddyline_protocol::version::SstTable;
    use eddyline_types::Epoch;

    const MB: u64 = 1 << 20;

    fn file(name: &str, size: u64, table: u32, keys: (u8, u8)) -> SstInfo {
        let tables = vec![SstTable { table: TableId(table), first_key: vec![keys.0], last_key: vec![keys.1], rows: 10 }];
        SstInfo { object: name.into(), size_bytes: size, rows: 10, tombstones: 0, tables, epochs: (Epoch(1), Epoch(1)) }
    }

    fn version(files: Vec<(u32, SstInfo)>) -> Version {
        Version::default().apply(&VersionDelta { added: files, ..Default::default() }).unwrap()
    }

    fn names(task: &Task) -> Vec<Vec<&str>> {
        task.merged.iter().map(|run| run.iter().map(|f| f.object.as_str()).collect()).collect()
    }

    #[test]
    fn small_uploads_merge_eight_at_a_time_newest_first() {
        let files = |n: usize| (0..n).map(|i| (0, file(&format!("f{i}"), MB, 1, (0, 9)))).collect::<Vec<_>>();
        assert_eq!(pick(&version(files(7)), 64 * MB), None);
        let task = pick(&version(files(8)), 64 * MB).unwrap();
        assert_eq!(task.level, DEEPEST_LEVEL as u32);
        assert_eq!(names(&task)[0], ["f7"]);
        assert_eq!(task.merged.len(), 8);
    }

    #[test]
    fn younger_runs_stay_above_older_ones() {
        let mut files: Vec<_> = (0..4).map(|i| (0, file(&format!("f{i}"), 8 * MB, 1, (0, 9)))).collect();
        files.push((30, file("old", 1000 * MB, 1, (0, 9))));
        let task = pick(&version(files.clone()), 64 * MB).unwrap();
        assert_eq!((task.level, task.merged.len(), task.older.len()), (29, 4, 1));
        // A run of the same class joins, and the output takes its place.
        files.push((29, file("mid", 9 * MB, 1, (0, 9))));
        let task = pick(&version(files), 64 * MB).unwrap();
        assert_eq!((task.level, task.merged.len(), task.older.len()), (29, 5, 1));
    }

    #[test]
    fn everything_merges_when_the_young_outgrow_the_old() {
        let files = vec![
            (28, file("a", 70 * MB, 1, (0, 9))),
            (29, file("b", 300 * MB, 1, (0, 9))),
            (30, file("c", 350 * MB, 1, (0, 9))),
            (0, file("d", MB, 1, (0, 9))),
        ];
        let task = pick(&version(files), 64 * MB).unwrap();
        assert_eq!((task.level, task.merged.len(), task.older.len()), (30, 4, 0));
    }

    #[test]
    fn large_files_that_meet_no_other_are_moved_or_left() {
        let mut files: Vec<_> = (0..4).map(|i| (0, file(&format!("f{i}"), 20 * MB, 1, (0, 4)))).collect();
        files.push((0, file("apart", 40 * MB, 2, (0, 9))));
        files.push((30, file("cold", 60 * MB, 3, (0, 9))));
        let task = pick(&version(files), 64 * MB).unwrap();
        assert_eq!(task.merged.len(), 4);
        assert_eq!(task.moved.iter().map(|f| f.object.as_str()).collect::<Vec<_>>(), ["apart"]);
        assert_eq!(task.beside.iter().map(|f| f.object.as_str()).collect::<Vec<_>>(), ["cold"]);
    }

    #[test]
    fn files_of_dropped_tables_go_at_once() {
        let v = version(vec![(0, file("a", MB, 1, (0, 9))), (30, file("b", MB, 2, (0, 9)))]);
        let v = v.apply(&VersionDelta { dropped: vec![TableId(2)], ..Default::default() }).unwrap();
        let task = pick(&v, 64 * MB).unwrap();
        assert_eq!(task.deleted.iter().map(|f| f.object.as_str()).collect::<Vec<_>>(), ["b"]);
        assert!(task.merged.is_empty());
    }
}
