"""Files that may change while the process runs."""

import errno
from pathlib import Path

import pytest

from shaperouter_service.errors import StartupError
from shaperouter_service.system.files import ReloadedFiles


@pytest.mark.parametrize(("error", "after"), [(errno.EMFILE, "new"), (errno.EACCES, "old")])
def test_a_change_that_a_lack_of_descriptors_hid_is_read_later(
    tmp_path: Path, error: int, after: str
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    failing: list[OSError] = []

    def read() -> str:
        try:
            if failing:
                raise failing.pop()
            return path.read_text()
        except OSError as found:
            raise StartupError(f"cannot be read: {found}") from found

    files = ReloadedFiles([path], read)
    path.write_text("new content")
    failing.append(OSError(error, "lacking"))
    assert files.get() == "old"
    assert files.get().startswith(after)


def test_a_defect_does_not_leave_the_old_content_in_use(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    defects: list[Exception] = []

    def read() -> str:
        if defects:
            raise defects.pop()
        return path.read_text()

    files = ReloadedFiles([path], read)
    path.write_text("new content")
    defects.append(TypeError("a defect"))
    with pytest.raises(TypeError):
        files.get()
    assert files.get() == "new content"
