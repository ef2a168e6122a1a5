//! Which jobs hang together, and how wide fragments are. Pure functions of the catalog.

use eddyline_protocol::plan::Parallelism;
use eddyline_protocol::{Catalog, Edge, EdgeFrom, Fragment, Job, Mutation};
use eddyline_types::{FragmentId, JobId};
use std::collections::{BTreeMap, BTreeSet};

/// The jobs that a job reads: owners of the fragments that feed it, and job-bearing relations that its relation names.
/// Plain sources have no job, so jobs over one source stay apart.
pub fn upstream_jobs(catalog: &Catalog, job: &Job) -> BTreeSet<JobId> {
    let mut found: BTreeSet<JobId> =
        outside_edges(job).filter_map(|edge| owner(catalog, sender(edge)?)).map(|(owner, _)| owner.id).collect();
    if let Some(relation) = catalog.relations.get(&job.id.into()) {
        found.extend(relation.depends_on.iter().map(|id| JobId::from(*id)).filter(|id| catalog.jobs.contains_key(id)));
    }
    found.remove(&job.id);
    found
}

/// The mutation that connects a new job to running fragments; `None` if it reads no other job.
pub fn attachment(catalog: &Catalog, job: &Job) -> Option<Mutation> {
    let edges: Vec<(Edge, u32)> = outside_edges(job)
        .map(|edge| {
            let receiver = job.graph.fragments.iter().find(|f| f.id == edge.to);
            (edge.clone(), receiver.map_or(1, |f| shards_of(catalog, job, f)))
        })
        .collect();
    (!edges.is_empty()).then_some(Mutation::Attach { edges })
}

/// Number of shards of a fragment of a job.
pub fn shards_of(catalog: &Catalog, job: &Job, fragment: &Fragment) -> u32 {
    match fragment.parallelism {
        Parallelism::Single => 1,
        Parallelism::Default => job.parallelism,
        Parallelism::SameAs(edge) => {
            let from = job.graph.edges.iter().find(|e| e.id == edge).and_then(sender);
            match from.and_then(|id| find(job, id).map(|f| (job, f)).or_else(|| owner(catalog, id))) {
                Some((other, feeding)) => shards_of(catalog, other, feeding),
                None => job.parallelism,
            }
        }
    }
}

/// Splits jobs into connected components, in the order of their smallest member. `upstream` gives the jobs that a job reads;
/// links to jobs outside the set do not count.
pub fn components(jobs: &BTreeSet<JobId>, upstream: impl Fn(JobId) -> BTreeSet<JobId>) -> Vec<BTreeSet<JobId>> {
    let mut links: BTreeMap<JobId, BTreeSet<JobId>> = jobs.iter().map(|j| (*j, BTreeSet::new())).collect();
    for job in jobs {
        for other in upstream(*job).into_iter().filter(|o| jobs.contains(o)) {
            links.entry(*job).or_default().insert(other);
            links.entry(other).or_default().insert(*job);
        }
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for start in jobs {
        if !seen.insert(*start) {
            continue;
        }
        let mut component = BTreeSet::from([*start]);
        let mut open = vec![*start];
        while let Some(job) = open.pop() {
            for next in links.get(&job).into_iter().flatten() {
                if seen.insert(*next) {
                    component.insert(*next);
                    open.push(*next);
                }
            }
        }
        found.push(component);
    }
    found
}

/// A job and all jobs of the set that read it, directly or not.
pub fn downstream(jobs: &BTreeSet<JobId>, start: JobId, upstream: impl Fn(JobId) -> BTreeSet<JobId>) -> BTreeSet<JobId> {
    let mut found = BTreeSet::from([start]);
    loop {
        let more: Vec<JobId> =
            jobs.iter().copied().filter(|j| !found.contains(j) && upstream(*j).iter().any(|u| found.contains(u))).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn sender(edge: &Edge) -> Option<FragmentId> {
    match edge.from {
        EdgeFrom::Fragment(id) => Some(id),
        // Replaced when the job was entered into the catalog.
        EdgeFrom::Relation(_) => None,
    }
}

fn outside_edges(job: &Job) -> impl Iterator<Item = &Edge> {
    job.graph.edges.iter().filter(|e| sender(e).is_some_and(|id| find(job, id).is_none()))
}

fn find(job: &Job, id: FragmentId) -> Option<&Fragment> {
    job.graph.fragments.iter().find(|f| f.id == id)
}

fn owner(catalog: &Catalog, id: FragmentId) -> Option<(&Job, &Fragment)> {
    catalog.jobs.values().find_map(|job| find(job, id).map(|f| (job.as_ref(), f)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_downstream_follow_links_inside_the_set() {
        let jobs: BTreeSet<JobId> = (1..=6).map(JobId).collect();
        // 3 reads 1 and 2, 4 reads 3, 6 reads 5 and (outside) 9.
        let upstream = |j: JobId| -> BTreeSet<JobId> {
            match j.0 {
                3 => [JobId(1), JobId(2)].into(),
                4 => [JobId(3)].into(),
                6 => [JobId(5), JobId(9)].into(),
                _ => BTreeSet::new(),
            }
        };
        let found = components(&jobs, upstream);
        assert_eq!(found, vec![BTreeSet::from([JobId(1), JobId(2), JobId(3), JobId(4)]), BTreeSet::from([JobId(5), JobId(6)])]);
        assert_eq!(downstream(&jobs, JobId(1), upstream), BTreeSet::from([JobId(1), JobId(3), JobId(4)]));
        assert_eq!(downstream(&jobs, JobId(4), upstream), BTreeSet::from([JobId(4)]));
    }
}
