//! The promises of `Objects` on the stores that need no server.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use bytes::Bytes;
use eddyline_env::failpoint::{self, Action};
use eddyline_objects::Objects;
use eddyline_types::{ErrorKind, SqlState};

async fn round_trip(objects: &Objects) {
    objects.put("sst/a", Bytes::from_static(b"hello")).await.unwrap();
    objects.put("sst/b", Bytes::from_static(b"")).await.unwrap();
    objects.put("other", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(objects.get("sst/a").await.unwrap(), &b"hello"[..]);
    assert_eq!(objects.get_range("sst/a", 1..3).await.unwrap(), &b"el"[..]);
    assert!(objects.get_range("sst/a", 3..9).await.is_err());
    let names = |list: Vec<eddyline_objects::ObjectInfo>| list.into_iter().map(|o| (o.name, o.size_bytes)).collect::<Vec<_>>();
    assert_eq!(names(objects.list("sst/").await.unwrap()), [("sst/a".to_owned(), 5), ("sst/b".to_owned(), 0)]);
    assert_eq!(names(objects.list("").await.unwrap()).len(), 3);
    assert!(objects.list("nothing/").await.unwrap().is_empty());
    assert_eq!(objects.stat("sst/a").await.unwrap().unwrap().size_bytes, 5);
    assert!(objects.stat("sst/c").await.unwrap().is_none());
    objects.delete("sst/a").await.unwrap();
    objects.delete("sst/a").await.unwrap();
    assert_eq!(objects.get("sst/a").await.unwrap_err().sqlstate(), SqlState::UNDEFINED_OBJECT);
}

#[tokio::test]
async fn memory_keeps_what_was_put() {
    round_trip(&Objects::open("memory://").unwrap()).await;
}

#[tokio::test]
async fn a_directory_keeps_what_was_put_and_shows_no_temporary_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er");
    round_trip(&Objects::open(path.to_str().unwrap()).unwrap()).await;
    let again = Objects::open(&format!("fs://{}", path.display())).unwrap();
    assert_eq!(again.get("other").await.unwrap(), &b"x"[..]);
    assert!(again.list("").await.unwrap().iter().all(|o| o.modified_ms > 0));
    assert_eq!(std::fs::read_dir(path.join(".tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn fail_points_hit_the_labelled_store_only() {
    let (bad, good) = (Objects::open("memory://bad").unwrap(), Objects::open("memory://good").unwrap());
    failpoint::set("objects.put@bad", Some(Action::Error(1)));
    assert_eq!(bad.put("a", Bytes::new()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    good.put("a", Bytes::new()).await.unwrap();
    bad.put("a", Bytes::new()).await.unwrap();
    failpoint::set("objects.put@bad", None);
}

#[test]
fn a_directory_that_cannot_be_made_is_one_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = Objects::open(file.join("below").to_str().unwrap()).unwrap_err();
    assert!(error.message().starts_with("could not create directory"), "{error}");
}
