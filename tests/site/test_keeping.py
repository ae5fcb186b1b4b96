"""Files that a site keeps: put in place whole, and never through a link that somebody else left."""

from fedclust.site.keeping import keep


def test_a_link_in_the_place_of_a_draft_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "letter.new").symlink_to(tmp_path / "victim")
    keep(tmp_path / "letter.msg", b"text")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "letter.msg").read_bytes() == b"text"
    assert not (tmp_path / "letter.msg").is_symlink()


def test_a_draft_that_a_crash_left_is_no_hindrance(tmp_path):
    (tmp_path / "letter.new").write_bytes(b"half")
    keep(tmp_path / "letter.msg", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.msg"]
